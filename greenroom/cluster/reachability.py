"""Whether a node's address leads to the node itself: other nodes connect to it if this node leads."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from ..actors.executors.connection import ENDED, Connection
from ..protocol import cluster as wire
from ..protocol.errors import Invalid
from .dialing import RefusedByNode

logger = logging.getLogger("greenroom.cluster")

_TIMEOUT = 10.0
_AGAIN = 10.0
"""Seconds after which an address that does not answer is tried again."""
_CLOSE_TIMEOUT = 2.0


async def watch_address(
    address: str,
    start: str,
    dial: Callable[[str], Awaitable[Connection]],
    report: Callable[[bool], None],
) -> None:
    """Connect to the address of this node, whose process has this start id, until it answers. Meanwhile, log
    an error if something else answers, or nothing. `report` whether the node can be reached."""
    failed = ""
    while (why := await _why_unreachable(address, start, dial)) is not None:
        if why != failed:
            logger.error(
                "this node cannot be reached at its address %s: %s; it cannot lead the other nodes: set "
                "cluster.advertise to the URL at which they reach it",
                address,
                why,
            )
        failed = why
        report(False)
        await trio.sleep(_AGAIN)
    if failed:
        logger.info("this node can be reached at its address %s", address)
        report(True)


async def _why_unreachable(
    address: str, start: str, dial: Callable[[str], Awaitable[Connection]]
) -> str | None:
    try:
        with trio.move_on_after(_TIMEOUT) as waiting:
            answered = await _start_at(address, dial)
        if waiting.cancelled_caught:
            return f"no answer within {_TIMEOUT:g} s"
        return None if answered == start else "another node answers"
    except (*ENDED, OSError, Invalid, RefusedByNode) as error:
        return str(error) or type(error).__name__


async def _start_at(address: str, dial: Callable[[str], Awaitable[Connection]]) -> str | None:
    """The start id of the node at an address."""
    connection = await dial(address)
    try:
        await connection.send(wire.encoded(wire.Identify()))
        answer = wire.from_leader(await connection.receive())
    finally:
        with trio.move_on_after(_CLOSE_TIMEOUT, shield=True):
            await connection.aclose()
    return answer.start if isinstance(answer, wire.Identified) else None
