"""Opening a gateway and closing it: the listener, the connections that it accepts, and their end.

An embedding application writes `async with open_gateway(engine) as gateway:` inside its engine's block, and
so the gateway is closed before the engine. Connections can also be given to it (`serve_stream`) that no
socket has brought.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from ..actors.engine.api import Engine
from .accepting import accept_all
from .auth.access import Access
from .auth.origins import is_loopback
from .background import background
from .config import GatewayConfig
from .connection import Connection
from .shared import Shared
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
) -> AsyncIterator[Gateway]:
    """Run a gateway to the engine for as long as the block lasts.

    It listens where `config` says; or on `listeners`, if given, which it closes in the end (none at all are
    fine, for connections that come by `serve_stream`). What the block raises comes out as itself.

    Leaving the block closes it: it accepts nothing more, tells WebSockets that it goes away, finishes
    requests that have begun, and waits for all that `close_timeout` seconds.
    """
    config = config or GatewayConfig()
    snapshot = await engine.snapshot()
    shared = Shared(engine, snapshot.epoch, config)
    shared.metrics.begin(snapshot)
    tls = _tls(config)
    if listeners is None:
        listeners = await _listen(config)
    gateway = Gateway(shared, listeners, tls)
    async with background() as nursery:
        await gateway._start(nursery, snapshot.seq)
        try:
            yield gateway
        finally:
            with trio.CancelScope(shield=True):
                await gateway._close()


class Gateway:
    """A running gateway; `open_gateway` makes one."""

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
        """The port it listens on."""
        port: int = self._listeners[0].socket.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Where it is, for HTTP; for WebSocket, with `ws` in place of `http`."""
        host = self._listeners[0].socket.getsockname()[0]
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self._tls else 'http'}://{shown}:{self.port}"

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._connections)

    async def serve_stream(
        self,
        stream: trio.abc.Stream,
        *,
        secure: bool = False,
        local: bool = False,
        address: str | None = None,
    ) -> None:
        """Serve a client that is at the other end of a stream, until it goes away, and close the stream.
        `local` says that it is on this machine, where workers may need no token. Connections of one `address`
        share what they may use without a token."""
        limits = self._shared.limits
        if self._shared.closing or len(self._connections) >= limits.max_connections:
            try:
                with trio.move_on_after(limits.close_timeout):
                    await stream.send_all(_FULL)
            except trio.BrokenResourceError:
                logger.debug("a client that there was no room for is gone")
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

    def reconfigure(self, config: GatewayConfig) -> None:
        """Take a new configuration: limits, tokens, hosts and origins hold from now on, also for connections
        that are open. Where it listens, and the certificate, stay. Raises `Invalid` and changes nothing if it
        can't be used."""
        shared = self._shared
        access = Access(config)
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
        nursery.start_soon(self._follow, seq)
        if self._listeners:
            await nursery.start(self._accept)
            logger.info("the gateway listens on %s", self.url)

    async def _accept(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as connections:
            with self._accepting:
                await accept_all(self._listeners, self._serve_socket, connections, task_status)

    async def _serve_socket(self, stream: trio.SocketStream) -> None:
        try:
            peer = stream.socket.getpeername()
        except OSError:
            return  # the client reset the connection; in a storm most do before they are accepted
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
            session.end(GOING_AWAY, "the engine has stopped")

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


async def _listen(config: GatewayConfig) -> list[trio.SocketListener]:
    try:
        return await trio.open_tcp_listeners(config.port, host=config.host)
    except OSError as error:
        where = f"{config.host} port {config.port}"
        text = f"nothing can listen at {where}: {error.strerror or error}; choose another host or port"
        raise OSError(error.errno, text) from error


def _is_local(peer: object) -> bool:
    """Whether the other end is on this machine, by its address."""
    address = _address(peer)
    return address is not None and is_loopback(address)


def _address(peer: object) -> str | None:
    """The address of the other end, where it has one."""
    return str(peer[0]) if isinstance(peer, tuple) else None


def _tls(config: GatewayConfig) -> ssl.SSLContext | None:
    if config.tls_certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(config.tls_certificate, config.tls_key)
    return context
