"""Several nodes of a cluster in memory: gateways to one engine, each with its own network and address."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, MutableSequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import attrs
import trio
import trio.testing
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection

from greenroom import Client, Engine, Jobs, connect
from greenroom.gateway import GatewayConfig
from greenroom.protocol.codec import MSGPACK

from ..support import open_engine
from .network import Network, serving

Answer = Callable[[trio.abc.Stream], Awaitable[None]]
"""What a server that is not a gateway does with a connection."""


class InOrder(random.Random):
    """A source of randomness that leaves the addresses in their order."""

    def shuffle(self, x: MutableSequence[Any]) -> None:
        pass


class Nodes:
    """The nodes of a cluster by their addresses, `ws://a:8440` and so on.

    `attempts` are the connections that clients have tried to open: the time, and the name of the node.
    """

    def __init__(self, nursery: trio.Nursery, engine: Engine, config: GatewayConfig | None) -> None:
        self.engine = engine
        self._config = attrs.evolve(config or GatewayConfig(), allowed_hosts=tuple("abcd"))
        self.networks: dict[str, Network] = {}
        self.attempts: list[tuple[float, str]] = []
        self._nursery = nursery
        self._instead: dict[str, Answer] = {}
        self._stopping: dict[str, tuple[trio.Event, trio.Event]] = {}

    async def start(self, name: str, engine: Engine | None = None) -> None:
        """Start the gateway of a node. A cluster has one engine; with another one, it is not one cluster."""
        self.networks.setdefault(name, Network(self._nursery))
        self._instead.pop(name, None)
        await self._nursery.start(self._serve, name, engine or self.engine)

    async def stop(self, name: str) -> None:
        """Close the gateway of a node, as a shutdown does. Its address then refuses connections."""
        stopping, stopped = self._stopping.pop(name)
        stopping.set()
        await stopped.wait()

    def kill(self, name: str) -> None:
        """Break the connections of a node. Its address then refuses connections."""
        self.networks[name].gateway = None
        self.networks[name].cut()

    def replace(self, name: str, answer: Answer) -> None:
        """From now on, `answer` serves the connections to the address of this node."""
        self._instead[name] = answer

    def client(self, names: str | None = None, **options: Any) -> AbstractAsyncContextManager[Client]:
        """A client with the addresses of these nodes, by default of all; it tries them in their order."""
        options.setdefault("random", InOrder(1))
        addresses = [f"ws://{name}:8440" for name in names or self.networks]
        return connect(addresses, open_stream=self._open_stream, **options)

    async def _open_stream(self, address: str) -> trio.abc.Stream:
        name = address.removeprefix("ws://").removesuffix(":8440")
        self.attempts.append((trio.current_time(), name))
        assert len(self.attempts) < 1000, "the client does not pause between its attempts"
        if name not in self._instead:
            return await self.networks[name].open_stream()
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._instead[name], theirs)
        return ours

    async def _serve(self, name: str, engine: Engine, task_status: trio.TaskStatus[None]) -> None:
        stopping, stopped = self._stopping[name] = trio.Event(), trio.Event()
        async with serving(self.networks[name], engine, self._config):
            task_status.started()
            await stopping.wait()
        stopped.set()


@asynccontextmanager
async def nodes(
    jobs: Jobs, names: str = "ab", config: GatewayConfig | None = None, **options: Any
) -> AsyncIterator[Nodes]:
    """The nodes with these names, started."""
    async with open_engine(jobs, **options) as engine, trio.open_nursery() as nursery:
        cluster = Nodes(nursery, engine, config)
        for name in names:
            await cluster.start(name)
        yield cluster
        nursery.cancel_scope.cancel()


async def be_silent(stream: trio.abc.Stream) -> None:
    """Accept the connection, and never respond."""
    await trio.sleep_forever()


def respond(text: bytes) -> Answer:
    """Respond with `text`, and close the connection."""

    async def answer(stream: trio.abc.Stream) -> None:
        await stream.send_all(text)
        await stream.aclose()

    return answer


def accept(*, message: Any = None, close: int | None = None) -> Answer:
    """Accept the WebSocket, and send a message, a closing frame, or both."""

    async def answer(stream: trio.abc.Stream) -> None:
        machine = WSConnection(ConnectionType.SERVER)
        machine.receive_data(bytes(await stream.receive_some()))
        list(machine.events())
        data = machine.send(AcceptConnection(subprotocol=MSGPACK.subprotocol))
        if message is not None:
            data += machine.send(BytesMessage(data=MSGPACK.encode(message)))
        if close is not None:
            data += machine.send(CloseConnection(code=close))
        await stream.send_all(data)
        while not any(isinstance(event, CloseConnection) for event in machine.events()):
            machine.receive_data(bytes(await stream.receive_some()))
        await stream.aclose()

    return answer
