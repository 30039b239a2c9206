"""Being called by the server: `POST /exec/<service>` over HTTP, on connections that are kept.

A client that closes its connection wants no answer any more, so the call is cancelled: this is how a flow
that is cancelled reaches the worker.
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
from .calls import MAX_BYTES, Asked, Calls, Outcome, asked
from .services import Service, Services, unknown_service

logger = logging.getLogger("greenroom.worker")

LIMITS = Limits(max_connections=1_000, max_message_bytes=MAX_BYTES)
"""What one caller, and all of them together, may ask for."""

_PIECE = 1 << 16
_GONE = (trio.BrokenResourceError, trio.ClosedResourceError)


class Push:
    """The calls that others make."""

    def __init__(self, listeners: Sequence[trio.SocketListener], calls: Calls, services: Services) -> None:
        self._listeners = listeners
        self._calls = calls
        self._services = services
        self._accepting = trio.CancelScope()
        self._connections: set[Connection] = set()
        self._stopped = False

    def stop(self) -> None:
        """Take nothing more: close what listens and what is idle. What has begun is answered."""
        self._stopped = True
        self._accepting.cancel()
        for connection in self._connections:
            connection.finish()

    async def run(self) -> None:
        """Answer calls until told to stop; returns when all of them are answered."""
        async with trio.open_nursery() as nursery:
            with self._accepting:
                serve = partial(trio.serve_listeners, handler_nursery=nursery)
                await serve(self.serve_stream, list(self._listeners))

    async def serve_stream(self, stream: trio.abc.Stream) -> None:
        """Serve whoever is at the other end of a stream, and close it."""
        connection = Connection(stream, self._calls, self._services)
        if self._stopped or len(self._connections) >= LIMITS.max_connections:
            connection.finish()
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.remove(connection)


class _Refused(Exception):
    """The request is no call that can be made."""

    def __init__(self, status: int, message: str, *headers: tuple[str, str]) -> None:
        super().__init__(message)
        self.response = answer(Outcome(error=message), status, headers)


class Connection:
    """One connection, from its first byte to its last."""

    def __init__(self, stream: trio.abc.Stream, calls: Calls, services: Services) -> None:
        self._stream = stream
        self._calls = calls
        self._services = services
        self._requests = Requests(stream, lambda: LIMITS)
        self._machine = self._requests.machine
        self._idle = trio.CancelScope()
        self._finishing = False

    def finish(self) -> None:
        """Answer what has begun, and nothing more."""
        self._finishing = True
        self._idle.cancel()

    async def run(self) -> None:
        """Answer one request after the other, and close the stream."""
        try:
            while await self._next():
                self._machine.start_next_cycle()
        except _GONE as error:
            logger.debug("a connection ended: %r", error)
        except Exception:
            logger.exception("a connection failed")
        finally:
            await trio.aclose_forcefully(self._stream)

    async def _next(self) -> bool:
        """Answer the next request. Returns whether there can be another one."""
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
        """The answer; `None` if the client is gone."""
        service = self._find(request)
        if self._finishing:
            raise _Refused(503, "this worker is about to end: ask another one")
        if self._calls.full:
            raise _Refused(503, f"{self._calls.limit} calls are in progress, and no more are taken at once")
        with self._calls.one(service.name):
            body = await self._requests.body()
            try:
                what = asked(body, unquote(request.header("idempotency-key") or ""))
            except Invalid as error:
                raise _Refused(400, f"the body is not as it should be: {error.message}") from None
            outcome = await self._execute(service, what)
        if outcome is None:
            logger.info("nobody waits for %r any more: it has been cancelled", service.name)
            return None
        return answer(outcome)

    def _find(self, request: Request) -> Service:
        """The service that is asked for, if the request is one that may be answered."""
        if "origin" in request.headers:
            raise _Refused(403, "web pages may not use this worker")
        segments = request.segments
        if len(segments) != 2 or segments[0] != "exec":
            raise _Refused(404, f"there is no {request.path[:100]}; calls go to /exec/<service>")
        if request.method != "POST":
            raise _Refused(405, "calls are made with POST", ("Allow", "POST"))
        service = self._services.get(segments[1])
        if service is None:
            raise _Refused(404, unknown_service(segments[1], self._services))
        length = request.header("content-length")
        if length is not None and int(length) > MAX_BYTES:
            raise _Refused(413, f"the body has {length} bytes; at most {MAX_BYTES} are allowed")
        if request.tokens("content-encoding") not in ([], ["identity"]):
            raise _Refused(415, "the body must not be compressed")
        return service

    async def _execute(self, service: Service, what: Asked) -> Outcome | None:
        outcome: Outcome | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_disconnected, nursery.cancel_scope)
            outcome = await self._calls.execute(service, what)
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
                raise trio.BrokenResourceError("the client takes nothing of what is sent to it")
