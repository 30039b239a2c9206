"""What tasks hand each other: a channel for many messages, and a reply for one answer.

Actors stand on them, and so do the gateway and its client: nothing else is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
import trio

T = TypeVar("T")

if TYPE_CHECKING:
    import typing_extensions  # type checkers have it, and at run time it isn't needed

    Result_co = typing_extensions.TypeVar("Result_co", covariant=True, default=Any)
else:
    Result_co = TypeVar("Result_co", covariant=True)
"""What the run of a ticket returns; anything, where nobody says."""


class ChannelStatistics(msgspec.Struct, frozen=True, gc=False):
    """The two of trio's `MemoryChannelStatistics` that can differ here."""

    current_buffer_used: int
    """How many messages wait."""
    tasks_waiting_receive: int
    """Whether the receiver waits for one: 1, else 0."""


class Channel:
    """Messages for one receiver, in the order they were sent. Unbounded: what comes in is bounded where it
    comes in.

    It is a list and at most one parked task rather than trio's memory channel, whose words it speaks. There
    may be very many actors, and each takes everything that waits in one step: so an empty channel needs a
    fifteenth of the memory, and ten messages a seventh of the time. The table is in
    `docs/understanding/architecture.md`. No actor needs bounds, several receivers
    or closing, which trio's channels have.
    """

    __slots__ = ("_messages", "_receiver", "_woken")

    def __init__(self) -> None:
        self._messages: list[Any] | None = None  # most are empty most of the time
        self._woken = False
        self._receiver: trio.lowlevel.Task | None = None

    def send_nowait(self, message: object) -> None:
        """Add a message and wake the receiver. Never waits, and there is always room."""
        if self._messages is None:
            self._messages = [message]
        else:
            self._messages.append(message)
        if self._receiver is not None:
            trio.lowlevel.reschedule(self._receiver)
            self._receiver = None

    def wake(self) -> None:
        """Wake the receiver without a message: `receive_all` returns, though it may have none to return."""
        self._woken = True
        if self._receiver is not None:
            trio.lowlevel.reschedule(self._receiver)
            self._receiver = None

    async def receive(self) -> Any:
        """Wait for a message and take it, the oldest first."""
        if self._messages:
            await trio.lowlevel.checkpoint()
        while not self._messages:
            await trio.lowlevel.wait_task_rescheduled(self.park())
        return self._messages.pop(0)

    async def receive_all(self) -> Sequence[Any]:
        """Wait for messages and take them all; there are none if the receiver was woken without one."""
        if self.has_news:
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.wait_task_rescheduled(self.park())
        return self.receive_all_nowait()

    def receive_all_nowait(self) -> Sequence[Any]:
        """Take all messages that are there, without waiting. Unlike trio's `receive_nowait`, it answers
        "none" without an error."""
        self._woken = False
        taken, self._messages = self._messages, None
        return taken or ()

    def statistics(self) -> ChannelStatistics:
        """How many messages wait, and whether the receiver waits for one."""
        used = 0 if self._messages is None else len(self._messages)
        return ChannelStatistics(used, 0 if self._receiver is None else 1)

    @property
    def has_news(self) -> bool:
        """Whether `receive_all` would return at once."""
        return self._woken or bool(self._messages)

    def park(self) -> Callable[[object], trio.lowlevel.Abort]:
        """Make this task the receiver that news wakes; returns how its wait is aborted. For who calls trio's
        `wait_task_rescheduled` itself, which spares a coroutine."""
        self._receiver = trio.lowlevel.current_task()
        return self._leave

    def _leave(self, _: object) -> trio.lowlevel.Abort:
        self._receiver = None
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
