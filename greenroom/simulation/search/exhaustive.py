"""Exhaustive search: every order of the steps in a small race.

Until the race starts, tasks run in round-robin order. From there until no task is runnable, the search
explores every relevant choice of the next task, depth first: it runs the scenario again from its start, with
the choices made so far and then a new one.

Orders that differ only in steps that commute (see `access_tracking`) lead to the same states, and one of them
is enough. So the search adds another choice only for two steps that do not commute and could happen in the
opposite order (*dynamic partial-order reduction*, with the *source sets* of Abdulla, Aronis, Jonsson and
Sagonas). A task whose step was tried at a choice sleeps below the other choices, until a step is taken that
does not commute with it (*sleep sets*). An execution in which all runnable tasks sleep is aborted: an
equivalent order has been explored. No two orders that are explored to their end are equivalent.

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
from ..determinism.scheduler import RoundRobin, Scheduling, SeededChooser
from ..determinism.seeded_run import determined
from ..world.server import Server
from ..world.trace import Trace
from ..world.world import World
from .access_tracking import Steps, Task, Touched, record, watched

Scenario = Callable[[World, "Race"], Awaitable[str]]

_CRASH = "the crash"


class WalkFailed(Exception):
    """In one order of the steps, which the message lists, a rule was broken or the scenario raised."""

    def __init__(self, invariant: str, order: list[str], trace: Trace) -> None:
        super().__init__("\n  ".join((f"{invariant}\nin this order:", *order)))
        self.invariant = invariant
        self.order = order
        self.trace = trace


class NotRepeatable(Exception):
    """The scenario behaved differently when it was run again in the same order."""


@attrs.define
class Walked:
    """The results of a walk."""

    outcomes: Counter[str] = attrs.field(factory=Counter)  # the number of different orders with each outcome
    executions: int = 0
    given_up: int = 0  # executions that were aborted, because an equivalent order had been explored
    deliveries: set[object] = attrs.field(factory=set)  # the orders in which actors received their messages
    longest: int = 0  # the number of steps in the longest race
    complete: bool = True

    def add(self, execution: _Execution, outcome: str) -> None:
        """Add the results of one execution."""
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
            f"{self.executions} executions, {self.given_up} of them aborted, up to {self.longest} steps; "
            f"{len(self.deliveries)} orders of messages; {'complete' if self.complete else 'NOT complete'}: "
            f"{outcomes}"
        )


class Race:
    """Marks the start and the end of the race; a scenario receives it next to its world."""

    def __init__(self, execution: _Execution) -> None:
        self._execution = execution

    @asynccontextmanager
    async def begins(self, *, crashing: Server | None = None, at: float = 0.0) -> AsyncIterator[trio.Nursery]:
        """Explore all orders of what the tasks of this nursery and the engine's tasks do, until those of the
        nursery have ended and no task is runnable at this time.

        A server passed as `crashing` crashes at every possible moment of the race (or of what happens at the
        time `at`). What happens after the crash is run in one order only, because nobody can observe it.
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
    """Run a scenario in every order. It returns the name of its outcome, and raises if the outcome is wrong.

    With `reduced=False`, equivalent orders are explored as well.
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
    """Run `count` random orders, to check whether a walk has missed any outcome."""
    seen = Walked(complete=False)
    with watched(), _deliveries_noted():
        for seed in range(count):
            execution = _Sampled(seed)
            seen.add(execution, execution.run(scenario))
    return seen


class _Choice:
    """A point at which more than one task was runnable."""

    def __init__(self, runnable: list[str], sleeping: dict[str, Touched], reduced: bool) -> None:
        self.runnable = runnable
        self.sleeping = sleeping
        self.tried: dict[str, Touched] = {}
        self.task = next(task for task in runnable if task not in sleeping)
        self.wanted = {self.task} if reduced else set(runnable)

    def next(self) -> bool:
        """Choose a task that is wanted and has not been tried; returns False if there is none."""
        for task in self.runnable:
            if task in self.wanted and task not in self.sleeping and task not in self.tried:
                self.task = task
                return True
        return False


@attrs.define
class _Step:
    """A step that was taken in a race."""

    task: str
    woken_by: int  # the step that made its task runnable; -1 if the clock did, or a step before the race
    choice: _Choice | None
    touched: Touched
    since: int  # the first step since the clock advanced; no step before it can happen later
    after: int  # a bit set: the steps that must happen before this one


class _Execution(trio.abc.Instrument):
    """One execution: it repeats the choices of the path, and then makes new ones."""

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
        self._jumped_at = 0  # the first step since the clock advanced
        self._before = RoundRobin()
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
            # The crash is the last choice, so that there are steps that it can be moved before.
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
        """Request the opposite order for each two steps that do not commute and that could be exchanged."""
        for late in range(self._known, len(self.steps)):
            step = self.steps[late]
            between = 0  # the steps that must happen before a later step that is before this one
            for early in reversed(range(step.since, late)):
                bit = 1 << early
                if not step.after & bit or between & bit:
                    continue
                between |= self.steps[early].after
                if self.steps[early].task != step.task and step.woken_by != early:
                    self._want_reversed(early, late)

    def _want_reversed(self, early: int, late: int) -> None:
        """At the early step, request a task that does not depend on it and leads to the late step."""
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
        """Record that the actor of the current step takes messages out of its channel."""
        if messages and self._stepping:
            texts = [f"{describe(message)} by {getattr(message, 'by', None)}" for message in messages]
            self._order[-1] += f" takes {', '.join(texts)}"
            self._deliveries.setdefault(trio.lowlevel.current_task().name, []).extend(texts)

    def deliveries(self) -> object:
        """The messages that each actor received, in order."""
        return frozenset((name, tuple(texts)) for name, texts in self._deliveries.items())


class _Sampled(_Execution):
    """One execution, in a random order."""

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
