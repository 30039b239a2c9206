"""A receiver of webhooks, and engines that deliver to it, in mock time."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from typing import Any

import trio

from greenroom import Engine, Jobs, Run
from tests.support import open_engine

SECRET = "a secret of the tests"
URL = "https://hooks.example.org/runs?tenant=1"
DAY = 86_400.0

Respond = Callable[[str, dict[str, Any]], int]
"""The status with which a receiver responds to an event at a URL."""


class Receiver:
    """A `Push` that keeps what it gets: `got` are the accepted events, by URL."""

    def __init__(self, respond: Respond = lambda url, event: 204) -> None:
        self.respond = respond
        self.got: list[tuple[str, dict[str, Any]]] = []
        self.attempts: list[float] = []
        self.at_once = 0
        self.most_at_once = 0
        self.seconds = 0.0
        self.slow: str | None = None  # a part of the URLs that take `seconds`

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        self.attempts.append(trio.current_time())
        signed = f"{headers['Greenroom-Timestamp']}.".encode() + body
        expected = "v1=" + hmac.new(SECRET.encode(), signed, sha256).hexdigest()
        assert hmac.compare_digest(headers["Greenroom-Signature"], expected)
        event = json.loads(body)
        assert headers["Greenroom-Delivery"].endswith(f":{event['seq']}")
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await trio.sleep(self.seconds if self.slow is None or self.slow in url else 0)
        finally:
            self.at_once -= 1
        status = self.respond(url, event)
        if 200 <= status < 300:
            self.got.append((url, event))
        return status, b""

    def states(self, run: str, url: str = URL) -> list[str]:
        """The statuses of a run that were delivered to a URL, in their order."""
        return [event["to"] for to, event in self.got if to == url and event["run"] == run]


def some_jobs() -> Jobs:
    """The job `quick`, which ends at once, and `wait`, which never does."""
    jobs = Jobs()

    @jobs.job("quick")
    async def quick(run: Run, params: dict[str, Any]) -> Any:
        await run.log("halfway")
        return params

    @jobs.job("wait")
    async def wait(run: Run, params: dict[str, Any]) -> None:
        await trio.sleep_forever()

    return jobs


def delivering(
    receiver: Receiver, jobs: Jobs | None = None, **options: Any
) -> AbstractAsyncContextManager[Engine]:
    """An engine whose webhooks the receiver gets."""
    given = {"webhook_secret": SECRET, "push": receiver, "shutdown_timeout": 0}
    return open_engine(jobs or some_jobs(), **given | options)
