"""Work for workers: a piece of work, its result, and how it can fail."""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from ...protocol.errors import Conflict
from ...protocol.tracecontext import TraceContext
from ..channel import Reply

FailureCode = Literal[
    "no_worker",  # no online worker serves it
    "unreachable",  # no connection to the worker
    "overloaded",  # this machine could not open another connection
    "reset",  # the connection was lost before the response was complete
    "timeout",  # no response in time
    "bad_status",  # a status other than 200
    "bad_http",  # the response is not valid HTTP
    "bad_json",  # the response is not valid JSON
    "bad_answer",  # JSON of another form than {"result", "error"}
    "too_large",  # the request, or the response
    "service_error",  # the service reported an error
    "expired",  # a worker took it from the queue and lost contact
    "stopped",  # the engine was shut down
]
"""Why a piece of work was not done."""

_WORKERS_FAULT: frozenset[FailureCode] = frozenset(
    {"unreachable", "reset", "timeout", "bad_status", "bad_http", "bad_json", "bad_answer"}
)
"""After these failures, other workers are preferred for a while."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of work for any worker that serves `service`.

    `key` is the same for every attempt, so that a worker can detect work that it has done before. `timeout`
    is in seconds from dispatch to response, including the time in the queue. `trace` is the trace of the run.
    """

    service: str
    run: str
    node: str
    key: str
    input: Any = None
    params: dict[str, Any] = {}
    timeout: float = math.inf
    trace: TraceContext | None = None


class Worked(msgspec.Struct, frozen=True):
    """Completed work. A worker that took it from the queue is known by id only, and waits until the result is
    committed: `completion` is the reply that it waits for."""

    result: Any
    worker: str | None = None
    worker_url: str | None = None
    completion: Reply[None] | None = None


class WorkFailed(Exception):
    """Work that was not done. `code` names the reason; `worker` and `worker_url` name the worker that
    attempted it, if any. A worker that took it from the queue waits until its failure is committed, and
    `completion` is the reply that it waits for."""

    def __init__(
        self, code: FailureCode, message: str, worker: str | None = None, worker_url: str | None = None
    ) -> None:
        super().__init__(message)
        self.code: FailureCode = code
        self.message = message
        self.worker = worker
        self.worker_url = worker_url
        self.completion: Reply[None] | None = None

    @property
    def workers_fault(self) -> bool:
        """Whether another worker may succeed."""
        return self.code in _WORKERS_FAULT

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def acknowledge(outcome: Worked | WorkFailed) -> None:
    """Confirm to the worker that its result, or its failure, is committed."""
    if outcome.completion is not None:
        outcome.completion.set(None)


def refuse(outcome: Worked | WorkFailed) -> None:
    """Refuse the worker's outcome as no longer needed. Has no effect after `acknowledge`."""
    if outcome.completion is not None:
        outcome.completion.fail(Conflict("the run no longer needs this work: drop it"))
