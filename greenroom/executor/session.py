"""The session of an executor with its engine: numbered messages, over any number of connections.

A session is one life of the engine and one of this process. When a connection is lost, the next one resumes
the session. When the engine has restarted, a new session begins: each body then repeats what the previous
engine may not have committed. Does no input or output.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence

import msgspec

from ..protocol.executors import Attached, EngineFrame, FromExecutor, Progress, ToExecutor, Told
from ..protocol.numbering import Incoming, Outgoing

_WINDOW = 1000
"""The maximum number of messages that the engine has not acknowledged. Later ones wait unnumbered, where
progress is coalesced."""

_ACK_AFTER = 64
"""The number of received messages after which an acknowledgement is sent without other messages."""


class Session:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.max_frame_bytes = 1 << 20
        self._outgoing: Outgoing[FromExecutor] = Outgoing()
        self._incoming: Incoming[ToExecutor] = Incoming()
        self._waiting: dict[Hashable, FromExecutor] = {}  # not numbered yet; a progress is under its body
        self._keys = itertools.count()
        self._acknowledged = 0  # what was acknowledged to the engine on this connection

    @property
    def received(self) -> int:
        """The number of messages received in this session."""
        return self._incoming.received

    @property
    def all_acknowledged(self) -> bool:
        """Whether the engine has received all messages."""
        return not len(self._outgoing) and not self._waiting

    def add(self, message: FromExecutor) -> None:
        """Send a message. A progress replaces the previous one of its body, if that is not numbered yet."""
        if isinstance(message, Told) and isinstance(message.report, Progress):
            self._waiting[message.run, message.fence] = message
        else:
            self._waiting[next(self._keys)] = message

    # Connections.

    def attach(self, attached: Attached, repeats: Callable[[], Iterable[FromExecutor]]) -> None:
        """The executor is attached. `repeats` returns what a new session begins with."""
        self._acknowledged = self._incoming.received if attached.resumed else 0  # `attach` contained it
        if attached.resumed:
            self._outgoing.reconnect(attached.received)
            return
        self.id = attached.session
        self._outgoing, self._incoming = Outgoing(), Incoming()
        self._waiting.clear()
        for message in repeats():
            self.add(message)

    def abandon(self) -> None:
        """The other side has violated the protocol: begin a new session on the next connection."""
        self.id = None

    # Frames.

    @property
    def has_news(self) -> bool:
        """Whether there is something to send."""
        if self._outgoing.unsent or self._incoming.received - self._acknowledged >= _ACK_AFTER:
            return True
        return bool(self._waiting) and self._outgoing.unacknowledged < _WINDOW

    def take_frame(self) -> bytes:
        """The next frame: as many messages as it can contain, and the acknowledgement."""
        messages: list[msgspec.Raw] = []
        first, _ = self._outgoing.take(0)
        size = 0
        while self._has_next():
            _, (message,) = self._outgoing.take(1)
            encoded = msgspec.json.encode(message)
            messages.append(msgspec.Raw(encoded))
            size += len(encoded)
            if size >= self.max_frame_bytes:
                break
        self._acknowledged = self._incoming.received
        frame = {"type": "frame", "first": first, "ack": self._acknowledged, "messages": messages}
        return msgspec.json.encode(frame)

    def _has_next(self) -> bool:
        """Whether there is an unsent message in this session's numbers, after numbering the next one."""
        if not self._outgoing.unsent and self._waiting and self._outgoing.unacknowledged < _WINDOW:
            self._outgoing.add(self._waiting.pop(next(iter(self._waiting))))
        return self._outgoing.unsent > 0

    def receive(self, frame: EngineFrame) -> Sequence[ToExecutor]:
        """The new messages of a frame. Raises `Invalid` if its numbers are wrong."""
        self._outgoing.acknowledge(frame.ack)
        return self._incoming.accept(frame.first, frame.messages)
