"""The server, as a worker sees it: where workers register, and where the queue is.

Every call raises a `GreenroomError` where it isn't answered as it should be: `Unavailable` if there is no
server now, or nothing that is one; else what the server's refusal says.
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
"""Seconds that the server lets a poll wait for work."""

_CONNECT = 5.0
_ANSWER = 5.0
"""Seconds for the server's answer; a heartbeat that took longer would make the next one late."""
_TRANSFER = 30.0
"""Seconds for an answer or a request that may be large."""

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
    """An item of the queue; `input_json` holds what would be the body of a push."""

    id: str
    service: str
    input_json: str
    task_id: str = ""
    node_key: str = ""
    idempotency_key: str = ""


class _Refusal(msgspec.Struct, frozen=True):
    """What servers say in the body of a refusal: ours have a code and a message, others an error."""

    code: str = ""
    message: str = ""
    error: str = ""


@asynccontextmanager
async def open_registry(
    url: str, worker: str, token: str | None = None, *, transport: httpx.AsyncBaseTransport | None = None
) -> AsyncIterator[Registry]:
    """The server at `url`, for the worker of this id. Nothing is sent yet. `transport` carries the requests
    in place of sockets."""
    scheme = check_url("the server's URL", url)
    headers = {"Content-Type": "application/json"}
    if token is not None:
        if not (token.isascii() and token.isprintable() and token.strip()):
            raise Invalid("token: it must be printable ASCII, and not empty")
        headers["Authorization"] = f"Bearer {token}"
    client = httpx.AsyncClient(
        base_url=url,
        headers=headers,
        verify=ssl.create_default_context() if scheme == "https" else False,
        trust_env=False,  # a proxy that is meant for the web would be asked for 127.0.0.1, too
        timeout=httpx.Timeout(None, connect=_CONNECT),
        transport=transport,
    )
    async with client:
        yield Registry(client, url, worker)


class Registry:
    """See the module's text. `worker` is the id that it speaks for."""

    def __init__(self, client: httpx.AsyncClient, url: str, worker: str) -> None:
        self.url = url
        self.worker = worker
        self._client = client
        self._lost = False

    async def register(self, url: str, services: tuple[str, ...], load: int, kind: WorkerKind) -> None:
        """Be a worker from now on; in place of an older one with this id."""
        body = {"id": self.worker, "url": url, "services": services, "load": load, "type": kind}
        await self._ask("/api/workers/register", body, _ANSWER)

    async def heartbeat(self, url: str, load: int) -> None:
        """Still be there. Raises `NotFound` if the server doesn't know the worker."""
        await self._ask("/api/workers/heartbeat", {"id": self.worker, "url": url, "load": load}, _ANSWER)

    async def poll(self, services: tuple[str, ...]) -> Item | None:
        """Take an item from the queue; `None` if none has come while the server was willing to wait."""
        body = {"worker_id": self.worker, "services": services}
        answer = await self._ask("/api/queue/poll", body, POLL + _TRANSFER)
        if answer.status_code == 204:
            return None
        try:
            return JSON.decode(answer.content, Item)
        except Invalid as error:
            raise self._lose(f"{self.url} answers a poll with what is no item: {error.message}") from None

    async def hold(self, item: str) -> None:
        """Say that the item is still being worked on. Raises `NotFound` or `Conflict` if it is nobody's any
        more, or somebody else's."""
        await self._ask("/api/queue/heartbeat", {"queue_id": item, "worker_id": self.worker}, _ANSWER)

    async def complete(self, item: str, outcome: Outcome) -> None:
        """Hand in what came out. Raises `NotFound` or `Conflict` if nobody waits for it any more."""
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
            raise self._lose(f"{self.url} does not answer within {seconds:g} seconds") from None
        except httpx.RequestError as error:
            why = str(error) or type(error).__name__
            raise self._lose(f"{self.url} can't be reached: {why}") from None
        if answer.status_code not in (200, 204):
            raise self._refusal(path, answer)
        if self._lost:
            self._lost = False
            logger.info("%s is there again", self.url)
        return answer

    def _refusal(self, path: str, answer: httpx.Response) -> GreenroomError:
        try:
            said = JSON.decode(answer.content, _Refusal)
        except Invalid:
            said = _Refusal()
        status = answer.status_code
        text = said.message or said.error or answer.reason_phrase
        message = f"{self.url}{path} answers {status}: {text[:1000]}"
        kind = _BY_STATUS.get(status) or (Invalid if 400 <= status < 500 else Unavailable)
        return self._lose(message) if kind is Unavailable else kind(message)

    def _lose(self, message: str) -> Unavailable:
        """Told once, until the server is there again."""
        if not self._lost:
            self._lost = True
            logger.warning("%s; trying again until it is there", message)
        return Unavailable(message)


def check_url(what: str, url: str) -> str:
    """The scheme of a URL that only says where something is. Raises `Invalid`."""
    try:
        parts = urlsplit(url)
        good = bool(parts.hostname) and (parts.port is None or parts.port >= 0)
    except ValueError as error:
        raise Invalid(f"{what} {url!r} can't be read: {error}", value=url) from None
    if "@" in parts.netloc:
        raise Invalid(f"{what} must not hold a name or a password, which would end up in logs")
    if parts.scheme not in ("http", "https") or not good or parts.query or parts.fragment:
        raise Invalid(f"{what} must be like http://127.0.0.1:8440, not {url!r}", value=url)
    return parts.scheme
