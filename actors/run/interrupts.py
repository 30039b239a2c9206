"""The open interrupts of one run, and the answers to its closed ones.

An answer is kept until the body saves its next checkpoint. A later body (after a retry or a restart) that
opens the same interrupt under the same key gets the stored answer. An interrupt with the same key but other
data is a new interrupt and never gets that answer.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Generator
from typing import Any

import msgspec

from ...persistence.store import StoredInterrupt
from ...protocol.events import Event, InterruptClosed, InterruptOpened
from ...protocol.values import same_json
from ..channel import Reply
from ..journal.change import REPORTING, Change, Outcome
from ..messages import AnswerInterrupt, Submission
from .body_messages import OpenInterrupt
from .pause import AwaitedInterrupt

logger = logging.getLogger("greenroom")


class OpenedInterrupt(msgspec.Struct):
    """An open interrupt; `deadline` is in trio's time."""

    id: str
    key: str
    data: Any
    deadline: float
    answer: Reply[Any] | None  # `None` after a restart, until a body opens it again


class Kept(msgspec.Struct, frozen=True, gc=False):
    """The answer to a closed interrupt."""

    id: str
    data: Any
    answer: Any


class Interrupts:
    """Belongs to the run's actor, which decides whether a body may open an interrupt."""

    __slots__ = ("_open", "_opened", "_submission", "_unspent", "_wall_clock", "kept")

    def __init__(self, submission: Submission, wall_clock: Callable[[], float]) -> None:
        self.kept: dict[str, Kept] = {}  # by key
        self._submission = submission
        self._wall_clock = wall_clock
        self._open: dict[str, OpenedInterrupt] = {}  # by key
        self._opened = 0
        self._unspent: list[str] = []  # ids of those closed with an answer since the last checkpoint

    def restore(self, stored: list[StoredInterrupt], now: float) -> None:
        """Load the interrupts that were opened before a restart."""
        self._opened = len(stored)
        wall_now = self._wall_clock()
        for interrupt in sorted(stored, key=_number):
            if interrupt.spent:
                continue
            key = interrupt.key
            self._open.pop(key, None)  # the last one under a key counts
            self.kept.pop(key, None)
            if interrupt.outcome is None:
                deadline = math.inf
                if interrupt.deadline is not None:  # the clock may have been set back
                    asked_for = interrupt.deadline - interrupt.opened_at
                    deadline = now + min(interrupt.deadline - wall_now, asked_for)
                self._open[key] = OpenedInterrupt(interrupt.id, key, interrupt.data, deadline, None)
            elif interrupt.outcome in ("answered", "timed_out"):
                self.kept[key] = Kept(interrupt.id, interrupt.data, interrupt.answer)
                self._unspent.append(interrupt.id)

    def awaited_by_body(self, key: str) -> bool:
        """Whether a body already waits for the answer to this key."""
        interrupt = self._open.get(key)
        return interrupt is not None and interrupt.answer is not None

    def any_open(self) -> bool:
        """Whether an interrupt is open."""
        return bool(self._open)

    def deadline(self) -> float:
        """When the first open interrupt times out."""
        if not self._open:
            return math.inf
        return min((interrupt.deadline for interrupt in self._open.values()), default=math.inf)

    def stored_answer(self, request: OpenInterrupt) -> Kept | None:
        """The stored answer to this interrupt, if any."""
        kept = self.kept.get(request.key)
        return kept if kept is not None and same_json(kept.data, request.data) else None

    def open(self, request: OpenInterrupt, now: float) -> list[Event]:
        """Open an interrupt; returns the events to commit.

        There are none if the interrupt was open before a restart and still is. An interrupt that is stored
        under the same key with other data is withdrawn.
        """
        before, withdrawn = self._open.get(request.key), []
        if before is not None and same_json(before.data, request.data):
            before.answer = request.answer
            return []
        if before is not None:
            withdrawn.append(self._closed(before, "withdrawn", None, "body"))
        stored = before or self.kept.pop(request.key, None)
        if stored is not None:
            self._warn_of_other_data(request.key, stored.id)
        return [*withdrawn, self._open_new(request, now)]

    def _open_new(self, request: OpenInterrupt, now: float) -> InterruptOpened:
        self._opened += 1
        id = f"{self._submission.id}.{self._opened}"
        self._open[request.key] = OpenedInterrupt(
            id, request.key, request.data, now + request.timeout, request.answer
        )
        return InterruptOpened(
            by="body",
            interrupt=id,
            key=request.key,
            data=request.data,
            deadline=None if request.timeout == math.inf else self._wall_clock() + request.timeout,
            **self._submission.about(),
        )

    def _warn_of_other_data(self, key: str, id: str) -> None:
        submission = self._submission
        logger.warning(
            "run %s of job %r opened an interrupt under key %r with other data than its previous body; "
            "interrupt %s is withdrawn and a new one is opened; a body that resumes from a checkpoint must "
            "open the same interrupts in the same order, or pass a different key for each",
            submission.id,
            submission.job.name,
            key,
            id,
        )

    def open_without_body(self, interrupt: AwaitedInterrupt) -> list[Event]:
        """Open an interrupt of a run that waits without a body; returns the events to commit.

        Its key is unique in the run, so a stored interrupt with this key is the same one.
        """
        key = interrupt.key
        if key in self.kept or key in self._open:
            return []
        opened = self._open_new(
            OpenInterrupt(interrupt.data, math.inf, key, False, Reply(), Reply()), math.inf
        )
        self._open[key].answer = None
        return [opened]

    def answer(self, message: AnswerInterrupt) -> Generator[Change, Outcome, str]:
        """Close an open interrupt with this answer; returns `resolved`, `already_resolved` or `not_found`."""
        for interrupt in self._open.values():
            if interrupt.id == message.interrupt:
                yield from self._close(interrupt, "answered", message.data, message.by)
                self.kept[interrupt.key] = Kept(interrupt.id, interrupt.data, message.data)
                if interrupt.answer is not None:
                    interrupt.answer.set(message.data)
                return "resolved"
        return "already_resolved" if self._was_opened(message.interrupt) else "not_found"

    def _was_opened(self, id: str) -> bool:
        """Whether this run has opened an interrupt with this id, which a client can have made up."""
        number = id.rpartition(".")[2]
        # The length is checked before the conversion, which refuses very long numbers.
        fits = len(number) <= len(str(self._opened)) and number.isdecimal()
        return fits and 1 <= int(number) <= self._opened

    def on_deadline(self, now: float) -> Generator[Change, Outcome, None]:
        """Close the interrupts whose deadline has passed."""
        for interrupt in list(self._open.values()):
            if interrupt.deadline <= now:
                yield from self._close(interrupt, "timed_out", None, "engine")
                if interrupt.answer is not None:
                    interrupt.answer.set(None)
                else:
                    self.kept[interrupt.key] = Kept(interrupt.id, interrupt.data, None)  # for the next body

    def advance(self, seconds: float) -> None:
        """Move the deadlines of all open interrupts `seconds` earlier."""
        for interrupt in self._open.values():
            interrupt.deadline -= seconds

    def withdraw(self, key: str) -> Event | None:
        """Close an interrupt that the body no longer waits for; returns the event."""
        interrupt = self._open.pop(key, None)
        return None if interrupt is None else self._closed(interrupt, "withdrawn", None, "body")

    def pass_checkpoint(self) -> tuple[list[Event], tuple[str, ...]]:
        """The body saves a checkpoint.

        Returns the events that close the interrupts that no body waits for, and the ids of the interrupts
        whose answers are no longer kept.
        """
        left = [interrupt for interrupt in self._open.values() if interrupt.answer is None]
        for interrupt in left:
            del self._open[interrupt.key]
        spent, self._unspent = tuple(self._unspent), []
        self.kept.clear()
        return [self._closed(interrupt, "withdrawn", None, "body") for interrupt in left], spent

    def closing(self, outcome: str, answer: Any, by: str) -> list[Event]:
        """The events that close all open interrupts."""
        return [self._closed(interrupt, outcome, answer, by) for interrupt in self._open.values()]

    def refuse(self, answer: Any) -> None:
        """Remove all open interrupts and pass this answer to the body."""
        interrupts, self._open = self._open, {}
        for interrupt in interrupts.values():
            if interrupt.answer is not None:
                interrupt.answer.set(answer)

    def body_ended(self) -> None:
        """No body waits for the answers now; the next body, or the same one when its executor has attached
        again, can open the interrupts again."""
        for interrupt in self._open.values():
            interrupt.answer = None

    def forget(self) -> None:
        """Remove all open interrupts: their closing is committed, and no body waits for an answer."""
        self._open.clear()

    def fail(self, error: Exception) -> None:
        """Fail the body's waits for answers. The interrupts are closed with the end of the run."""
        for interrupt in self._open.values():
            if interrupt.answer is not None:
                interrupt.answer.fail(error)

    def _close(
        self, interrupt: OpenedInterrupt, outcome: str, answer: Any, by: str
    ) -> Generator[Change, Outcome, None]:
        event = self._closed(interrupt, outcome, answer, by)
        yield Change((event,), run=self._submission.id, expect=REPORTING, notify_run=True)
        del self._open[interrupt.key]
        self._unspent.append(interrupt.id)

    def _closed(self, interrupt: OpenedInterrupt, outcome: str, answer: Any, by: str) -> InterruptClosed:
        return InterruptClosed(
            by=by, interrupt=interrupt.id, outcome=outcome, answer=answer, **self._submission.about()
        )


def _number(interrupt: StoredInterrupt) -> int:
    return int(interrupt.id.rpartition(".")[2])
