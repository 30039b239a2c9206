"""Communication between tasks: a channel for many messages, and a reply for one answer.

Used by the actors, the gateway and its client, so this module imports nothing else of the package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
import trio

T = TypeVar("T")

if TYPE_CHECKING:
    import typing_extensions  # type checkers include it; not needed at run time

    Result_co = typing_extensions.TypeVar("Result_co", covariant=True, default=Any)
else:
    Result_co = TypeVar("Result_co", covariant=True)
"""The result type of a ticket's run; `Any` by default."""


class ChannelStatistics(msgspec.Struct, frozen=True, gc=False):
    """The two fields of trio's `MemoryChannelStatistics` that can vary here."""

    current_buffer_used: int
    """The number of waiting messages."""
    tasks_waiting_receive: int
    """1 if the receiver waits for a message, else 0."""


class Channel:
    """Messages for one receiver, in the order they were sent. Unbounded: the engine's inputs are limited
    where they enter it.

    It is a list and at most one parked task instead of trio's memory channel, but has the same method names.
    There can be very many actors, and each takes all waiting messages in one step. So an empty channel needs
    1/15 of the memory, and ten messages 1/7 of the time; `docs/understanding/architecture.md` has the
    measurements. Actors do not need the other features of trio's channels: bounds, several receivers,
    closing.
    """

    __slots__ = ("_messages", "_receiver", "_woken")

    def __init__(self) -> None:
        self._messages: list[Any] | None = None  # `None` if empty, as most are
        self._woken = False
        self._receiver: trio.lowlevel.Task | None = None

    def send_nowait(self, message: object) -> None:
        """Add a message and wake the receiver. Never waits and never fails."""
        if self._messages is None:
            self._messages = [message]
        else:
            self._messages.append(message)
        if self._receiver is not None:
            trio.lowlevel.reschedule(self._receiver)
            self._receiver = None

    def wake(self) -> None:
        """Wake the receiver without a message: `receive_all` can then return none."""
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
        """Wait for messages and take them all; returns none if the receiver was woken without a message."""
        if self.has_news:
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.wait_task_rescheduled(self.park())
        return self.receive_all_nowait()

    def receive_all_nowait(self) -> Sequence[Any]:
        """Take all messages without waiting. In contrast to trio's `receive_nowait`, it can return none."""
        self._woken = False
        taken, self._messages = self._messages, None
        return taken or ()

    def statistics(self) -> ChannelStatistics:
        """The number of waiting messages, and whether the receiver waits for one."""
        used = 0 if self._messages is None else len(self._messages)
        return ChannelStatistics(used, 0 if self._receiver is None else 1)

    @property
    def has_news(self) -> bool:
        """Whether `receive_all` would return immediately."""
        return self._woken or bool(self._messages)

    def park(self) -> Callable[[object], trio.lowlevel.Abort]:
        """Register this task as the receiver; returns the abort function for trio's `wait_task_rescheduled`.

        For callers that call `wait_task_rescheduled` directly, which saves a coroutine.
        """
        self._receiver = trio.lowlevel.current_task()
        return self._leave

    def _leave(self, _: object) -> trio.lowlevel.Abort:
        self._receiver = None
        return trio.lowlevel.Abort.SUCCEEDED


class Reply(Generic[T]):
    """A one-shot reply. The first `set` or `fail` counts; any number of tasks can `get` it."""

    __slots__ = ("_error", "_first", "_others", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: Exception | None = None
        self._first: trio.lowlevel.Task | None = None  # the waiting task; nearly always at most one
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
        return self._value  # type: ignore[return-value]  # `done` without an error: the value is set

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
    """Sets other replies to `True` when it has been set `count` times."""

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
