"""The sending half of a transport, with a direct write and a timeout for stalled clients.

A socket's buffer nearly always has room. A direct write to it needs no turn of the scheduler, which is most
of the cost of an event for many subscribers. What does not fit, and every other kind of stream, is sent with
`send_all`.
"""

from __future__ import annotations

import math
import os

import trio

_PIECE = 1 << 16
"""A client that takes less than this within the timeout has stalled."""

_AT_ONCE = 0.05
"""A send that takes at most this long may only have filled the system's buffer. A longer send has waited for
the client, so its end shows that the client reads."""


class Stalled(Exception):
    """The client does not read."""


class Outlet:
    """Sends on a transport; only one task can send at a time."""

    def __init__(self, transport: trio.abc.Stream) -> None:
        self.taken_at = -math.inf
        """The last time at which the client was known to read."""
        self._transport = transport
        self._socket = None
        if os.name == "posix" and isinstance(transport, trio.SocketStream):
            self._socket = transport.socket

    @property
    def immediate(self) -> bool:
        """Whether `send_now` can send on this transport."""
        return self._socket is not None

    def send_now(self, data: bytes) -> int:
        """Send as much as fits into the socket's buffer; returns the number of bytes. Raises
        `BrokenResourceError`."""
        if self._socket is None or not data:
            return 0
        try:
            return os.write(self._socket.fileno(), data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def send_all(self, data: bytes, patience: float) -> None:
        """Send all data. Raises `Stalled` if a piece is not accepted within `patience` seconds, and any error
        of the transport."""
        start = self.send_now(data)
        rest = memoryview(data)
        while start < len(data):
            begun = trio.current_time()
            with trio.move_on_after(patience) as scope:
                await self._transport.send_all(rest[start : start + _PIECE])
                start += _PIECE
            if scope.cancelled_caught:
                raise Stalled
            now = trio.current_time()
            if now - begun > _AT_ONCE:
                self.taken_at = now
