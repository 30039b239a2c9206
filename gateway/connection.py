"""One connection, from its first byte to its last, on any trio stream: an HTTP one, until a request turns it
into a WebSocket. Nothing that happens on it gets out of here, but being cancelled."""

from __future__ import annotations

import base64
import binascii
import logging

import trio
from wsproto.utilities import ProtocolError

from ..protocol.codec import CODECS, JSON, Codec
from ..protocol.errors import GreenroomError, Unavailable
from .http.connection import Http
from .http.head import BadRequest, Request, Requests
from .http.responses import Response, fault, refusal
from .shared import Shared
from .websocket.session import GOING_AWAY, Session
from .websocket.wire import Wire

logger = logging.getLogger("greenroom.gateway")

_VERSION = (("Sec-WebSocket-Version", "13"),)
_LINGER_BYTES = 1 << 22

_EXPECTED = (
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.TooSlowError,
    ProtocolError,  # what trio-websocket lets out where more comes after a message that was too large
    Unavailable,  # the engine has stopped
)


class Connection:
    """See the module's text."""

    def __init__(
        self, shared: Shared, stream: trio.abc.Stream, *, secure: bool, local: bool, address: str | None
    ) -> None:
        self._shared = shared
        self._stream = stream
        self._secure = secure
        self._stranger = shared.strangers.arrive(address)
        self._requests = Requests(stream, lambda: shared.limits, self._stranger)
        self._http = Http(shared, stream, self._requests, self._stranger, secure=secure, local=local)
        self._session: Session | None = None
        self._idle = trio.CancelScope()  # what may be broken off when the gateway closes
        self._lingers = False

    async def run(self) -> None:
        """Serve the client, and close the stream."""
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
        """The gateway is being closed: finish what has begun, and begin nothing more."""
        self._http.finish()
        if self._session is not None:
            self._session.end(GOING_AWAY, "the gateway is being closed")
        else:
            self._idle.cancel()

    def recheck(self) -> None:
        """The tokens have changed: end what goes on for a caller whose token has been revoked."""
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
            shared.access.check_page(request.host, request.header("origin"), secure=self._secure)
            key = _check_upgrade(request)
            codec, subprotocol = _choose(request)
            caller = shared.access.caller(request.header("authorization"))
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
        self._session = Session(shared, self._stream, codec, caller, self._stranger)
        if self._http.finishing:
            self.finish()
        await self._session.run(wire, subprotocol)
        self._lingers = self._session.lingers

    async def _refuse(self, response: Response) -> None:
        self._lingers = True
        await self._http.send(response)

    def _contain(self, error: BaseException) -> None:
        """A failure ends the connection; one that no client should be able to cause is logged as what it
        is."""
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                self._contain(inner)
        elif isinstance(error, _EXPECTED):
            logger.debug("a connection ended: %r", error)
        else:
            logger.error("a connection failed", exc_info=error)


class _Refused(Exception):
    """The request can't become a WebSocket."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


def _check_upgrade(request: Request) -> str:
    """The key of a handshake that trio-websocket will accept."""
    if request.method != "GET":
        raise _Refused(fault(400, "a WebSocket begins with GET"))
    if request.header("sec-websocket-version") != "13":
        raise _Refused(fault(426, "the version of WebSocket must be 13", _VERSION))
    if "transfer-encoding" in request.headers or request.header("content-length") not in (None, "0"):
        raise _Refused(fault(400, "a request for a WebSocket has no body"))
    key = request.header("sec-websocket-key") or ""
    try:
        size = len(base64.b64decode(key, validate=True))
    except (binascii.Error, ValueError):
        size = 0
    if size != 16:
        raise _Refused(fault(400, "Sec-WebSocket-Key must be 16 bytes in base64"))
    return key


def _choose(request: Request) -> tuple[Codec, str | None]:
    """The codec, by the first of the offered subprotocols that we know; JSON for whoever offers none."""
    offered = request.tokens("sec-websocket-protocol")
    for name in offered:
        if name in CODECS:
            return CODECS[name], name
    if offered:
        raise _Refused(fault(400, f"the subprotocol must be one of {', '.join(CODECS)}"))
    return JSON, None


def _head(key: str, subprotocol: str | None) -> bytes:
    """The request as trio-websocket is to read it."""
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
