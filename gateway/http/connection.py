"""HTTP on one connection: requests and their responses in turn, until one side closes it.

A request that is refused before its body was read closes the connection, because the rest of the body would
be parsed as the next request.
"""

from __future__ import annotations

import logging
from http import HTTPStatus

import h11
import trio

from ...protocol.errors import Forbidden, GreenroomError, Internal, RateLimited, Unauthorized, Unavailable
from ..auth.strangers import Stranger
from ..auth.tokens import EVERYONE, LOCAL_WORKER, Caller
from ..limits import Rate
from ..shared import Shared
from .head import BadRequest, Request, Requests
from .responses import Response, fault, header_list, refusal
from .routes import Call, Route, has_error_field, offered

logger = logging.getLogger("greenroom.gateway")

_FROM_ELSEWHERE = ("origin", "forwarded", "via", "x-real-ip")
"""Headers of web pages and proxies, in addition to those that start with `X-Forwarded-`."""


class _Disconnected(Exception):
    """The client has disconnected."""


class Http:
    """The requests of one connection that are not upgraded to a WebSocket."""

    def __init__(
        self,
        shared: Shared,
        stream: trio.abc.Stream,
        requests: Requests,
        stranger: Stranger,
        *,
        secure: bool,
        local: bool,
    ) -> None:
        self.finishing = False
        self._stranger = stranger
        self._open_to_all = False
        self._served: Caller | None = None
        self._shared = shared
        self._stream = stream
        self._requests = requests
        self._machine = requests.machine
        self._secure = secure
        self._local = local
        self._rate = Rate(shared.limits.burst)
        self._interruptible = trio.CancelScope()
        self._writing = False
        self._has_error_field = False

    def finish(self) -> None:
        """Complete the current request, and accept no other. An endless response ends now, and so does a wait
        for a response."""
        self.finishing = True
        self._interruptible.cancel()

    def recheck(self) -> None:
        """End a long response if its caller's token has been revoked; called when the tokens have changed."""
        if not self._is_valid():
            self._interruptible.cancel()

    async def respond(self, request: Request) -> bool:
        """Answer one request. Returns whether the connection can be used for another request."""
        self._has_error_field = has_error_field(request)
        self._open_to_all = False
        self._served = None
        try:
            response = await self._answer(request)
        except BadRequest as error:
            response = self._fault(error.status, error.message)
        except GreenroomError as error:
            response = self._refusal(error)
        except _Disconnected:
            return False
        except trio.BrokenResourceError:  # the connection was lost in the middle of the request
            raise
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            response = self._refusal(Internal("internal error of the gateway; see the server's log"))
        excess = self._stranger.excess(alone=self._open_to_all)
        if excess is not None:
            self.finishing = True
            response.unsent()
            response = self._refusal(excess)
        try:
            await self.send(response, request)
        except BaseException:
            response.unsent()
            raise
        if self._machine.our_state is h11.DONE and self._machine.their_state is h11.DONE:
            self._machine.start_next_cycle()
            return not self.finishing
        return False

    async def send(self, response: Response, request: Request | None = None) -> None:
        """Send a response; `request` is `None` if the request could not be parsed."""
        machine = self._machine
        if machine.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        headers = header_list(response) + self._cross_origin(request)
        if response.stream is None and response.status not in (204, 304):
            headers.append(("Content-Length", str(response.length)))
        with_body = self._requests.method != "HEAD"
        streams = response.stream is not None and with_body
        if machine.their_state is not h11.DONE or self.finishing or streams:
            headers.append(("Connection", "close"))
        data = (
            machine.send(
                h11.Response(
                    status_code=response.status,
                    headers=headers,
                    reason=HTTPStatus(response.status).phrase.encode(),
                )
            )
            or b""
        )
        if streams:
            await self._send_all(data)
            await self._stream_body(response)
            return
        if response.body and with_body:
            data += machine.send(h11.Data(data=response.body)) or b""
        for piece in response.pieces if with_body else ():
            data += machine.send(h11.Data(data=piece)) or b""
            if len(data) >= _PIECE:
                await self._send_all(data)
                data = b""
        data += machine.send(h11.EndOfMessage()) or b""
        await self._send_all(data)

    async def _answer(self, request: Request) -> Response:
        shared = self._shared
        has_body = "transfer-encoding" in request.headers or request.header("content-length") not in (
            None,
            "0",
        )
        body = b"" if has_body else await self._requests.body()
        shared.access.check_page(request.host, request.header("origin"), secure=self._secure)
        if request.method == "OPTIONS" and request.path in ("*", "/"):  # a proxy's health check
            return Response(204, headers=(("Allow", "GET, HEAD, OPTIONS, POST, PUT"),))
        try:
            methods = offered(request, shared.config)
        except UnicodeDecodeError:
            raise BadRequest(400, "path must be UTF-8") from None
        allow = ("Allow", ", ".join(sorted({*methods, "OPTIONS"})))
        if request.method == "OPTIONS":
            return Response(204, headers=(allow,))
        if request.method not in methods:
            return self._fault(405, f"method {request.method} not allowed for {request.path}", (allow,))
        route, names = methods[request.method]
        limits = shared.limits
        if self._rate.take(limits.rate, limits.burst):
            raise RateLimited(f"rate limit exceeded: at most {limits.rate:g} requests per second")
        caller = self._caller(route, request)
        if has_body:
            self._check_body(request, route)
            body = await self._requests.body()
            self._check_token()
        call = Call(shared, caller, request, names, body, self._rate)
        return await (self._wait_for(route, call) if route.waits else route.run(call))

    def _caller(self, route: Route, request: Request) -> Caller:
        if route.role is None:
            self._open_to_all = True
            return EVERYONE
        tickets = request.query.get("ticket", [])
        if route.tickets and len(tickets) == 1:
            caller: Caller | None = self._shared.tickets.redeem(tickets[0])
        else:
            caller = self._shared.access.caller(request.header("authorization"))
        if caller is None and route.workers and self._is_local_program(request):
            caller = LOCAL_WORKER
        if caller is None:
            raise Unauthorized("token required: send `Authorization: Bearer <token>`")
        self._served = caller
        self._check_token()  # the token of a ticket may have been revoked
        self._stranger.recognise()
        if not route.permits(caller):
            raise Forbidden(
                f"requires the role {route.role} (the token's role: {caller.role})", role=caller.role
            )
        if caller.scope is not None and not route.limited:
            raise caller.scope.lacks()
        return caller

    def _is_valid(self) -> bool:
        """Whether the caller's token has not been revoked. True also without a caller."""
        return self._served is None or self._shared.access.still_admits(self._served)

    def _check_token(self) -> None:
        if not self._is_valid():
            raise Unauthorized("invalid or revoked token")

    def _is_local_program(self, request: Request) -> bool:
        """Whether workers on this machine need no token, and the request is from a program on this machine:
        not from a web page, and not forwarded by a proxy. Headers can only disprove it."""
        admitted = self._shared.access.admits_local_workers and self._local
        return admitted and not any(
            name in _FROM_ELSEWHERE or name.startswith("x-forwarded-") for name in request.headers
        )

    async def _wait_for(self, route: Route, call: Call) -> Response:
        """Wait for a response that can take long. The wait ends when the client disconnects, its token is
        revoked, or the gateway closes."""
        response: Response | None = None
        refused: GreenroomError | None = None
        disconnected = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_client, disconnected, nursery.cancel_scope)
            with self._until_finish():
                try:
                    response = await route.run(call)
                except GreenroomError as error:  # raised below, not in a group
                    refused = error
            nursery.cancel_scope.cancel()
        if disconnected.is_set():
            if response is not None:
                response.unsent()
            raise _Disconnected
        if response is not None and not self._is_valid():
            response.unsent()
        self._check_token()
        if refused is not None:
            raise refused
        if response is None:
            raise Unavailable("gateway is shutting down")
        return response

    async def _watch_client(self, disconnected: trio.Event, scope: trio.CancelScope) -> None:
        """Detect that the client has disconnected. Data that it sends before, up to a limit, is kept as its
        next request."""
        if await self._requests.until_disconnected():
            disconnected.set()
            scope.cancel()

    def _check_body(self, request: Request, route: Route) -> None:
        """Check the headers of a body before it is read. Raises `BadRequest`."""
        length = request.header("content-length")
        most = self._shared.limits.max_message_bytes
        if length is not None and int(length) > most:
            raise BadRequest(413, f"body must have at most {most} bytes (got {length})")
        kind = (request.header("content-type") or "").partition(";")[0].strip().lower()
        if kind != "application/json" and not (route.any_type and _is_no_page(request)):
            raise BadRequest(415, f"Content-Type must be application/json (got {kind[:100] or 'none'})")
        if request.tokens("content-encoding") not in ([], ["identity"]):
            raise BadRequest(415, "Content-Encoding must be identity: send the body uncompressed")

    def _until_finish(self) -> trio.CancelScope:
        """A scope that `finish` cancels, and `recheck` if the caller's token has been revoked."""
        self._interruptible = trio.CancelScope()
        if self.finishing or not self._is_valid():
            self._interruptible.cancel()
        return self._interruptible

    def _refusal(self, error: GreenroomError) -> Response:
        return refusal(error, error=error.message) if self._has_error_field else refusal(error)

    def _fault(self, status: int, message: str, headers: tuple[tuple[str, str], ...] = ()) -> Response:
        if self._has_error_field:
            return fault(status, message, headers, error=message)
        return fault(status, message, headers)

    def _cross_origin(self, request: Request | None) -> list[tuple[str, str]]:
        """The headers that allow a page of an allowed origin to read the response."""
        origin = None if request is None else request.header("origin")
        if request is None or origin is None:
            return []
        try:
            self._shared.access.check_page(request.host, origin, secure=self._secure)
        except Forbidden:
            return []
        headers = [("Access-Control-Allow-Origin", origin), ("Vary", "Origin")]
        if request.method == "OPTIONS":
            headers += [
                ("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT"),
                ("Access-Control-Allow-Headers", "authorization, content-type, last-event-id"),
                ("Access-Control-Max-Age", "600"),
            ]
        return headers

    # Sending.

    async def _stream_body(self, response: Response) -> None:
        """Send what the stream writes, until the client disconnects."""
        assert response.stream is not None, "called only for a stream"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_disconnected, nursery.cancel_scope)
            with self._until_finish() as interrupted:
                await response.stream(self._write)
            if not self._writing and not (response.must_complete and interrupted.cancelled_caught):
                await self._send_all(self._machine.send(h11.EndOfMessage()) or b"")
            nursery.cancel_scope.cancel()

    async def _until_disconnected(self, scope: trio.CancelScope) -> None:
        while await self._stream.receive_some(4096):
            pass  # further requests are ignored: the response has `Connection: close`
        scope.cancel()

    async def _write(self, data: bytes) -> None:
        self._writing = True
        await self._send_all(self._machine.send(h11.Data(data=data)) or b"")
        self._writing = False

    async def _send_all(self, data: bytes) -> None:
        limits = self._shared.limits
        for start in range(0, len(data), _PIECE):
            with trio.move_on_after(limits.stall_timeout) as patience:
                await self._stream.send_all(data[start : start + _PIECE])
            if patience.cancelled_caught:
                self._shared.metrics.stalled.inc()
                raise trio.BrokenResourceError("client stalled: it read less than 64 KiB in stall_timeout")


def _is_no_page(request: Request) -> bool:
    """Whether a request is not from a web page. Foreign pages can send bodies of a few types without a
    preflight; browsers then send one of these headers."""
    return "origin" not in request.headers and request.header("sec-fetch-site") in (None, "none")


_PIECE = 1 << 16
"""A client that reads less than this in `stall_timeout` has stalled."""
