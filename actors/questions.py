"""The open questions of one run, and the answers that were given."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import trio

from ..persistence.store import Question as StoredQuestion
from ..protocol.events import Event, InterruptClosed, InterruptOpened
from .actor import Reply
from .bodymessages import Ask
from .change import REPORTING, Change
from .journal import Journal
from .messages import AnswerInterrupt, Submission
from .pause import Question as PausedQuestion


class Question(msgspec.Struct):
    """A question that is open; `deadline` in trio's time."""

    id: str
    key: str
    deadline: float
    answer: Reply[Any] | None  # `None` after a restart, until a body asks again under its key


class Questions:
    """Kept by the run's actor, who decides whether a question may be asked."""

    __slots__ = ("_asked", "_journal", "_open", "_submission", "_wall_clock", "answers")

    def __init__(self, submission: Submission, journal: Journal, wall_clock: Callable[[], float]) -> None:
        self.answers: dict[str, Any] = {}
        self._submission = submission
        self._journal = journal
        self._wall_clock = wall_clock
        self._open: dict[str, Question] = {}  # by key
        self._asked = 0

    def restore(self, stored: list[StoredQuestion]) -> None:
        """What was asked and answered before a restart."""
        self._asked = len(stored)
        now, wall_now = trio.current_time(), self._wall_clock()
        for question in stored:
            if question.outcome is None:
                deadline = math.inf
                if question.deadline is not None:  # the clock may have been set back since
                    asked_for = question.deadline - question.opened_at
                    deadline = now + min(question.deadline - wall_now, asked_for)
                self._open[question.key] = Question(question.id, question.key, deadline, None)
            elif question.outcome in ("answered", "timed_out"):
                self.answers[question.key] = question.answer

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

    def open(self, ask: Ask) -> list[Event]:
        """A question, and the event that opens it; none, if it was open before a restart and still is."""
        if ask.key in self._open:
            self._open[ask.key].answer = ask.answer
            return []
        self._asked += 1
        id = f"{self._submission.id}.{self._asked}"
        self._open[ask.key] = Question(id, ask.key, trio.current_time() + ask.timeout, ask.answer)
        opened = InterruptOpened(
            by="body",
            interrupt=id,
            key=ask.key,
            data=ask.data,
            deadline=None if ask.timeout == math.inf else self._wall_clock() + ask.timeout,
            **self._submission.about(),
        )
        return [opened]

    def open_without_body(self, question: PausedQuestion) -> list[Event]:
        """A question that is open while the run waits without a body."""
        if question.key in self.answers:
            return []
        ask = Ask(question.data, math.inf, question.key, False, Reply(), Reply())
        opened = self.open(ask)
        self._open[question.key].answer = None
        return opened

    async def answer(self, message: AnswerInterrupt) -> str:
        """Take an answer, if the question is open."""
        for question in self._open.values():
            if question.id == message.interrupt:
                await self._close(question, "answered", message.data, message.by)
                self.answers[question.key] = message.data
                if question.answer is not None:
                    question.answer.set(message.data)
                return "resolved"
        number = message.interrupt.rpartition(".")[2]
        asked = number.isdecimal() and 1 <= int(number) <= self._asked
        return "already_resolved" if asked else "not_found"

    async def on_deadline(self, now: float) -> None:
        """Close the questions that nobody answered in time."""
        for question in list(self._open.values()):
            if question.deadline <= now:
                await self._close(question, "timed_out", None, "engine")
                if question.answer is not None:
                    question.answer.set(None)
                else:
                    self.answers[question.key] = None  # for the body that asks again

    def advance(self, seconds: float) -> None:
        """All that are open have so much less time left."""
        for question in self._open.values():
            question.deadline -= seconds

    def withdraw(self, key: str) -> Event | None:
        """The body doesn't wait for this one any more."""
        question = self._open.pop(key, None)
        return None if question is None else self._closed(question, "withdrawn", None, "body")

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

    async def _close(self, question: Question, outcome: str, answer: Any, by: str) -> None:
        event = self._closed(question, outcome, answer, by)
        await self._journal.ask(Change((event,), run=self._submission.id, expect=REPORTING))
        del self._open[question.key]

    def _closed(self, question: Question, outcome: str, answer: Any, by: str) -> InterruptClosed:
        return InterruptClosed(
            by=by, interrupt=question.id, outcome=outcome, answer=answer, **self._submission.about()
        )
