"""WebSocket frames as a server sends them: unmasked, and so the same bytes for every client.

A frame that many subscribers want is made once, here, and written to each connection as it is.
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


def is_close(data: bytes) -> bool:
    """Whether the bytes, which begin with a frame, begin with one that closes."""
    return data[0] & _OPCODE == _CLOSE & _OPCODE
