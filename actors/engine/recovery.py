"""Restoring an engine from its store: the projection, and the runs that continue.

The projection is exactly what clients had at the last seq, so a client at that seq continues without a
snapshot. The changes that the restart causes (runs resumed, failed or cancelled, handles freed) follow as
ordinary events.
"""

from __future__ import annotations

import trio
from msgspec import UNSET
from msgspec.structs import asdict, replace

from ...persistence.store import Stored, StoredLane, StoredRun
from ...protocol.errors import Invalid
from ...protocol.events import EngineChanged, Event, HandleChanged, LaneChanged
from ...protocol.fold import Projection
from ...protocol.handles import IDLE
from ...protocol.lane_settings import LaneConfig, check_rules
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
from ..messages import Phase, Submission
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
    lanes = {
        name: LaneState(lane.limit, lane.generation, [], [], lane.paused, lane.rules)
        for name, lane in stored.lanes.items()
    }
    for name in (MAIN, *(record.lane for record in runs.values())):
        lanes.setdefault(name, LaneState(default_limit(name), 0, [], []))
    for record in pending:
        if holds_slot(record):
            lanes[record.lane].executing.append(record.id)
        elif record.status is Status.QUEUED and record.place is not None and not record.delayed:
            lanes[record.lane].queued.append(record.id)
    used = {MAIN, *(record.lane for record in runs.values())}
    return {name: lane for name, lane in lanes.items() if name in used or not lane.is_as_new(name)}


def holds_slot(record: RunRecord) -> bool:
    """Whether the projection counts the run as executing."""
    if record.status is Status.CANCELLING:
        return record.waiting_for is None and not record.detached
    return record.status is Status.RUNNING and not record.detached


def _handles(stored: Stored) -> dict[str, HandleState]:
    admitted: dict[str, str] = {}
    waiting: dict[str, list[str]] = {}
    status: dict[str, HandleStatus] = {}
    for record in (*stored.abandoned, *stored.ended):  # an abandoned body can hold a handle for very long
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
            if record.delayed:
                continue
            queue = waiting.setdefault(handle, [])
            queue.insert(0 if run.terms.front else len(queue), record.id)
    admitted.update(stored.held)
    for name in stored.drafts:
        status.setdefault(name, HandleStatus.IDLE)
    used = {*admitted, *waiting, *stored.drafts}
    return {
        name: HandleState(
            shown,
            name in admitted,
            admitted.get(name),
            waiting.get(name, []),
            stored.drafts.get(name),
        )
        if shown is not HandleStatus.IDLE or name in used
        else IDLE
        for name, shown in status.items()
    }


def submissions(stored: Stored, jobs: Jobs, wall_now: float) -> tuple[list[Submission], dict[str, str]]:
    """The pending runs, in the order of submission, and the queued ones that can no longer be started, with
    the reason.

    There can be very many delayed runs, so those that hold no handle and have no parent are not among them:
    `recall` returns their submissions one by one.
    """
    rejects: dict[str, str] = {}
    recalled = [recall(run, jobs, wall_now) for run in stored.pending if not _sleeps(run)]
    for submission in recalled:
        if submission.begun or submission.phase is Phase.DELAYED:
            continue
        why = cannot_start(submission)
        if why is not None:
            rejects[submission.id] = why
    return recalled, rejects


def _sleeps(run: StoredRun) -> bool:
    return run.record.delayed and run.record.place is None and run.terms.parent is None


def recall(run: StoredRun, jobs: Jobs, wall_now: float) -> Submission:
    """The submission of a stored run."""
    record, now = run.record, trio.current_time()
    if _sleeps(run):
        run = StoredRun(record, run.terms)  # with its own collections
    submission = Submission(
        id=record.id,
        job=jobs.recall(record.job, run.terms.announced),
        handle=record.handle,
        lane=record.lane,
        kind=record.kind,
        params=record.params,
        needs=record.needs,
        terms=run.terms,
        by="engine",
        created_at=now - max(0.0, wall_now - record.created_at),
        on_wait=None,
        ended=Reply(),
        priority=record.priority,
        key=record.key,
        place=record.place,
        placed_at=now - max(0.0, wall_now - (record.placed_at or record.created_at)),
        stored=run,
        begun=record.status is not Status.QUEUED,
        committed=True,
    )
    if submission.begun:
        submission.traced_place = submission.place
    if record.not_before is not None:
        _restore_delay(submission, run, now, wall_now)
    return submission


def _restore_delay(submission: Submission, run: StoredRun, now: float, wall_now: float) -> None:
    """Restore whether a delayed run is due. It remains due if the clock is set back."""
    record = run.record
    assert record.not_before is not None, "the run was delayed"
    if record.delayed:
        submission.phase, submission.not_before = Phase.DELAYED, record.not_before
    elif not run.terms.was_due and _waits_before_its_time(record, wall_now):
        submission.not_before = record.not_before
    else:
        submission.due_at = now - max(0.0, wall_now - record.not_before)


def _waits_before_its_time(record: RunRecord, wall_now: float) -> bool:
    """Whether the run has reserved its handle, which other runs have had until now."""
    waits = record.status is Status.QUEUED and record.place is None and record.waiting_for is None
    return waits and record.not_before is not None and record.not_before > wall_now


def cannot_start(submission: Submission) -> str | None:
    """Why a stored run cannot be started any more, if so."""
    job = submission.job
    if not job.registered:
        return unknown_job(job.name)
    try:
        job.check(submission.params)
    except Invalid as error:
        return error.message
    return None


def lanes_after_restart(stored: Stored, configured: dict[str, LaneConfig]) -> dict[str, StoredLane]:
    """The lanes: what is configured overrides what is stored."""
    lanes = dict(stored.lanes)
    for name, config in configured.items():
        known = lanes.get(name) or StoredLane(default_limit(name), 0)
        limit = known.limit if config.limit is UNSET else config.limit
        lanes[name] = replace(known, limit=limit, rules=check_rules(name, config.changes, known.rules))
    return lanes


def restart_events(
    stored: Stored,
    max_concurrent: int,
    lanes: dict[str, StoredLane],
    *,
    draining: bool,
) -> list[Event]:
    """The changes that a restart makes to the projection: configured limits and rules override stored ones,
    draining ends unless the engine still drains, and handles of abandoned bodies are free if those bodies
    ended with their process."""
    events: list[Event] = []
    elsewhere = held_elsewhere(stored)
    if (stored.max_concurrent, stored.draining) != (max_concurrent, draining):
        events.append(
            EngineChanged(seq=0, at=0, by="engine", max_concurrent=max_concurrent, draining=draining)
        )
    for name, lane in lanes.items():
        if lane != stored.lanes.get(name, StoredLane(default_limit(name), 0)):
            events.append(LaneChanged(seq=0, at=0, by="engine", lane=name, **asdict(lane)))
    events += [
        HandleChanged(seq=0, at=0, by="engine", handle=handle, freed=run)
        for handle, run in stored.held.items()
        if handle not in elsewhere
    ]
    return events
