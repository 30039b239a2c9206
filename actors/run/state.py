"""The state of one run in memory: plain data, and the operations that several modules need.

It belongs to the run's machine (`machine.py`), which passes it to the functions that decide about messages.
Parts that few runs need are created on first use. Only a live body refers back to the actor, so the memory
of an ended run is freed immediately, without the garbage collector.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ...persistence.store import Checkpoint, WakesAt
from ...protocol.events import Event
from ...protocol.executors import Execute
from ...protocol.records import RunRecord
from ...protocol.states import ENDED, Status
from ..channel import Reply
from ..effects import Effects
from ..journal.change import Change, Outcome
from ..messages import Cancel, Enter, Leave, Recovered, Started, Stop, Submission
from .execution import Execution, LiveBodies
from .interrupts import Interrupts, Kept
from .local_host import LocalHost
from .message_gate import MessageGate
from .pause import Pause
from .services import Services
from .timers import RunClock, Timers

Steps = Generator[Change, Outcome, None]
"""The steps that handle a message: each yielded change is committed or refused before the next step."""

AnySteps = Generator[Change, Outcome, object]
"""Steps with any result, which is not used."""

BackgroundTask = tuple[Callable[[], Awaitable[Any]], Callable[[Any], Steps]]

_NO_ANSWERS: Mapping[str, Kept] = {}


class End(msgspec.Struct, frozen=True):
    """How the run ends. `reply` is answered with the run's record, or `None` if the run was never stored."""

    to: Status
    reason: str | None
    by: str
    result: Any = None
    error: str | None = None
    body_remains: bool = False
    reply: Reply[RunRecord | None] | None = None


class Verdict(msgspec.Struct, frozen=True):
    """How the run continues when its body, which was requested to end, has ended."""

    to: Status
    reason: str
    by: str


class RunState:
    """See the module's docstring. There can be very many, so parts that are mostly empty are tuples."""

    __slots__ = (
        "_interrupts",
        "abandoned",
        "adopted_wait",
        "attempt",
        "background",
        "deaths",
        "deferred",
        "effects",
        "ending",
        "execution",
        "executor",
        "fence",
        "files",
        "files_doomed",
        "foreign_files",
        "gate",
        "generation",
        "host",
        "id",
        "inbox",
        "lapsed",
        "late_cancels",
        "live_bodies",
        "next_attempt",
        "no_retry",
        "now",
        "orphans",
        "recovering",
        "resuming",
        "run_clock",
        "services",
        "starting",
        "status",
        "stopping",
        "submission",
        "timers",
        "verdict",
        "waiting_for",
        "waits_for",
        "waits_until",
        "woken_at",
    )

    def __init__(self, submission: Submission, services: Services, live_bodies: LiveBodies) -> None:
        self.id = submission.id
        self.submission = submission
        self.services = services
        self.live_bodies = live_bodies
        self.effects = Effects()
        self.now = 0.0  # trio's time as of this turn
        self.deferred: deque[Any] | None = None  # messages received while a change is being committed
        # What is stored once all pending changes are committed.
        self.status = Status.QUEUED
        self.attempt = 0
        self.generation: int | None = None  # of the slot that the run has
        self.executor: str | None = None  # where the next or current body executes; `None` for this process
        self.fence = 0  # of the next or current body
        self.waiting_for: str | None = None
        # What it waits for, and its messages.
        self.gate = MessageGate(submission.id, submission.job.accepts)
        self._interrupts: Interrupts | None = None
        self.timers = Timers()
        self.run_clock = RunClock()
        self.next_attempt = 1  # the number of the attempt that the next slot is for
        self.execution: Execution | None = None
        self.host: LocalHost | None = None  # of the current body
        self.verdict: Verdict | None = None
        self.no_retry = False  # it was to be cancelled in post-processing: it is not retried
        self.abandoned = False
        self.lapsed = False  # one of its bodies ended without a result, so there can be a checkpoint
        self.adopted_wait: str | None = None  # the wait without a slot that an adopted body can repeat
        self.stopping: Stop | None = None
        self.resuming: Reply[None] | None = None  # of a body whose wait has ended and that needs a slot
        self.inbox: Sequence[Any] = ()  # the messages or signals that the last body did not take
        self.waits_for: Pause | None = None  # without a body
        self.waits_until: float | None = None  # in Unix seconds
        self.woken_at: float | None = None  # the wake time, in Unix seconds, for which the next body starts
        self.files: Sequence[str] = ()  # the files that this run has finished in the engine's data folder
        self.foreign_files: dict[str, tuple[str, ...]] | None = None  # those in other data folders, by folder
        self.files_doomed = False  # whether they are deleted unless the run succeeds
        self.deaths = 0  # how many processes died while they executed it, as far as stored
        self.orphans: Sequence[str] = ()  # the child runs of a body that a restart ended
        self.background: tuple[BackgroundTask, ...] = ()  # each with its follow-up step
        self.ending: End | None = None  # the end that is committed after the background tasks
        self.recovering = False  # a restart ends it, and starts of other runs wait for that
        self.late_cancels: Sequence[Cancel] = ()  # received while it is ending, answered afterwards
        self.starting = False  # it is running, and its body starts after the background tasks

    @property
    def ended(self) -> bool:
        """Whether the run's status is final."""
        return self.status in ENDED

    @property
    def has_files(self) -> bool:
        """Whether the run has finished files."""
        return bool(self.files or self.foreign_files)

    def keep_files(self, host: LocalHost) -> None:
        """The body has ended: record the files that it has finished."""
        if not host.folder:
            self.files = (*self.files, *host.files)
            return
        kept = self.foreign_files or {}
        self.foreign_files = kept | {host.folder: (*kept.get(host.folder, ()), *host.files)}

    # Interrupts, which most runs never have.

    @property
    def interrupts(self) -> Interrupts:
        """The interrupts of the run, created on first use."""
        if self._interrupts is None:
            self._interrupts = Interrupts(self.submission, self.services.wall_clock)
        return self._interrupts

    @property
    def has_interrupts(self) -> bool:
        """Whether any of its bodies has opened an interrupt."""
        return self._interrupts is not None

    def answers(self) -> Mapping[str, Kept]:
        """The stored answers for its bodies, by key."""
        return _NO_ANSWERS if self._interrupts is None else self._interrupts.kept

    def closing(self, outcome: str, answer: Any, by: str) -> Sequence[Event]:
        """The events that close all open interrupts."""
        return () if self._interrupts is None else self._interrupts.closing(outcome, answer, by)

    def forget_interrupts(self) -> None:
        """Remove all open interrupts: their closing is committed, and no body waits for an answer."""
        if self._interrupts is not None:
            self._interrupts.forget()

    # Its lane and the supervisor.

    def wakes_at(self, at: float | None, within: float | None, *, bodiless: bool) -> WakesAt:
        """The memo of a wait until the time `at` (Unix seconds), which is `within` seconds away."""
        self.waits_until = at
        self.submission.terms = replace(self.submission.terms, waits=within, bodiless=bodiless)
        return WakesAt(self.id, at, self.submission.terms)

    def ask_for_slot(self, *, new_place: bool = False) -> None:
        """Request a slot: at the run's place, or at a new one for a retry."""
        self.effects.tell(
            "supervisor", "", Enter(self.id, self.next_attempt, self.execution is not None, new_place)
        )

    def leave_lane(self) -> None:
        """Withdraw the request for a slot."""
        self.effects.tell("supervisor", "", Leave(self.id, self.execution is not None))

    def stop_waiting(self) -> None:
        """The wait without a body has ended: request a slot for a new body."""
        self.waits_for = None
        self.timers.drop("wake")
        self.ask_for_slot()

    def report_recovered(self) -> None:
        """Report to the supervisor that the recovery of this run after a restart is complete."""
        self.recovering = False
        self.effects.tell("supervisor", "", Recovered())

    def take_slot(self, started: Started) -> None:
        """Record that the run is `running`, which is committed."""
        self.status, self.attempt, self.generation = Status.RUNNING, started.attempt, started.generation
        self.waiting_for = self.adopted_wait = None
        if not started.resumes:
            event = started.event
            self.executor, self.fence = event.executor, event.seq

    @property
    def had_body(self) -> bool:
        """Whether the run can have had a body before this one."""
        return self.attempt > 1 or self.submission.stored is not None or self.lapsed

    def order_for_body(self, checkpoint: Checkpoint | None) -> Execute:
        """What the next body executes. It resumes from the checkpoint; the counts of interrupts and calls
        continue only from one of this run."""
        submission, value, interrupts, calls = self.submission, None, 0, 0
        trace = submission.terms.trace
        if checkpoint is not None:
            value = checkpoint.value
            if checkpoint.run == self.id:
                interrupts, calls = checkpoint.interrupts, checkpoint.calls
        return Execute(
            run=self.id,
            fence=self.fence,
            attempt=self.attempt,
            job=submission.job.name,
            handle=submission.handle,
            lane=submission.lane,
            kind=submission.kind,
            params=submission.params,
            checkpoint=value,
            interrupts=interrupts,
            calls=calls,
            again=self.had_body,
            traceparent=None if trace is None else trace.parent,
            tracestate=None if trace is None else trace.state,
        )

    def handle_again(self, message: Any) -> None:
        """Handle a message once more, after the deferred messages."""
        assert self.deferred is not None, "it contains the start that was received first"
        self.deferred.append(message)

    def resume_body(self) -> None:
        """Let a body continue whose wait has ended."""
        resuming, self.resuming = self.resuming, None
        if resuming is not None:
            resuming.set(None)
