"""A gateway of a follower: in the same event loop, an engine that leads, and a node that follows it.

Both nodes are made of the real parts. The follower reads from the same store object. Its connections to the
leader are in memory.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, cast

import trio

from greenroom import Engine, Ticket
from greenroom.actors.executors.connection import ENDED, Connection, connection_pair
from greenroom.actors.journal.stream import Stream
from greenroom.errors import Conflict
from greenroom.gateway import Gateway, GatewayConfig, open_gateway
from greenroom.gateway.cluster.followers import Followers
from greenroom.gateway.cluster.following import Following
from greenroom.gateway.cluster.leading import Leading
from greenroom.gateway.cluster.replica import Replica
from greenroom.gateway.cluster.router import Router
from greenroom.gateway.cluster.standing import NodeEngine
from greenroom.protocol import cluster as wire
from greenroom.protocol.records import ClusterInfo, LeaderInfo

SECRET = "the secret of the cluster"
SILENCE = 5.0
"""Seconds without a message after which a follower gives its leader up."""

LEADER = LeaderInfo(id="leader", address="http://leader", term=1)


def join_of(node: str, **given: Any) -> wire.Join:
    """The first message of a node."""
    fields = {"address": f"http://{node}", "version": "1.0", "protocol": wire.VERSION, **given}
    return wire.Join(node=node, **fields)


class Leader:
    """A node that leads with an engine. `dial` opens a connection of another node to it."""

    def __init__(self, engine: Engine, epoch: str, nursery: trio.Nursery) -> None:
        self.engine = engine
        self.leading = Leading(engine, epoch, Followers(LEADER, "1.0"))
        self._nursery = nursery
        self._executors: list[Connection] = []
        self._replica = Replica(engine.stream, engine._store, engine.max_value_bytes)
        self.router = Router(self._replica, self._info, self.dial_executor, random.Random(1))
        self.router.lead(engine, self.leading, self._step_down)
        self._gateway: Gateway | None = None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Its gateway, for as long as the block lasts."""
        async with open_gateway(self.engine, listeners=[], router=self.router, secret=SECRET) as gateway:
            self._gateway = gateway
            yield

    async def dial(self) -> Connection:
        """A new connection of a node."""
        ours, theirs = connection_pair()
        assert self._gateway is not None, "it serves"
        self._nursery.start_soon(self._gateway.serve_node, theirs)
        await trio.lowlevel.checkpoint()
        return ours

    async def dial_executor(self, leader: LeaderInfo) -> Connection:
        """A new connection of an executor."""
        ours, theirs = connection_pair()
        assert self._gateway is not None, "it serves"
        self._nursery.start_soon(_serve_executor, self._gateway, theirs)
        self._executors.append(theirs)
        await trio.lowlevel.checkpoint()
        return ours

    def hang_up(self) -> None:
        """End the connections of executors."""
        for connection in self._executors:
            self._nursery.start_soon(connection.aclose)

    def _info(self) -> ClusterInfo:
        nodes = self.leading.followers.nodes(self.engine.stream.last_seq)
        return ClusterInfo(node=LEADER.id, role="leader", leader=LEADER, nodes=nodes)

    async def _step_down(self) -> None:
        raise Conflict("no other node can lead")


async def _serve_executor(gateway: Gateway, connection: Connection) -> None:
    try:
        await gateway.serve_executor(connection, "cluster")
    except ENDED:
        await connection.aclose()  # a script of a test does not close it


class Follower:
    """A node that follows. `follow` connects it to a leader."""

    def __init__(self, leader: Leader, name: str = "follower") -> None:
        self.name = name
        self.stream = Stream()
        self.replica = Replica(self.stream, leader.engine._store, leader.engine.max_value_bytes)
        self.router = Router(self.replica, self._info, leader.dial_executor, random.Random(2))
        self.engine = cast(Engine, NodeEngine(self.stream, lambda: self.router.serves))
        self._connected = trio.CancelScope()

    async def follow(
        self, leader: Leader, task_status: trio.TaskStatus[Following] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Follow until the connection ends; started when the replica is complete."""
        replica = self.replica
        epoch = None if replica.is_empty else replica.epoch
        following = Following(replica, join_of(self.name, epoch=epoch, after=replica.seq), SILENCE)
        self.router.follow(following)

        def ready(joined: wire.Joined) -> None:
            self.router.changed()
            task_status.started(following)

        self._connected = trio.CancelScope()
        try:
            with self._connected:
                await following.run(await leader.dial(), ready)
        finally:
            self.router.follow(None)
            self.router.changed()

    def stop(self) -> None:
        """End the connection to the leader."""
        self._connected.cancel()

    async def reach(self, seq: int) -> None:
        """Wait until its replica has this event."""
        await self.stream.wait_beyond(seq - 1)

    def _info(self) -> ClusterInfo:
        leader, nodes = self.router.leader, list(self.replica.nodes)
        role = "looking" if leader is None else "follower"
        return ClusterInfo(node=self.name, role=role, leader=leader, nodes=nodes)


@asynccontextmanager
async def open_followed(
    engine: Engine, config: GatewayConfig | None = None, **options: Any
) -> AsyncIterator[Gateway]:
    """Like `greenroom.gateway.open_gateway`, but the gateway is that of a follower. `engine` is a `Followed`,
    so that what a test does with it is in the replica before the test continues."""
    assert isinstance(engine, Followed), "the engine was opened by tests.support.open_engine"
    plain = engine._engine
    epoch = (await plain.snapshot()).epoch
    async with trio.open_nursery() as nursery:
        leader = Leader(plain, epoch, nursery)
        error: BaseException | None = None
        try:
            async with leader.serving():
                follower = Follower(leader)
                await nursery.start(follower.follow, leader)
                engine._followers.append(follower)
                try:
                    async with open_gateway(
                        follower.engine, config, router=follower.router, secret=SECRET, **options
                    ) as gateway:
                        yield gateway
                finally:
                    engine._followers.remove(follower)
        except BaseException as raised:  # raised below: the nursery would make a group of it
            error = raised
        nursery.cancel_scope.cancel()
    if error is not None:
        raise error


class Followed:
    """An engine whose calls return when all of its followers have their events."""

    def __init__(self, engine: Engine) -> None:
        vars(self).update(_engine=engine, _followers=[])

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._engine, name)
        if name == "events":
            return lambda *arguments, **options: _FollowedEvents(self, value(*arguments, **options))
        return self._settling(value) if inspect.iscoroutinefunction(value) else value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._engine, name, value)

    def _settling(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @wraps(call)
        async def settled(*arguments: Any, **options: Any) -> Any:
            try:
                value = await call(*arguments, **options)
            finally:
                await self._settle()
            return _FollowedTicket(self, value) if isinstance(value, Ticket) else value

        return settled

    async def _settle(self) -> None:
        for follower in self._followers:
            await follower.reach(self._engine.stream.last_seq)


class _FollowedEvents:
    """The events of a `Followed` engine."""

    def __init__(self, engine: Followed, events: AsyncIterator[Any]) -> None:
        self._engine = engine
        self._events = events

    def __aiter__(self) -> _FollowedEvents:
        return self

    async def __anext__(self) -> Any:
        event = await anext(self._events)
        await self._engine._settle()
        return event


class _FollowedTicket:
    """A ticket of a `Followed` engine."""

    def __init__(self, engine: Followed, ticket: Ticket[Any]) -> None:
        self._engine = engine
        self._ticket = ticket

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._ticket, name)
        return self._engine._settling(value) if inspect.iscoroutinefunction(value) else value
