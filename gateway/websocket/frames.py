"""WebSocket frames: those that a server sends, and how many a client has sent.

A server's are unmasked, and so the same bytes for every client: one that many subscribers want is made once,
here, and written to each connection as it is. A client's are only counted here, by their heads, before
anything else looks at them: each of them costs something, however little is in it.
"""

from __future__ import annotations

from struct import pack

_TEXT, _BINARY, _CLOSE, _PING = 0x81, 0x82, 0x88, 0x89
_OPCODE = 0x0F

PING = bytes((_PING, 0))


def message_frame(payload: bytes, *, binary: bool) -> bytes:
    """A whole message in one frame."""
    first = _BINARY if binary else _TEXT
    size = len(payload)
    if size < 126:
        return bytes((first, size)) + payload
    if size < 65_536:
        return pack("!BBH", first, 126, size) + payload
    return pack("!BBQ", first, 127, size) + payload


def close_frame(code: int, reason: str) -> bytes:
    """The frame that says why the connection ends."""
    text = reason.encode()[:123].decode(errors="ignore").encode()
    return pack("!BBH", _CLOSE, 2 + len(text), code) + text


class FrameCounter:
    """Counts the frames in what a client sends, in whatever pieces it comes."""

    __slots__ = ("_final", "_head", "_left", "begun", "control", "ended", "fragments")

    def __init__(self) -> None:
        self._head = bytearray()
        self._left = -1  # of the frame that has begun; -1 between two
        self._final = False
        self.begun = 0
        """How many frames have begun in the part that was taken last."""
        self.control = False
        """Whether one of those was no part of a message: a ping, say."""
        self.ended = False
        """Whether the part that was taken last ends a message."""
        self.fragments = 0
        """How many frames the message that has begun has had."""

    def take(self, data: bytes, start: int, most: int, *, one_message: bool = False) -> int:
        """Where in `data` the part ends that begins at `start` and holds at most so many new frames, or that
        ends a message if only `one_message` is wanted."""
        self.begun, self.control, self.ended = 0, False, False
        at, end = start, len(data)
        while at < end:
            if self._left < 0:
                if self.begun == most:
                    break
                at = self._begin(data, at)
                if self._left < 0:
                    break
            step = min(self._left, end - at)
            at += step
            self._left -= step
            if self._left == 0:
                self._left = -1
                if self._final:
                    self.ended, self.fragments = True, 0
                    if one_message:
                        break
        return at

    def _begin(self, data: bytes, at: int) -> int:
        """Read the head of a frame, as far as it is there."""
        head = self._head
        while (missing := _head_size(head) - len(head)) > 0:
            piece = data[at : at + missing]
            if not piece:
                return at
            head += piece
            at += len(piece)
        size = head[1] & 0x7F
        if size > 125:
            size = int.from_bytes(head[2:4] if size == 126 else head[2:10], "big")
        control = bool(head[0] & 0x08)
        self._final = bool(head[0] & 0x80) and not control
        self._left = size
        self._head = bytearray()
        self.begun += 1
        self.control = self.control or control
        self.fragments += not control
        return at


def _head_size(head: bytearray) -> int:
    """How many bytes the head of a frame has, as far as the first of them tell."""
    if len(head) < 2:
        return 2
    size = head[1] & 0x7F
    return 2 + (8 if size == 127 else 2 if size == 126 else 0) + (4 if head[1] & 0x80 else 0)


def is_close(data: bytes) -> bool:
    """Whether the bytes, which begin with a frame, begin with one that closes."""
    return data[0] & _OPCODE == _CLOSE & _OPCODE
