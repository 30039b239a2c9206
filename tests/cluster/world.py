"""Nodes of a cluster in memory, by the clock of a test: their lease, their connections, and their engines."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import trio

from greenroom import Jobs, open_engine
from greenroom.actors.engine.api import Engine
from greenroom.actors.engine.leadership import Leadership
from greenroom.actors.executors.connection import Connection, MemoryConnection, connection_pair
from greenroom.actors.run.api import Run
from greenroom.cluster.node import Identity, Node
from greenroom.gateway.cluster.follower_session import NodeGateway
from greenroom.persistence.failures import StoreDown
from greenroom.persistence.holders import Holder
from greenroom.persistence.lease import Lease
from greenroom.persistence.memory import MemoryStore
from greenroom.protocol.errors import Conflict

TTL = 15.0
JOBS = Jobs()


@JOBS.job("quick")
async def quick(run: Run) -> None:
    """End at once."""


class Store:
    """The lease, and whether the store can be reached."""

    def __init__(self, memory: MemoryStore) -> None:
        self._memory = memory
        self.lease: Lease | None = None
        self.is_down = False
        self.term = 0
        self.other_epoch: str | None = None
        """The epoch, if the nodes that ask from now on have another database."""

    def hold(self, address: str | None) -> None:
        """Let the process at an address have the lease, or an engine that is no node."""
        self.term += 1
        self.lease = Lease(Holder(id=str(address), host="elsewhere"), self.term, address, TTL)

    def release(self, address: str) -> None:
        if self.lease is not None and self.lease.address == address:
            self.lease = None

    async def leased_to(self) -> Lease | None:
        await trio.lowlevel.checkpoint()
        self.check()
        return self.lease

    async def stored_epoch(self) -> str | None:
        await trio.lowlevel.checkpoint()
        self.check()
        return self._memory._epoch if self.other_epoch is None else self.other_epoch

    def check(self) -> None:
        if self.is_down:
            raise StoreDown("the store is unavailable: it is down")


Peer = Callable[[Connection], Awaitable[None]]


class World:
    """The nodes of one cluster. `peers` are what answers at an address, and `events` is what has happened.
    `fails` is called before a node takes the lease, and can raise an error of the store."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.memory = MemoryStore()
        self.store = Store(self.memory)
        self.peers: dict[str, Peer] = {}
        self.events: list[str] = []
        self.failures: dict[str, BaseException] = {}
        self.scopes: dict[str, trio.CancelScope] = {}
        self.max_concurrent: int | None = None
        self.options: dict[str, Any] = {}
        """Further options of the engines."""
        self.fails: Callable[[str], None] = lambda address: None

    def node(self, name: str, *, gateway: Any = None, serves: bool = True) -> Node:
        """A node that runs."""
        address = f"http://{name}"
        node = Node(
            Identity(name, address, "1"),
            dial=self.dial,
            dial_executor=self.dial,
            reading=cast(Any, self.store),
            lead=self._lead,
            lease_ttl=TTL,
            max_value_bytes=1 << 20,
            random=random.Random(1),
        )
        node.router.start = f"process of {name}"
        if serves:
            given = cast(NodeGateway, gateway or SimpleNamespace(max_frame_bytes=1 << 20))
            self.peers[address] = lambda connection: node.router.serve_node(connection, given)
        self.scopes[name] = trio.CancelScope()
        self.nursery.start_soon(self._run, name, node)
        return node

    async def _run(self, name: str, node: Node) -> None:
        try:
            with self.scopes[name]:
                await node.run()
        except Exception as error:
            self.failures[name] = error
        self.events.append(f"{name} ended")

    async def dial(self, address: str) -> MemoryConnection:
        await trio.lowlevel.checkpoint()
        peer = self.peers.get(address)
        if peer is None:
            raise OSError("connection refused")
        ours, theirs = connection_pair()
        self.nursery.start_soon(self._serve, peer, theirs)
        return ours

    async def _serve(self, peer: Peer, connection: Connection) -> None:
        await peer(connection)
        await connection.aclose()

    @asynccontextmanager
    async def _lead(self, leadership: Leadership) -> AsyncIterator[tuple[Engine, int]]:
        address, store = leadership.address, self.store
        await trio.lowlevel.checkpoint()
        store.check()
        self.fails(address)
        if store.lease is not None and store.lease.is_held:
            raise Conflict(f"in use by {store.lease.address}")
        store.hold(address)
        self.events.append(f"{leadership.node} leads")
        try:
            async with open_engine(
                JOBS,
                self.memory,
                executors=0,
                max_concurrent=self.max_concurrent,
                leadership=leadership,
                shutdown_timeout=0,
                **self.options,
            ) as engine:
                yield engine, store.term
        finally:
            self.events.append(f"{leadership.node} has released the lease")
            store.release(address)


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with trio.open_nursery() as nursery:
        yield World(nursery)
        nursery.cancel_scope.cancel()


async def until(is_met: Callable[[], object], within: float = 60.0) -> None:
    """Wait until a condition is met, by the clock of the test."""
    with trio.fail_after(within):
        while not is_met():  # noqa: ASYNC110 # not everything that is awaited has an event
            await trio.sleep(0.01)
