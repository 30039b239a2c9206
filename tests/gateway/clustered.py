"""Nodes of a cluster in one process: real gateways and connections, and a store in memory that they share."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import trio

import greenroom
from greenroom import Engine
from greenroom.actors.engine.leadership import Leadership
from greenroom.cluster.dialing import Dialer, origin_of
from greenroom.cluster.node import Identity, Node
from greenroom.gateway import Gateway, GatewayConfig, open_gateway
from greenroom.gateway.background import background
from greenroom.gateway.server import listen
from greenroom.persistence.holders import Holder
from greenroom.persistence.lease import Lease
from greenroom.persistence.memory import MemoryStore
from tests.support import Bodies

from .support import PATIENCE, House

SECRET = "the secret of the tests"


class SharedStore(MemoryStore):
    """A store for one engine after the other, with the lease of the one that has it."""

    def __init__(self) -> None:
        super().__init__()
        self._leader: str | None = None
        self.term = 0

    @asynccontextmanager
    async def leased(self, address: str) -> AsyncIterator[int]:
        """The lease for a node, from when its engine has opened the store. Yields the term."""
        self._leader, self.term = address, self.term + 1
        try:
            yield self.term
        finally:
            self._leader = None

    async def stored_epoch(self) -> str | None:
        await trio.lowlevel.checkpoint()
        return self._epoch

    async def leased_to(self) -> Lease | None:
        """The lease, as other nodes read it."""
        await trio.lowlevel.checkpoint()
        if self._leader is None:
            return None
        return Lease(Holder("test"), self.term, self._leader, 15.0)


class NodeHouse(House):
    """A node with its gateway, and functions to connect to it."""

    def __init__(
        self,
        node: Node,
        dialer: Dialer,
        config: GatewayConfig,
        bodies: Bodies,
        gateway: Gateway,
        nursery: trio.Nursery,
    ) -> None:
        super().__init__(bodies, cast(Engine, node.engine), gateway, nursery)
        self.node = node
        self.config = config
        self.dialer = dialer
        """Opens connections as this node does."""

    async def finds_leader(self, id: str) -> None:
        """Wait until this node leads or follows the node of this id."""
        router = self.node.router
        while router.leader is None or router.leader.id != id:
            await router.wait_for_change()


@asynccontextmanager
async def cluster(folder: Path, count: int = 2, **config: Any) -> AsyncIterator[list[NodeHouse]]:
    """Nodes `n1`, `n2`, …; the first one leads, and the others follow it. Their bodies execute in the
    leader's engine."""
    store, bodies = SharedStore(), Bodies()
    with trio.fail_after(PATIENCE):
        async with AsyncExitStack() as stack:
            nodes = [
                await stack.enter_async_context(_node(f"n{number}", store, bodies, folder, config))
                for number in range(1, count + 1)
            ]
            yield nodes


@asynccontextmanager
async def _node(
    name: str, store: SharedStore, bodies: Bodies, folder: Path, config: dict[str, Any]
) -> AsyncIterator[NodeHouse]:
    @asynccontextmanager
    async def lead(leadership: Leadership) -> AsyncIterator[tuple[Engine, int]]:
        async with (
            greenroom.open_engine(
                bodies.jobs, store, leadership=leadership, shutdown_timeout=0, data_dir=folder
            ) as engine,
            store.leased(leadership.address) as term,
        ):
            yield engine, term

    settings = GatewayConfig(port=0, **config)
    listeners = await listen(settings)
    address = origin_of(listeners[0], secure=False)
    async with background() as connections:
        dialer = Dialer(SECRET, None, connections)
        node = Node(
            Identity(name, address, "1.0"),
            dial=dialer.node,
            dial_executor=dialer.executor,
            reading=cast(Any, store),
            lead=lead,
            lease_ttl=15,
            max_value_bytes=1 << 20,
            random=random.Random(1),
        )
        node.router.start = f"start of {name}"
        async with background() as tasks:
            tasks.start_soon(node.run)
            await node.has_state.wait()
            async with open_gateway(
                cast(Engine, node.engine),
                settings,
                listeners=listeners,
                router=node.router,
                secret=SECRET,
            ) as gateway:
                yield NodeHouse(node, dialer, settings, bodies, gateway, tasks)
