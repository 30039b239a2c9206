"""Every order of a small race, walked rather than sampled.

A scenario is set up in a plain order until the race begins. From there until nobody has anything left to do,
each choice of which runnable task goes next is made in every way that can matter, depth first: the scenario
is run again from its start, with the choices made so far and then one that is new.

Orders that differ only in steps which commute (see `access_tracking`) lead to the same states, and one of
them is enough. So another choice is made only for two steps that do not commute and might have come the
other way round (*dynamic partial-order reduction*, with the *source sets* of Abdulla, Aronis, Jonsson and
Sagonas), and a task whose step was tried at a choice sleeps below its other choices until a step is taken
that does not commute with it (*sleep sets*). An execution in which all that could go on sleeps is given up:
its like has been walked. Each order that is walked to its end is unlike every other.

The bound is the number of executions: a walk that would need more than `most` of them is not `complete`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import ClassVar

import attrs
import trio
import trio.testing

from ...actors.actor import describe
from ...actors.channel import Channel
from ..determinism.scheduler import InTurn, Scheduling, SeededChooser
from ..determinism.seeded_run import determined
from ..world.server import Server
from ..world.trace import Trace
from ..world.world import World
from .access_tracking import Steps, Task, Touched, record, watched

Scenario = Callable[[World, "Race"], Awaitable[str]]

_CRASH = "the crash"


class WalkFailed(Exception):
    """In one of the orders, which stands in the text, a rule is broken or the scenario has raised."""

    def __init__(self, invariant: str, order: list[str], trace: Trace) -> None:
        super().__init__("\n  ".join((f"{invariant}\nin this order:", *order)))
        self.invariant = invariant
        self.order = order
        self.trace = trace


class NotRepeatable(Exception):
    """The scenario does not do the same when it is run again in the same order."""


@attrs.define
class Walked:
    """What a walk has seen."""

    outcomes: Counter[str] = attrs.field(factory=Counter)  # in how many of the orders that are unlike
    executions: int = 0
    given_up: int = 0  # of the executions: their like had been walked
    deliveries: set[object] = attrs.field(factory=set)  # in which orders actors got their messages
    longest: int = 0  # steps from the beginning of the race to its end
    complete: bool = True

    def add(self, execution: _Execution, outcome: str) -> None:
        """Take in one more execution."""
        self.executions += 1
        self.longest = max(self.longest, len(execution.steps))
        if execution.given_up:
            self.given_up += 1
        else:
            self.outcomes[outcome] += 1
            self.deliveries.add(execution.deliveries())

    def __str__(self) -> str:
        outcomes = ", ".join(f"{outcome} {count}" for outcome, count in sorted(self.outcomes.items()))
        return (
            f"{self.executions} executions, {self.given_up} of them given up, up to {self.longest} steps; "
            f"{len(self.deliveries)} orders of messages; {'complete' if self.complete else 'NOT complete'}: "
            f"{outcomes}"
        )


class Race:
    """What a scenario is given: it says where the race is."""

    def __init__(self, execution: _Execution) -> None:
        self._execution = execution

    @asynccontextmanager
    async def begins(self, *, crashing: Server | None = None, at: float = 0.0) -> AsyncIterator[trio.Nursery]:
        """From here on, whatever the tasks of this nursery and those of the engine do is walked, until they
        have ended and nothing is left to do at this time.

        A server that is `crashing` does so at any moment of it (or of what happens `at` a later time), and
        what is left to do after that takes one order only: nobody sees it.
        """
        await trio.testing.wait_all_tasks_blocked()
        self._execution.racing = True
        async with trio.open_nursery() as racers:
            if crashing is not None:
                racers.start_soon(self._crash, crashing, at, name=_CRASH)
            yield racers
        await trio.testing.wait_all_tasks_blocked()
        self._execution.racing = False

    async def _crash(self, server: Server, at: float) -> None:
        if at > trio.current_time():
            await trio.sleep_until(at)
        self._execution.racing = False
        await server.crash()


def walk(scenario: Scenario, *, most: int = 20_000, reduced: bool = True) -> Walked:
    """Walk every order of a scenario, which returns the name of its outcome, and raises if it is wrong.

    Without `reduced`, orders that are alike are walked as well.
    """
    seen = Walked()
    path: list[_Choice] = []
    with watched(), _deliveries_noted():
        while True:
            if seen.executions == most:
                seen.complete = False
                break
            execution = _Execution(path, reduced)
            outcome = execution.run(scenario)
            if reduced:
                execution.find_races()
            seen.add(execution, outcome)
            while path and not path[-1].next():
                path.pop()
            if not path:
                break
    return seen


def sample(scenario: Scenario, count: int) -> Walked:
    """Take so many orders at random, to see whether a walk has missed any."""
    seen = Walked(complete=False)
    with watched(), _deliveries_noted():
        for seed in range(count):
            execution = _Sampled(seed)
            seen.add(execution, execution.run(scenario))
    return seen


class _Choice:
    """A point at which more than one task could go on."""

    def __init__(self, runnable: list[str], sleeping: dict[str, Touched], reduced: bool) -> None:
        self.runnable = runnable
        self.sleeping = sleeping
        self.tried: dict[str, Touched] = {}
        self.task = next(task for task in runnable if task not in sleeping)  # the first that may
        self.wanted = {self.task} if reduced else set(runnable)

    def next(self) -> bool:
        """Take one that is wanted and has not been tried."""
        for task in self.runnable:
            if task in self.wanted and task not in self.sleeping and task not in self.tried:
                self.task = task
                return True
        return False


@attrs.define
class _Step:
    """A step that was taken in a race."""

    task: str
    woken_by: int  # the step that made it possible; -1 if that was before the race, or the clock
    choice: _Choice | None
    touched: Touched
    since: int  # the first step since the clock has moved on; none before it can come later
    after: int  # the steps that it comes after, of necessity, as bits


class _Execution(trio.abc.Instrument):
    """One execution: along the path of choices as far as it goes, and then making its own."""

    current: ClassVar[_Execution | None] = None

    def __init__(self, path: list[_Choice], reduced: bool) -> None:
        self.racing = False
        self.given_up = False
        self.steps: list[_Step] = []
        self._path = path
        self._reduced = reduced
        self._depth = 0
        self._known = 0  # how many of the steps have been taken before, in the same order
        self._watch = Steps()
        self._sleeping: dict[str, Touched] = {}
        self._chosen: _Choice | None = None
        self._stepping = False
        self._woken_by: dict[str, int] = {}
        self._woken_this = -1
        self._jumped_at = 0  # the first step after the clock has moved on
        self._before = InTurn()
        self._deliveries: dict[str, list[str]] = {}
        self._order: list[str] = []
        self._repeats = True

    def run(self, scenario: Scenario) -> str:
        outcome = ""

        async def played(world: World) -> None:
            nonlocal outcome
            outcome = await scenario(world, Race(self))

        _Execution.current = self
        record(self._watch)
        world = World(0, played, None, None, "memory")
        try:
            with determined("walk"):
                trio.run(world.run, clock=world.ticking, instruments=[Scheduling(self)])
        finally:
            _Execution.current = None
            if world.failure is not None:
                invariant, reason = world.failure
                raise WalkFailed(invariant, self._order, world.trace) from reason
        if not self._repeats:
            raise NotRepeatable("; ".join(self._order))
        return outcome

    def choose(self, runnable: Sequence[Task]) -> int:
        if not self.racing or self.given_up:
            return self._before.choose(runnable)
        names = [self._watch.name(task) for task in runnable]
        if self._depth < len(self._path):
            choice = self._path[self._depth]
            self._known = len(self.steps)
        elif self._sleeping.keys() >= set(names):
            self.given_up = True
            return 0
        else:
            # The crash comes last of its own accord, so that there is something it can come before.
            calm = [name for name, task in zip(names, runnable, strict=True) if task.name != _CRASH]
            crash = [name for name in names if name not in calm]
            choice = _Choice(calm + crash, self._sleeping, self._reduced)
            self._path.append(choice)
        self._depth += 1
        if set(choice.runnable) != set(names):
            self._repeats, self.given_up = False, True
            return 0
        self._chosen = choice
        if self._reduced:
            self._sleeping = choice.sleeping | choice.tried
            self._sleeping.pop(choice.task, None)
        return names.index(choice.task)

    def task_scheduled(self, task: Task) -> None:
        if self._stepping:
            self._woken_by[self._watch.name(task)] = len(self.steps)
            self._watch.woken(task)
        elif self.racing:
            self._jumped_at = len(self.steps)

    def before_task_step(self, task: Task) -> None:
        self._stepping = self._watch.notes = self.racing and not self.given_up
        self._watch.begin(task)
        if self._stepping:
            self._woken_this = self._woken_by.pop(self._watch.name(task), -1)
            self._order.append(task.name)
            if self._chosen is None and self._watch.name(task) in self._sleeping:
                self.given_up = True

    def after_task_step(self, task: Task) -> None:
        name, touched = self._watch.name(task), self._watch.end()
        if not self._stepping:
            return
        self._stepping = False
        choice, self._chosen = self._chosen, None
        if choice is not None:
            choice.tried[name] = touched
        after = (1 << self._jumped_at) - 1
        woken_by = self._woken_this
        for index, step in enumerate(self.steps):
            if index == woken_by or step.task == name or not step.touched.commutes_with(touched):
                after |= step.after | 1 << index
        self.steps.append(_Step(name, woken_by, choice, touched, self._jumped_at, after))
        self._sleeping = {
            name: other for name, other in self._sleeping.items() if other.commutes_with(touched)
        }

    def find_races(self) -> None:
        """Want the other order of each two steps that don't commute and could have come the other way."""
        for late in range(self._known, len(self.steps)):
            step = self.steps[late]
            between = 0  # those that something before the step comes after
            for early in reversed(range(step.since, late)):
                bit = 1 << early
                if not step.after & bit or between & bit:
                    continue
                between |= self.steps[early].after
                if self.steps[early].task != step.task and step.woken_by != early:
                    self._want_reversed(early, late)

    def _want_reversed(self, early: int, late: int) -> None:
        """At the early step, want a task that goes on without it, on the way to the late one."""
        choice = self.steps[early].choice
        if choice is None:
            return
        bit = 1 << early
        without = [index for index in range(early + 1, late) if not self.steps[index].after & bit]
        before = 0
        first: dict[str, None] = {}
        for index in (*without, late):
            if not self.steps[index].after & before:
                first.setdefault(self.steps[index].task)
            before |= 1 << index
        if not first.keys() & (choice.wanted | choice.sleeping.keys()):
            choice.wanted.add(next(task for task in first if task in choice.runnable))

    def delivered(self, messages: Sequence[object]) -> None:
        """The actor whose step this is takes messages out of its channel."""
        if messages and self._stepping:
            texts = [f"{describe(message)} by {getattr(message, 'by', None)}" for message in messages]
            self._order[-1] += f" takes {', '.join(texts)}"
            self._deliveries.setdefault(trio.lowlevel.current_task().name, []).extend(texts)

    def deliveries(self) -> object:
        """Which messages each actor got, in its order."""
        return frozenset((name, tuple(texts)) for name, texts in self._deliveries.items())


class _Sampled(_Execution):
    """One execution, in an order that is left to chance."""

    def __init__(self, seed: int) -> None:
        super().__init__([], False)
        self._dice = SeededChooser(seed)

    def choose(self, runnable: Sequence[Task]) -> int:
        return (self._dice if self.racing else self._before).choose(runnable)


@contextmanager
def _deliveries_noted() -> Iterator[None]:
    drain = Channel.receive_all_nowait

    def noted(self: Channel) -> Sequence[object]:
        taken = drain(self)
        if _Execution.current is not None:
            _Execution.current.delivered(taken)
        return taken

    Channel.receive_all_nowait = noted  # type: ignore[method-assign]
    try:
        yield
    finally:
        Channel.receive_all_nowait = drain  # type: ignore[method-assign]
