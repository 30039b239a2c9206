"""Accept connections, and retry when the system refuses them.

A process that has reached its limit of open files cannot accept: each attempt fails until a file is closed.
The gateway retries, and logs at most one line a second.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Awaitable, Callable, Sequence

import trio

logger = logging.getLogger("greenroom.gateway")

_PAUSE = 0.1
_LOG_EVERY = 1.0

Handler = Callable[[trio.SocketStream], Awaitable[None]]


async def accept_all(
    listeners: Sequence[trio.abc.Listener[trio.SocketStream]],
    handler: Handler,
    connections: trio.Nursery,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Accept connections until cancelled, then close the listeners. Each connection is served, and closed, by
    its own task in `connections`."""
    failures = _Failures()
    async with trio.open_nursery() as nursery:
        for listener in listeners:
            nursery.start_soon(_accept, listener, handler, connections, failures)
        task_status.started()


async def _accept(
    listener: trio.abc.Listener[trio.SocketStream],
    handler: Handler,
    connections: trio.Nursery,
    failures: _Failures,
) -> None:
    async with listener:
        while True:
            try:
                stream = await listener.accept()
            except OSError as error:
                failures.add(error)
                await trio.sleep(_PAUSE)
            else:
                connections.start_soon(_serve, handler, stream)


async def _serve(handler: Handler, stream: trio.SocketStream) -> None:
    try:
        await handler(stream)
    finally:
        await trio.aclose_forcefully(stream)


class _Failures:
    """Failed attempts that are not logged yet."""

    def __init__(self) -> None:
        self._count = 0
        self._logged_at = -_LOG_EVERY

    def add(self, error: OSError) -> None:
        """Count a failed attempt, and log the count if no line was logged in the last second."""
        self._count += 1
        now = trio.current_time()
        if now - self._logged_at < _LOG_EVERY:
            return
        name = errno.errorcode.get(error.errno or 0, "OSError")
        reason = os.strerror(error.errno) if error.errno else str(error)
        times = "" if self._count == 1 else f" ({self._count} failed attempts since the last such line)"
        logger.error("cannot accept connections: %s, %s%s; retrying%s", name, reason, times, _remedy(error))
        self._count = 0
        self._logged_at = now


def _remedy(error: OSError) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "; raise the limit of open files (ulimit -n, LimitNOFILE), or lower max_connections"
    return ""
