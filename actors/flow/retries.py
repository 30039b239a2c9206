"""Retries of a call: on the same worker, then on others.

Each attempt except the last is committed as a node run. The last one is returned, and the walk commits it
with its consequences. Attempts from before a restart count. The delay before an attempt belongs to it: a
cancel during the delay is recorded as a cancel of that attempt.
"""

from __future__ import annotations

from typing import Any

import trio

from .calls import Call, ServiceCall, TriedWorkers, execute_once
from .node_context import Done, NodeContext, is_cancelled

_MAX_REQUEUES = 3
"""How often work is offered to the queue again after a worker lost it."""


class _Retries:
    """Counts failures: retries on the current worker, and workers that have failed."""

    def __init__(self, context: NodeContext[Any], call: Call, branch: str | None) -> None:
        self._most = context.node.max_retries
        self._selects_worker = isinstance(call, ServiceCall) and call.kind == "http"  # a queue does not
        self.retries = self.workers = self.made = 0
        self.tried = TriedWorkers()
        for row in context.walk.attempts_of(context):
            if row.branch == branch:
                self.failed(row.worker, (row.error or "").partition(":")[0])

    def failed(self, worker: str | None, code: str | None) -> bool:
        """Count one failure; return whether the same worker makes the next attempt."""
        self.made += 1
        if worker is not None and worker not in self.tried.workers:
            if self._selects_worker and self.tried.again is not None:  # the other one left
                self.retries, self.workers = 0, self.workers + 1
            self.tried.workers.append(worker)
        again = self.retries < self._most and code != "no_worker"
        if again:
            self.retries, self.tried.again = self.retries + 1, worker
        else:
            self.retries, self.tried.again = 0, None
            self.workers += 1
        return again


async def execute_with_retries(context: NodeContext[Any], call: Call, branch: str | None = None) -> Done:
    """Make attempts until one succeeds or none remains."""
    attempts = _Retries(context, call, branch)
    delay = 0.0
    while True:
        done = Done(attempt=attempts.made + 1, started_at=context.walk.now())
        try:
            if delay:
                await trio.sleep(delay / 1000)
                done.started_at = context.walk.now()
            await execute_once(context, call, branch, done, attempts.tried)
        except BaseException:
            if is_cancelled():
                await context.walk.record_cancelled(context, done, branch)
            raise
        if done.status == "ok":
            return done
        if attempts.failed(done.worker, done.code):
            delay = context.node.wait_ms
        elif await _can_try_another(context, call, done, attempts.tried, attempts.workers):
            delay = context.node.attempt_delay_ms
        else:
            return done
        await context.walk.record(context, done, branch, last=False)


async def _can_try_another(
    context: NodeContext[Any], call: Call, done: Done, tried: TriedWorkers, workers: int
) -> bool:
    """Whether another worker makes an attempt. Without `max_attempts`, each online worker makes one, as long
    as the failures are the workers' fault."""
    if not isinstance(call, ServiceCall):
        return False
    most: int = context.node.max_attempts
    if most:
        return workers < most
    if call.kind == "queue":
        return done.code == "expired" and workers < _MAX_REQUEUES
    if not done.workers_fault:
        return False
    other: bool = await context.walk.services.dispatch.has_other(call.service, tried.workers)
    return other
