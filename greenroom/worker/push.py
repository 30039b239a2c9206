"""Calls by the server: `POST /exec/<service>` over HTTP, with keep-alive connections.

A client that closes its connection no longer waits for the response, so the call is cancelled. This is how a
cancelled flow cancels the call at the worker.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from urllib.parse import unquote

import h11
import trio

from ..gateway.config import Limits
from ..gateway.http.head import BadRequest, Request, Requests
from ..gateway.http.responses import Response, answer, header_list
from ..protocol.errors import Invalid
from ..protocol.tracecontext import TraceContext, trace_context
from .calls import MAX_BYTES, Calls, Outcome, ServiceRequest, parse_request
from .services import Service, Services, unknown_service

logger = logging.getLogger("greenroom.worker")

LIMITS = Limits(max_connections=1_000, max_message_bytes=MAX_BYTES)
"""Limits for each client, and for all clients together."""

_PIECE = 1 << 16
_GONE = (trio.BrokenResourceError, trio.ClosedResourceError)


class Push:
    """Serves calls over HTTP."""

    def __init__(self, listeners: Sequence[trio.SocketListener], calls: Calls, services: Services) -> None:
        self._listeners = listeners
        self._calls = calls
        self._services = services
        self._accepting = trio.CancelScope()
        self._connections: set[Connection] = set()
        self._stopped = False

    def stop(self) -> None:
        """Accept no new calls: close listeners and idle connections. Calls in progress are answered."""
        self._stopped = True
        self._accepting.cancel()
        for connection in self._connections:
            connection.finish()

    async def run(self) -> None:
        """Serve calls until `stop`; returns when all calls are answered."""
        async with trio.open_nursery() as nursery:
            with self._accepting:
                serve = partial(trio.serve_listeners, handler_nursery=nursery)
                await serve(self.serve_stream, list(self._listeners))

    async def serve_stream(self, stream: trio.abc.Stream) -> None:
        """Serve a client on a stream, and close the stream."""
        connection = Connection(stream, self._calls, self._services)
        if self._stopped or len(self._connections) >= LIMITS.max_connections:
            connection.finish()
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.remove(connection)


class _Refused(Exception):
    """The request is refused; `response` contains the reason."""

    def __init__(self, status: int, message: str, *headers: tuple[str, str]) -> None:
        super().__init__(message)
        self.response = answer(Outcome(error=message), status, headers)


class Connection:
    """A connection of a client."""

    def __init__(self, stream: trio.abc.Stream, calls: Calls, services: Services) -> None:
        self._stream = stream
        self._calls = calls
        self._services = services
        self._requests = Requests(stream, lambda: LIMITS)
        self._machine = self._requests.machine
        self._idle = trio.CancelScope()
        self._finishing = False

    def finish(self) -> None:
        """Answer the current call, and then close the connection."""
        self._finishing = True
        self._idle.cancel()

    async def run(self) -> None:
        """Answer requests in order, and close the stream."""
        try:
            while await self._next():
                self._machine.start_next_cycle()
        except _GONE as error:
            logger.debug("connection lost: %r", error)
        except Exception:
            logger.exception("connection failed")
        finally:
            await trio.aclose_forcefully(self._stream)

    async def _next(self) -> bool:
        """Answer the next request. Returns whether another request can follow."""
        request: Request | None = None
        response: Response | None
        try:
            self._idle = trio.CancelScope()
            if self._finishing:
                self._idle.cancel()
            with self._idle:
                request = await self._requests.head()
            if request is None:
                return False
            response = await self._answer(request)
        except BadRequest as error:
            response = answer(Outcome(error=error.message), error.status)
        except _Refused as refused:
            response = refused.response
        if response is None:
            return False
        await self._send(response, request)
        if self._machine.our_state is h11.DONE and self._machine.their_state is h11.DONE:
            return not self._finishing
        await self._requests.linger(4 * MAX_BYTES)
        return False

    async def _answer(self, request: Request) -> Response | None:
        """The response; `None` if the client has closed its connection."""
        service = self._find(request)
        if self._finishing:
            raise _Refused(503, "worker is shutting down: call another one")
        if self._calls.full:
            raise _Refused(503, f"the limit of {self._calls.limit} concurrent calls is reached: retry later")
        with self._calls.counted(service.name):
            body = await self._requests.body()
            try:
                what = parse_request(body, unquote(request.header("idempotency-key") or ""))
            except Invalid as error:
                raise _Refused(400, f"the body is not valid: {error.message}") from None
            trace = trace_context(request.header("traceparent"), request.header("tracestate"))
            outcome = await self._execute(service, what, trace)
        if outcome is None:
            logger.info("the client closed its connection: %r was cancelled", service.name)
            return None
        return answer(outcome)

    def _find(self, request: Request) -> Service:
        """The requested service. Raises `_Refused` if the request is not a permitted call."""
        if "origin" in request.headers:
            raise _Refused(403, "requests of web pages are not allowed")
        segments = request.segments
        if len(segments) != 2 or segments[0] != "exec":
            raise _Refused(404, f"{request.path[:100]} not found; the path of a call is /exec/<service>")
        if request.method != "POST":
            raise _Refused(405, "the method of a call must be POST", ("Allow", "POST"))
        service = self._services.get(segments[1])
        if service is None:
            raise _Refused(404, unknown_service(segments[1], self._services))
        length = request.header("content-length")
        if length is not None and int(length) > MAX_BYTES:
            raise _Refused(413, f"the body has {length} bytes; at most {MAX_BYTES} are allowed")
        if request.tokens("content-encoding") not in ([], ["identity"]):
            raise _Refused(415, "the body must not be compressed")
        return service

    async def _execute(
        self, service: Service, what: ServiceRequest, trace: TraceContext | None
    ) -> Outcome | None:
        outcome: Outcome | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_disconnected, nursery.cancel_scope)
            outcome = await self._calls.execute(service, what, trace)
            nursery.cancel_scope.cancel()
        return outcome

    async def _until_disconnected(self, scope: trio.CancelScope) -> None:
        if await self._requests.until_disconnected():
            scope.cancel()

    async def _send(self, response: Response, request: Request | None) -> None:
        machine = self._machine
        if machine.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        headers = [*header_list(response), ("Content-Length", str(len(response.body)))]
        if machine.their_state is not h11.DONE or self._finishing:
            headers.append(("Connection", "close"))
        reason = HTTPStatus(response.status).phrase.encode()
        head = h11.Response(status_code=response.status, headers=headers, reason=reason)
        data = machine.send(head) or b""
        if request is None or request.method != "HEAD":
            data += machine.send(h11.Data(data=response.body)) or b""
        data += machine.send(h11.EndOfMessage()) or b""
        for start in range(0, len(data), _PIECE):
            with trio.move_on_after(LIMITS.stall_timeout) as patience:
                await self._stream.send_all(data[start : start + _PIECE])
            if patience.cancelled_caught:
                raise trio.BrokenResourceError("send timed out: the client does not read the response")
