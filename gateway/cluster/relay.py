"""Relay an executor's connection to the leader, so that executors can connect to any node of a cluster.

A frame is received only after the last one was sent, so that a slow side slows down the other. The end of one
connection ends the other one; the executor then connects again. Another leader ends both: the last one may be
silent for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from ...actors.executors.connection import ENDED, Connection
from ...protocol.records import LeaderInfo

logger = logging.getLogger("greenroom.cluster")

_DIAL_TIMEOUT = 5.0
_CLOSE_TIMEOUT = 0.2


async def relay(
    connection: Connection,
    dial: Callable[[LeaderInfo], Awaitable[Connection]],
    leader: LeaderInfo,
    replaced: Callable[[], Awaitable[None]],
) -> None:
    """Relay until one of the connections ends, or until the leader is `replaced`, then close both."""
    there: Connection | None = None
    try:
        with trio.move_on_after(_DIAL_TIMEOUT):
            there = await dial(leader)
        if there is not None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_copy, connection, there, nursery.cancel_scope)
                nursery.start_soon(_end_when, replaced, nursery.cancel_scope)
                await _copy(there, connection, nursery.cancel_scope)
    except (*ENDED, OSError) as error:
        logger.info("cannot relay an executor to the leader at %s: %s", leader.address, error)
    finally:
        with trio.move_on_after(_CLOSE_TIMEOUT, shield=True):
            await connection.aclose()
            if there is not None:
                await there.aclose()


async def _copy(source: Connection, to: Connection, scope: trio.CancelScope) -> None:
    try:
        while True:
            await to.send(await source.receive())
    except ENDED:
        scope.cancel()


async def _end_when(replaced: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
    await replaced()
    scope.cancel()
