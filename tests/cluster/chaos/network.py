"""The network between the nodes of a cluster and their database: TCP proxies that can be cut.

A node is reached at its proxy. The proxy finds out which process has opened a connection, so each direction
between two nodes can be cut separately. What a node sends to itself is never cut.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import trio

DATABASE = "database"
"""The name of the database among the names of the nodes."""

Direction = tuple[str, str]
"""From one name to another."""


class Network:
    """Data in a silent direction is kept until `heal`, as by a network that transmits it again. `processes`
    returns the names of the processes by their ids."""

    def __init__(self, processes: Callable[[], Mapping[int, str]]) -> None:
        self._processes = processes
        self._silent: set[Direction] = set()
        self._closed: set[frozenset[str]] = set()
        self._healed = trio.Event()
        self._scopes: defaultdict[frozenset[str], set[trio.CancelScope]] = defaultdict(set)

    async def serve(
        self, target: str, port: int, source: str | None = None, *, task_status: trio.TaskStatus[int]
    ) -> None:
        """Forward connections to the port of a target. Without a source, it is the process that connects."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        forward = partial(self._forward, target, port, source)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, forward, listeners)
            task_status.started(listeners[0].socket.getsockname()[1])

    def silence(self, directions: Iterable[Direction]) -> None:
        """Forward no data in these directions; connections stay open."""
        self._silent.update(directions)

    def close(self, directions: Iterable[Direction]) -> None:
        """Close the connections between these names, and refuse others."""
        for pair in map(frozenset, directions):
            self._closed.add(pair)
            for scope in self._scopes[pair]:
                scope.cancel()

    def heal(self) -> None:
        """Forward everything again."""
        self._silent.clear()
        self._closed.clear()
        self._healed.set()
        self._healed = trio.Event()

    async def _forward(self, target: str, port: int, source: str | None, near: trio.SocketStream) -> None:
        try:
            source = source or self._source(near)
        except OSError:  # it was closed already
            await trio.aclose_forcefully(near)
            return
        pair = frozenset((source, target))
        with trio.CancelScope() as scope:
            self._scopes[pair].add(scope)
            try:
                if pair in self._closed:
                    return
                far = await trio.open_tcp_stream("127.0.0.1", port)
                async with far, trio.open_nursery() as nursery:
                    nursery.start_soon(self._pump, (source, target), near, far, nursery.cancel_scope)
                    nursery.start_soon(self._pump, (target, source), far, near, nursery.cancel_scope)
            except OSError:
                pass  # the target is away
            finally:
                self._scopes[pair].discard(scope)
                await trio.aclose_forcefully(near)

    async def _pump(
        self,
        direction: Direction,
        source: trio.SocketStream,
        sink: trio.SocketStream,
        scope: trio.CancelScope,
    ) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                await self._is_open(direction)
                await sink.send_all(data)
        await self._is_open(direction)
        scope.cancel()

    async def _is_open(self, direction: Direction) -> None:
        while direction in self._silent:
            await self._healed.wait()

    def _source(self, stream: trio.SocketStream) -> str:
        """The name of the process that has opened a connection."""
        inode = _inode(stream.socket.getpeername()[1], stream.socket.getsockname()[1])
        for process, name in self._processes().items():
            with suppress(OSError):  # it has just ended
                for file in Path(f"/proc/{process}/fd").iterdir():
                    with suppress(OSError):  # it was just closed
                        if os.readlink(file) == f"socket:[{inode}]":
                            return name
        return "unknown"


def _inode(local: int, remote: int) -> str:
    """The inode of the connection from one port to another."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        ports = [int(address.rpartition(":")[2], 16) for address in fields[1:3]]
        if ports == [local, remote]:
            return fields[9]
    return "none"
