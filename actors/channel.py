"""What tasks hand each other: a mailbox for many messages, and a reply for one answer.

Actors stand on them, and so do the gateway and its client: nothing else is imported here.

The mailbox is a list and a parked task rather than a trio memory channel: a batch is taken in one step, and
an idle actor needs half the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import trio

T = TypeVar("T")


class Mailbox:
    """Messages for one actor, in the order they were told. Unbounded: the door is bounded instead."""

    __slots__ = ("_alarmed", "_messages", "_sleeper")

    def __init__(self) -> None:
        self._messages: list[Any] | None = None  # most are empty most of the time, and there may be very many
        self._alarmed = False
        self._sleeper: trio.lowlevel.Task | None = None

    def __len__(self) -> int:
        return 0 if self._messages is None else len(self._messages)

    def put(self, message: object) -> None:
        """Add a message and wake the actor. Never waits."""
        if self._messages is None:
            self._messages = [message]
        else:
            self._messages.append(message)
        if self._sleeper is not None:
            trio.lowlevel.reschedule(self._sleeper)
            self._sleeper = None

    def wake(self) -> None:
        """Wake the actor without a message: its deadline has come."""
        self._alarmed = True
        if self._sleeper is not None:
            trio.lowlevel.reschedule(self._sleeper)
            self._sleeper = None

    async def take(self) -> Sequence[Any]:
        """Wait for messages and take them all; none, if it is the deadline that has come."""
        if self.has_news:
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.wait_task_rescheduled(self.sleep())
        return self.drain()

    @property
    def has_news(self) -> bool:
        """Whether there are messages, or the deadline has come."""
        return self._alarmed or bool(self._messages)

    def sleep(self) -> Callable[[object], trio.lowlevel.Abort]:
        """Have the task woken at news, which now waits to be rescheduled; returns how its wait is aborted."""
        self._sleeper = trio.lowlevel.current_task()
        return self._stop

    def drain(self) -> Sequence[Any]:
        """Take all messages that are there, without waiting."""
        self._alarmed = False
        taken, self._messages = self._messages, None
        return taken or ()

    def _stop(self, _: object) -> trio.lowlevel.Abort:
        self._sleeper = None
        return trio.lowlevel.Abort.SUCCEEDED


class Reply(Generic[T]):
    """A one-shot reply. The first `set` or `fail` decides; any number of tasks may `get` it."""

    __slots__ = ("_error", "_first", "_others", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: Exception | None = None
        self._first: trio.lowlevel.Task | None = None  # who waits: one or none, nearly always
        self._others: list[trio.lowlevel.Task] | None = None

    def set(self, value: T) -> None:
        """Answer."""
        if not self.done:
            self._value = value
            self._finish()

    def fail(self, error: Exception) -> None:
        """Answer with an error, which is raised where the reply is awaited."""
        if not self.done:
            self._error = error
            self._finish()

    async def get(self) -> T:
        """Wait for the answer."""
        if self.done:
            await trio.lowlevel.checkpoint()
        elif self._first is None and self._others is None:
            self._first = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._leave_first)
        else:
            task = trio.lowlevel.current_task()
            if self._others is None:
                self._others = []
            self._others.append(task)
            await trio.lowlevel.wait_task_rescheduled(partial(_leave, self._others, task))
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # `done` without an error: the value was set

    def _finish(self) -> None:
        self.done = True
        if self._first is not None:
            first, self._first = self._first, None
            trio.lowlevel.reschedule(first)
        if self._others is not None:
            others, self._others = self._others, None
            for task in others:
                trio.lowlevel.reschedule(task)

    def _leave_first(self, _: object) -> trio.lowlevel.Abort:
        self._first = None
        return trio.lowlevel.Abort.SUCCEEDED


def _leave(others: list[trio.lowlevel.Task], task: trio.lowlevel.Task, _: object) -> trio.lowlevel.Abort:
    others.remove(task)
    return trio.lowlevel.Abort.SUCCEEDED


class Countdown(Reply[Any]):
    """Answers other replies with `True` when it has itself been set `count` times."""

    __slots__ = ("_left", "_replies")

    def __init__(self, replies: Sequence[Reply[Any]], count: int) -> None:
        super().__init__()
        self._replies = replies
        self._left = count

    def set(self, value: Any) -> None:
        self._left -= 1
        if not self._left:
            for reply in self._replies:
                reply.set(True)
