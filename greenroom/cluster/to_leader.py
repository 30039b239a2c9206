"""Connections of executors to the leader, whichever node leads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import trio

from ..actors.executors.connection import Connection
from ..gateway.client.errors import ConnectionLost
from ..gateway.cluster.router import Router
from ..protocol.records import LeaderInfo
from .dialing import RefusedByNode


class _ToLeader:
    """A connection to a leader. It ends when another node leads: an unreachable leader may never end it."""

    def __init__(self, connection: Connection, leader: LeaderInfo, router: Router) -> None:
        self._connection = connection
        self._leader = leader
        self._router = router
        self._receiving = trio.CancelScope()
        self._ended = False
        self.send = connection.send
        router.listen(self._look)

    async def receive(self) -> bytes:
        with trio.CancelScope() as self._receiving:
            if not self._ended:
                return await self._connection.receive()
        raise trio.BrokenResourceError("another node leads")

    async def aclose(self) -> None:
        self._router.unlisten(self._look)
        with trio.CancelScope() as closing:
            if self._ended:  # the last leader may not answer
                closing.cancel()
            await self._connection.aclose()

    def _look(self) -> None:
        if self._router.leader not in (None, self._leader):
            self._ended = True
            self._receiving.cancel()


@contextmanager
def _while_leading(leader: LeaderInfo, router: Router) -> Iterator[None]:
    """Cancel the block when another node leads: an unreachable leader may never answer."""
    with trio.CancelScope() as scope:

        def look() -> None:
            if router.leader not in (None, leader):
                scope.cancel()

        router.listen(look)
        try:
            yield
        finally:
            router.unlisten(look)


def connecting_to_leader(
    router: Router, dial: Callable[[str], Awaitable[Connection]]
) -> Callable[[], Awaitable[Connection]]:
    """A function that connects to the leader, and waits until one is known."""

    async def connect() -> Connection:
        while (leader := router.leader) is None:
            await router.wait_for_change()
        try:
            with _while_leading(leader, router):
                return _ToLeader(await dial(leader.address), leader, router)
        except RefusedByNode as error:
            raise ConnectionLost(str(error)) from None
        raise ConnectionLost("another node leads")

    return connect
