"""What HTTP requests are answered with, and the headers that every answer has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs

from ...protocol.codec import JSON
from ...protocol.errors import GreenroomError
from ..version import SERVER

Write = Callable[[bytes], Awaitable[None]]
"""Sends a piece of a body that has no end of its own."""


@attrs.frozen
class Response:
    """An answer; with `stream`, its body is what that writes until the client goes away. A long body comes in
    `pieces`; `held` exists until they are sent. `unsent` is called where the client has gone before all of it
    was sent."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    stream: Callable[[Write], Awaitable[None]] | None = None
    unsent: Callable[[], None] = lambda: None
    pieces: Sequence[bytes] = ()
    held: object = None

    @property
    def length(self) -> int:
        """How many bytes the body has."""
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
    """All headers of an answer, but those about how long it is."""
    given = {name.lower() for name, _ in response.headers}
    common = [(name, value) for name, value in _ALWAYS if name.lower() not in given]
    has_body = response.body or response.pieces or response.stream
    typed = [("Content-Type", response.content_type)] if has_body else []
    return [*common, *typed, *_EXTRA.get(response.status, ()), *response.headers]


def answer(value: Any, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """A Struct or JSON value as the whole body."""
    return Response(status, JSON.encode(value), headers=headers)


def refusal(refused: GreenroomError, **more: Any) -> Response:
    """An error as HTTP has it, with `more` in its body."""
    body = {"code": refused.code, "message": refused.message, "details": dict(refused.details)}
    return answer({**more, **body}, refused.http_status)


def fault(status: int, message: str, headers: tuple[tuple[str, str], ...] = (), **more: Any) -> Response:
    """An error that is about HTTP itself."""
    body = {"code": _CODES.get(status, "invalid"), "message": message, "details": {}}
    return answer({**more, **body}, status, headers)
