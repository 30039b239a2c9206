"""What the engine knows of one run in memory: plain data, and the few things that everyone does with it.

It belongs to the run's actor. The actor hands it to the functions in `outcomes.py`, `ending.py`, `asking.py`
and `comeback.py`, each of which handles a message or a timer within the actor's own task; nobody else sees
it. Nothing in it but a live body leads back to the actor, so a run that has ended is freed at once, without
the garbage collector.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ..persistence.store import WakesAt
from ..protocol.states import Status
from .actor import Delivery
from .body import Services
from .channel import Reply
from .doorstep import Doorstep
from .execution import Execution, LiveBodies
from .ledger import Ledger
from .messages import Cancel, Enter, Leave, Left, Recovered, Retry, Stop, Submission
from .pause import Pause
from .questions import Questions
from .timers import RunClock, Timers

_Errand = tuple[Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]]


class Verdict(msgspec.Struct, frozen=True):
    """How the run goes on once its body, which has been told to end, has ended."""

    to: Status
    reason: str
    by: str


class RunState:
    """See the module's text. There may be very many, so what is mostly empty is a tuple, not a list."""

    __slots__ = (
        "abandoned",
        "deaths",
        "delivery",
        "doorstep",
        "ending",
        "errands",
        "execution",
        "files",
        "files_doomed",
        "id",
        "inbox",
        "journal",
        "lapsed",
        "late_cancels",
        "ledger",
        "live_bodies",
        "next_attempt",
        "orphans",
        "put_aside",
        "questions",
        "recovering",
        "resuming",
        "run_clock",
        "services",
        "starting",
        "stopping",
        "submission",
        "timers",
        "unwanted",
        "verdict",
        "waits_for",
        "waits_until",
        "woken_at",
    )

    def __init__(
        self, submission: Submission, delivery: Delivery, services: Services, live_bodies: LiveBodies
    ) -> None:
        self.id = submission.id
        self.submission = submission
        self.delivery = delivery
        self.services = services
        self.journal = services.journal
        self.live_bodies = live_bodies
        self.ledger = Ledger(submission, services.journal)
        self.doorstep = Doorstep(submission.id, submission.job.accepts)
        self.questions = Questions(submission, services.journal, services.wall_clock)
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
        self.waits_until: float | None = None  # with a body, in Unix seconds
        self.woken_at: float | None = None  # the wake time, in Unix seconds, that brings the next body
        self.files: Sequence[str] = ()  # those that this run has finished
        self.files_doomed = False  # whether they are deleted unless the run succeeds
        self.deaths = 0  # processes that died while they executed it, as far as that is kept
        self.orphans: Sequence[str] = ()  # the children of a body that a restart has ended
        self.errands: tuple[_Errand, ...] = ()  # what helper tasks do for it, and what follows then
        self.ending = False  # its end is decided, and is committed when the errands before it are done
        self.recovering = False  # that end is one that a restart brings, and starts wait for it, for a moment
        self.late_cancels: Sequence[Cancel] = ()  # that have come meanwhile, and are answered afterwards
        self.starting = False  # it has a slot, and its body begins when the errands before it are done
        self.put_aside: Sequence[Any] = ()  # the messages that have come meanwhile

    def wakes_at(self, at: float | None, within: float | None) -> WakesAt:
        """The memo of a wait until a time, in Unix seconds, which is so many seconds away."""
        self.submission.terms = replace(self.submission.terms, waits=within)
        return WakesAt(self.id, at, self.submission.terms)

    def enter_lane(self) -> None:
        """Ask for a slot, at the place that the run has."""
        submission = self.submission
        assert submission.place is not None, "a run that executed has a place"
        self.delivery.tell("lane", submission.lane, Enter(submission, submission.place, False))

    def stop_waiting(self) -> None:
        """What it waited for without a body has come: ask for a slot for a new one."""
        self.waits_for = None
        self.timers.drop("wake")
        self.enter_lane()

    def recovered(self) -> None:
        """Say that it stands where it belongs after a restart."""
        self.recovering = False
        self.delivery.tell("supervisor", "", Recovered())

    def ask_for_new_place(self) -> None:
        """Ask for a slot, at a new place: for another attempt."""
        self.delivery.tell("supervisor", "", Retry(self.id))

    def give_back(self, generation: int) -> None:
        """Have no use for a slot that was granted."""
        lane = self.submission.lane
        self.delivery.tell("lane", lane, Leave(self.id, generation))
        self.delivery.tell("supervisor", "", Left(self.id, lane, generation, unused=True))

    def go_on(self) -> None:
        """Let a body go on whose wait is over."""
        resuming, self.resuming = self.resuming, None
        if resuming is not None:
            resuming.set(None)
