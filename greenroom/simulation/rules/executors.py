"""Rules 12 and 13, checked against the bodies that executors execute.

12. At no time do two bodies of a handle execute; and when a run loses its body, that body has ended, or the
    ttl of its executor has passed. The exception is an executor that was paused for longer than the ttl and
    has not noticed that yet: it ends its bodies a moment after it continues.
13. A run loses no body whose executor was reachable: a lost body was not heard of for the ttl.

Fences only grow for a handle, and no executor gets more bodies with slots than it has slots.

The ttl counts from the last sign of life that the engine has received and accepted; after a restart of the
engine, from that restart at the earliest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import attrs

from ...protocol.events import ExecutorChanged, RunStateChanged
from ..model.state import ModelExecutor, ModelRun, ModelState

_MOMENT = 2 / 15
"""The fraction of the ttl in which an executor that was paused ends its bodies: it does so a moment after it
continues, or after it attaches."""

_LAPSES_AFTER = 2 / 3 / 1.1
"""The fraction of the ttl after which an executor ends its bodies at the earliest: its clock can be fast."""

_SLACK = 0.01


class Body(Protocol):
    """The attributes of its run that a body can read."""

    id: str
    handle: str
    attempt: int
    kind: str
    params: Any

    @property
    def checkpoint(self) -> Any: ...
    @property
    def fence(self) -> int: ...


@attrs.define(eq=False)
class Process:
    """A process of an executor. `start` identifies it."""

    executor: str
    start: str
    dead: bool = False
    paused: bool = False
    draining: bool = False
    continued_at: float = -math.inf
    lapsed_at: float = -math.inf
    """When it last ended its bodies because it did not reach its engine."""


@attrs.define(eq=False)
class _Body:
    run: str
    handle: str
    fence: int
    process: Process
    begun_at: float
    executes: bool = True
    disowned: bool = False
    """Whether its run has lost it."""

    def __repr__(self) -> str:
        return f"the body of run {self.run} with fence {self.fence} at {self.process.start}"


class ExecutorRules:
    """See the module's docstring. `now` is trio's time; `local_bodies` returns the runs with bodies on a
    handle in the engine's own process."""

    def __init__(
        self,
        model: ModelState,
        now: Callable[[], float],
        local_bodies: Callable[[str], set[str]],
        fault: Callable[[str], None],
    ) -> None:
        self._model = model
        self._now = now
        self._local_bodies = local_bodies
        self._fault = fault
        self._ttl = math.inf
        self._up_since = math.inf
        self._serves = False
        self._heard: dict[str, float] = {}  # by start id of a process
        self._bodies: dict[tuple[str, int], _Body] = {}
        self._never_begin: set[tuple[str, int]] = set()  # bodies whose orders were withdrawn
        self._released: set[tuple[str, int]] = set()  # bodies from which a client has released the handle

    # The engine's lives.

    def begin_life(self, ttl: float, *, alone: bool) -> None:
        """An engine opens the store. `alone`: it executes bodies itself."""
        self._ttl, self._up_since = ttl, self._now()
        self._model.executes_itself = alone
        self._serves = True

    def leaving(self) -> None:
        """The engine shuts down: it no longer serves executors."""
        self._serves = False

    def end_life(self) -> None:
        """The engine has ended."""
        self._up_since = math.inf

    # Executors.

    def heard(self, start: str, at: float) -> None:
        """The engine has received a sign of life from a process at this time, and accepted it."""
        # A paused leader can receive an early sign after its successor has received a later one.
        self._heard[start] = max(at, self._heard.get(start, -math.inf))

    def lapses(self, process: Process, fine_since: float) -> None:
        """Check a process that ends its bodies because it does not reach its engine. Its network has had no
        fault since `fine_since`."""
        process.lapsed_at = self._now()
        fine_since = max(fine_since, process.continued_at, self._up_since)
        if self._serves and self._now() - fine_since > _LAPSES_AFTER * self._ttl:
            self._fault(
                f"process {process.start} lapses although it could reach its engine since {fine_since:g}"
            )

    def process_ended(self, process: Process) -> None:
        """A process has ended, with all its bodies."""
        for body in self._executing():
            if body.process is process:
                body.executes = False

    def executor_changed(self, event: ExecutorChanged) -> None:
        """Read the event of an executor."""
        self._model.had_executors = True
        if event.status == "gone":
            self._model.executors.pop(event.executor, None)
        else:
            self._model.executors[event.executor] = ModelExecutor(
                event.status, event.slots, frozenset(event.labels), frozenset(event.jobs)
            )

    # Bodies.

    def body_begins(self, process: Process, body: Body) -> None:
        """Check a body that starts at an executor."""
        run = self._model.runs[body.id]
        key = body.id, body.fence
        if key in self._never_begin:
            self._fault(f"{body.id} with fence {body.fence} starts at {process.start}, but was withdrawn")
        if key in self._bodies:
            self._fault(f"{self._bodies[key]} starts a second time, at {process.start}")
        known = self._bodies[key] = _Body(body.id, body.handle, body.fence, process, self._now())
        others = [
            other
            for other in self._executing()
            if other.handle == body.handle and other is not known and not self._is_excused(other)
        ]
        others = [other for other in others if (other.run, other.fence) not in self._released]
        if others or self._local_bodies(body.handle):
            self._fault(
                f"{known} starts while others execute on the same handle: "
                f"{others or self._local_bodies(body.handle)}"
            )
        if body.fence != run.fence:
            if not self._is_excused(known):
                self._fault(f"{known} starts, but the fence of {run} is {run.fence}")
            return
        if run.executor != process.executor:
            self._fault(f"{known} starts, but {run} was given to executor {run.executor}")
        if body.attempt != run.attempt:
            self._fault(f"{known} starts attempt {body.attempt} of {run}")
        if body.params != run.params:
            self._fault(f"{known} starts with parameters {body.params}, expected {run.params}")
        saver, saved = self._model.checkpoints.get((run.handle, run.job), (None, None))
        if body.kind == "start" and saver != run.id:
            saved = None
        if body.checkpoint != saved and not run.ended:
            self._fault(f"{known} resumes from checkpoint {body.checkpoint}, expected {saved}")

    def body_ends(self, process: Process, run: str, fence: int) -> None:
        """Record that a body has ended."""
        self._bodies[run, fence].executes = False

    def executes(self, run: str) -> bool:
        """Whether a run has a body at an executor, except one that is allowed to be late."""
        return any(body.run == run and not self._is_excused(body) for body in self._executing())

    def released(self, run: str) -> None:
        """Record that a handle was released from the bodies of a run."""
        self._released |= {key for key in self._bodies if key[0] == run}

    def executing(self) -> list[str]:
        """Descriptions of the bodies that execute."""
        return [str(body) for body in self._executing()]

    def _executing(self) -> Iterator[_Body]:
        return (body for body in list(self._bodies.values()) if body.executes)

    def _is_lost(self, process: Process) -> bool:
        """Whether the ttl of a process has passed, as the engine counts it."""
        heard = max(self._heard.get(process.start, -math.inf), self._up_since)
        return self._now() >= heard + self._ttl - _SLACK

    def _is_excused(self, body: _Body) -> bool:
        process = body.process
        late = process.paused or self._now() <= process.continued_at + _MOMENT * self._ttl + _SLACK
        return late and (self._is_lost(process) or body.disowned)

    # Committed events.

    def starts(self, event: RunStateChanged, run: ModelRun) -> None:
        """Check the start of a body at an executor. The run's slot is not counted yet."""
        handle = self._model.handle(run.handle)
        if event.seq <= handle.fence:
            self._fault(f"{event}: the handle's fence was {handle.fence}")
        handle.fence = event.seq
        if event.executor is None:
            if not self._model.executes_itself and not run.walks:
                self._fault(f"{event}: the engine executes no bodies itself")
            return
        if event.executor in self._model.executors and not self._model.has_job(event.executor, run):
            self._fault(f"{event}: executor {event.executor} does not have the job or the labels of {run}")

    def slot_taken(self, event: RunStateChanged, run: ModelRun) -> None:
        """Check that an executor has a slot for a body that starts or continues."""
        executor = self._model.executors.get(run.executor or "")
        if executor is not None and executor.slots is not None:
            holders = self._model.holders_at(run.executor)
            if len(holders) > executor.slots:
                self._fault(f"{event}: executor {run.executor} has {executor.slots} slots: {holders}")

    def loses_body(self, run: ModelRun, reason: str | None) -> None:
        """Check that a run may lose its body: the body has ended, or its executor is lost."""
        body = self._bodies.get((run.id, run.fence))
        if reason == "not_begun":
            self._never_begin.add((run.id, run.fence))
            if body is not None:
                self._fault(f"{run} loses its body because it has not begun, but {body} has")
        if body is None or run.executor is None:
            return
        body.disowned = True
        if body.executes and not self._is_excused(body):
            self._fault(f"{run} loses its body ({reason}), but {body} executes")
        lost = reason in ("executor_lost", "body_lost", "crashed", "killed")
        if lost and not self._is_lost(body.process) and body.process.lapsed_at < body.begun_at:
            self._fault(f"{run} loses its body ({reason}), but the engine has heard of {body} within the ttl")

    # At the end of an instant.

    def end_instant(self) -> None:
        """Check that no body executes when the ttl of its executor has passed, or its run has lost it."""
        for body in self._executing():
            if body.disowned and not self._is_excused(body):
                self._fault(f"{body} executes, but its run has lost it")
            if self._is_lost(body.process) and not self._is_excused(body):
                self._fault(f"{body} executes, but the ttl has passed since the engine heard of its executor")
