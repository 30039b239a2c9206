"""Control over trio's scheduler: which of the runnable tasks runs next.

Trio runs runnable tasks in batches, in an order that its documentation calls arbitrary. This module replaces
its queue by one that hands out a single task at a time; a *chooser* decides which. So every order of the
tasks' steps is possible, and only the chooser decides which one happens: it sees the runnable tasks in the
order in which they were spawned, independently of sets and addresses.

    trio.run(main, clock=MockClock(autojump_threshold=0), instruments=[Scheduling(SeededChooser(seed))])

A process can be paused: the tasks below a task then do not run until it continues, as if the operating system
had stopped the process. Their deadlines pass meanwhile.

The instrument starts before the first task exists and ends with that trio run. No code of trio is patched;
trio's own random shuffling has nothing left to shuffle. Real I/O stays outside of this control; a simulation
has none.
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
    """Decides which task runs next. Called only if two or more tasks are runnable."""

    def choose(self, runnable: Sequence[Task]) -> int:
        """Return the index of the task that runs next. The tasks are in the order of their spawning.

        Keep no reference to the sequence: it is the queue itself. An exception raised here breaks trio."""


class SeededChooser:
    """Choose any task, each with the same probability; the same seed gives the same choices."""

    def __init__(self, seed: int | str) -> None:
        self._seed = seed
        self._random = Random(seed).random

    def choose(self, runnable: Sequence[Task]) -> int:
        return int(self._random() * len(runnable))

    def begin(self, chapter: int) -> None:
        """Start a chapter: the choices from here on do not depend on those before it."""
        self._random = Random(f"{self._seed}/{chapter}").random


class RoundRobin:
    """Choose tasks round-robin, in the order of their spawning."""

    def __init__(self) -> None:
        self._last = -1

    def choose(self, runnable: Sequence[Task]) -> int:
        index = next((index for index, task in enumerate(runnable) if _spawned(task) > self._last), 0)
        self._last = _spawned(runnable[index])
        return index


class Scheduling(trio.abc.Instrument):
    """An instrument that puts a chooser in control of a trio run. A chooser that is an instrument itself is
    added to the run's instruments."""

    def __init__(self, chooser: Chooser) -> None:
        self._chooser = chooser
        self._queue = _Queue(chooser)

    def pause(self, root: Task) -> None:
        """Let no task of this tree run until `go_on`."""
        self._queue.pause(root)

    def go_on(self, root: Task) -> None:
        """Let a paused tree run again."""
        self._queue.go_on(root)

    def before_run(self) -> None:
        runner = GLOBAL_RUN_CONTEXT.runner
        assert not runner.runq, "no task exists yet"
        runner.runq = cast(Any, self._queue)
        if isinstance(self._chooser, trio.abc.Instrument):
            runner.instruments.add_instrument(self._chooser)


class _Queue:
    """Replaces the queue of trio's loop, which uses exactly these operations: `append` in `reschedule`; tests
    for emptiness and length; and `list(queue)` with `queue.clear()` to take the next batch.

    Iterating takes the next task out, so the batch is that one task, and nothing remains to be cleared.
    """

    def __init__(self, chooser: Chooser) -> None:
        self._choose = chooser.choose
        self._tasks: list[Task] = []
        self._paused: dict[Task, list[Task]] = {}  # the runnable tasks of each paused tree, by its root

    def __len__(self) -> int:
        return len(self._tasks)

    def append(self, task: Task) -> None:
        for root, held in self._paused.items():
            if _is_below(task, root):
                held.append(task)
                return
        insort(self._tasks, task, key=_spawned)

    def pause(self, root: Task) -> None:
        self._paused[root] = [task for task in self._tasks if _is_below(task, root)]
        self._tasks[:] = [task for task in self._tasks if not _is_below(task, root)]

    def go_on(self, root: Task) -> None:
        for task in self._paused.pop(root, ()):
            self.append(task)

    def __iter__(self) -> Iterator[Task]:
        tasks = self._tasks
        if len(tasks) > 1:
            return iter((tasks.pop(self._choose(tasks)),))
        return iter((tasks.pop(),) if tasks else ())

    def clear(self) -> None:
        pass


def _is_below(task: Task, root: Task) -> bool:
    above: Task | None = task
    while above is not None and above is not root:
        nursery = above.parent_nursery
        above = None if nursery is None else nursery.parent_task
    return above is root
