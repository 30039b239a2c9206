"""What tasks hand each other: a mailbox for many messages, and a reply for one answer.

Actors stand on them, and so do the gateway and its client: nothing else is imported here.

The mailbox is a list and a parked task rather than a trio memory channel: a batch is taken in one step, and
an idle actor needs half the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        if self._messages or self._alarmed:
            await trio.lowlevel.checkpoint()
        else:
            self._sleeper = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._stop)
        return self.drain()

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

    __slots__ = ("_error", "_value", "_waiting", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: Exception | None = None
        self._waiting: list[trio.lowlevel.Task] | None = None  # most replies are there before anyone waits

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
        else:
            task = trio.lowlevel.current_task()
            if self._waiting is None:
                self._waiting = []
            self._waiting.append(task)
            await trio.lowlevel.wait_task_rescheduled(partial(_stop_waiting, self._waiting, task))
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # `done` without an error: the value was set

    def _finish(self) -> None:
        self.done = True
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            for task in waiting:
                trio.lowlevel.reschedule(task)


def _stop_waiting(
    waiting: list[trio.lowlevel.Task], task: trio.lowlevel.Task, _: object
) -> trio.lowlevel.Abort:
    waiting.remove(task)
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
