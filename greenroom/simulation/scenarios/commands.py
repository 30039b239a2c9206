"""The built-in scenario: all commands, in random order, from several clients, with faults.

Each step draws one action of a client; most steps do not wait for its end. Some steps are faults: the server
crashes at a commit or at any other moment, or is stopped and started again; its disk fails, is slow or full;
the wall clock jumps; a follower stalls or reconnects. At the end all obstacles are removed; then all bodies
must end, and no run may remain. `callers.py` checks the results of calls, `followers.py` the events that
clients receive.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
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
from .notes import Notes

MAX_CONCURRENT = 2
PATIENCE = 60.0
"""Seconds; longer than any wait in the scenario that ends by itself."""

LONG_JUMP = 3600.0
"""Seconds."""

LONGEST_STEP = 20.0
"""Seconds after which the scenario no longer waits for a step."""


async def everything(world: World) -> None:
    """The scenario with all commands and faults."""
    play = Play(world)
    await play.go_through(play.step)


async def crowd(world: World) -> None:
    """Many short runs on many handles, while limits change: tests the order of places."""
    play = Play(world)
    await play.go_through(play.hurry)


async def resumed(world: World) -> None:
    """Bodies that open interrupts and call children, with checkpoints between, and are stopped at any point:
    tests which answers and results a resumed body gets again."""
    play = Play(world)
    await play.go_through(play.interfere)


async def clinging(world: World) -> None:
    """Bodies that outlive their runs on one handle, which is released while they still execute: tests which
    run holds the handle."""
    play = Play(world)
    await play.go_through(play.cling)


async def coalescing(world: World) -> None:
    """Submissions whose parameters waiting runs take, with faults, and bodies whose errors decide about their
    retries: tests that the parameters of a run that has begun never change."""
    play = Play(world)
    Notes(play.bodies)
    await play.go_through(play.note)


async def either(world: World) -> None:
    """`everything`, `crowd` or `resumed`, depending on the seed: for hunts."""
    if world.seed % 10 == 8:
        await resumed(world)
    else:
        await (everything if world.seed % 3 else crowd)(world)


class Play:
    """One simulation: a server with bodies, its callers and followers, and faults."""

    def __init__(
        self,
        world: World,
        *,
        max_concurrent: int = MAX_CONCURRENT,
        gateway: GatewayConfig | None = None,
        calls: Mapping[str, Deed] | None = None,
    ) -> None:
        self.world = world
        self.gateway = gateway
        self.calls = CALLS if calls is None else calls
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
        """Run a server and its followers while the block lasts. After the block, wait until all runs end."""
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
        """Play the whole scenario: this number of steps, and the end."""
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
        if self.world.derived("deletes").random() < 0.3:  # a machine with slow deletes
            self.server.disk.delete_delay = (0.0, 4.0)
        if self.world.derived("files").random() < 0.25:  # so that a cancel has files to delete
            self.bodies.first = [["write", "first.txt", 0.0, True]]

    async def step(self, random: Random) -> None:
        """Take a random step of `everything`."""
        if random.random() < 0.7:
            await self.start(random)
        deed = random.choice(random.choice(self.deeds))
        await self.do(deed, random, wait=random.random() < 0.2)
        await pause(random)

    async def hurry(self, random: Random) -> None:
        """Take a random step of `crowd`, in most cases without a pause."""
        deed = "submit_short" if random.random() < 0.7 else random.choice(_HURRIES)
        await self.do(deed, random, wait=False)
        if random.random() < 0.1:
            await trio.sleep(bodies.draw_moment(random))
        for _ in range(random.choice((0, 0, 1, 3, 8))):
            await trio.lowlevel.checkpoint()

    async def interfere(self, random: Random) -> None:
        """Take a random step of `resumed`."""
        if random.random() < 0.8:
            await self.start(random)
        await self.do(random.choice(random.choice(_INTERFERENCES)), random, wait=random.random() < 0.2)
        await pause(random)

    async def cling(self, random: Random) -> None:
        """Take a random step of `clinging`."""
        await self.do(random.choice(_ON_ONE_HANDLE), random, wait=False)
        await trio.sleep(bodies.draw_moment(random))

    async def note(self, random: Random) -> None:
        """Take a random step of `coalescing`."""
        if random.random() < 0.7:
            await self.start(random)
        await self.do(random.choice(random.choice(_NOTES)), random, wait=random.random() < 0.2)
        await pause(random)

    async def do(self, deed: str, random: Random, *, wait: bool) -> None:
        """Do a named action, and wait for its end if requested."""
        if not wait:
            self._nursery.start_soon(self._do, deed, random)
            return
        with trio.move_on_after(LONGEST_STEP):
            await self._do(deed, random)

    async def _do(self, deed: str, random: Random) -> None:
        if deed in FAULTS or deed == "restart_at_rest":
            await getattr(self, deed)(random)
        else:
            await Caller(self.world.client(self.new_name()), self.world, self.desk).call(
                self.calls[deed], random
            )

    def new_name(self) -> str:
        """A new name for a caller, so that the events that it causes can be found."""
        self._callers += 1
        return f"caller {self._callers}"

    async def start(self, random: Random | None = None) -> None:
        """Start the server, and retry until its disk works."""
        options: dict[str, Any] = {}
        if random is not None and random.random() < 0.3:
            options["max_concurrent"] = random.choice((None, 1, 2, 3))
            options["lanes"] = random.choice(({}, {"side": 2}, {"side": 0, "back": 1}))
        while not self.server.running:
            if self.server.starting:  # another task is starting it
                await trio.sleep(1)
                continue
            try:
                await self.server.start(**options)
            except GreenroomError:  # the disk failed
                await trio.sleep(1)

    # The end.

    async def let_everything_end(self) -> None:
        """Remove all obstacles; then all bodies must end, and no run may remain."""
        self.server.disk.repair()
        self.bodies.letting_go.set()
        for follower in self.followers:
            follower.go_on()
        if self._jumped:  # a restart after the clock was set back must not prolong any wait
            self.world.clock.jump(-LONG_JUMP * 100)
            await self.server.stop()
        await self._until_up_and_free()
        model = self.server.rules.model
        left = list(model.pending.values())
        if left and not any(run.reason in ("child", "message") for run in left):
            self.world.fail(f"these runs remain although every body has ended: {left}")
        client = self.world.client("the end")
        # Two runs whose children wait for each other's handles wait forever, and so does a run that waits for
        # a message. That is correct.
        for run in left:
            try:
                await client.cancel(run.id)
            except GreenroomError:
                continue
        await trio.sleep(PATIENCE)
        await self._check_nothing_is_left()
        await self._check_that_every_slot_is_there()

    async def _until_up_and_free(self) -> None:
        """Start the server until it stays up for a long time without obstacles: it may be about to stop."""
        lives = 0
        while lives != self.server.lives or not self.server.running:
            await self.start()
            lives = self.server.lives
            with suppress(Unavailable):
                await self._remove_obstacles()
            await trio.sleep(PATIENCE)

    async def _remove_obstacles(self) -> None:
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
            f"not ended at the end of the scenario: {left}, {snapshot.engine}",
        )
        torn = [key for key, file in self.server.disk.files.items() if file.content != bodies.WHOLE]
        self.world.check(not torn, f"these finished files are incomplete: {torn}")
        for follower in self.followers:
            follower.check(snapshot)

    async def _check_that_every_slot_is_there(self) -> None:
        self.bodies.letting_go = trio.Event()
        client, model = self.world.client("the end"), self.server.rules.model
        for number in range(self.max_concurrent):
            params = {"attempts": [[["hold", 1.0]]]}
            await client.submit("plain", handle=f"last-{number}", lane="main", params=params)
        await trio.sleep(0.5)
        executing = len(model.holders())
        self.world.check(
            executing == self.max_concurrent,
            f"slots were lost: {executing} runs execute, expected {self.max_concurrent}",
        )
        for lane in LANES[1:]:
            ticket = await client.submit("plain", handle=f"last-{lane}", lane=lane, params={"attempts": [[]]})
            self.world.check(await ticket.wait(5), f"a slot was lost: no run starts in lane {lane}")

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
        """Kill the server while no run executes, and places differ from the order of submission."""
        if self._resting:
            return
        self._resting = True
        client = self.world.client(self.new_name())
        with suppress(GreenroomError):
            await client.set_max_concurrent(0)
            await client.wait_for_active(PATIENCE)
            for lane in LANES:
                await client.clear_lane(lane)
            params = {"attempts": [[["hold", 1.0]]]}
            first, *_ = [
                await client.submit("plain", handle=handle, lane=lane, on_conflict="queue", params=params)
                for handle in ("one", "one", "two", "three")
                for lane in random.choices(LANES)
            ]
            await first.cancel()
        await self.server.crash()
        # Shielded: otherwise the next task that needs the server could find it still starting.
        with trio.CancelScope(shield=True):
            await self.server.start(max_concurrent=random.choice((1, self.max_concurrent)))
        self._resting = False

    async def stop(self, random: Random) -> None:
        if self.server.running:
            self.server.rules.leaving()
            await self.server.stop()

    async def trouble_the_disk(self, random: Random) -> None:
        """Make the disk fail, or slow, for a while."""
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
        """Set the wall clock forward or back."""
        self._jumped = True
        self.world.clock.jump(random.choice((-LONG_JUMP, -1.0, 1.0, 5.0, LONG_JUMP)))

    async def trouble_a_follower(self, random: Random) -> None:
        """Make a follower stall, continue, or drop its connection and resume from its last seq."""
        follower = self.followers[1]  # the first one always follows
        random.choice((follower.stall, follower.go_on, follower.drop))()


async def pause(random: Random) -> None:
    """Wait between two steps: not at all, for some turns of the scheduler, or for some time."""
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
        submitting: (
            *(*SUBMITS, "submit_short", "submit_clinging", "rerun"),
            *("submit_note", "submit_note_twice"),
        ),
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
_NOTES = (
    *[("submit_note", "submit_note", "submit_note", "submit_note_twice")] * 5,
    ("cancel", "clear_handle", "clear_lane", "set_params", "release_handle", "drain", "resume"),
    ("set_max_concurrent", "set_concurrency", "reset_lanes", "rerun", "snapshot"),
    FAULTS,
)
_DEEDS = (*[SUBMITS] * 4, *[CONTROLS] * 3, TALKS, LOOKS, FAULTS)
