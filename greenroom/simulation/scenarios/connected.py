"""A scenario with clients on other machines: commands go through the real client and the real gateway.

What `scenario.py` does to a server is done to this one, too; and the lines to it are late, stall, and break
in the middle of frames, while clients come and go, under filters or without. Every client's fold is compared
with the engine whenever everything rests, and each submission has happened once, or was refused.
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
from .bodies import HANDLES, JOBS, LANES, draw_tries
from .callers import Caller, Deed, Desk
from .commands import CALLS, CONTROLS, FAULTS, LOOKS, PATIENCE, SUBMITS, TALKS, Play


async def connected(world: World) -> None:
    """The scenario."""
    play = Connected(world)
    await play.go_through(play.step)


class Station:
    """A program on another machine that is a client for as long as the simulation lasts, now in this way and
    now in another."""

    def __init__(self, name: str, world: World) -> None:
        self.client: RemoteClient | None = None
        self.name = name
        self._world = world
        self._times = 0
        self._leave = trio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._times += 1
            self._leave = trio.Event()
            try:
                await self._connect(self._world.derived(self.name, self._times))
            except Unavailable:
                await trio.sleep(0.5)

    def leave(self) -> None:
        """Go, and come back as another."""
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
    """What callers on other machines have done."""

    def __init__(self) -> None:
        super().__init__()
        self.submitted: dict[str, str | None] = {}
        """By request id: the run that was made for it, or None if that was refused."""


class RemoteCaller(Caller):
    """Somebody who does one thing through a client on another machine. The gateway knows them all by one
    name, so what this one has caused is known by what it said."""

    def __init__(self, client: RemoteClient, world: World, desk: FarDesk) -> None:
        super().__init__(client, world, desk)
        self.remote = client
        self.far_desk = desk

    @property
    def mine(self) -> list[Event]:
        return [event for event in self.model.events[self.since :] if self._is_mine(event)]

    async def call(self, deed: Deed, random: Random) -> None:
        await super().call(deed, random)
        self.check(len(self.mine) <= 1, f"has done one thing, and {self.mine} is committed")

    def _is_mine(self, event: Event) -> bool:
        name = self.client.name
        if isinstance(event, RunMessage):
            return bool(event.message == f"from {name}")
        return isinstance(event, InterruptClosed) and bool(event.answer == {"by": name})


class Connected(Play):
    """A play with stations around it, each with a client."""

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
        await trio.sleep(PATIENCE)  # what is on its way arrives
        await super().let_everything_end()
        await trio.sleep(1)  # everybody is told
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
            self.world.check(len(runs) <= 1, f"request {request} was carried out several times: {runs}")
        for request, run in self.far_desk.submitted.items():
            made, expected = made_for.get(request, []), [] if run is None else [run]
            self.world.check(made == expected, f"request {request} has made {made}, and told of {expected}")


def _can(client: RemoteClient, deed: str) -> bool:
    if deed == "wait_for_active":
        return client.follows and client.filter is None  # else it knows of some runs only, or of none
    return client.follows or deed != "look_back"


# What callers do, beyond what those do who are near.


async def submit_once(caller: Caller, random: Random) -> None:
    """Submit under a request id of one's own."""
    assert isinstance(caller, RemoteCaller), "it is for those who are far away"
    request, submitted = caller.client.name, caller.far_desk.submitted
    try:
        ticket = await caller.client.submit(
            random.choice(JOBS),
            handle=random.choice(HANDLES),
            lane=random.choice(LANES),
            on_conflict=random.choice(("reject", "queue", "queue", "replace")),
            params={"tries": draw_tries(random)},
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
    caller.check(len(ends) >= count, f"was told that {count} are cleared, but only {ends} are")


async def look_back(caller: Caller, random: Random) -> None:
    """Read some events from some number on."""
    assert isinstance(caller, RemoteCaller), "it is for those who are far away"
    filter = draw_filter(random) if random.random() < 0.5 else None
    left = random.randint(1, 30)
    with trio.move_on_after(5):
        async for _ in caller.remote.events(random.randint(0, caller.model.seq + 1), filter):
            left -= 1
            if not left:
                break


# What happens to lines.


async def cut(client: RemoteClient, random: Random) -> None:
    """Cut the line: now, or in the midst of what is sent next."""
    client.route.cut(random.choice((None, random.randint(0, 50), random.randint(0, 2000))))


async def stall(client: RemoteClient, random: Random) -> None:
    """Let nothing through for a while, perhaps for so long that one side gives up."""
    client.route.stall()
    await trio.sleep(random.choice((0.1, 1.0, 5.0, 50.0)))
    client.route.go_on()


async def slow_down(client: RemoteClient, random: Random) -> None:
    """Have what is sent take some time; or none."""
    client.route.set_delay(random.choice((None, (0.0, 0.01), (0.0, 0.5), (0.3, 0.3))))


async def block(client: RemoteClient, random: Random) -> None:
    """Cut the line, and let no new one be made for a while."""
    client.route.passable = False
    client.route.cut()
    await trio.sleep(random.choice((0.5, 5.0, 40.0)))
    client.route.passable = True


# What is drawn.


def draw_filter(random: Random) -> Filter:
    """Some handles, lanes, or both."""
    handles = frozenset(random.sample(HANDLES, random.randint(1, 2)))
    lanes = frozenset(random.sample(LANES, random.randint(1, 2)))
    return random.choice((Filter(handles=handles), Filter(lanes=lanes), Filter(handles=handles, lanes=lanes)))


def draw_gateway(random: Random) -> GatewayConfig:
    """Narrow limits, so that they are met."""
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
