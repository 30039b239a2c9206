"""The connections of a child process to its parent: one that the child inherits, or any number of them.

The children of an engine end with it, so each socket that they inherit is one connection. The children of a
cluster's node keep their bodies while the leader changes, so they connect again: for each connection they
create a pair of sockets, and pass one end to their parent over the socket that they inherited.
"""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from .connection import Connection, StreamConnection

Serve = Callable[[Connection], Awaitable[None]]

_ONE = socket.CMSG_SPACE(array.array("i").itemsize) if hasattr(socket, "CMSG_SPACE") else 0
"""The size of the control message that carries one file."""


class ChildConnections(Protocol):
    """The parent's end of a socket that a child inherits."""

    async def serve(self, serve: Serve) -> None:
        """Serve the connections. Returns when no more can follow."""

    async def aclose(self) -> None:
        """Close the socket."""


class Inherited:
    """The socket is the only connection."""

    def __init__(self, end: socket.socket) -> None:
        self._connection = connection_over(end)

    @trio.lowlevel.enable_ki_protection
    async def serve(self, serve: Serve) -> None:
        await serve(self._connection)

    async def aclose(self) -> None:
        await self._connection.aclose()


class Handed:
    """The socket carries the ends of connections."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = trio.socket.from_stdlib_socket(end)

    @trio.lowlevel.enable_ki_protection
    async def serve(self, serve: Serve) -> None:
        async with trio.open_nursery() as nursery:
            while (end := await self._receive()) is not None:
                nursery.start_soon(serve, connection_over(end))
            nursery.cancel_scope.cancel()

    async def aclose(self) -> None:
        self._socket.close()
        await trio.lowlevel.checkpoint()

    async def _receive(self) -> socket.socket | None:
        """The end of the next connection; `None` when the child has closed the socket."""
        while True:
            try:
                data, controls, _, _ = await self._socket.recvmsg(1, _ONE)
            except ConnectionResetError:
                return None
            if not data:
                return None
            files = array.array("i")
            for level, kind, content in controls:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    files.frombytes(content[: len(content) - len(content) % files.itemsize])
            if files:  # none if this process has too many open files; the child then connects again
                os.set_inheritable(files[0], False)
                return socket.socket(fileno=files[0])


def hand_over(inherited: socket.socket) -> socket.socket:
    """In the child: open a connection to the parent. Can be called in any thread; raises `OSError`."""
    ours, theirs = socket.socketpair()
    try:
        socket.send_fds(inherited, [b"+"], [theirs.fileno()])
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return ours


def connection_over(end: socket.socket) -> StreamConnection:
    """The connection over one end of a pair of sockets."""
    return StreamConnection(trio.SocketStream(trio.socket.from_stdlib_socket(end)))
