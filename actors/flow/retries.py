"""Trying again: on the same worker, on others, and when to give up.

Every try but the last is committed as a node run of its own; the last comes back, for the walk to commit
together with what follows from it. After a restart the tries that were made still count.
The wait before a try is a part of it: a cancel that comes meanwhile cancels that try.
"""

from __future__ import annotations

from typing import Any

import trio

from .calls import Call, ServiceCall, Tried, make
from .node_context import Done, NodeContext, is_cancelled

_RETAKEN = 3
"""How often a piece of work is put into the queue anew after nobody came back with it."""


class _Retries:
    """Those that have failed: how often on the last worker, and on how many workers."""

    def __init__(self, context: NodeContext[Any], call: Call, branch: str | None) -> None:
        self._most = context.node.max_retries
        self._chooses = isinstance(call, ServiceCall) and call.kind == "http"  # a queue gives it to anybody
        self.retries = self.workers = self.made = 0
        self.tried = Tried()
        for row in context.walk.tries_of(context):
            if row.branch == branch:
                self.failed(row.worker, (row.error or "").partition(":")[0])

    def failed(self, worker: str | None, code: str | None) -> bool:
        """One more; returns whether the same worker is to try again."""
        self.made += 1
        if worker is not None and worker not in self.tried.workers:
            if self._chooses and self.tried.again is not None:  # who is gone: another one's first try
                self.retries, self.workers = 0, self.workers + 1
            self.tried.workers.append(worker)
        again = self.retries < self._most and code != "no_worker"
        if again:
            self.retries, self.tried.again = self.retries + 1, worker
        else:
            self.retries, self.tried.again = 0, None
            self.workers += 1
        return again


async def carry_out(context: NodeContext[Any], call: Call, branch: str | None = None) -> Done:
    """Make tries until one goes well or there are no more."""
    tries = _Retries(context, call, branch)
    delay = 0.0
    while True:
        done = Done(attempt=tries.made + 1, started_at=context.walk.now())
        try:
            if delay:
                await trio.sleep(delay / 1000)
                done.started_at = context.walk.now()
            await make(context, call, branch, done, tries.tried)
        except BaseException:
            if is_cancelled():
                await context.walk.record_cancelled(context, done, branch)
            raise
        if done.status == "ok":
            return done
        if tries.failed(done.worker, done.code):
            delay = context.node.wait_ms
        elif await _others(context, call, done, tries.tried, tries.workers):
            delay = context.node.attempt_delay_ms
        else:
            return done
        await context.walk.record(context, done, branch, last=False)


async def _others(context: NodeContext[Any], call: Call, done: Done, tried: Tried, workers: int) -> bool:
    """Whether another worker is to try. Without `max_attempts`, each that is online may once, if it was the
    fault of the last one."""
    if not isinstance(call, ServiceCall):
        return False
    most: int = context.node.max_attempts
    if most:
        return workers < most
    if call.kind == "queue":
        return done.code == "expired" and workers < _RETAKEN
    if not done.workers_fault:
        return False
    other: bool = await context.walk.services.dispatch.has_other(call.service, tried.workers)
    return other
