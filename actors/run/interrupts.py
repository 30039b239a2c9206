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
from .body_messages import Ask
from .pause import AwaitedInterrupt

logger = logging.getLogger("greenroom")


class OpenInterrupt(msgspec.Struct):
    """An interrupt that is open; `deadline` in trio's time."""

    id: str
    key: str
    data: Any
    deadline: float
    answer: Reply[Any] | None  # `None` after a restart, until a body asks again under its key


class Kept(msgspec.Struct, frozen=True, gc=False):
    """The answer to an interrupt that is closed."""

    id: str
    data: Any
    answer: Any


class Interrupts:
    """Kept by the run's actor, who decides whether an interrupt may be asked."""

    __slots__ = ("_asked", "_open", "_submission", "_unspent", "_wall_clock", "kept")

    def __init__(self, submission: Submission, wall_clock: Callable[[], float]) -> None:
        self.kept: dict[str, Kept] = {}  # by key
        self._submission = submission
        self._wall_clock = wall_clock
        self._open: dict[str, OpenInterrupt] = {}  # by key
        self._asked = 0
        self._unspent: list[str] = []  # those closed with an answer since the last checkpoint

    def restore(self, stored: list[StoredInterrupt], now: float) -> None:
        """What was asked and answered before a restart."""
        self._asked = len(stored)
        wall_now = self._wall_clock()
        for interrupt in sorted(stored, key=_number):
            if interrupt.spent:
                continue
            key = interrupt.key
            self._open.pop(key, None)  # of those under one key the last counts
            self.kept.pop(key, None)
            if interrupt.outcome is None:
                deadline = math.inf
                if interrupt.deadline is not None:  # the clock may have been set back since
                    asked_for = interrupt.deadline - interrupt.opened_at
                    deadline = now + min(interrupt.deadline - wall_now, asked_for)
                self._open[key] = OpenInterrupt(interrupt.id, key, interrupt.data, deadline, None)
            elif interrupt.outcome in ("answered", "timed_out"):
                self.kept[key] = Kept(interrupt.id, interrupt.data, interrupt.answer)
                self._unspent.append(interrupt.id)

    def asked_by_body(self, key: str) -> bool:
        """Whether a body waits for the answer already."""
        interrupt = self._open.get(key)
        return interrupt is not None and interrupt.answer is not None

    def any_open(self) -> bool:
        """Whether an interrupt is open."""
        return bool(self._open)

    def deadline(self) -> float:
        """When the first of them times out."""
        if not self._open:
            return math.inf
        return min((interrupt.deadline for interrupt in self._open.values()), default=math.inf)

    def recall(self, ask: Ask) -> Kept | None:
        """The answer that is kept for this interrupt."""
        kept = self.kept.get(ask.key)
        return kept if kept is not None and same_json(kept.data, ask.data) else None

    def open(self, ask: Ask, now: float) -> list[Event]:
        """An interrupt, and the event that opens it; none, if it was open before a restart and still is. What
        is stored under its key and has other data is withdrawn."""
        before, withdrawn = self._open.get(ask.key), []
        if before is not None and same_json(before.data, ask.data):
            before.answer = ask.answer
            return []
        if before is not None:
            withdrawn.append(self._closed(before, "withdrawn", None, "body"))
        stored = before or self.kept.pop(ask.key, None)
        if stored is not None:
            self._warn_of_other_data(ask.key, stored.id)
        return [*withdrawn, self._open_anew(ask, now)]

    def _open_anew(self, ask: Ask, now: float) -> InterruptOpened:
        self._asked += 1
        id = f"{self._submission.id}.{self._asked}"
        self._open[ask.key] = OpenInterrupt(id, ask.key, ask.data, now + ask.timeout, ask.answer)
        return InterruptOpened(
            by="body",
            interrupt=id,
            key=ask.key,
            data=ask.data,
            deadline=None if ask.timeout == math.inf else self._wall_clock() + ask.timeout,
            **self._submission.about(),
        )

    def _warn_of_other_data(self, key: str, id: str) -> None:
        submission = self._submission
        logger.warning(
            "run %s of job %r asks something else under key %r than its last body did: interrupt %s is "
            "withdrawn and the interrupt is asked anew; a body that goes on from a checkpoint should ask the "
            "same in the same order, or give each interrupt a key of its own",
            submission.id,
            submission.job.name,
            key,
            id,
        )

    def open_without_body(self, interrupt: AwaitedInterrupt) -> list[Event]:
        """An interrupt that is open while the run waits without a body. Its key is unique, so one that is
        stored under it is the same, whatever became of its data."""
        key = interrupt.key
        if key in self.kept or key in self._open:
            return []
        opened = self._open_anew(Ask(interrupt.data, math.inf, key, False, Reply(), Reply()), math.inf)
        self._open[key].answer = None
        return [opened]

    def answer(self, message: AnswerInterrupt) -> Generator[Change, Outcome, str]:
        """Take an answer, if the interrupt is open."""
        for interrupt in self._open.values():
            if interrupt.id == message.interrupt:
                yield from self._close(interrupt, "answered", message.data, message.by)
                self.kept[interrupt.key] = Kept(interrupt.id, interrupt.data, message.data)
                if interrupt.answer is not None:
                    interrupt.answer.set(message.data)
                return "resolved"
        number = message.interrupt.rpartition(".")[2]
        asked = number.isdecimal() and 1 <= int(number) <= self._asked
        return "already_resolved" if asked else "not_found"

    def on_deadline(self, now: float) -> Generator[Change, Outcome, None]:
        """Close the interrupts that nobody answered in time."""
        for interrupt in list(self._open.values()):
            if interrupt.deadline <= now:
                yield from self._close(interrupt, "timed_out", None, "engine")
                if interrupt.answer is not None:
                    interrupt.answer.set(None)
                else:
                    self.kept[interrupt.key] = Kept(interrupt.id, interrupt.data, None)  # for the next body

    def advance(self, seconds: float) -> None:
        """All that are open have so much less time left."""
        for interrupt in self._open.values():
            interrupt.deadline -= seconds

    def withdraw(self, key: str) -> Event | None:
        """The body doesn't wait for this one any more."""
        interrupt = self._open.pop(key, None)
        return None if interrupt is None else self._closed(interrupt, "withdrawn", None, "body")

    def pass_checkpoint(self) -> tuple[list[Event], tuple[str, ...]]:
        """The body saves a checkpoint, and goes on from there: the events that close what nobody waits for
        any more, and the interrupts whose answers are not kept any longer."""
        left = [interrupt for interrupt in self._open.values() if interrupt.answer is None]
        for interrupt in left:
            del self._open[interrupt.key]
        spent, self._unspent = tuple(self._unspent), []
        self.kept.clear()
        return [self._closed(interrupt, "withdrawn", None, "body") for interrupt in left], spent

    def closing(self, outcome: str, answer: Any, by: str) -> list[Event]:
        """The events that close all of them."""
        return [self._closed(interrupt, outcome, answer, by) for interrupt in self._open.values()]

    def refuse(self, answer: Any) -> None:
        """All of them are closed with this answer."""
        interrupts, self._open = self._open, {}
        for interrupt in interrupts.values():
            if interrupt.answer is not None:
                interrupt.answer.set(answer)

    def body_is_gone(self) -> None:
        """No body waits for the answers; the next one may ask again."""
        for interrupt in self._open.values():
            interrupt.answer = None

    def forget(self) -> None:
        """All of them are closed, and nobody waits for an answer any more."""
        self._open.clear()

    def fail(self, error: Exception) -> None:
        """Nobody is going to answer; the events that close them come with the run's end."""
        for interrupt in self._open.values():
            if interrupt.answer is not None:
                interrupt.answer.fail(error)

    def _close(
        self, interrupt: OpenInterrupt, outcome: str, answer: Any, by: str
    ) -> Generator[Change, Outcome, None]:
        event = self._closed(interrupt, outcome, answer, by)
        yield Change((event,), run=self._submission.id, expect=REPORTING, tells_run=True)
        del self._open[interrupt.key]
        self._unspent.append(interrupt.id)

    def _closed(self, interrupt: OpenInterrupt, outcome: str, answer: Any, by: str) -> InterruptClosed:
        return InterruptClosed(
            by=by, interrupt=interrupt.id, outcome=outcome, answer=answer, **self._submission.about()
        )


def _number(interrupt: StoredInterrupt) -> int:
    return int(interrupt.id.rpartition(".")[2])
