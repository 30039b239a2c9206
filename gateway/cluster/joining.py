"""How the connections of other nodes to the leader begin: one asks who it is, asks who leads, or joins."""

from __future__ import annotations

import logging

import trio

from ...actors.executors.connection import ENDED, Connection
from ...protocol import cluster as wire
from ...protocol.codec import JSON
from ...protocol.errors import GreenroomError, Invalid
from .follower_session import FollowerSession, NodeGateway
from .leading import Leading

logger = logging.getLogger("greenroom.cluster")

_JOIN_TIMEOUT = 10.0
_CLOSE_TIMEOUT = 2.0


async def serve(leading: Leading, connection: Connection, gateway: NodeGateway) -> None:
    """Serve a follower until its connection ends, then close the connection."""
    try:
        first = await receive_first(connection)
        if isinstance(first, wire.Identify):
            await send_last(connection, wire.Identified(start=leading.start))
        elif first.asks:
            await send_last(connection, wire.NotLeader(leader=leading.followers.leader))
        else:
            await _serve(leading, connection, first, gateway)
    except GreenroomError as error:
        logger.warning("connection of a node is closed: %s", error.message)
        await send_last(connection, wire.NodeRefused(code=error.code, message=error.message))
    except ENDED:
        logger.debug("connection of a node has ended")
    finally:
        with trio.move_on_after(_CLOSE_TIMEOUT, shield=True):
            await connection.aclose()


async def _serve(leading: Leading, connection: Connection, join: wire.Join, gateway: NodeGateway) -> None:
    if abs(join.protocol - wire.VERSION) > 1:
        raise Invalid(
            f"node {join.node} has version {join.version} (protocol {join.protocol}), the leader has "
            f"version {leading.followers.version} (protocol {wire.VERSION}), and only neighbouring versions "
            "work together: upgrade the nodes one version at a time"
        )
    if join.store is not None and join.store != leading.epoch:
        raise Invalid(
            f"node {join.node} at {join.address} has another store than the leader: its database "
            f"{f'has the epoch {join.store}' if join.store else 'is new'}, the leader's has the epoch "
            f"{leading.epoch}; give all nodes the same store",
            value=join.store,
        )
    leading.followers.check(join)
    session = FollowerSession(leading, connection, join, gateway)
    leading.followers.add(session.follower)
    try:
        await session.run()
    finally:
        leading.followers.remove(session.follower)


async def receive_first(connection: Connection) -> wire.Join | wire.Identify:
    """The first message of a node. Raises `Invalid` if it is another one, and `trio.BrokenResourceError` if
    it takes too long."""
    with trio.move_on_after(_JOIN_TIMEOUT):
        first = wire.from_follower(await connection.receive())
        if not isinstance(first, wire.Join | wire.Identify):
            raise Invalid("the first message of a node must be join")
        return first
    raise trio.BrokenResourceError(f"no join received within {_JOIN_TIMEOUT:g} s")


async def send_last(
    connection: Connection, message: wire.NodeRefused | wire.NotLeader | wire.Identified
) -> None:
    """Send the last message of a connection, if the other side still receives."""
    with trio.move_on_after(_CLOSE_TIMEOUT):
        try:
            await connection.send(JSON.encode(message))
        except ENDED:
            logger.debug("node left before it received: %s", message)
