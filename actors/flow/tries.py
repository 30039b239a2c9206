"""Trying again: on the same worker, on others, and when to give up.

Every try but the last is committed as a node run of its own; the last comes back, for the walk to commit
together with what follows from it. After a restart the tries that were made still count in the numbering.
The wait before a try is a part of it: a cancel that comes meanwhile cancels that try.
"""

from __future__ import annotations

from typing import Any

import trio

from .calls import Call, ServiceCall, Tried, make
from .visit import Done, Visit, is_cancelled

_RETAKEN = 3
"""How often a piece of work is put into the queue anew after nobody came back with it."""


async def carry_out(visit: Visit[Any], call: Call, branch: str | None = None) -> Done:
    """Make tries until one goes well or there are no more."""
    tried = Tried()
    retries = workers = 0
    delay = 0.0
    attempt = visit.walk.tries_made(visit, branch)
    while True:
        attempt += 1
        done = Done(attempt=attempt, started_at=visit.walk.now())
        try:
            if delay:
                await trio.sleep(delay / 1000)
                done.started_at = visit.walk.now()
            await make(visit, call, branch, done, tried)
        except BaseException:
            if is_cancelled():
                await visit.walk.record_canceled(visit, done, branch)
            raise
        if done.status == "ok":
            return done
        if done.worker is not None and done.worker not in tried.workers:
            tried.workers.append(done.worker)
        if retries < visit.node.max_retries and done.code != "no_worker":
            retries += 1
            tried.again, delay = done.worker, visit.node.wait_ms
        else:
            workers += 1
            if not await _others(visit, call, done, tried, workers):
                return done
            retries = 0
            tried.again, delay = None, visit.node.attempt_delay_ms
        await visit.walk.record(visit, done, branch, last=False)


async def _others(visit: Visit[Any], call: Call, done: Done, tried: Tried, workers: int) -> bool:
    """Whether another worker is to try. Without `max_attempts`, each that is online may once, if it was the
    fault of the last one."""
    if not isinstance(call, ServiceCall):
        return False
    most: int = visit.node.max_attempts
    if most:
        return workers < most
    if call.kind == "queue":
        return done.code == "expired" and workers < _RETAKEN
    if not done.workers_fault:
        return False
    other: bool = await visit.walk.tools.crew.has_other(call.service, tried.workers)
    return other
