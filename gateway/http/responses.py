"""HTTP responses, and the headers that every response has."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs

from ...protocol.codec import JSON
from ...protocol.errors import GreenroomError
from ..version import SERVER

Write = Callable[[bytes], Awaitable[None]]
"""Sends a piece of a body."""


@attrs.frozen
class Response:
    """A response. With `stream`, the body is what that function writes until the client disconnects. A long
    body is in `pieces`, and `held` is kept alive until they are sent. `unsent` is called if the client
    disconnects before everything is sent. With `must_complete`, a stream that the gateway ends early closes
    the connection in the middle of the message, so that no client takes the beginning for the whole."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    stream: Callable[[Write], Awaitable[None]] | None = None
    must_complete: bool = False
    unsent: Callable[[], None] = lambda: None
    pieces: Sequence[bytes] = ()
    held: object = None

    @property
    def length(self) -> int:
        """The size of the body in bytes."""
        return len(self.body) + sum(map(len, self.pieces))


_ALWAYS = (
    ("Server", SERVER),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
)

_EXTRA = {
    401: (("WWW-Authenticate", "Bearer"),),
    429: (("Retry-After", "1"),),
    503: (("Retry-After", "5"),),
}

_CODES = {404: "not_found", 413: "too_large", 429: "rate_limited", 431: "too_large", 503: "unavailable"}


def header_list(response: Response) -> list[tuple[str, str]]:
    """All headers of a response except those about its length."""
    given = {name.lower() for name, _ in response.headers}
    usual = (*_ALWAYS, *_EXTRA.get(response.status, ()))
    common = [(name, value) for name, value in usual if name.lower() not in given]
    has_body = response.body or response.pieces or response.stream
    typed = [("Content-Type", response.content_type)] if has_body else []
    return [*common, *typed, *response.headers]


def answer(value: Any, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """A response with a Struct or a JSON value as its body."""
    return Response(status, JSON.encode(value), headers=headers)


def refusal(refused: GreenroomError, **more: Any) -> Response:
    """The response for an error, with `more` in its body."""
    body = {"code": refused.code, "message": refused.message, "details": dict(refused.details)}
    after = refused.details.get("retry_after")
    headers = (("Retry-After", str(math.ceil(after))),) if isinstance(after, int | float) else ()
    return answer({**more, **body}, refused.http_status, headers)


def fault(status: int, message: str, headers: tuple[tuple[str, str], ...] = (), **more: Any) -> Response:
    """The response for an error in the use of HTTP."""
    body = {"code": _CODES.get(status, "invalid"), "message": message, "details": {}}
    return answer({**more, **body}, status, headers)
