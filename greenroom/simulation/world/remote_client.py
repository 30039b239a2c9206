"""A client on another machine: the client of `greenroom.connect`, over WebSocket to a server's gateway.

The client, the frames and the gateway are real. Only the connections are simulated; the client's `route` can
delay, stall and cut them. The client reconnects after a crash and a restart of the server. The rules check
everything that the client receives, in order: each event was committed, none is missing, a reply arrives
after the events that it reflects, and the client's state is equal to the engine's.
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
    """The network between a client and a server, over all its connections (lines). While `passable` is false,
    no new connection can be made."""

    def __init__(self, world: World, name: str, server: Server, nursery: trio.Nursery) -> None:
        self.server = server
        """The server to which new connections are made."""
        self.passable = True
        self.random = world.derived("remote", name, server.name)
        self._world = world
        self._name = name
        self._nursery = nursery
        self._left = False
        self._delay: tuple[float, float] | None = None
        self._line: Line | None = None
        self._lines = 0

    @property
    def quiet(self) -> bool:
        """Whether each side has read all that the other has sent."""
        return self._line is not None and self._line.quiet

    async def open_stream(self) -> trio.abc.Stream:
        """Open a new line, for `connect`."""
        await trio.lowlevel.checkpoint()
        if not self.passable:
            raise OSError("network unreachable")
        number = self._lines + 1
        server = self.server
        random = self._world.derived("line", self._name, server.name, number)
        line = Line(random, self._delay, lambda: self._nursery.start_soon(self._judge_end, number, server))
        self.server.accept(line)
        self._line, self._lines = line, number
        self._world.trace.add("life", self._name, f"opens connection {number} to {server.name}")
        return line.near

    async def _judge_end(self, line: int, server: Server) -> None:
        """Fail if one side has closed a line that had no fault, without a reason."""
        await trio.lowlevel.checkpoint()  # ends here if the client is being cancelled
        if not self._left and server.serves and not server.is_behind and server.disk.at_rest:
            self._world.fail(f"connection {line} of {self._name} was closed although it had no fault")

    def leave(self) -> None:
        """Allow the client to close its line: it is about to end."""
        self._left = True

    def cut(self, after: int | None = None) -> None:
        """Cut the line: now, so that only a part of the data in flight arrives, or `after` that many more
        bytes were sent."""
        if self._line is not None and not self._line.is_cut:
            at = f" after {after} more bytes" if after is not None else ""
            self._world.fault(self._name, f"loses its connection{at}")
            self._line.cut(after)

    def stall(self) -> None:
        """Deliver no data on the line, in either direction, until `go_on`."""
        if self._line is not None and not self._line.is_cut:
            self._world.fault(self._name, "its connection stalls")
            self._line.stall()

    def set_delay(self, delay: tuple[float, float] | None) -> None:
        """Delay all data sent from now on, on this line and on later ones: minimum and maximum seconds."""
        self._delay = delay
        if self._line is not None:
            self._line.delay = delay

    def go_on(self) -> None:
        """Deliver data again after a stall."""
        if self._line is not None:
            self._line.go_on()


class RemoteClient(Client):
    """See the module's docstring. The trace records its calls, as those of `Client`."""

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
        self._latest = 0

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
        """See `greenroom.Client.events`. The rules check each item."""
        start = self.state.seq if after is None else after
        return _Shown(self, self._client.events(start, filter), start, _filter(filter))

    async def traced(self, name: str, arguments: Any, call: Callable[[RunEngine], Any]) -> Any:
        value = await super().traced(name, arguments, call)
        if self.follows and not (name == "get_run" and self.server.reads_ahead):
            self._check_was_shown(name, value)
        return value

    async def command(self, name: str, *arguments: Any, **options: Any) -> Any:
        return await self.ask(name, *arguments, **options)  # without `by`, which the gateway adds

    def _check_was_shown(self, name: str, value: object) -> None:
        """Check read-your-writes: the client received the events that a reply reflects before the reply."""
        runs = self.server.rules.model.runs
        seq = 0
        if isinstance(value, ClientTicket) and value.id in runs:
            seq = runs[value.id].created_in
        elif isinstance(value, RunRecord) and value.id in runs:
            seq = next((at for at, status in runs[value.id].statuses if status is value.status), 0)
        if seq > self.state.seq:
            self._world.fail(
                f"{self.name} received the reply to {name} before event {seq}: it is at {self.state.seq}"
            )

    async def watch(self) -> None:
        """Check all events that the client receives, until cancelled."""
        self._judge(self.server.rules.observations.shown_snapshot, self.state.snapshot(), self.filter)
        async for _ in self.events():
            pass

    def end_instant(self) -> None:
        """Check that the client has not gone back. Unless the connection or the disk has a fault, it also has
        the state of the engine: no task is runnable."""
        if not self.follows:
            return
        if self.state.seq < self._latest:
            self._world.fail(f"{self.name} goes back from event {self._latest} to {self.state.seq}")
        self._latest = self.state.seq
        server = self.route.server
        if not (self.connected and self.route.quiet and server.serves and server.disk.at_rest):
            return
        shown = server.shown_seq
        if self.state.seq > shown and server.can_lag:
            return
        if self._judged == (self.state.seq, shown):
            return
        self._judged = self.state.seq, shown
        if self.filter is None and self.state.seq != shown:
            self._world.fail(f"{self.name} stays at event {self.state.seq}, but {server.name} is at {shown}")
        snapshot = replace(self.state.snapshot(), seq=shown)
        self._judge(server.rules.observations.shown_snapshot, snapshot, self.filter)

    def shown(self, item: Event | Snapshot, after: int, filter: Filter | None) -> None:
        """Check an item that the client received, and that it is the next one `after` a seq."""
        observations = self.server.rules.observations
        if isinstance(item, Snapshot):
            self._judge(observations.shown_snapshot, item, self.filter)
        else:
            self._judge(observations.shown_next, item, after, self.filter, filter)

    def _judge(self, look: Any, *arguments: Any) -> None:
        self.server.judge(look, *arguments)


class _Shown:
    """The events that a client iterates over, each checked by the rules."""

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
