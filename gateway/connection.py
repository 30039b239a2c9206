"""One connection on any trio stream: HTTP, until a request upgrades it to a WebSocket.

Failures of a connection stay in this module; only cancellation propagates.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Collection
from functools import partial

import trio
from wsproto.utilities import ProtocolError

from ..actors.executors.connection import Connection as Frames
from ..protocol.cluster import PATH as NODE_PATH
from ..protocol.cluster import SUBPROTOCOL as NODE_SUBPROTOCOL
from ..protocol.cluster import ForwardRequest
from ..protocol.codec import CODECS, JSON
from ..protocol.errors import GreenroomError, Unavailable
from ..protocol.executors import PATH, SUBPROTOCOL
from ..protocol.values import shown
from .auth.tokens import Caller
from .cluster.requests import answer_request, waits
from .http.connection import Http
from .http.head import BadRequest, Request, Requests
from .http.responses import Response, fault, refusal
from .shared import Shared
from .websocket.framed import FramedSession, max_frame_bytes, max_node_frame_bytes
from .websocket.session import GOING_AWAY, Session
from .websocket.wire import Wire

logger = logging.getLogger("greenroom.gateway")

_VERSION = (("Sec-WebSocket-Version", "13"),)
_LINGER_BYTES = 1 << 22

_EXPECTED = (
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.TooSlowError,
    ProtocolError,  # trio-websocket raises it for data that follows a message that was too large
    Unavailable,  # the engine has stopped
)


class Connection:
    """One connection of a client."""

    def __init__(
        self, shared: Shared, stream: trio.abc.Stream, *, secure: bool, local: bool, address: str | None
    ) -> None:
        self._shared = shared
        self._stream = stream
        self._secure = secure
        self._address = address
        self._stranger = shared.strangers.arrive(address)
        self._requests = Requests(stream, lambda: shared.limits, self._stranger)
        self._http = Http(shared, stream, self._requests, self._stranger, secure=secure, local=local)
        self._session: Session | FramedSession | None = None
        self._idle = trio.CancelScope()  # cancelled when the gateway closes
        self._lingers = False

    async def run(self) -> None:
        """Serve the client, then close the stream."""
        try:
            try:
                await self._serve()
                if self._lingers:
                    await self._requests.linger(_LINGER_BYTES)
            except Exception as error:
                self._contain(error)
            except BaseExceptionGroup as group:
                cancelled, failed = group.split(trio.Cancelled)
                if failed is not None:
                    self._contain(failed)
                if cancelled is not None:
                    raise cancelled from None
        finally:
            await trio.aclose_forcefully(self._stream)

    def finish(self) -> None:
        """End the connection because the gateway is closing: complete the current request, and accept no
        other."""
        self._http.finish()
        if self._session is not None:
            self._session.end(GOING_AWAY, "gateway is shutting down")
        else:
            self._idle.cancel()

    def recheck(self) -> None:
        """End what runs for a caller whose token has been revoked; called when the tokens have changed."""
        self._http.recheck()
        if self._session is not None:
            self._session.recheck()

    async def _serve(self) -> None:
        while not self._http.finishing:
            try:
                request = None
                self._idle = trio.CancelScope()
                with self._idle:
                    request = await self._requests.head()
                if request is None:
                    return
            except BadRequest as error:
                self._lingers = True
                await self._http.send(fault(error.status, error.message))
                return
            if request.upgrades:
                await self._upgrade(request)
                return
            if not await self._http.respond(request):
                self._lingers = True
                return

    async def _upgrade(self, request: Request) -> None:
        shared = self._shared
        try:
            authorization = request.header("authorization")
            if not shared.access.is_member(authorization):  # no page has the secret, and nodes use any name
                if request.path == NODE_PATH and shared.router is not None:
                    shared.refused_nodes.add(self._address)
                shared.access.check_page(request.host, request.header("origin"), secure=self._secure)
            key = _check_upgrade(request)
            if request.path == PATH:
                subprotocol = _choose(request, (SUBPROTOCOL,))
                caller: Caller | None = shared.access.executor(authorization)
            elif request.path == NODE_PATH and shared.router is not None:
                subprotocol = _choose(request, (NODE_SUBPROTOCOL,))
                caller = shared.access.node(authorization)
            else:
                subprotocol = _choose(request, CODECS)
                caller = shared.access.caller(authorization)
                caller = caller and shared.access.as_client(caller)
            if caller is not None:
                self._stranger.recognise()
            excess = self._stranger.excess()
            if excess is not None:
                raise excess
        except _Refused as refused:
            await self._refuse(refused.response)
            return
        except GreenroomError as error:
            await self._refuse(refusal(error))
            return
        head, rest = _head(key, subprotocol), self._requests.machine.trailing_data[0]
        wire = Wire(self._stream, head, rest, self._stranger, lambda: shared.limits)
        self._session = self._new_session(request, caller, subprotocol)
        if self._http.finishing:
            self.finish()
        await self._session.run(wire, subprotocol)
        self._lingers = self._session.lingers

    def _new_session(
        self, request: Request, caller: Caller | None, subprotocol: str | None
    ) -> Session | FramedSession:
        shared = self._shared
        if request.path == PATH or subprotocol == NODE_SUBPROTOCOL:
            assert caller is not None, "executors and nodes send their token with the handshake"
            if request.path == PATH:
                size = max_frame_bytes(shared.engine.max_value_bytes)
                return FramedSession(shared, caller, partial(serve_executor, shared, caller.name), size)
            size = max_node_frame_bytes(shared.limits)
            return FramedSession(shared, caller, partial(serve_node, shared, size), size)
        codec = JSON if subprotocol is None else CODECS[subprotocol]
        return Session(self._shared, self._stream, codec, caller, self._stranger)

    async def _refuse(self, response: Response) -> None:
        self._lingers = True
        await self._http.send(response)

    def _contain(self, error: BaseException) -> None:
        """Log a failure, which ends the connection. One that a client can cause is logged as debug, any other
        as an error."""
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                self._contain(inner)
        elif isinstance(error, _EXPECTED):
            logger.debug("connection closed: %r", error)
        else:
            logger.error("connection failed", exc_info=error)


async def serve_executor(shared: Shared, name: str, frames: Frames) -> None:
    """Serve an executor, or its heartbeats; `name` is that of its token."""
    router = shared.router
    if router is None:
        await shared.engine.executors.serve(frames, name=name)
    else:
        await router.serve_executor(frames, name)


async def serve_node(shared: Shared, max_frame_bytes: int, frames: Frames) -> None:
    """Serve another node of the cluster."""
    assert shared.router is not None, "the path exists only in clusters"
    await shared.router.serve_node(frames, _NodeGateway(shared, max_frame_bytes))


class _NodeGateway:
    """This gateway, for the followers of its node."""

    def __init__(self, shared: Shared, max_frame_bytes: int) -> None:
        self._shared = shared
        self.max_frame_bytes = max_frame_bytes
        self.call = shared.call

    async def answer(self, message: ForwardRequest, caller: Caller) -> Response:
        """Answer an HTTP request that a follower has forwarded."""
        return await answer_request(self._shared, message, caller)

    def waits(self, message: ForwardRequest) -> bool:
        return waits(message)


class _Refused(Exception):
    """The request cannot be upgraded to a WebSocket."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


def _check_upgrade(request: Request) -> str:
    """Return the key of the handshake. Raises `_Refused` where trio-websocket would refuse the handshake."""
    if request.method != "GET":
        raise _Refused(fault(400, "a WebSocket upgrade requires the method GET"))
    if request.header("sec-websocket-version") != "13":
        raise _Refused(fault(426, "Sec-WebSocket-Version must be 13", _VERSION))
    if "transfer-encoding" in request.headers or request.header("content-length") not in (None, "0"):
        raise _Refused(fault(400, "a WebSocket upgrade must not have a body"))
    key = request.header("sec-websocket-key") or ""
    try:
        size = len(base64.b64decode(key, validate=True))
    except (binascii.Error, ValueError):
        size = 0
    if size != 16:
        raise _Refused(fault(400, "Sec-WebSocket-Key must be 16 bytes in base64"))
    return key


def _choose(request: Request, supported: Collection[str]) -> str | None:
    """The first offered subprotocol that is supported; `None` if none is offered."""
    offered = request.tokens("sec-websocket-protocol")
    for name in offered:
        if name in supported:
            return name
    if SUBPROTOCOL in offered:
        raise _Refused(fault(400, f"executors attach at the path {PATH} (got {shown(request.path)})"))
    if offered:
        raise _Refused(fault(400, f"Sec-WebSocket-Protocol must contain one of {', '.join(supported)}"))
    return None


def _head(key: str, subprotocol: str | None) -> bytes:
    """The request in the form that trio-websocket reads."""
    lines = [
        "GET / HTTP/1.1",
        "Host: greenroom",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {key}",
    ]
    if subprotocol is not None:
        lines.append(f"Sec-WebSocket-Protocol: {subprotocol}")
    return "\r\n".join([*lines, "", ""]).encode("ascii")
