"""A client on another machine: `greenroom.connect`'s, which speaks WebSocket to a server's gateway.

The client, the frames and the gateway are the real ones; only the lines between them are simulated, and can
be made late, stalled and cut through the client's `route`. It goes on when the server is crashed and started
again, as it does in life. All that it is shown is judged, in the order in which it is shown: that it was
committed, that nothing was missed, that an answer comes after the events that it tells of, and that what the
client makes of them is what the engine has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from msgspec.structs import replace

from ...gateway.background import background
from ...gateway.client import Client as GatewayClient
from ...gateway.client import ClientTicket, RunEngine, connect
from ...protocol.events import Event, Filter
from ...protocol.fold import Projection
from ...protocol.records import RunRecord, Snapshot
from .client import Client
from .network import Line
from .server import Server

if TYPE_CHECKING:
    from .world import World

_URL = "ws://localhost:8440"


@asynccontextmanager
async def connected(
    world: World, name: str, server: Server, options: dict[str, Any]
) -> AsyncIterator[RemoteClient]:
    """See `World.connect`."""
    if server.gateway is None:
        raise RuntimeError(f"{server.name} has no gateway: serve it with gateway=GatewayConfig()")
    follows, filter = options.get("follow", True), _filter(options.get("filter"))
    async with background() as nursery:
        route = Route(world, name, server, nursery)
        async with connect(_URL, open_stream=route.open_stream, random=route.random, **options) as client:
            remote = RemoteClient(name, world, server, client, route, follows=follows, filter=filter)
            world.remotes[remote] = None
            if follows:
                nursery.start_soon(remote.watch)
            try:
                yield remote
            finally:
                route.leave()
                del world.remotes[remote]


class Route:
    """The way from a client to a server, whichever line it takes. While it is not `passable`, no new line can
    be made."""

    def __init__(self, world: World, name: str, server: Server, nursery: trio.Nursery) -> None:
        self.passable = True
        self.random = world.derived("remote", name, server.name)
        self._world = world
        self._name = name
        self._server = server
        self._nursery = nursery
        self._left = False
        self._delay: tuple[float, float] | None = None
        self._line: Line | None = None
        self._lines = 0

    @property
    def quiet(self) -> bool:
        """Whether what either side has sent was read by the other."""
        return self._line is not None and self._line.quiet

    async def open_stream(self) -> trio.abc.Stream:
        """A new line, for `connect`."""
        await trio.lowlevel.checkpoint()
        if not self.passable:
            raise OSError("there is no way through")
        number = self._lines + 1
        random = self._world.derived("line", self._name, self._server.name, number)
        line = Line(random, self._delay, lambda: self._nursery.start_soon(self._judge_end, number))
        self._server.accept(line)
        self._line, self._lines = line, number
        self._world.trace.add("life", self._name, f"has line {number} to {self._server.name}")
        return line.near

    async def _judge_end(self, line: int) -> None:
        """One side has closed a line that nothing had happened to."""
        await trio.lowlevel.checkpoint()  # ends here if the client is being cancelled
        if not self._left and self._server.serves and self._server.disk.at_rest:
            self._world.fail(f"line {line} of {self._name} was given up, and nothing was wrong with it")

    def leave(self) -> None:
        """The client is about to go."""
        self._left = True

    def cut(self, after: int | None = None) -> None:
        """Cut the line: now, in the midst of what is on its way; or when so many more bytes were sent."""
        if self._line is not None and not self._line.is_cut:
            self._world.fault(self._name, "is cut off" + (f" in {after} bytes" if after is not None else ""))
            self._line.cut(after)

    def stall(self) -> None:
        """Let nothing through on the line, until `go_on`."""
        if self._line is not None and not self._line.is_cut:
            self._world.fault(self._name, "hears nothing, and is not heard")
            self._line.stall()

    def set_delay(self, delay: tuple[float, float] | None) -> None:
        """From now on what is sent takes so many seconds, on this line and on the next."""
        self._delay = delay
        if self._line is not None:
            self._line.delay = delay

    def go_on(self) -> None:
        """Let through what waits."""
        if self._line is not None:
            self._line.go_on()


class RemoteClient(Client):
    """See the module's text. The methods are traced as those of any client of the simulation."""

    def __init__(
        self,
        name: str,
        world: World,
        server: Server,
        client: GatewayClient,
        route: Route,
        *,
        follows: bool,
        filter: Filter | None,
    ) -> None:
        super().__init__(name, server, world.trace)
        self.route = route
        self.follows = follows
        self.filter = filter
        self._world = world
        self._client = client
        self._judged: tuple[int, int] | None = None

    def named(self, name: str) -> RemoteClient:
        """The same client under another name in the trace."""
        return RemoteClient(
            name,
            self._world,
            self.server,
            self._client,
            self.route,
            follows=self.follows,
            filter=self.filter,
        )

    @property
    def state(self) -> Projection:
        """See `greenroom.Client.state`."""
        return self._client.state

    @property
    def connected(self) -> bool:
        """See `greenroom.Client.connected`."""
        return self._client.connected

    def reach(self) -> AbstractContextManager[RunEngine]:
        return nullcontext(self._client)

    def events(
        self, after: int | None = None, filter: Filter | Mapping[str, Any] | None = None
    ) -> AsyncIterator[Event | Snapshot]:
        """See `greenroom.Client.events`. What they show is judged."""
        start = self.state.seq if after is None else after
        return _Shown(self, self._client.events(start, filter), start, _filter(filter))

    async def traced(self, name: str, arguments: Any, call: Callable[[RunEngine], Any]) -> Any:
        value = await super().traced(name, arguments, call)
        if self.follows:
            self._check_was_shown(name, value)
        return value

    async def command(self, name: str, *arguments: Any, **options: Any) -> Any:
        return await self.ask(name, *arguments, **options)  # the gateway says who it is

    def _check_was_shown(self, name: str, value: object) -> None:
        """Read your writes: what an answer tells of has been shown before."""
        runs = self.server.rules.model.runs
        seq = 0
        if isinstance(value, ClientTicket) and value.id in runs:
            seq = runs[value.id].created_in
        elif isinstance(value, RunRecord) and value.id in runs:
            seq = next((at for at, status in runs[value.id].statuses if status is value.status), 0)
        if seq > self.state.seq:
            shown = f"it was shown event {seq}, and has come to {self.state.seq}"
            self._world.fail(f"{self.name} was answered {name} before {shown}")

    async def watch(self) -> None:
        """Judge everything that it is shown, until cancelled."""
        self._judge(self.server.rules.observations.shown_snapshot, self.state.snapshot(), self.filter)
        async for _ in self.events():
            pass

    def end_instant(self) -> None:
        """Everything rests: unless something is in its way, it has what the engine has."""
        server, model = self.server, self.server.rules.model
        if not (
            self.follows and self.connected and self.route.quiet and server.serves and server.disk.at_rest
        ):
            return
        if self._judged == (self.state.seq, model.seq):
            return
        self._judged = self.state.seq, model.seq
        if self.filter is None and self.state.seq != model.seq:
            self._world.fail(f"{self.name} rests at {self.state.seq}, but the engine has come to {model.seq}")
        snapshot = replace(self.state.snapshot(), seq=model.seq)
        self._judge(server.rules.observations.shown_snapshot, snapshot, self.filter)

    def shown(self, item: Event | Snapshot, after: int, filter: Filter | None) -> None:
        """Judge what it was shown after another seq."""
        observations = self.server.rules.observations
        if isinstance(item, Snapshot):
            self._judge(observations.shown_snapshot, item, self.filter)
        else:
            self._judge(observations.shown_next, item, after, self.filter, filter)

    def _judge(self, look: Any, *arguments: Any) -> None:
        self.server.judge(look, *arguments)


class _Shown:
    """Events that a client iterates over, each judged."""

    def __init__(
        self,
        client: RemoteClient,
        events: AsyncIterator[Event | Snapshot],
        after: int,
        filter: Filter | None,
    ) -> None:
        self._client = client
        self._events = events
        self._after = after
        self._filter = filter

    def __aiter__(self) -> _Shown:
        return self

    async def __anext__(self) -> Event | Snapshot:
        item = await anext(self._events)
        self._client.shown(item, self._after, self._filter)
        self._after = item.seq
        return item


def _filter(filter: Filter | Mapping[str, Any] | None) -> Filter | None:
    return msgspec.convert(filter, Filter) if isinstance(filter, Mapping) else filter
