"""Restoring an engine from its store: the projection, and the runs that continue.

The projection is exactly what clients had at the last seq, so a client at that seq continues without a
snapshot. The changes that the restart causes (runs resumed, failed or cancelled, handles freed) follow as
ordinary events.
"""

from __future__ import annotations

import trio

from ...persistence.store import Stored, StoredRun
from ...protocol.errors import Invalid
from ...protocol.events import EngineChanged, Event, HandleChanged, LaneChanged
from ...protocol.fold import Projection
from ...protocol.names import MAIN
from ...protocol.records import (
    EngineState,
    HandleState,
    InterruptState,
    LaneState,
    RunRecord,
    Snapshot,
    default_limit,
)
from ...protocol.states import HandleStatus, Status, handle_status
from ..channel import Reply
from ..jobs import Jobs, unknown_job
from ..messages import Submission
from ..scheduling.stored_bodies import held_elsewhere


def projection_of(stored: Stored) -> Projection:
    """The projection as of the store's last seq."""
    pending = [run.record for run in stored.pending]
    runs = {record.id: record for record in [*pending, *stored.ended]}
    lanes = _lanes(stored, pending, runs)
    return Projection.from_snapshot(
        Snapshot(
            epoch=stored.epoch,
            seq=stored.last_seq,
            engine=EngineState(
                stored.max_concurrent,
                sum(len(lane.executing) for lane in lanes.values()),
                sum(record.status is Status.QUEUED for record in pending),
                stored.draining,
            ),
            lanes=lanes,
            handles=_handles(stored),
            interrupts={
                interrupt.id: InterruptState(
                    interrupt.run, interrupt.key, interrupt.data, interrupt.opened_at, interrupt.deadline
                )
                for run in stored.pending
                for interrupt in run.interrupts
                if interrupt.outcome is None
            },
            runs=runs,
            executors=stored.executors,
            schedules=stored.schedules,
        )
    )


def _lanes(stored: Stored, pending: list[RunRecord], runs: dict[str, RunRecord]) -> dict[str, LaneState]:
    lanes = {name: LaneState(limit, generation, [], []) for name, (limit, generation) in stored.lanes.items()}
    for name in (MAIN, *(record.lane for record in runs.values())):
        lanes.setdefault(name, LaneState(default_limit(name), 0, [], []))
    for record in pending:
        if holds_slot(record):
            lanes[record.lane].executing.append(record.id)
        elif record.status is Status.QUEUED and record.place is not None:
            lanes[record.lane].queued.append(record.id)
    used = {MAIN, *(record.lane for record in runs.values())}
    return {
        name: lane
        for name, lane in lanes.items()
        if name in used or lane.generation or lane.limit != default_limit(name)
    }


def holds_slot(record: RunRecord) -> bool:
    """Whether the projection counts the run as executing."""
    if record.status is Status.CANCELLING:
        return record.waiting_for is None and not record.detached
    return record.status is Status.RUNNING and not record.detached


def _handles(stored: Stored) -> dict[str, HandleState]:
    admitted: dict[str, str] = {}
    waiting: dict[str, list[str]] = {}
    status: dict[str, HandleStatus] = {}
    for record in stored.ended:
        status.setdefault(record.handle, HandleStatus.IDLE)
        if record.place is not None:  # else it only waited in its handle and did not change its status
            before = Status.RUNNING if record.attempt else Status.QUEUED
            status[record.handle] = handle_status(before, record.status)
    for run in stored.pending:
        record, handle = run.record, run.record.handle
        if record.place is not None:
            admitted[handle] = record.id
            status[handle] = handle_status(None, record.status)
        else:
            status.setdefault(handle, HandleStatus.IDLE)
            queue = waiting.setdefault(handle, [])
            queue.insert(0 if run.terms.front else len(queue), record.id)
    admitted.update(stored.held)
    for name in stored.drafts:
        status.setdefault(name, HandleStatus.IDLE)
    return {
        name: HandleState(
            shown,
            name in admitted,
            admitted.get(name),
            waiting.get(name, []),
            stored.drafts.get(name),
        )
        for name, shown in status.items()
    }


def submissions(stored: Stored, jobs: Jobs, wall_now: float) -> tuple[list[Submission], dict[str, str]]:
    """The pending runs, in the order of submission, and the queued ones that can no longer be started, with
    the reason."""
    rejects: dict[str, str] = {}
    recalled = [_recall(run, jobs, wall_now) for run in stored.pending]
    for submission in recalled:
        why = None if submission.begun else _cannot_start(submission)
        if why is not None:
            rejects[submission.id] = why
    return recalled, rejects


def _recall(run: StoredRun, jobs: Jobs, wall_now: float) -> Submission:
    record = run.record
    return Submission(
        id=record.id,
        job=jobs.recall(record.job, run.terms.announced),
        handle=record.handle,
        lane=record.lane,
        kind=record.kind,
        params=record.params,
        needs=record.needs,
        terms=run.terms,
        by="engine",
        created_at=trio.current_time() - max(0.0, wall_now - record.created_at),
        on_wait=None,
        ended=Reply(),
        place=record.place,
        stored=run,
        begun=record.status is not Status.QUEUED,
        committed=True,
    )


def _cannot_start(submission: Submission) -> str | None:
    job = submission.job
    if not job.registered:
        return unknown_job(job.name)
    try:
        job.check(submission.params)
    except Invalid as error:
        return error.message
    return None


def restart_events(
    stored: Stored, max_concurrent: int, limits: dict[str, int | None], *, draining: bool
) -> list[Event]:
    """The changes that a restart makes to the projection: a configured limit overrides the stored one,
    draining ends unless the engine still drains, and handles of abandoned bodies are free if those bodies
    ended with their process."""
    events: list[Event] = []
    elsewhere = held_elsewhere(stored)
    if (stored.max_concurrent, stored.draining) != (max_concurrent, draining):
        events.append(
            EngineChanged(seq=0, at=0, by="engine", max_concurrent=max_concurrent, draining=draining)
        )
    for lane, limit in limits.items():
        known, generation = stored.lanes.get(lane, (default_limit(lane), 0))
        if known != limit:
            events.append(
                LaneChanged(seq=0, at=0, by="engine", lane=lane, limit=limit, generation=generation)
            )
    events += [
        HandleChanged(seq=0, at=0, by="engine", handle=handle, freed=run)
        for handle, run in stored.held.items()
        if handle not in elsewhere
    ]
    return events
