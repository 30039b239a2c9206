"""Numbered messages: each arrives exactly once and in order, over any number of connections.

The sender keeps each message until the other side has acknowledged it, and sends the rest again on the next
connection. The receiver drops what it has already received. Plain data; used by both sides of a link.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Generic, TypeVar

from .errors import Invalid

M = TypeVar("M")


class Outgoing(Generic[M]):
    """The messages to the other side that it has not acknowledged. `size_of` is the size of a message."""

    def __init__(self, size_of: Callable[[M], int] = lambda _: 0) -> None:
        self.size = 0
        """The total size of the messages."""
        self._size_of = size_of
        self._kept: deque[M] = deque()
        self._first = 1  # the number of the first kept message
        self._sent = 0  # how many of the kept messages were sent on this connection
        self._exposed = 0  # the number of the last message that the other side can have received

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def unacknowledged(self) -> int:
        """The number of messages that were sent on this connection and not acknowledged."""
        return self._sent

    @property
    def unsent(self) -> int:
        """The number of messages that were not sent on this connection."""
        return len(self._kept) - self._sent

    def add(self, message: M) -> int:
        """Add a message; returns its number."""
        self._kept.append(message)
        self.size += self._size_of(message)
        return self._last

    def was_acknowledged(self, number: int) -> bool:
        """Whether the other side has received this message."""
        return number < self._first

    def can_be_received(self, number: int) -> bool:
        """Whether the other side can have received this message."""
        return number <= self._exposed

    def withdraw(self, number: int) -> None:
        """Remove a message that the other side cannot have received. Later ones get lower numbers."""
        assert not self.can_be_received(number), "its number is known to the other side"
        index = number - self._first
        self.size -= self._size_of(self._kept[index])
        del self._kept[index]

    @property
    def _last(self) -> int:
        return self._first + len(self._kept) - 1

    def take(self, most: int, size: int | None = None) -> tuple[int, list[M]]:
        """Take at most this many unsent messages; returns them with the number of the first one. Messages
        are taken until their total `size` is reached."""
        first = self._first + self._sent
        taken: list[M] = []
        total = 0
        for message in islice(self._kept, self._sent, self._sent + most):
            taken.append(message)
            total += self._size_of(message)
            if size is not None and total >= size:
                break
        self._sent += len(taken)
        self._exposed = max(self._exposed, first + len(taken) - 1)
        return first, taken

    def acknowledge(self, number: int) -> None:
        """The other side has received all messages up to this number."""
        count = number - self._first + 1
        if count > self._sent:
            raise Invalid(f"ack must be at most {self._first + self._sent - 1} (got {number})", value=number)
        for _ in range(count):
            self.size -= self._size_of(self._kept.popleft())
        if count > 0:
            self._first += count
            self._sent -= count

    def reconnect(self, received: int) -> None:
        """A new connection continues the session: send everything after `received` again."""
        if not self._first - 1 <= received <= self._last:
            raise Invalid(
                f"received must be from {self._first - 1} to {self._last} (got {received})", value=received
            )
        self._sent = len(self._kept)
        self.acknowledge(received)
        self._sent = 0
        self._exposed = received


class Incoming(Generic[M]):
    """The number of messages received from the other side."""

    def __init__(self) -> None:
        self.received = 0

    def accept(self, first: int, messages: Sequence[M]) -> Sequence[M]:
        """The messages of a frame that are new."""
        known = self.received - first + 1
        if known < 0:
            raise Invalid(f"first must be at most {self.received + 1} (got {first})", value=first)
        new = messages[known:] if known else messages
        self.received += len(new)
        return new
