"""The server's API for workers: registration and the work queue.

Every call raises a `GreenroomError` if it fails: `Unavailable` if the server cannot be reached or its
response is not valid; otherwise the error that the server returned.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
import trio

from ..protocol.codec import JSON
from ..protocol.errors import (
    Conflict,
    Forbidden,
    GreenroomError,
    Invalid,
    NotFound,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from ..protocol.flow.records import WorkerKind
from .calls import Outcome

logger = logging.getLogger("greenroom.worker")


POLL = 25.0
"""Seconds that the server delays the response to a poll without work."""

_CONNECT = 5.0
_ANSWER = 5.0
"""Seconds for the server's response; a slower heartbeat would delay the next one."""
_TRANSFER = 30.0
"""Seconds for a request or a response that may be large."""

_BY_STATUS: dict[int, type[GreenroomError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    413: TooLarge,
    429: Unavailable,
}


class Item(msgspec.Struct, frozen=True):
    """An item of the queue; `input_json` contains what the body of a push would."""

    id: str
    service: str
    input_json: str
    task_id: str = ""
    node_key: str = ""
    idempotency_key: str = ""
    traceparent: str | None = None
    tracestate: str | None = None


class _Refusal(msgspec.Struct, frozen=True):
    """The body of an error response. Greenroom servers send `code` and `message`, others send `error`."""

    code: str = ""
    message: str = ""
    error: str = ""


@asynccontextmanager
async def open_registry(
    url: str, worker: str, token: str | None = None, *, transport: httpx.AsyncBaseTransport | None = None
) -> AsyncIterator[Registry]:
    """A client for the server at `url`, on behalf of the worker with this id. Sends nothing yet. `transport`
    replaces the network, for tests."""
    scheme = check_url("the server's URL", url)
    headers = {"Content-Type": "application/json"}
    if token is not None:
        if not (token.isascii() and token.isprintable() and token.strip()):
            raise Invalid("token must be printable ASCII and must not be empty")
        headers["Authorization"] = f"Bearer {token}"
    client = httpx.AsyncClient(
        base_url=url,
        headers=headers,
        verify=ssl.create_default_context() if scheme == "https" else False,
        trust_env=False,  # a proxy for the web would also be used for 127.0.0.1
        timeout=httpx.Timeout(None, connect=_CONNECT),
        transport=transport,
    )
    async with client:
        yield Registry(client, url, worker)


class Registry:
    """See the module's docstring. `worker` is the id of the worker."""

    def __init__(self, client: httpx.AsyncClient, url: str, worker: str) -> None:
        self.url = url
        self.worker = worker
        self._client = client
        self._lost = False

    async def register(self, url: str, services: tuple[str, ...], load: int, kind: WorkerKind) -> None:
        """Register the worker; replaces an earlier registration of this id."""
        body = {"id": self.worker, "url": url, "services": services, "load": load, "type": kind}
        await self._ask("/api/workers/register", body, _ANSWER)

    async def heartbeat(self, url: str, load: int) -> None:
        """Report that the worker is alive. Raises `NotFound` if it is not registered."""
        await self._ask("/api/workers/heartbeat", {"id": self.worker, "url": url, "load": load}, _ANSWER)

    async def poll(self, services: tuple[str, ...]) -> Item | None:
        """Wait for an item of the queue; `None` if none arrived while the server waited."""
        body = {"worker_id": self.worker, "services": services}
        answer = await self._ask("/api/queue/poll", body, POLL + _TRANSFER)
        if answer.status_code == 204:
            return None
        try:
            return JSON.decode(answer.content, Item)
        except Invalid as error:
            raise self._unavailable(f"{self.url} returned an invalid queue item: {error.message}") from None

    async def extend(self, item: str) -> None:
        """Report that the worker still works on an item. Raises `NotFound` or `Conflict` if the worker no
        longer has it."""
        await self._ask("/api/queue/heartbeat", {"queue_id": item, "worker_id": self.worker}, _ANSWER)

    async def complete(self, item: str, outcome: Outcome) -> None:
        """Report the outcome of an item. Raises `NotFound` or `Conflict` if the worker no longer has it."""
        body = {
            "queue_id": item,
            "worker_id": self.worker,
            "result": outcome.result,
            "error": outcome.error,
        }
        await self._ask("/api/queue/complete", body, _TRANSFER)

    async def _ask(self, path: str, body: Mapping[str, Any], seconds: float) -> httpx.Response:
        try:
            with trio.fail_after(seconds):
                answer = await self._client.post(path, content=JSON.encode(body))
        except trio.TooSlowError:
            raise self._unavailable(f"{self.url} timed out after {seconds:g} s") from None
        except httpx.RequestError as error:
            why = str(error) or type(error).__name__
            raise self._unavailable(f"{self.url} cannot be reached: {why}") from None
        if answer.status_code not in (200, 204):
            raise self._refusal(path, answer)
        if self._lost:
            self._lost = False
            logger.info("%s is available again", self.url)
        return answer

    def _refusal(self, path: str, answer: httpx.Response) -> GreenroomError:
        try:
            refusal = JSON.decode(answer.content, _Refusal)
        except Invalid:
            refusal = _Refusal()
        status = answer.status_code
        text = refusal.message or refusal.error or answer.reason_phrase
        message = f"{self.url}{path} returned status {status}: {text[:1000]}"
        kind = _BY_STATUS.get(status) or (Invalid if 400 <= status < 500 else Unavailable)
        return self._unavailable(message) if kind is Unavailable else kind(message)

    def _unavailable(self, message: str) -> Unavailable:
        """The error for a failed call. Logged once, until a call succeeds."""
        if not self._lost:
            self._lost = True
            logger.warning("%s; retrying until it is available", message)
        return Unavailable(message)


def check_url(what: str, url: str) -> str:
    """The scheme of a URL that contains only a location. Raises `Invalid`."""
    try:
        parts = urlsplit(url)
        good = bool(parts.hostname) and (parts.port is None or parts.port >= 0)
    except ValueError as error:
        raise Invalid(f"{what} {url!r} is not valid: {error}", value=url) from None
    if "@" in parts.netloc:
        raise Invalid(f"{what} must not contain a user name or a password: they would appear in logs")
    if parts.scheme not in ("http", "https") or not good or parts.query or parts.fragment:
        raise Invalid(f"{what} must be like http://127.0.0.1:8440 (got {url!r})", value=url)
    return parts.scheme
