"""Accepting connections, also where the system refuses for a while to give any.

A process that has as many files open as it may can't accept: each attempt fails until others are closed.
That is waited out, and logged once a second at most, however many attempts fail.
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
    """Accept connections until cancelled, and have each served by a task of `connections`, which closes it.
    Closes the listeners in the end."""
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
    """Attempts that have failed and aren't logged yet."""

    def __init__(self) -> None:
        self._count = 0
        self._logged_at = -_LOG_EVERY

    def add(self, error: OSError) -> None:
        """One more attempt has failed."""
        self._count += 1
        now = trio.current_time()
        if now - self._logged_at < _LOG_EVERY:
            return
        name = errno.errorcode.get(error.errno or 0, "OSError")
        reason = os.strerror(error.errno) if error.errno else str(error)
        times = "" if self._count == 1 else f" (failed {self._count} times since the last such line)"
        logger.error("cannot accept connections: %s, %s%s; retrying%s", name, reason, times, _remedy(error))
        self._count = 0
        self._logged_at = now


def _remedy(error: OSError) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return ". Raise the limit of open files (ulimit -n, LimitNOFILE), or lower max_connections"
    return ""
