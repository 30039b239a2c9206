"""WebSocket frames: encoding of the server's frames, and counting of the clients' frames.

A server's frames are unmasked, so they have the same bytes for every client: a frame for many subscribers is
encoded once, and written to each connection. A client's frames are only counted here, by their headers,
before any other processing, because each frame has a cost that does not depend on its size.
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
    """The closing frame, with code and reason."""
    text = reason.encode()[:123].decode(errors="ignore").encode()
    return pack("!BBH", _CLOSE, 2 + len(text), code) + text


class FrameCounter:
    """Counts the frames in the bytes of a client, which can arrive in pieces of any size."""

    __slots__ = ("_final", "_head", "_left", "begun", "control", "ended", "fragments")

    def __init__(self) -> None:
        self._head = bytearray()
        self._left = -1  # bytes missing of the current frame; -1 between two frames
        self._final = False
        self.begun = 0
        """The number of frames that start in the part taken last."""
        self.control = False
        """Whether one of them is a control frame, such as a ping."""
        self.ended = False
        """Whether the part taken last ends a message."""
        self.fragments = 0
        """The number of frames of the current message so far."""

    def take(self, data: bytes, start: int, most: int, *, one_message: bool = False) -> int:
        """Take the part of `data` from `start` with at most `most` new frames; with `one_message`, at most up
        to the end of a message. Returns the end of the part."""
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
        """Read the available bytes of a frame's header."""
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
    """The size of a frame's header, as far as its first bytes determine it."""
    if len(head) < 2:
        return 2
    size = head[1] & 0x7F
    return 2 + (8 if size == 127 else 2 if size == 126 else 0) + (4 if head[1] & 0x80 else 0)


def is_close(data: bytes) -> bool:
    """Whether the bytes start with a closing frame."""
    return data[0] & _OPCODE == _CLOSE & _OPCODE
