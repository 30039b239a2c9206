"""Control over trio's scheduler: which of the tasks that could go on next does go on.

Trio runs what is runnable in batches, in an order that is arbitrary by its own account. Here its queue is
replaced by one that hands out a single task at a time, and has a *chooser* say which. So every order in which
the steps of tasks can follow each other is possible, and the chooser alone decides which it is: the tasks are
put before it in the order in which they were spawned, whatever sets and addresses they came from.

    trio.run(main, clock=MockClock(autojump_threshold=0), instruments=[Scheduling(SeededChooser(seed))])

It begins before the first task exists and ends with that run; nothing of trio is patched, and its own dice
have nothing left to decide. What remains outside is real I/O, which a simulation has none of.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from operator import attrgetter
from random import Random
from typing import Any, Protocol, cast

import trio
from trio._core._run import GLOBAL_RUN_CONTEXT

Task = trio.lowlevel.Task

_spawned = attrgetter("_counter")


class Chooser(Protocol):
    """Who goes next. Asked only where there is a choice."""

    def choose(self, runnable: Sequence[Task]) -> int:
        """The index of the task that goes on, of two or more, which stand in the order of their spawning.
        Keep no reference to the sequence: it is the queue itself. What is raised here breaks trio."""


class SeededChooser:
    """Any of them, each as likely; the same ones for the same seed."""

    def __init__(self, seed: int | str) -> None:
        self._seed = seed
        self._random = Random(seed).random

    def choose(self, runnable: Sequence[Task]) -> int:
        return int(self._random() * len(runnable))

    def begin(self, chapter: int) -> None:
        """From here on choose as for this chapter, whatever was chosen before it."""
        self._random = Random(f"{self._seed}/{chapter}").random


class InTurn:
    """One after the other in the order of their spawning, and round again: plain and fair."""

    def __init__(self) -> None:
        self._last = -1

    def choose(self, runnable: Sequence[Task]) -> int:
        index = next((index for index, task in enumerate(runnable) if _spawned(task) > self._last), 0)
        self._last = _spawned(runnable[index])
        return index


class Scheduling(trio.abc.Instrument):
    """The instrument that gives a run of trio to a chooser. One that is an instrument itself becomes one of
    that run."""

    def __init__(self, chooser: Chooser) -> None:
        self._chooser = chooser

    def before_run(self) -> None:
        runner = GLOBAL_RUN_CONTEXT.runner
        assert not runner.runq, "no task exists yet"
        runner.runq = cast(Any, _Queue(self._chooser))
        if isinstance(self._chooser, trio.abc.Instrument):
            runner.instruments.add_instrument(self._chooser)


class _Queue:
    """Stands in for the queue of trio's loop, which does just this: `append` to it in `reschedule`; look
    whether it is empty, or how long it is; and take the next batch by `list(queue)` and `queue.clear()`.

    Reading it takes the next task out, so the batch is that one and there is nothing left to clear.
    """

    def __init__(self, chooser: Chooser) -> None:
        self._choose = chooser.choose
        self._tasks: list[Task] = []

    def __len__(self) -> int:
        return len(self._tasks)

    def append(self, task: Task) -> None:
        insort(self._tasks, task, key=_spawned)

    def __iter__(self) -> Iterator[Task]:
        tasks = self._tasks
        if len(tasks) > 1:
            return iter((tasks.pop(self._choose(tasks)),))
        return iter((tasks.pop(),) if tasks else ())

    def clear(self) -> None:
        pass
