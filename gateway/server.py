"""The gateway: its listeners, the connections that it accepts, and its shutdown.

An embedding application writes `async with open_gateway(engine) as gateway:` inside its engine's block, so
that the gateway closes before the engine. `serve_stream` serves a connection on any trio stream.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from ..actors.engine.api import Engine
from ..actors.executors.connection import Connection as Frames
from .accepting import accept_all
from .auth.access import Access
from .auth.origins import is_loopback
from .background import background
from .cluster.router import Router
from .config import GatewayConfig
from .connection import Connection, serve_executor, serve_node
from .shared import Shared
from .websocket.framed import max_node_frame_bytes
from .websocket.session import GOING_AWAY

logger = logging.getLogger("greenroom.gateway")

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 5\r\nConnection: close\r\n\r\n"
)


@asynccontextmanager
async def open_gateway(
    engine: Engine,
    config: GatewayConfig | None = None,
    *,
    listeners: Sequence[trio.SocketListener] | None = None,
    router: Router | None = None,
    secret: str | None = None,
) -> AsyncIterator[Gateway]:
    """Run a gateway to the engine for the duration of the block.

    The gateway listens at the address in `config`; or on `listeners`, which it closes at the end (an empty
    list if all connections arrive by `serve_stream`). An exception of the block propagates as it is.

    With `router` and `secret`, it is the gateway of a node of a cluster, and `engine` stands for what serves
    at this node.

    Leaving the block closes the gateway: it stops accepting, closes WebSockets with code 1001 (going away),
    completes requests that have started, and waits for all that at most `close_timeout` seconds.
    """
    config = config or GatewayConfig()
    snapshot = await engine.snapshot()
    shared = Shared(engine, snapshot.epoch, config, router, secret)
    shared.metrics.begin(snapshot)
    tls = _tls(config)
    if listeners is None:
        listeners = await listen(config)
    gateway = Gateway(shared, listeners, tls)
    async with background() as nursery:
        await gateway._start(nursery, snapshot.seq)
        try:
            yield gateway
        finally:
            with trio.CancelScope(shield=True):
                await gateway._close()


class Gateway:
    """A running gateway; `open_gateway` creates it."""

    def __init__(
        self, shared: Shared, listeners: Sequence[trio.SocketListener], tls: ssl.SSLContext | None
    ) -> None:
        self._shared = shared
        self._listeners = list(listeners)
        self._tls = tls
        self._connections: dict[Connection, None] = {}
        self._accepting = trio.CancelScope()
        self._empty = trio.Event()

    @property
    def port(self) -> int:
        """The port on which the gateway listens."""
        port: int = self._listeners[0].socket.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """The URL for HTTP; for WebSocket, replace `http` with `ws`."""
        host = self._listeners[0].socket.getsockname()[0]
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self._tls else 'http'}://{shown}:{self.port}"

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    async def serve_stream(
        self,
        stream: trio.abc.Stream,
        *,
        secure: bool = False,
        local: bool = False,
        address: str | None = None,
    ) -> None:
        """Serve the client of a stream until it disconnects, then close the stream.

        `secure`: the stream is encrypted. `local`: the client is on this machine (`workers_without_token`).
        `address`: connections of one address share the limits of unauthenticated clients.
        """
        limits = self._shared.limits
        if self._shared.closing or len(self._connections) >= limits.max_connections:
            try:
                with trio.move_on_after(limits.close_timeout):
                    await stream.send_all(_FULL)
            except trio.BrokenResourceError:
                logger.debug("client disconnected before it received 503")
            finally:
                await trio.aclose_forcefully(stream)
            return
        connection = Connection(self._shared, stream, secure=secure, local=local, address=address)
        self._connections[connection] = None
        try:
            await connection.run()
        finally:
            del self._connections[connection]
            if not self._connections:
                self._empty.set()

    async def serve_executor(self, frames: Frames, name: str) -> None:
        """Serve an executor on a connection that needs no handshake; `name` is for the log."""
        await serve_executor(self._shared, name, frames)

    async def serve_node(self, frames: Frames) -> None:
        """Serve another node of the cluster on a connection that needs no handshake."""
        await serve_node(self._shared, max_node_frame_bytes(self._shared.limits), frames)

    def reconfigure(self, config: GatewayConfig) -> None:
        """Apply a new configuration. Raises `Invalid`, and changes nothing, if it is not valid.

        Limits, tokens, hosts and origins are effective immediately, also for open connections. The address
        and the certificate do not change.
        """
        shared = self._shared
        access = Access(config, shared.secret)
        shared.config = config
        shared.access = access
        access.warn()
        for connection in list(self._connections):
            connection.recheck()

    async def _start(self, nursery: trio.Nursery, seq: int) -> None:
        self._shared.access.warn()
        nursery.start_soon(self._shared.heartbeats.run)
        nursery.start_soon(self._shared.feeds.run)
        nursery.start_soon(self._shared.states.run)
        nursery.start_soon(self._shared.viewer_states.run)
        nursery.start_soon(self._follow, seq)
        if self._listeners:
            await nursery.start(self._accept)
            logger.info("gateway listening on %s", self.url)

    async def _accept(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as connections:
            with self._accepting:
                await accept_all(self._listeners, self._serve_socket, connections, task_status)

    async def _serve_socket(self, stream: trio.SocketStream) -> None:
        try:
            peer = stream.socket.getpeername()
        except OSError:
            return  # the client reset the connection before it was accepted
        address, local = _address(peer), _is_local(peer)
        if self._tls is None:
            await self.serve_stream(stream, local=local, address=address)
            return
        encrypted = trio.SSLStream(stream, self._tls, server_side=True, https_compatible=True)
        try:
            with trio.fail_after(self._shared.limits.head_timeout):
                await encrypted.do_handshake()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            await trio.aclose_forcefully(stream)
            return
        await self.serve_stream(encrypted, secure=True, local=local, address=address)

    async def _follow(self, seq: int) -> None:
        stream, changed = self._shared.engine.stream, self._shared.changed
        stream.listen(changed)
        try:
            await self._shared.endings.follow(seq)
        finally:
            stream.unlisten(changed)
        for session in list(self._shared.sessions):
            session.end(GOING_AWAY, "engine has stopped")

    async def _close(self) -> None:
        self._shared.closing = True
        self._accepting.cancel()
        for listener in self._listeners:
            await trio.aclose_forcefully(listener)
        for connection in list(self._connections):
            connection.finish()
        if self._connections:
            self._empty = trio.Event()
            with trio.move_on_after(self._shared.limits.close_timeout):
                await self._empty.wait()


async def listen(config: GatewayConfig) -> list[trio.SocketListener]:
    """Open the listeners at the address in `config`. Raises `OSError` with the remedy."""
    try:
        return await trio.open_tcp_listeners(config.port, host=config.host)
    except OSError as error:
        where = f"{config.host} port {config.port}"
        text = f"cannot listen on {where}: {error.strerror or error}; choose another host or port"
        raise OSError(error.errno, text) from error


def _is_local(peer: object) -> bool:
    """Whether the peer's address is a loopback address."""
    address = _address(peer)
    return address is not None and is_loopback(address)


def _address(peer: object) -> str | None:
    """The address of the peer, if it has one."""
    return str(peer[0]) if isinstance(peer, tuple) else None


def _tls(config: GatewayConfig) -> ssl.SSLContext | None:
    if config.tls_certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(config.tls_certificate, config.tls_key)
    return context
