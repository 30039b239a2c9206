"""A network of one gateway in memory, to cut, deafen and refuse connections on mock time."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import trio
import trio.testing

from greenroom import Client, Engine, Jobs, connect
from greenroom.gateway import Gateway, GatewayConfig

from ..support import open_engine, open_gateway

Ends = tuple[trio.StapledStream[Any, Any], trio.StapledStream[Any, Any]]


class Network:
    """All connections to the gateway."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.gateway: Gateway | None = None
        self.opened = 0
        self._clients = 0
        self._nursery = nursery
        self._open: list[Ends] = []

    async def open_stream(self) -> trio.abc.Stream:
        """A new connection, for `connect(open_stream=…)`."""
        await trio.lowlevel.checkpoint()
        if self.gateway is None:
            raise ConnectionRefusedError("nobody listens")
        ours, theirs = trio.testing.memory_stream_pair()
        self._open.append((ours, theirs))
        self.opened += 1
        self._nursery.start_soon(self.gateway.serve_stream, theirs)
        return ours

    def cut(self) -> None:
        """Break every connection: both sides notice."""
        for ours, theirs in self._open:
            for end in (ours, theirs):
                end.send_stream.close()
                end.receive_stream.close()
        self._open.clear()

    def deafen(self) -> None:
        """From now on nothing that the gateway sends on the open connections arrives."""
        for _, theirs in self._open:
            theirs.send_stream.send_all_hook = _swallow(theirs)

    def freeze(self) -> None:
        """From now on no data arrives on the open connections, without an error on either side."""
        for ours, theirs in self._open:
            theirs.send_stream.send_all_hook = _swallow(theirs)
            ours.send_stream.send_all_hook = _swallow(ours)

    def client(self, **options: Any) -> AbstractAsyncContextManager[Client]:
        """A client on this network."""
        self._clients += 1
        options.setdefault("random", random.Random(self._clients))
        return connect("ws://127.0.0.1:8440", open_stream=self.open_stream, **options)


def _swallow(end: trio.StapledStream[Any, Any]) -> Any:
    async def swallow() -> None:
        end.send_stream.get_data_nowait()

    return swallow


@asynccontextmanager
async def network(jobs: Jobs, config: GatewayConfig | None = None, **options: Any) -> AsyncIterator[Any]:
    """An engine, its gateway, and a network to it."""
    async with trio.open_nursery() as nursery:
        net = Network(nursery)
        async with open_engine(jobs, **options) as engine, serving(net, engine, config):
            yield net, engine
            net.cut()
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def serving(net: Network, engine: Engine, config: GatewayConfig | None = None) -> AsyncIterator[None]:
    """A gateway to the engine during the block."""
    async with open_gateway(engine, config, listeners=()) as gateway:
        net.gateway = gateway
        try:
            yield
        finally:
            net.gateway = None
