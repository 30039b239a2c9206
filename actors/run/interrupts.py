"""The open questions of one run, and the answers that were given.

An answer is kept until the body saves its next checkpoint, for a body that asks the same under the same key:
a retry, or one that goes on after a restart. What is asked with other data is another question: it never gets
the answer that is stored under its key.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Generator
from typing import Any

import msgspec

from ...persistence.store import Question as StoredQuestion
from ...protocol.events import Event, InterruptClosed, InterruptOpened
from ...protocol.values import same_json
from ..channel import Reply
from ..journal.change import REPORTING, Change, Outcome
from ..messages import AnswerInterrupt, Submission
from .body_messages import Ask
from .pause import Question as PausedQuestion

logger = logging.getLogger("greenroom")


class Question(msgspec.Struct):
    """A question that is open; `deadline` in trio's time."""

    id: str
    key: str
    data: Any
    deadline: float
    answer: Reply[Any] | None  # `None` after a restart, until a body asks again under its key


class Kept(msgspec.Struct, frozen=True, gc=False):
    """The answer to a question that is closed."""

    id: str
    data: Any
    answer: Any


class Interrupts:
    """Kept by the run's actor, who decides whether a question may be asked."""

    __slots__ = ("_asked", "_open", "_submission", "_unspent", "_wall_clock", "kept")

    def __init__(self, submission: Submission, wall_clock: Callable[[], float]) -> None:
        self.kept: dict[str, Kept] = {}  # by key
        self._submission = submission
        self._wall_clock = wall_clock
        self._open: dict[str, Question] = {}  # by key
        self._asked = 0
        self._unspent: list[str] = []  # those closed with an answer since the last checkpoint

    def restore(self, stored: list[StoredQuestion], now: float) -> None:
        """What was asked and answered before a restart."""
        self._asked = len(stored)
        wall_now = self._wall_clock()
        for question in sorted(stored, key=_number):
            if question.spent:
                continue
            key = question.key
            self._open.pop(key, None)  # of those under one key the last counts
            self.kept.pop(key, None)
            if question.outcome is None:
                deadline = math.inf
                if question.deadline is not None:  # the clock may have been set back since
                    asked_for = question.deadline - question.opened_at
                    deadline = now + min(question.deadline - wall_now, asked_for)
                self._open[key] = Question(question.id, key, question.data, deadline, None)
            elif question.outcome in ("answered", "timed_out"):
                self.kept[key] = Kept(question.id, question.data, question.answer)
                self._unspent.append(question.id)

    def asked_by_body(self, key: str) -> bool:
        """Whether a body waits for the answer already."""
        question = self._open.get(key)
        return question is not None and question.answer is not None

    def any_open(self) -> bool:
        """Whether a question is open."""
        return bool(self._open)

    def deadline(self) -> float:
        """When the first of them times out."""
        if not self._open:
            return math.inf
        return min((question.deadline for question in self._open.values()), default=math.inf)

    def recall(self, ask: Ask) -> Kept | None:
        """The answer that is kept for this question."""
        kept = self.kept.get(ask.key)
        return kept if kept is not None and same_json(kept.data, ask.data) else None

    def open(self, ask: Ask, now: float) -> list[Event]:
        """A question, and the event that opens it; none, if it was open before a restart and still is. What
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
        self._open[ask.key] = Question(id, ask.key, ask.data, now + ask.timeout, ask.answer)
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
            "withdrawn and the question is asked anew; a body that goes on from a checkpoint should ask the "
            "same in the same order, or give each question a key of its own",
            submission.id,
            submission.job.name,
            key,
            id,
        )

    def open_without_body(self, question: PausedQuestion) -> list[Event]:
        """A question that is open while the run waits without a body. Its key is unique, so one that is
        stored under it is the same, whatever became of its data."""
        key = question.key
        if key in self.kept or key in self._open:
            return []
        opened = self._open_anew(Ask(question.data, math.inf, key, False, Reply(), Reply()), math.inf)
        self._open[key].answer = None
        return [opened]

    def answer(self, message: AnswerInterrupt) -> Generator[Change, Outcome, str]:
        """Take an answer, if the question is open."""
        for question in self._open.values():
            if question.id == message.interrupt:
                yield from self._close(question, "answered", message.data, message.by)
                self.kept[question.key] = Kept(question.id, question.data, message.data)
                if question.answer is not None:
                    question.answer.set(message.data)
                return "resolved"
        number = message.interrupt.rpartition(".")[2]
        asked = number.isdecimal() and 1 <= int(number) <= self._asked
        return "already_resolved" if asked else "not_found"

    def on_deadline(self, now: float) -> Generator[Change, Outcome, None]:
        """Close the questions that nobody answered in time."""
        for question in list(self._open.values()):
            if question.deadline <= now:
                yield from self._close(question, "timed_out", None, "engine")
                if question.answer is not None:
                    question.answer.set(None)
                else:
                    self.kept[question.key] = Kept(question.id, question.data, None)  # for the next body

    def advance(self, seconds: float) -> None:
        """All that are open have so much less time left."""
        for question in self._open.values():
            question.deadline -= seconds

    def withdraw(self, key: str) -> Event | None:
        """The body doesn't wait for this one any more."""
        question = self._open.pop(key, None)
        return None if question is None else self._closed(question, "withdrawn", None, "body")

    def pass_checkpoint(self) -> tuple[list[Event], tuple[str, ...]]:
        """The body saves a checkpoint, and goes on from there: the events that close what nobody waits for
        any more, and the questions whose answers are not kept any longer."""
        left = [question for question in self._open.values() if question.answer is None]
        for question in left:
            del self._open[question.key]
        spent, self._unspent = tuple(self._unspent), []
        self.kept.clear()
        return [self._closed(question, "withdrawn", None, "body") for question in left], spent

    def closing(self, outcome: str, answer: Any, by: str) -> list[Event]:
        """The events that close all of them."""
        return [self._closed(question, outcome, answer, by) for question in self._open.values()]

    def refuse(self, answer: Any) -> None:
        """All of them are closed with this answer."""
        questions, self._open = self._open, {}
        for question in questions.values():
            if question.answer is not None:
                question.answer.set(answer)

    def body_is_gone(self) -> None:
        """No body waits for the answers; the next one may ask again."""
        for question in self._open.values():
            question.answer = None

    def forget(self) -> None:
        """All of them are closed, and nobody waits for an answer any more."""
        self._open.clear()

    def fail(self, error: Exception) -> None:
        """Nobody is going to answer; the events that close them come with the run's end."""
        for question in self._open.values():
            if question.answer is not None:
                question.answer.fail(error)

    def _close(
        self, question: Question, outcome: str, answer: Any, by: str
    ) -> Generator[Change, Outcome, None]:
        event = self._closed(question, outcome, answer, by)
        yield Change((event,), run=self._submission.id, expect=REPORTING, tells_run=True)
        del self._open[question.key]
        self._unspent.append(question.id)

    def _closed(self, question: Question, outcome: str, answer: Any, by: str) -> InterruptClosed:
        return InterruptClosed(
            by=by, interrupt=question.id, outcome=outcome, answer=answer, **self._submission.about()
        )


def _number(question: StoredQuestion) -> int:
    return int(question.id.rpartition(".")[2])
