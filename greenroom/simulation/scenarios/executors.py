"""A scenario with executors: lines are cut, processes are paused, killed or drained, the engine restarts.

Some executors have labels or a job that the engine does not have, some have clocks that drift, and one sends
reports about bodies that it does not have. Bodies write their fence into all that they report
(`executor_bodies.py`): a report of an older body must have no effect. At the end everything is healed; then
all runs must end, and all slots must be free.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

import trio

from ...gateway.background import background
from ...protocol.errors import GreenroomError
from ...protocol.events import Event, RunLog, RunMessage, RunProgress, RunStateChanged
from ...protocol.states import ENDED, Status
from ..world.executor import SimulatedExecutor
from ..world.world import World
from .executor_bodies import JOBS, SPECIAL, Bodies, draw_params
from .followers import Follower
from .hostile import Hostile

HANDLES = ("ann", "bob", "cleo")
MAX_CONCURRENT = 4
TTL = 30.0
_PATIENCE = 120.0
"""Seconds; longer than a lost executor and the longest body take."""


async def executors(world: World) -> None:
    """The scenario. In every third seed, the engine executes bodies itself, too."""
    play = _Play(world)
    await play.begin()
    async with background() as followers:
        for follower in play.followers:
            followers.start_soon(follower.follow)
        async with trio.open_nursery() as play.nursery:  # ends when the last fault has ended
            async for step in world.steps(40):
                await play.step(step.random)
            play.let_go()
        await play.end()


class _Play:
    def __init__(self, world: World) -> None:
        self.nursery: trio.Nursery
        self.followers: list[Follower] = []
        self._world = world
        self._bodies = Bodies()
        self._executors: list[SimulatedExecutor] = []
        self._hostile: Hostile
        self._names = 0
        self._messages = 0

    async def begin(self) -> None:
        world, random = self._world, self._world.derived("executors")
        self._server = await world.serve(
            self._bodies.jobs,
            executors=None if random.random() < 0.25 else 0,
            executor_ttl=TTL,
            max_concurrent=MAX_CONCURRENT,
            shutdown_timeout=3,
        )
        for number in range(random.choice((1, 2, 2, 3))):
            self._executors.append(
                world.executor(
                    f"e{number}",
                    self._bodies.more if number == 1 else None,
                    slots=random.choice((1, 2, 3, None)),
                    labels=("gpu",) if number == 1 else (),
                    drift=random.choice((0.0, -0.1, -0.1, 0.1)),
                    shutdown_timeout=random.choice((3.0, 30.0)),
                )
            )
        self.followers = [Follower(f"follower {number}", world) for number in range(2)]
        self._hostile = Hostile(world, self._server)
        world.invariant(Reports(self._server.rules.model.events))

    async def step(self, random: Random) -> None:
        deed = random.choice(random.choice(self._deeds))
        await deed(self, random)
        await trio.sleep(random.choice((0.0, 0.0, 0.1, 0.5, 3.0)))

    # Clients.

    async def _submit(self, random: Random) -> None:
        job = random.choice(JOBS)
        needs = ["gpu"] if random.random() < 0.1 else []
        job = SPECIAL if random.random() < 0.1 else job
        if len(self._executors) == 1 and (needs or job == SPECIAL):  # no executor could execute it
            return
        params = draw_params(random)
        self._call(
            "submit", job, handle=random.choice(HANDLES), params=params, on_conflict="queue", needs=needs
        )

    async def _cancel(self, random: Random) -> None:
        if run := self._pending(random):
            self._call("cancel", run)

    async def _answer(self, random: Random) -> None:
        interrupts = [i for run in self._server.rules.model.pending.values() for i in run.interrupts]
        if interrupts:
            self._call("answer", random.choice(interrupts), random.random() < 0.5)

    async def _inject(self, random: Random) -> None:
        if run := self._pending(random):
            self._messages += 1
            self._call("inject", run, self._messages)

    async def _limit(self, random: Random) -> None:
        self._call("set_max_concurrent", random.randint(1, MAX_CONCURRENT))

    async def _release(self, random: Random) -> None:
        self._call("release_handle", random.choice(HANDLES))

    async def _wait(self, random: Random) -> None:
        await trio.sleep(random.choice((0.5, 3.0, 11.0, 25.0)))

    def _pending(self, random: Random) -> str | None:
        runs = list(self._server.rules.model.pending)
        return random.choice(runs) if runs else None

    def _call(self, method: str, *arguments: object, **options: object) -> None:
        self._names += 1
        client = self._world.client(f"caller {self._names}", self._server)

        async def call() -> None:
            with suppress(GreenroomError):
                await getattr(client, method)(*arguments, **options)

        self.nursery.start_soon(call)

    # Faults. Each one ends after a while; other steps are taken meanwhile.

    async def _block(self, random: Random) -> None:
        """Deliver nothing between an executor and the server, or in one direction."""
        executor, seconds = random.choice(self._executors), _draw_seconds(random)
        there, back = random.choice(((True, True), (True, False), (False, True)))
        breaks = random.random() < 0.5

        async def block() -> None:
            executor.uplink.block(there=there, back=back)
            await trio.sleep(seconds)
            executor.uplink.block(there=False, back=False)
            if breaks:
                executor.uplink.cut()

        self._fault(executor, f"delivers nothing (there: {there}, back: {back}) for {seconds:g} s", block)

    async def _cut(self, random: Random) -> None:
        executor = random.choice(self._executors)

        async def cut() -> None:
            executor.uplink.cut()

        self._fault(executor, "is cut", cut)

    async def _slow(self, random: Random) -> None:
        executor, seconds = random.choice(self._executors), _draw_seconds(random)
        delay = 0.0, random.choice((0.5, 4.0, 9.0))

        async def slow() -> None:
            executor.uplink.slow_down(delay)
            await trio.sleep(seconds)
            executor.uplink.slow_down(None)

        self._fault(executor, f"has a slow line for {seconds:g} s", slow)

    async def _fade(self, random: Random) -> None:
        """Make a line slow, and block it while answers are in flight."""
        executor, delay = random.choice(self._executors), random.choice((4.0, 9.0))
        seconds = random.uniform(0.0, 20.0)

        async def fade() -> None:
            executor.uplink.slow_down((0.0, delay))
            await trio.sleep(seconds)
            executor.uplink.block(there=True, back=False)
            await trio.sleep(delay)
            executor.uplink.block(there=True, back=True)
            await trio.sleep(45.0)
            executor.uplink.slow_down(None)
            executor.uplink.block(there=False, back=False)

        self._fault(executor, f"fades away within {seconds:g} s", fade)

    async def _shake(self, random: Random) -> None:
        """Lose an executor, or nearly, and let it attach over a line that is slow and often cut."""
        executor, delay = random.choice(self._executors), random.choice((4.0, 9.0, 14.0))
        lost, pauses = random.choice((0.0, 31.0, 45.0)), random.random() < 0.5
        intervals = [random.uniform(0.1, delay) for _ in range(random.randint(2, 8))]

        async def shake() -> None:
            if pauses:
                executor.pause()
            else:
                executor.uplink.block(there=True, back=True)
            await trio.sleep(lost)
            executor.uplink.slow_down((0.0, delay))
            executor.uplink.block(there=False, back=False)
            executor.go_on()
            for interval in intervals:
                await trio.sleep(interval)
                executor.uplink.cut()
            executor.uplink.slow_down(None)

        self._fault(executor, f"is lost for {lost:g} s, and attaches over a bad line", shake)

    async def _pause(self, random: Random) -> None:
        executor, seconds = random.choice(self._executors), _draw_seconds(random)

        async def pause() -> None:
            executor.pause()
            await trio.sleep(seconds)
            executor.go_on()

        self._fault(executor, f"is paused for {seconds:g} s", pause)

    async def _kill(self, random: Random) -> None:
        executor, seconds = random.choice(self._executors), _draw_seconds(random)

        async def kill() -> None:
            executor.kill()
            await trio.sleep(seconds)
            executor.start()

        self._fault(executor, f"is killed, and started again after {seconds:g} s", kill)

    async def _drain(self, random: Random) -> None:
        """Drain an executor, by a signal or by the engine, and start it again."""
        executor, by_engine = random.choice(self._executors), random.random() < 0.5

        async def drain() -> None:
            if by_engine:
                with suppress(GreenroomError):
                    await self._world.client("operator", self._server).executors.drain(executor.id)
            else:
                executor.drain()
            await trio.sleep(1.0)
            with trio.move_on_after(_PATIENCE) as waiting:
                await executor.ended()
            if waiting.cancelled_caught:  # a body waits for a child run that no other executor can execute
                executor.kill()
            executor.start()

        self._fault(executor, "is drained", drain)

    async def _restart(self, random: Random) -> None:
        """Kill or stop the engine, and start it again."""
        if not self._server.running:
            return
        how = random.choice(("crash", "crash", "stop", "at once"))
        if how == "crash":
            await self._server.crash()
        else:
            await self._server.stop(at_once=how == "at once")
        await trio.sleep(random.choice((0.0, 0.5, 5.0, 40.0)))
        await self._server.start()

    async def _slow_disk(self, random: Random) -> None:
        seconds = random.choice((0.5, 3.0))

        async def slow() -> None:
            self._server.disk.delay = (0.0, random.choice((0.1, 1.0)))
            await trio.sleep(seconds)
            self._server.disk.delay = None

        self.nursery.start_soon(slow)

    async def _attack(self, random: Random) -> None:
        self.nursery.start_soon(self._hostile.attack, random)

    def _fault(self, executor: SimulatedExecutor, what: str, deed: Callable[[], Awaitable[None]]) -> None:
        self._world.fault(executor.id, what)
        self.nursery.start_soon(deed)

    _deeds = (
        *[(_submit,)] * 4,
        (_cancel, _answer, _answer, _inject, _inject, _limit, _release),
        (_wait,),
        (
            *(_block, _block, _slow, _cut, _cut, _fade, _shake, _shake, _pause, _kill, _drain),
            *(_restart, _restart, _slow_disk, _attack),
        ),
    )

    # The end.

    def let_go(self) -> None:
        """Let all bodies end."""
        self._bodies.letting_go.set()

    async def end(self) -> None:
        """Heal everything. Then all runs must end, and all slots must be free."""
        self._world.note("everything is healed")
        server = self._server
        server.disk.repair()
        for executor in self._executors:
            executor.uplink.block(there=False, back=False)
            executor.uplink.slow_down(None)
            executor.go_on()
            executor.start()
        client = self._world.client("the end", server)
        await client.set_max_concurrent(MAX_CONCURRENT)
        for number in range(10):
            await trio.sleep(_PATIENCE)
            pending = list(server.rules.model.pending.values())
            for run in pending:
                if run.reason == "message":  # it waits for one, with a body or without
                    with suppress(GreenroomError):  # it has just ended
                        await client.inject(run.id, f"the end {number}")
            if not pending:
                break
        left = list(server.rules.model.pending.values())
        self._world.check(not left, f"these runs have not ended: {left}")
        await self._check_that_nothing_is_left()

    async def _check_that_nothing_is_left(self) -> None:
        client, rules = self._world.client("the end", self._server), self._server.rules
        snapshot = await client.snapshot()
        for follower in self.followers:
            follower.check(snapshot)
        left = [handle for handle in snapshot.handles.values() if handle.active_run or handle.waiting]
        self._world.check(not left, f"these handles are held at the end: {left}")
        bodies = rules.executors.executing()
        self._world.check(not bodies, f"these bodies execute at the end: {bodies}")
        for info in await client.executors.list():
            self._world.check(not info.bodies, f"the engine knows bodies at the end: {info}")
        self._bodies.letting_go = trio.Event()
        slots = [executor.slots for executor in self._executors]
        count = MAX_CONCURRENT
        if not rules.model.executes_itself and None not in slots:
            count = min(count, sum(slot for slot in slots if slot is not None))
        for number in range(count):
            await client.submit("once", handle=f"last-{number}", params={"parts": [5.0]})
        await trio.sleep(1.0)
        executing = len(rules.model.holders())
        self._world.check(executing == count, f"slots were lost: {executing} runs execute, expected {count}")
        await trio.sleep(10.0)


class Reports:
    """Checks the events that bodies have caused: only the body with the run's last fence can report."""

    __name__ = "reports"

    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self._read = 0
        self._fences: dict[str, int] = {}
        self._starts: dict[str, int] = {}
        self._done: dict[str, float] = {}
        self._messages: dict[str, list[object]] = {}

    def __call__(self) -> str | None:
        """Read the new events; returns what is wrong."""
        for event in self._events[self._read :]:
            self._read += 1
            if (wrong := self._look(event)) is not None:
                return f"{wrong}: {event}"
        return None

    def _look(self, event: Event) -> str | None:
        match event:
            case RunStateChanged(to=Status.RUNNING, interactive=True):
                self._fences[event.run] = event.seq
                self._starts[event.run] = self._starts.get(event.run, 0) + 1
                self._done.pop(event.run, None)
            case RunStateChanged() if event.to in ENDED and event.to is Status.SUCCEEDED:
                return self._succeeded(event)
            case RunStateChanged(to=Status.FAILED, error=str(error)) if error.startswith("Conflict"):
                return "a call of the run's only body conflicts with another one"
            case RunLog() if event.text != f"fence {self._fences[event.run]}" and event.by == "body":
                return f"another body than {self._fences[event.run]} has written to the log"
            case RunProgress():
                if event.stats.get("fence") != self._fences[event.run]:
                    return f"another body than {self._fences[event.run]} has reported progress"
                done = event.done or 0.0
                if done < self._done.get(event.run, 0.0):
                    return f"progress went back from {self._done[event.run]}"
                self._done[event.run] = done
            case RunMessage():
                self._messages.setdefault(event.run, []).append(event.message)
        return None

    def _succeeded(self, event: RunStateChanged) -> str | None:
        if event.result["fence"] != self._fences[event.run]:
            return f"another body than {self._fences[event.run]} has returned the result"
        heard = event.result.get("heard", [])
        sent = self._messages.get(event.run, [])
        if self._starts[event.run] == 1 and heard != sent[: len(heard)]:
            return f"the body has taken {heard}, expected {sent}"
        if len(set(heard)) < len(heard) or any(message not in sent for message in heard):
            return f"the body has taken {heard}, of {sent}"
        return None


def _draw_seconds(random: Random) -> float:
    """How long a fault lasts: for less or for more than the ttl."""
    return random.choice((0.5, 5.0, 15.0, 22.0, 28.0, 31.0, 45.0))
