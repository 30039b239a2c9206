"""The sending half of a transport: at once as far as the system takes it, and no longer than a client may
stall.

A plain socket nearly always takes what it is given. Written to directly, it costs no turn of the scheduler,
and that is most of what an event costs that goes to many subscribers. Whatever it doesn't take, and every
other kind of stream, goes the usual way.
"""

from __future__ import annotations

import math
import os

import trio

_PIECE = 1 << 16
"""A client that takes less than this in its time has stalled."""

_AT_ONCE = 0.05
"""What was taken sooner has gone to the system, maybe no further. What took longer has had to wait for the
client, so it is a sign of its life that it was taken."""


class Stalled(Exception):
    """The client takes nothing."""


class Outlet:
    """For one sender at a time."""

    def __init__(self, transport: trio.abc.Stream) -> None:
        self.taken_at = -math.inf
        """When the client has last shown that it takes what is sent to it."""
        self._transport = transport
        self._socket = None
        if os.name == "posix" and isinstance(transport, trio.SocketStream):
            self._socket = transport.socket

    @property
    def immediate(self) -> bool:
        """Whether `send_now` may take anything."""
        return self._socket is not None

    def send_now(self, data: bytes) -> int:
        """Send as much as is taken at once; returns how much. Raises `BrokenResourceError`."""
        if self._socket is None or not data:
            return 0
        try:
            return os.write(self._socket.fileno(), data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def send_all(self, data: bytes, patience: float) -> None:
        """Send everything. Raises `Stalled` if a piece isn't taken within `patience` seconds, and what the
        transport raises."""
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
