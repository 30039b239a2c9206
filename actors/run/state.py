"""What the engine knows of one run in memory: plain data, and the few things that everyone does with it.

It belongs to the run's machine (`machine.py`), which hands it to the functions that decide about messages.
What few runs need is made when it is needed. Nothing in it but a live body leads back to the actor, so a
run that has ended is freed at once, without the garbage collector.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ...persistence.store import WakesAt
from ...protocol.events import Event
from ...protocol.records import RunRecord
from ...protocol.states import ENDED, Status
from ..channel import Reply
from ..effects import Effects
from ..journal.change import Change, Outcome
from ..messages import Cancel, Enter, Leave, Recovered, Started, Stop, Submission
from .context import Services
from .execution import Execution, LiveBodies
from .interrupts import Interrupts, Kept
from .message_gate import MessageGate
from .pause import Pause
from .timers import RunClock, Timers

Steps = Generator[Change, Outcome, None]
"""How a message is decided about: a change that is yielded is committed or refused before the next step."""

Errand = tuple[Callable[[], Awaitable[Any]], Callable[[Any], Steps]]

_NO_ANSWERS: Mapping[str, Kept] = {}


class End(msgspec.Struct, frozen=True):
    """How the run ends. `reply` gets its record; `None` for a run that could not be stored."""

    to: Status
    reason: str | None
    by: str
    result: Any = None
    error: str | None = None
    body_remains: bool = False
    reply: Reply[RunRecord | None] | None = None


class Verdict(msgspec.Struct, frozen=True):
    """How the run goes on once its body, which has been told to end, has ended."""

    to: Status
    reason: str
    by: str


class RunState:
    """See the module's text. There may be very many, so what is mostly empty is a tuple, not a list."""

    __slots__ = (
        "_interrupts",
        "abandoned",
        "attempt",
        "deaths",
        "effects",
        "ending",
        "errands",
        "execution",
        "files",
        "files_doomed",
        "gate",
        "generation",
        "id",
        "inbox",
        "lapsed",
        "late_cancels",
        "live_bodies",
        "next_attempt",
        "now",
        "orphans",
        "put_aside",
        "recovering",
        "resuming",
        "run_clock",
        "services",
        "starting",
        "status",
        "stopping",
        "submission",
        "timers",
        "unwanted",
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
        self.put_aside: deque[Any] | None = None  # messages that have come while a change is being committed
        # What is stored, once everything that was asked for is committed.
        self.status = Status.QUEUED
        self.attempt = 0
        self.generation: int | None = None  # of the slot that the run holds
        self.waiting_for: str | None = None
        # What it waits for and what it is told.
        self.gate = MessageGate(submission.id, submission.job.accepts)
        self._interrupts: Interrupts | None = None
        self.timers = Timers()
        self.run_clock = RunClock()
        self.next_attempt = 1  # the number of the attempt that the next slot is for
        self.execution: Execution | None = None
        self.verdict: Verdict | None = None
        self.unwanted = False  # it was to make way, and only its post-processing is awaited
        self.abandoned = False
        self.lapsed = False  # a body of it had to go because the engine lost its lease
        self.stopping: Stop | None = None
        self.resuming: Reply[None] | None = None  # of a body whose wait is over, and that needs a slot
        self.inbox: Sequence[Any] = ()  # the messages or signals that the last body left
        self.waits_for: Pause | None = None  # without a body
        self.waits_until: float | None = None  # in Unix seconds
        self.woken_at: float | None = None  # the wake time, in Unix seconds, that brings the next body
        self.files: Sequence[str] = ()  # those that this run has finished
        self.files_doomed = False  # whether they are deleted unless the run succeeds
        self.deaths = 0  # processes that died while they executed it, as far as that is kept
        self.orphans: Sequence[str] = ()  # the children of a body that a restart has ended
        self.errands: tuple[Errand, ...] = ()  # what helper tasks do for it, and what follows then
        self.ending: End | None = None  # which is committed when the errands before it are done
        self.recovering = False  # that end is one that a restart brings, and starts wait for it, for a moment
        self.late_cancels: Sequence[Cancel] = ()  # that have come meanwhile, and are answered afterwards
        self.starting = False  # it is running, and its body begins when the errands before it are done

    @property
    def ended(self) -> bool:
        """Whether the run's status is final."""
        return self.status in ENDED

    # Its interrupts, which most runs never have.

    @property
    def interrupts(self) -> Interrupts:
        """What its bodies ask people."""
        if self._interrupts is None:
            self._interrupts = Interrupts(self.submission, self.services.wall_clock)
        return self._interrupts

    @property
    def asks(self) -> bool:
        """Whether any of its bodies has ever asked."""
        return self._interrupts is not None

    def answers(self) -> Mapping[str, Kept]:
        """The answers that are kept for its bodies, by key."""
        return _NO_ANSWERS if self._interrupts is None else self._interrupts.kept

    def closing(self, outcome: str, answer: Any, by: str) -> Sequence[Event]:
        """The events that close all open interrupts."""
        return () if self._interrupts is None else self._interrupts.closing(outcome, answer, by)

    def forget_interrupts(self) -> None:
        """All of them are closed, and nobody waits for an answer any more."""
        if self._interrupts is not None:
            self._interrupts.forget()

    # Its places in the lane and in the engine.

    def wakes_at(self, at: float | None, within: float | None, *, bodiless: bool) -> WakesAt:
        """The memo of a wait until a time, in Unix seconds, which is so many seconds away."""
        self.waits_until = at
        self.submission.terms = replace(self.submission.terms, waits=within, bodiless=bodiless)
        return WakesAt(self.id, at, self.submission.terms)

    def ask_for_slot(self, *, new_place: bool = False) -> None:
        """Ask for a slot, at the place that the run has, or at a new one: for another attempt."""
        self.effects.tell(
            "supervisor", "", Enter(self.id, self.next_attempt, self.execution is not None, new_place)
        )

    def leave_lane(self) -> None:
        """Ask for no slot any more."""
        self.effects.tell("supervisor", "", Leave(self.id, self.execution is not None))

    def stop_waiting(self) -> None:
        """What it waited for without a body has come: ask for a slot for a new one."""
        self.waits_for = None
        self.timers.drop("wake")
        self.ask_for_slot()

    def recovered(self) -> None:
        """Say that it stands where it belongs after a restart."""
        self.recovering = False
        self.effects.tell("supervisor", "", Recovered())

    def take_slot(self, started: Started) -> None:
        """The run is `running`: that is committed."""
        self.status, self.attempt, self.generation = Status.RUNNING, started.attempt, started.generation
        self.waiting_for = None

    def again(self, message: Any) -> None:
        """Handle a message once more, behind those that were put aside."""
        assert self.put_aside is not None, "the start that came first stands there"
        self.put_aside.append(message)

    def go_on(self) -> None:
        """Let a body go on whose wait is over."""
        resuming, self.resuming = self.resuming, None
        if resuming is not None:
            resuming.set(None)
