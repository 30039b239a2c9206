"""Connections of a node to the leader: for its replica, for executors, and for their beats."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult

import trio

from ..actors.executors.connection import Connection
from ..executor.beats import BeatsFailed, DialedBeats
from ..executor.websocket import WebSocketConnection
from ..gateway.client.connecting import opener, parse_url, tls_context
from ..gateway.client.errors import ConnectionLost, Refused
from ..gateway.client.socket import open_socket
from ..protocol import cluster, executors


class RefusedByNode(Exception):
    """The other node refuses the connection, for example because its secret differs."""


class Dialer:
    """Opens connections to other nodes. The tasks that write are in the nursery."""

    def __init__(self, secret: str, ca_file: str | None, nursery: trio.Nursery) -> None:
        self._secret = secret
        self._ca_file = ca_file
        self._nursery = nursery

    async def node(self, address: str) -> Connection:
        """Connect to a node as a node. Raises `OSError`, `trio.BrokenResourceError` and `RefusedByNode`."""
        return await self._open(address, cluster.PATH, cluster.SUBPROTOCOL)

    async def executor(self, address: str) -> Connection:
        """Connect to a node as an executor. Raises the same errors."""
        return await self._open(address, executors.PATH, executors.SUBPROTOCOL)

    async def _open(self, address: str, path: str, subprotocol: str) -> Connection:
        url = parse_url(address)
        url = url._replace(path=url.path.rstrip("/") + path)
        stream = await opener(url, self._ca_file)()
        try:
            socket = await open_socket(stream, url, subprotocol, self._secret, text=True)
        except ConnectionLost as error:
            await trio.aclose_forcefully(stream)
            raise trio.BrokenResourceError(str(error)) from None
        except Refused as error:
            await trio.aclose_forcefully(stream)
            raise RefusedByNode(error.message) from None
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        connection = _Plain(WebSocketConnection(socket))
        self._nursery.start_soon(connection.write)
        return connection


class _Plain:
    """A `Connection` whose errors are trio's."""

    def __init__(self, connection: WebSocketConnection) -> None:
        self._connection = connection
        self.write = connection.write
        self.aclose = connection.aclose

    @property
    def received_at(self) -> float:
        """The time of the last data, which can be a part of a frame."""
        return self._connection.received_at

    async def send(self, frame: bytes) -> None:
        try:
            await self._connection.send(frame)
        except (ConnectionLost, Refused) as error:
            raise trio.BrokenResourceError(str(error)) from None

    async def receive(self) -> bytes:
        try:
            return await self._connection.receive()
        except (ConnectionLost, Refused) as error:
            raise trio.BrokenResourceError(str(error)) from None


class LeaderBeats(DialedBeats):
    """Beats to whichever node leads. `leader` returns its address, and can be called from any thread."""

    def __init__(
        self,
        executor: str,
        start: str,
        patience: float,
        *,
        leader: Callable[[], str | None],
        secret: str,
        ca_file: str | None,
    ) -> None:
        super().__init__(executor, start, patience, SplitResult("", "", "", "", ""), secret, None)
        self._leader = leader
        self._ca_file = ca_file
        self._context: ssl.SSLContext | None = None

    def _open(self) -> socket.socket:
        address = self._leader()
        if address is None:
            raise BeatsFailed("no leader of the cluster is known")
        url = parse_url(address)
        self._url = url._replace(path=url.path.rstrip("/") + executors.PATH)
        self._context = tls_context(url, self._ca_file)
        return super()._open()


def origin_of(listener: Any, *, secure: bool) -> str:
    """The URL of a listener."""
    host, port = listener.socket.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if secure else 'http'}://{shown}:{port}"
