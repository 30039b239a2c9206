"""What is said about workers: how one stands, a piece of work, what came of it, and how it can fail."""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from ...protocol.errors import Conflict
from ..channel import Reply

Failing = Literal[
    "no_worker",  # none that is online serves it
    "unreachable",  # there was no connection to the worker
    "overloaded",  # this machine had no connection left
    "reset",  # the connection ended before the answer did
    "timeout",  # no answer in time
    "bad_status",  # an answer that isn't 200
    "bad_http",  # what came is no HTTP
    "bad_json",  # the answer is no JSON
    "bad_answer",  # it is JSON of another form than {"result", "error"}
    "too_large",  # what goes there, or what came back
    "service_error",  # the service itself says that it failed
    "expired",  # a worker took it from the queue and was not heard of again
    "stopped",  # the engine has been left
]
"""Why a piece of work was not done."""

_WORKERS_FAULT: frozenset[Failing] = frozenset(
    {"unreachable", "reset", "timeout", "bad_status", "bad_http", "bad_json", "bad_answer"}
)
"""After these another worker is the better choice, for a while."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of work for any worker that serves `service`.

    `key` is the same for every try of it: a worker may know by it that it has done this before. `timeout` is
    in seconds, from being handed out until the answer is there; a wait in the queue counts.
    """

    service: str
    run: str
    node: str
    key: str
    input: Any = None
    params: dict[str, Any] = {}
    timeout: float = math.inf


class Worked(msgspec.Struct, frozen=True):
    """It is done. A worker that took it from the queue is known by its name only, and waits to hear that the
    result is kept: `completion` is its reply."""

    result: Any
    worker: str | None = None
    worker_url: str | None = None
    completion: Reply[None] | None = None


class WorkFailed(Exception):
    """It is not done; `code` names why, and `worker` and `worker_url` who tried, if anyone did. One who took
    it from the queue and says that he failed waits to hear that this is kept."""

    def __init__(
        self, code: Failing, message: str, worker: str | None = None, worker_url: str | None = None
    ) -> None:
        super().__init__(message)
        self.code: Failing = code
        self.message = message
        self.worker = worker
        self.worker_url = worker_url
        self.completion: Reply[None] | None = None

    @property
    def workers_fault(self) -> bool:
        """Whether another worker may fare better."""
        return self.code in _WORKERS_FAULT

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def acknowledge(outcome: Worked | WorkFailed) -> None:
    """Let the worker know that what it did, or that it failed, is committed."""
    if outcome.completion is not None:
        outcome.completion.set(None)


def refuse(outcome: Worked | WorkFailed) -> None:
    """Let the worker know that it is not wanted any more. Does nothing once it has been acknowledged."""
    if outcome.completion is not None:
        outcome.completion.fail(Conflict("the run that wanted this goes on without it: drop it"))
