"""HTTP on one connection: requests and their answers in turn, until one side has had enough.

What is refused before its body was read closes the connection, because the rest of it would be taken for the
next request.
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
from .routes import Call, Route, find, says_error

logger = logging.getLogger("greenroom.gateway")

_FROM_ELSEWHERE = ("origin", "forwarded", "via", "x-real-ip")
"""What pages and proxies send, besides what begins like `X-Forwarded-For`."""


class _Gone(Exception):
    """The client has gone away, and wants no answer."""


class Http:
    """The requests of one connection that don't become a WebSocket."""

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
        self._endless = trio.CancelScope()
        self._writing = False
        self._says_error = False

    def finish(self) -> None:
        """Answer what has been asked, and nothing more; an answer without end ends now, and so does the wait
        for one."""
        self.finishing = True
        self._endless.cancel()

    def recheck(self) -> None:
        """The tokens have changed: break off an answer that takes long if its caller's was revoked."""
        if not self._in_force():
            self._endless.cancel()

    async def respond(self, request: Request) -> bool:
        """Answer one request. Returns whether the connection can be used for another."""
        self._says_error = says_error(request)
        self._open_to_all = False
        self._served = None
        try:
            response = await self._answer(request)
        except BadRequest as error:
            response = self._fault(error.status, error.message)
        except GreenroomError as error:
            response = self._refusal(error)
        except _Gone:
            return False
        except trio.BrokenResourceError:  # the client broke off in the middle of its request
            raise
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            response = self._refusal(Internal("a fault of the gateway, which has been logged"))
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
        """Send an answer, to a request that could be read or to one that couldn't."""
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
        if request.method == "OPTIONS" and request.path in ("*", "/"):  # a proxy that looks whether we are up
            return Response(204, headers=(("Allow", "GET, HEAD, OPTIONS, POST, PUT"),))
        try:
            segments = request.segments
        except UnicodeDecodeError:
            raise BadRequest(400, "the path is not UTF-8") from None
        methods, names = find(segments)
        allow = ("Allow", ", ".join(sorted({*methods, "OPTIONS"})))
        if request.method == "OPTIONS":
            return Response(204, headers=(allow,))
        route = methods.get(request.method)
        if route is None:
            return self._fault(405, f"{request.path} has no {request.method}", (allow,))
        limits = shared.limits
        if self._rate.take(limits.rate, limits.burst):
            raise RateLimited(f"more than {limits.rate:g} requests per second: slow down")
        caller = self._caller(route, request)
        if has_body:
            self._check_body(request, route)
            body = await self._requests.body()
            self._check_in_force()
        call = Call(shared, caller, request, names, body)
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
        if caller is None and route.workers and self._is_here(request):
            caller = LOCAL_WORKER
        if caller is None:
            raise Unauthorized("a token is needed: send it as `Authorization: Bearer <token>`")
        self._served = caller
        self._check_in_force()  # a ticket may be older than the tokens are
        self._stranger.recognise()
        if not route.permits(caller):
            raise Forbidden(
                f"this needs the role {route.role}, and the token's is {caller.role}", role=caller.role
            )
        if caller.scope is not None and not route.limited:
            raise caller.scope.lacks()
        return caller

    def _in_force(self) -> bool:
        """Whether the caller of the request, if it has one, would still be let in."""
        return self._served is None or self._shared.access.still_lets_in(self._served)

    def _check_in_force(self) -> None:
        if not self._in_force():
            raise Unauthorized("this token is not in force")

    def _is_here(self, request: Request) -> bool:
        """Whether workers on this machine need no token, and a request comes from a program there: from no
        web page, and not passed on by a proxy. Headers can only say that it doesn't."""
        admitted = self._shared.access.admits_local_workers and self._local
        return admitted and not any(
            name in _FROM_ELSEWHERE or name.startswith("x-forwarded-") for name in request.headers
        )

    async def _wait_for(self, route: Route, call: Call) -> Response:
        """An answer that may take long. It is given up when the client goes away, its token is revoked, or
        the gateway closes."""
        response: Response | None = None
        refused: GreenroomError | None = None
        gone = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._see_going, gone, nursery.cancel_scope)
            with self._until_finish():
                try:
                    response = await route.run(call)
                except GreenroomError as error:  # raised below, not in a group
                    refused = error
            nursery.cancel_scope.cancel()
        if gone.is_set():
            if response is not None:
                response.unsent()
            raise _Gone
        if response is not None and not self._in_force():
            response.unsent()
        self._check_in_force()
        if refused is not None:
            raise refused
        if response is None:
            raise Unavailable("the gateway is being closed")
        return response

    async def _see_going(self, gone: trio.Event, scope: trio.CancelScope) -> None:
        """See when the client goes away. What it sends before, if that isn't much, is its next request."""
        if await self._requests.until_gone():
            gone.set()
            scope.cancel()

    def _check_body(self, request: Request, route: Route) -> None:
        """See before it is read whether the body could be taken at all."""
        length = request.header("content-length")
        most = self._shared.limits.max_message_bytes
        if length is not None and int(length) > most:
            raise BadRequest(413, f"the body has {length} bytes; at most {most} are allowed")
        kind = (request.header("content-type") or "").partition(";")[0].strip().lower()
        if kind != "application/json" and not (route.any_type and _is_no_page(request)):
            raise BadRequest(415, f"the body must be application/json, not {kind[:100] or 'of no type'}")
        if request.tokens("content-encoding") not in ([], ["identity"]):
            raise BadRequest(415, "the body must not be compressed")

    def _until_finish(self) -> trio.CancelScope:
        """A scope that ends with `finish`, or when the caller's token is revoked."""
        self._endless = trio.CancelScope()
        if self.finishing or not self._in_force():
            self._endless.cancel()
        return self._endless

    def _refusal(self, error: GreenroomError) -> Response:
        return refusal(error, error=error.message) if self._says_error else refusal(error)

    def _fault(self, status: int, message: str, headers: tuple[tuple[str, str], ...] = ()) -> Response:
        if self._says_error:
            return fault(status, message, headers, error=message)
        return fault(status, message, headers)

    def _cross_origin(self, request: Request | None) -> list[tuple[str, str]]:
        """What lets a page of an allowed origin read the answer."""
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
        """Send what the stream writes, for as long as the client stays."""
        assert response.stream is not None, "only called with one"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_gone, nursery.cancel_scope)
            with self._until_finish():
                await response.stream(self._write)
            if not self._writing:
                await self._send_all(self._machine.send(h11.EndOfMessage()) or b"")
            nursery.cancel_scope.cancel()

    async def _until_gone(self, scope: trio.CancelScope) -> None:
        while await self._stream.receive_some(4096):
            pass  # whatever it says meanwhile: `Connection: close` has told it that this answer is the last
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
                raise trio.BrokenResourceError("the client takes nothing of what is sent to it")


def _is_no_page(request: Request) -> bool:
    """Whether a request comes from no web page. Pages elsewhere may send bodies of a few types without asking
    first; browsers say so in one of these headers."""
    return "origin" not in request.headers and request.header("sec-fetch-site") in (None, "none")


_PIECE = 1 << 16
"""A client that takes less than this in `stall_timeout` has stalled."""
