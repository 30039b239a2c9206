"""A scenario with clients on other machines: they use the real client and the real gateway.

It includes the commands and faults of `commands.py`. In addition, connections are slow, stall, and break in
the middle of frames; clients connect and disconnect, with and without filters. Whenever no task is runnable,
the state of each client is compared with the engine's. Each submission with a request id must be executed
exactly once, or be refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import trio

from ...gateway import GatewayConfig, Limits
from ...gateway.client.errors import OutcomeUnknown
from ...protocol.errors import Conflict, Draining, Unavailable
from ...protocol.events import Event, Filter, InterruptClosed, RunMessage, RunStateChanged
from ..world.remote_client import RemoteClient
from ..world.world import World
from .bodies import HANDLES, JOBS, LANES, draw_attempts
from .callers import Caller, Deed, Desk
from .commands import CALLS, CONTROLS, FAULTS, LOOKS, PATIENCE, SUBMITS, TALKS, Play


async def connected(world: World) -> None:
    """The scenario."""
    play = Connected(world)
    await play.go_through(play.step)


class Station:
    """A program on another machine that connects again and again, each time with other options."""

    def __init__(self, name: str, world: World) -> None:
        self.client: RemoteClient | None = None
        self.name = name
        self._world = world
        self._times = 0
        self._leave = trio.Event()

    async def run(self) -> None:
        """Connect again and again, until cancelled."""
        while True:
            self._times += 1
            self._leave = trio.Event()
            try:
                await self._connect(self._world.derived(self.name, self._times))
            except Unavailable:
                await trio.sleep(0.5)

    def leave(self) -> None:
        """Disconnect, and connect again with other options."""
        self._leave.set()

    async def _connect(self, random: Random) -> None:
        follow = random.random() < 0.9
        filter = draw_filter(random) if follow and random.random() < 0.5 else None
        name = self.name if self._times == 1 else f"{self.name} ({self._times})"
        async with self._world.connect(name, follow=follow, filter=filter) as self.client:
            try:
                await self._leave.wait()
            finally:
                self.client = None


class FarDesk(Desk):
    """A record of the calls from other machines."""

    def __init__(self) -> None:
        super().__init__()
        self.submitted: dict[str, str | None] = {}
        """By request id: the run that was created for it, or None if the submission was refused."""


class RemoteCaller(Caller):
    """A caller that makes one call through a client on another machine.

    The gateway knows all callers by one name, so the events that this one has caused are found by their
    content.
    """

    def __init__(self, client: RemoteClient, world: World, desk: FarDesk) -> None:
        super().__init__(client, world, desk)
        self.remote = client
        self.far_desk = desk

    @property
    def mine(self) -> list[Event]:
        return [event for event in self.model.events[self.since :] if self._is_mine(event)]

    async def call(self, deed: Deed, random: Random) -> None:
        await super().call(deed, random)
        self.check(len(self.mine) <= 1, f"made one call, but {self.mine} is committed")

    def _is_mine(self, event: Event) -> bool:
        name = self.client.name
        if isinstance(event, RunMessage):
            return bool(event.message == f"from {name}")
        return isinstance(event, InterruptClosed) and bool(event.answer == {"by": name})


class Connected(Play):
    """A play with several stations, each with a client."""

    def __init__(self, world: World) -> None:
        super().__init__(world, gateway=draw_gateway(world.random))
        self.far_desk = self.desk = FarDesk()
        self.deeds = _DEEDS
        self.stations = [Station(name, world) for name in ("ann", "bob", "cleo")]
        self._far: trio.Nursery

    @asynccontextmanager
    async def staged(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as self._far:
            async with super().staged():
                yield
            self._far.cancel_scope.cancel()

    async def begin(self) -> None:
        await super().begin()
        for station in self.stations:
            self._far.start_soon(station.run)

    async def _do(self, deed: str, random: Random) -> None:
        station = random.choice(self.stations)
        client = station.client
        if deed == "leave":
            station.leave()
        elif deed in LINE_FAULTS:
            if client is not None:
                await LINE_FAULTS[deed](client, random)
        elif deed in FAULTS or client is None or not _can(client, deed):
            await super()._do("submit" if deed in _FAR else deed, random)
        else:
            caller = RemoteCaller(
                client.named(f"{self.new_name()} at {client.name}"), self.world, self.far_desk
            )
            await caller.call(_FAR.get(deed) or CALLS[deed], random)

    async def let_everything_end(self) -> None:
        for station in self.stations:
            if station.client is not None:
                station.client.route.set_delay(None)
                station.client.route.passable = True
                station.client.route.go_on()
        self.server.disk.repair()
        await trio.sleep(PATIENCE)  # until all data in flight has arrived
        await super().let_everything_end()
        await trio.sleep(1)  # until all clients have received all events
        self._check_requests()
        for station in self.stations:
            client, model = station.client, self.server.rules.model
            there = client is not None and client.connected
            self.world.check(there, f"{station.name} is not connected at the end")
            if client is not None and client.follows and client.filter is None:
                self.world.check(client.state.seq == model.seq, f"{client.name} is behind at the end")

    def _check_requests(self) -> None:
        model = self.server.rules.model
        made_for = {
            request: [id for id in runs if model.runs[id].parent is None]  # bodies have ids of their own
            for request, runs in model.made_for.items()
        }
        for request, runs in made_for.items():
            self.world.check(len(runs) <= 1, f"request {request} was executed several times: {runs}")
        for request, run in self.far_desk.submitted.items():
            made, expected = made_for.get(request, []), [] if run is None else [run]
            self.world.check(
                made == expected, f"request {request} created {made}, but its caller received {expected}"
            )


def _can(client: RemoteClient, deed: str) -> bool:
    if deed == "wait_for_active":
        return client.follows and client.filter is None  # otherwise it does not know all runs
    return client.follows or deed != "look_back"


# Actions that only callers on other machines take.


async def submit_once(caller: Caller, random: Random) -> None:
    """Submit with a unique request id."""
    assert isinstance(caller, RemoteCaller), "only for callers on other machines"
    request, submitted = caller.client.name, caller.far_desk.submitted
    try:
        ticket = await caller.client.submit(
            random.choice(JOBS),
            handle=random.choice(HANDLES),
            lane=random.choice(LANES),
            on_conflict=random.choice(("reject", "queue", "queue", "replace")),
            params={"attempts": draw_attempts(random)},
            request_id=request,
        )
    except OutcomeUnknown:
        return
    except (Conflict, Draining, Unavailable):
        submitted[request] = None
    else:
        submitted[request] = ticket.id


async def clear(caller: Caller, random: Random) -> None:
    """Clear a lane or a handle."""
    if random.random() < 0.5:
        reason, count = "lane_cleared", await caller.client.clear_lane(random.choice(LANES))
    else:
        reason, count = "handle_cleared", await caller.client.clear_handle(random.choice(HANDLES))
    since = caller.model.events[caller.since :]
    ends = [event for event in since if isinstance(event, RunStateChanged) and event.reason == reason]
    caller.check(len(ends) >= count, f"cleared {count} runs according to the reply, but only {ends} ended")


async def look_back(caller: Caller, random: Random) -> None:
    """Read some events from a random seq on."""
    assert isinstance(caller, RemoteCaller), "only for callers on other machines"
    filter = draw_filter(random) if random.random() < 0.5 else None
    left = random.randint(1, 30)
    with trio.move_on_after(5):
        async for _ in caller.remote.events(random.randint(0, caller.model.seq + 1), filter):
            left -= 1
            if not left:
                break


# Faults of connections.


async def cut(client: RemoteClient, random: Random) -> None:
    """Cut the line: now, or after some more bytes."""
    client.route.cut(random.choice((None, random.randint(0, 50), random.randint(0, 2000))))


async def stall(client: RemoteClient, random: Random) -> None:
    """Stall the line for a while, in some cases until one side times out."""
    client.route.stall()
    await trio.sleep(random.choice((0.1, 1.0, 5.0, 50.0)))
    client.route.go_on()


async def slow_down(client: RemoteClient, random: Random) -> None:
    """Set the delay of the line; or remove it."""
    client.route.set_delay(random.choice((None, (0.0, 0.01), (0.0, 0.5), (0.3, 0.3))))


async def block(client: RemoteClient, random: Random) -> None:
    """Cut the line, and refuse new connections for a while."""
    client.route.passable = False
    client.route.cut()
    await trio.sleep(random.choice((0.5, 5.0, 40.0)))
    client.route.passable = True


# Random options.


def draw_filter(random: Random) -> Filter:
    """A random filter by handles, lanes, or both."""
    handles = frozenset(random.sample(HANDLES, random.randint(1, 2)))
    lanes = frozenset(random.sample(LANES, random.randint(1, 2)))
    return random.choice((Filter(handles=handles), Filter(lanes=lanes), Filter(handles=handles, lanes=lanes)))


def draw_gateway(random: Random) -> GatewayConfig:
    """Random low limits, so that clients reach them."""
    return GatewayConfig(
        limits=Limits(
            max_batch=random.choice((1, 3, 256)),
            max_commands=random.choice((2, 10, 256)),
            ping_interval=random.choice((2.0, 20.0)),
            stall_timeout=random.choice((2.0, 20.0)),
            close_timeout=random.choice((0.5, 5.0)),
        )
    )


LINE_FAULTS = {"cut": cut, "stall": stall, "slow_down": slow_down, "block": block}
_FAR: dict[str, Deed] = {
    "submit_once": submit_once,
    "clear_lane": clear,
    "clear_handle": clear,
    "look_back": look_back,
}
_TO_LINES = (*LINE_FAULTS, "cut", "cut", "stall", "leave")
_DEEDS = (
    *(SUBMITS, ("submit_once",), ("submit_once",), CONTROLS, CONTROLS, TALKS, TALKS),
    *((*LOOKS, "look_back"), ("look_back",), FAULTS, _TO_LINES, _TO_LINES),
)
