"""The built-in scenario: every command, in random order, from several clients, while everything fails.

Each step draws what one client does, and most don't wait for it to be done before the next begins. Some steps
are faults: the server crashes at a commit or anywhere, is stopped and started again, its disk fails, is slow
or full, the clocks on the walls jump, a follower stalls or comes back. In the end every obstacle is taken
away; then all bodies end, and nothing may be left. What callers are told is judged in `callers.py`, and what
followers see in `followers.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import trio

from ...gateway import GatewayConfig
from ...protocol.errors import GreenroomError, Unavailable
from ..world.disk_backend import Trouble
from ..world.world import World
from . import asking_bodies, bodies, controlling, reading, submitting
from .asking_bodies import Steady
from .bodies import LANES, Bodies
from .callers import Caller, Deed, Desk
from .followers import Follower

MAX_CONCURRENT = 2
PATIENCE = 60.0
"""Seconds; longer than anything in it that ends by itself."""

LONG_JUMP = 3600.0
"""Seconds."""

LONGEST_STEP = 20.0
"""Seconds after which a step is not waited for any more."""


async def everything(world: World) -> None:
    """The scenario."""
    play = Play(world)
    await play.go_through(play.step)


async def crowd(world: World) -> None:
    """Short runs in a hurry on many handles, and limits that change under them, much of it in one instant: a
    scenario for the order of places."""
    play = Play(world)
    await play.go_through(play.hurry)


async def resumed(world: World) -> None:
    """Bodies that ask and call several times with checkpoints between, and that are stopped everywhere: a
    scenario for what a body that goes on gets again."""
    play = Play(world)
    await play.go_through(play.interfere)


async def clinging(world: World) -> None:
    """Bodies that outlive their runs on one handle, which is released under them while they go on: a scenario
    for who holds the handle."""
    play = Play(world)
    await play.go_through(play.cling)


async def either(world: World) -> None:
    """One of the three, by the seed: for hunts."""
    if world.seed % 10 == 8:
        await resumed(world)
    else:
        await (everything if world.seed % 3 else crowd)(world)


class Play:
    """One simulation: a server with bodies in it, callers and followers around it, and faults."""

    def __init__(
        self, world: World, *, max_concurrent: int = MAX_CONCURRENT, gateway: GatewayConfig | None = None
    ) -> None:
        self.world = world
        self.gateway = gateway
        self.bodies = Bodies()
        Steady(self.bodies)
        self.max_concurrent = max_concurrent
        self.followers: list[Follower] = []
        self.desk = Desk()
        self.deeds: Sequence[Sequence[str]] = _DEEDS
        self._callers = 0
        self._jumped = self._resting = False
        self._nursery: trio.Nursery

    @asynccontextmanager
    async def staged(self) -> AsyncIterator[None]:
        """A server that is up for the block, and followers of it. After the block everything is let end."""
        await self.begin()
        async with trio.open_nursery() as followers:
            for number in range(2):
                self.followers.append(Follower(f"follower {number}", self.world))
                followers.start_soon(self.followers[-1].follow)
            async with trio.open_nursery() as self._nursery:
                yield
                self._nursery.cancel_scope.cancel()
            await self.let_everything_end()
            followers.cancel_scope.cancel()

    async def go_through(self, step: Callable[[Random], Awaitable[None]], steps: int = 60) -> None:
        """The whole of it: that many steps, and the end."""
        async with self.staged():
            async for taken in self.world.steps(steps):
                await step(taken.random)

    async def begin(self) -> None:
        """Start the server."""
        self.server = await self.world.serve(
            self.bodies.jobs, max_concurrent=self.max_concurrent, shutdown_timeout=3, gateway=self.gateway
        )
        self.bodies.rules = self.server.rules
        self.bodies.kill = self.server.kill
        if self.world.derived("deletes").random() < 0.3:  # on this machine they take their time
            self.server.disk.delete_delay = (0.0, 4.0)
        if self.world.derived("files").random() < 0.25:  # so that cancels have something to delete
            self.bodies.first = [["write", "first.txt", 0.0, True]]

    async def step(self, random: Random) -> None:
        """Let something happen."""
        if random.random() < 0.7:
            await self.start(random)
        deed = random.choice(random.choice(self.deeds))
        await self.do(deed, random, wait=random.random() < 0.2)
        await pause(random)

    async def hurry(self, random: Random) -> None:
        """Let something happen at once."""
        deed = "submit_short" if random.random() < 0.7 else random.choice(_HURRIES)
        await self.do(deed, random, wait=False)
        if random.random() < 0.1:
            await trio.sleep(bodies.draw_moment(random))
        for _ in range(random.choice((0, 0, 1, 3, 8))):
            await trio.lowlevel.checkpoint()

    async def interfere(self, random: Random) -> None:
        """Let something happen to bodies that go on."""
        if random.random() < 0.8:
            await self.start(random)
        await self.do(random.choice(random.choice(_INTERFERENCES)), random, wait=random.random() < 0.2)
        await pause(random)

    async def cling(self, random: Random) -> None:
        """Let something happen to a handle whose bodies ignore their ends."""
        await self.do(random.choice(_ON_ONE_HANDLE), random, wait=False)
        await trio.sleep(bodies.draw_moment(random))

    async def do(self, deed: str, random: Random, *, wait: bool) -> None:
        """Have something done, and wait for it, if so."""
        if not wait:
            self._nursery.start_soon(self._do, deed, random)
            return
        with trio.move_on_after(LONGEST_STEP):
            await self._do(deed, random)

    async def _do(self, deed: str, random: Random) -> None:
        if deed in FAULTS or deed == "restart_at_rest":
            await getattr(self, deed)(random)
        else:
            await Caller(self.world.client(self.new_name()), self.world, self.desk).call(CALLS[deed], random)

    def new_name(self) -> str:
        """For somebody who does one thing. It is in all events that he causes, and his alone."""
        self._callers += 1
        return f"caller {self._callers}"

    async def start(self, random: Random | None = None) -> None:
        """Bring the server up, whatever has happened to its disk."""
        options: dict[str, Any] = {}
        if random is not None and random.random() < 0.3:
            options["max_concurrent"] = random.choice((None, 1, 2, 3))
            options["lanes"] = random.choice(({}, {"side": 2}, {"side": 0, "back": 1}))
        while not self.server.running:
            if self.server.starting:  # by somebody else
                await trio.sleep(1)
                continue
            try:
                await self.server.start(**options)
            except GreenroomError:  # the disk was not there
                await trio.sleep(1)

    # The end.

    async def let_everything_end(self) -> None:
        """Take every obstacle away; then all bodies end, and nothing may be left."""
        self.server.disk.repair()
        self.bodies.letting_go.set()
        for follower in self.followers:
            follower.go_on()
        if self._jumped:  # whoever waits through a restart waits no longer for it than it wanted to
            self.world.clock.jump(-LONG_JUMP * 100)
            await self.server.stop()
        await self._until_up_and_free()
        model = self.server.rules.model
        left = list(model.pending.values())
        if left and not any(run.reason in ("child", "message") for run in left):
            self.world.fail(f"{left} are left, although every body has ended")
        client = self.world.client("the end")
        for run in left:  # two whose children wait for each other's handles wait for ever, rightly, as do
            # those that wait for a message
            try:
                await client.cancel(run.id)
            except GreenroomError:
                continue
        await trio.sleep(PATIENCE)
        await self._check_nothing_is_left()
        await self._check_that_every_slot_is_there()

    async def _until_up_and_free(self) -> None:
        """Until it has been up for long, with nothing in its way: it may have been about to stop."""
        lives = 0
        while lives != self.server.lives or not self.server.running:
            await self.start()
            lives = self.server.lives
            with suppress(Unavailable):
                await self._take_obstacles_away()
            await trio.sleep(PATIENCE)

    async def _take_obstacles_away(self) -> None:
        client = self.world.client("the end")
        await client.resume()
        await client.set_max_concurrent(self.max_concurrent)
        for lane in LANES:
            await client.set_concurrency(lane, None if lane == "main" else 1)

    async def _check_nothing_is_left(self) -> None:
        snapshot, disk = await self.world.client("the end").snapshot(), self.server.disk
        left: list[Any] = [run for run in snapshot.runs.values() if not run.ended]
        left += [handle for handle in snapshot.handles.values() if handle.active_run or handle.waiting]
        left += [lane for lane in snapshot.lanes.values() if lane.executing or lane.queued]
        left += [*snapshot.interrupts, *(part for part in disk.parts if part not in disk.undeleted)]
        self.world.check(
            not (left or snapshot.engine.executing or snapshot.engine.queued),
            f"left at the end: {left}, {snapshot.engine}",
        )
        torn = [key for key, file in self.server.disk.files.items() if file.content != bodies.WHOLE]
        self.world.check(not torn, f"these files are not whole: {torn}")
        for follower in self.followers:
            follower.check(snapshot)

    async def _check_that_every_slot_is_there(self) -> None:
        self.bodies.letting_go = trio.Event()
        client, model = self.world.client("the end"), self.server.rules.model
        for number in range(self.max_concurrent):
            params = {"tries": [[["hold", 1.0]]]}
            await client.submit("plain", handle=f"last-{number}", lane="main", params=params)
        await trio.sleep(0.5)
        executing = len(model.holders())
        self.world.check(executing == self.max_concurrent, f"only {executing} execute: slots were lost")
        for lane in LANES[1:]:
            ticket = await client.submit("plain", handle=f"last-{lane}", lane=lane, params={"tries": [[]]})
            self.world.check(await ticket.wait(5), f"the slot of lane {lane} was lost")

    # Faults.

    async def crash(self, random: Random) -> None:
        """Kill the server after some turns of the scheduler."""
        for _ in range(random.randint(0, 40)):
            await trio.lowlevel.checkpoint()
        await self.server.crash()

    async def crash_at_a_commit(self, random: Random) -> None:
        trouble: Trouble = random.choice(("crash_before", "crash_within", "crash_after"))
        self.server.disk.fail_commit(trouble, after=random.randint(0, 5))

    async def lose_a_commit(self, random: Random) -> None:
        trouble: Trouble = random.choice(("lost_request", "lost_reply", "refused"))
        self.server.disk.fail_commit(trouble, after=random.randint(0, 5))

    async def break_the_store(self, random: Random) -> None:
        if random.random() < 0.3:
            self.server.disk.fail_commit("broken", after=random.randint(0, 5))

    async def restart_at_rest(self, random: Random) -> None:
        """Kill the server while nothing executes, and runs are queued in another order than they came in."""
        if self._resting:
            return
        self._resting = True
        client = self.world.client(self.new_name())
        with suppress(GreenroomError):
            await client.set_max_concurrent(0)
            await client.wait_for_active(PATIENCE)
            for lane in LANES:
                await client.clear_lane(lane)
            params = {"tries": [[["hold", 1.0]]]}
            first, *_ = [
                await client.submit("plain", handle=handle, lane=lane, on_conflict="queue", params=params)
                for handle in ("one", "one", "two", "three")
                for lane in random.choices(LANES)
            ]
            await first.cancel()
        await self.server.crash()
        with trio.CancelScope(
            shield=True
        ):  # or whoever needs the server next would find one that is starting
            await self.server.start(max_concurrent=random.choice((1, self.max_concurrent)))
        self._resting = False

    async def stop(self, random: Random) -> None:
        if self.server.running:
            self.server.rules.leaving()
            await self.server.stop()

    async def trouble_the_disk(self, random: Random) -> None:
        """For a while."""
        disk = self.server.disk
        what = random.choice(("down", "full", "slow", "slow deletes"))
        if what == "slow":
            disk.delay = (0.0, random.choice((0.1, 1.0)))
        elif what == "slow deletes":
            disk.delete_delay = (0.0, random.choice((0.5, 4.0)))
        else:
            setattr(disk, what, True)
        await trio.sleep(random.choice((0.5, 3.0, 12.0)))
        if what == "slow":
            disk.delay = None
        elif what == "slow deletes":
            disk.delete_delay = None
        else:
            setattr(disk, what, False)

    async def jump(self, random: Random) -> None:
        """Set the clocks forward or back."""
        self._jumped = True
        self.world.clock.jump(random.choice((-LONG_JUMP, -1.0, 1.0, 5.0, LONG_JUMP)))

    async def trouble_a_follower(self, random: Random) -> None:
        """Have it stall, go on, or drop its connection and resume by number."""
        follower = self.followers[1]  # the first one always follows
        random.choice((follower.stall, follower.go_on, follower.drop))()


async def pause(random: Random) -> None:
    """Between two steps: nothing, some turns of the scheduler, or some time."""
    draw = random.random()
    if draw < 0.3:
        for _ in range(random.randint(1, 12)):
            await trio.lowlevel.checkpoint()
    elif draw < 0.6:
        await trio.sleep(bodies.draw_moment(random))


SUBMITS = ("submit", "submit", "submit", "submit_together")
CONTROLS = (
    *("cancel", "cancel", "set_concurrency", "set_max_concurrent", "clear_lane", "clear_handle"),
    *("reset_lanes", "drain", "resume", "release_handle", "set_params", "wait_for_active"),
)
LIMITS = ("set_concurrency", "set_concurrency", "set_max_concurrent", "cancel", "clear_lane", "reset_lanes")
TALKS = ("inject", "inject", "inject", "answer", "answer", "snapshot", "rerun")
LOOKS = ("get_run", "history", "list_runs", "snapshot")
FAULTS = (
    *("crash", "crash", "crash_at_a_commit", "crash_at_a_commit", "lose_a_commit", "break_the_store"),
    *("stop", "trouble_the_disk", "jump", "trouble_a_follower"),
)
CALLS: dict[str, Deed] = {
    name: getattr(module, name)
    for module, names in {
        submitting: (*SUBMITS, "submit_short", "submit_clinging", "rerun"),
        controlling: (*CONTROLS, "release_one", "inject", "answer"),
        asking_bodies: ("submit_steady", "answer_open"),
        reading: LOOKS,
    }.items()
    for name in names
}
_ON_ONE_HANDLE = ("submit_clinging", "cancel", "cancel", "release_one")
_HURRIES = (*LIMITS, "restart_at_rest")
_INTERFERENCES = (
    *[("submit_steady",), ("answer_open",), ("answer_open",), ("inject",)] * 2,
    ("answer", "cancel", "reset_lanes", "set_max_concurrent"),
    ("crash", "crash", "crash_at_a_commit", "lose_a_commit", "stop", "stop", "trouble_the_disk"),
)
_DEEDS = (*[SUBMITS] * 4, *[CONTROLS] * 3, TALKS, LOOKS, FAULTS)
