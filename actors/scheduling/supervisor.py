"""The supervisor: it receives every command, and it alone decides which run starts next.

Its machine knows which run each handle has admitted (`handles.py`), which runs are pending (`admission.py`),
and the queues, limits and slots of all lanes (`order.py`). At the end of each turn it grants the free slots
and sends the starts to the journal in that order. A new run that gets a slot in its first turn is created and
started by one change. Commands for one run are forwarded to the actor of that run.

The actor around the machine waits only for its channel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from functools import lru_cache
from typing import Any

import trio
from msgspec.structs import replace

from ...persistence.store import BucketsFull, Memo, Stored, StoredRun, TokenTaken, WakesAt
from ...protocol.errors import Conflict, GreenroomError, NoActiveRun
from ...protocol.events import EngineChanged, HandleChanged, LaneChanged, RunChanged, RunStateChanged
from ...protocol.lane_settings import check_rules
from ...protocol.lanes import DEFAULT_RULES, key_of
from ...protocol.names import MAIN
from ...protocol.states import PENDING, Status, allowed_from
from ...protocol.values import shown
from ..actor import Actor, Directory, Kind
from ..channel import Reply
from ..effects import Effects, Spawn
from ..engine.recovery import cannot_start, holds_slot
from ..journal.change import Change
from ..journal.messages import Answer
from ..messages import (
    AnswerInterrupt,
    Begun,
    BodyGone,
    Cancel,
    Cancelling,
    Clear,
    Closing,
    Coalesced,
    Enter,
    ExecutorReady,
    ExecutorRemoved,
    ExecutorUnfit,
    FindRequest,
    Inject,
    KeepTime,
    Leave,
    Left,
    NotStarted,
    NotStored,
    NotWaiting,
    PauseLane,
    Phase,
    Recover,
    Recovered,
    Reject,
    ReleaseHandle,
    ResetLanes,
    RunsEnded,
    SendSignal,
    SetConcurrency,
    SetDraining,
    SetLane,
    SetMaxConcurrent,
    SetParams,
    SetPriority,
    Started,
    StoreIsDown,
    Submission,
    Submit,
    SubmitMany,
    Suspect,
    WaitForActive,
    cancel_replaced,
)
from ..schedules.messages import Resumed, TellWhenResumed
from .admission import Admission
from .batches import submit_many
from .clearing import cancel_all, select_runs
from .delays import Delays
from .executor_pool import IN_PROCESS, Demand
from .handles import Handles
from .order import Order, Slot, Wait
from .stored_bodies import awaits_executor
from .trials import deaths_after_restart, suspects_after_restart
from .wait_warnings import WaitWarnings
from .wait_watch import WaitWatch

_DUE_WITHIN = 0.001
"""Seconds before the deadline of a queued run within which the run is granted no slot."""

_CHECK_AGAIN_AFTER = 1.0
"""Seconds after which a run that waits too long, but is not committed yet, is checked again."""

_HOLDS_SLOT = frozenset({Status.RUNNING, Status.CANCELLING})
_QUEUED = frozenset({Status.QUEUED})
_SUSPENDED = frozenset({Status.SUSPENDED})
_STARTS_FROM = allowed_from(Status.RUNNING)


class SupervisorMachine:
    """See the module's docstring. Call `receive` for each message of a turn (or `on_deadline`), then
    `end_turn`. `tell` sends the supervisor a message from a helper task. `local_jobs` are the jobs that the
    engine's own process executes. `clock` returns Unix seconds, for the times of delayed runs and for tokens.
    `recall` returns the submission of a stored run."""

    def __init__(
        self,
        max_pending: int,
        tell: Callable[[object], None],
        local_jobs: Container[str],
        clock: Callable[[], float],
        recall: Callable[[StoredRun], Submission],
    ) -> None:
        self._tell = tell
        self._clock = clock
        self.effects = Effects()
        self.order = Order(local_jobs)
        self.handles = Handles()
        self.draining = False
        self.closing = False
        self._closed = False  # no run starts
        self.delays = Delays(clock)
        self._schedules_wait = False  # until the engine no longer drains
        self._admission = Admission(
            max_pending,
            self.effects,
            self.handles,
            self.delays,
            holding=lambda: self.holding,
            enter=self._enter_lane,
            waits=self._waits,
            params_changed=self._params_changed,
            default_priority=lambda lane: self.order.rules_of(lane).priority,
            now=lambda: self._now,
            recall=recall,
        )
        self._warnings = WaitWarnings(self.effects)
        self._watch = WaitWatch()
        self._recovering = 0  # runs that began before a restart and are not recovered yet
        self._waiters: list[tuple[set[str], Reply[bool]]] = []
        self._now = 0.0
        admission = self._admission
        self._handlers: dict[type, Callable[[Any], None]] = {
            Submit: lambda message: admission.submit(message, self._now),
            SubmitMany: lambda message: submit_many(admission, self.effects, message, self._now),
            Coalesced: lambda message: admission.coalesced(message, self._now),
            FindRequest: lambda message: admission.find_request(message, self._now),
            Enter: self._enter,
            Suspect: self._suspect,
            ExecutorReady: self._executor_ready,
            ExecutorRemoved: self._executor_removed,
            ExecutorUnfit: self._executor_unfit,
            Leave: self._leave,
            Left: self._left,
            RunsEnded: self._ended,
            Cancelling: self._being_cancelled,
            BodyGone: self._body_gone,
            Begun: self._begun,
            NotStarted: self._not_started,
            NotStored: self._not_stored,
            StoreIsDown: lambda message: admission.set_store_down(self._now, down=message.down),
            Recovered: self._recovered,
            Cancel: self._cancel,
            AnswerInterrupt: self._route,
            SendSignal: self._route,
            Inject: self._inject,
            SetParams: self._set_params,
            ReleaseHandle: self._release_handle,
            SetConcurrency: self._set_concurrency,
            PauseLane: self._pause_lane,
            SetLane: self._set_lane,
            SetPriority: self._set_priority,
            SetMaxConcurrent: self._set_max_concurrent,
            SetDraining: self._set_draining,
            TellWhenResumed: self._tell_when_resumed,
            ResetLanes: self._reset_lanes,
            WaitForActive: self._wait_for_active,
            NotWaiting: self._not_waiting,
            Clear: self._clear,
            Closing: self._close,
            Answer: lambda message: self.effects.tell("journal", "", message),
        }

    @property
    def pending(self) -> dict[str, Submission]:
        """The pending runs, by their ids; without stored delayed runs that `submission` has not returned."""
        return self._admission.pending

    @property
    def count_pending(self) -> int:
        """The number of all pending runs."""
        return len(self._admission)

    def submission(self, run: str) -> Submission | None:
        """The submission of a pending run."""
        return self._admission.find(run)

    @property
    def holding(self) -> bool:
        """Whether only privileged runs can start."""
        return self.draining or self.closing

    @property
    def waiters(self) -> int:
        """The number of `wait_for_active` calls that wait."""
        return len(self._waiters)

    def executing_here(self) -> set[str]:
        """The runs with a slot whose bodies end with this process."""
        return {run for run in self.order.executing if not self.order.pool.outlives(run)}

    def receive(self, message: Any, now: float) -> None:
        """Handle one message of this turn."""
        self._now = now
        self._handlers[type(message)](message)

    def end_turn(self, now: float) -> None:
        """Report runs that wait too long, and grant the free slots."""
        self._now = now
        self._warnings.emit(now)
        self._grant_slots(now)

    def on_deadline(self, now: float) -> None:
        """End the trials that are due, warn of long waits, and admit delayed runs at their time."""
        self._now = now
        for deaths in self.order.trials.take_tried(now):
            self.effects.commit(Change((), run=deaths.run, expect=PENDING, memos=(deaths,)))
        self._warn_of_waits(now)
        if self._delays_end_at() <= now:
            self._now = now
            for run in self.delays.due(now):
                self._end_delay(run)

    def deadline(self) -> float:
        """When `on_deadline` must be called."""
        return min(
            self.order.trials.deadline(),
            self.order.deadline() if self._may_start() else math.inf,
            self._warnings.deadline(),
            self._watch.deadline(),
            self._delays_end_at(),
        )

    def _delays_end_at(self) -> float:
        """When delayed runs may have to be taken: not while the store is down, and not at the end."""
        return math.inf if self._admission.store_is_down or self._closed else self.delays.deadline

    def _end_delay(self, run: str) -> None:
        """A delayed run is due. Whether its job still exists is checked only now."""
        submission = self._admission.find(run)
        self.delays.drop(run)
        if submission is None or submission.over or submission.cleared:
            return
        submission.not_before, submission.due_at = None, self._now
        if submission.delay is not None:  # the deadline remains as long after its time, if the clock was set
            submission.created_at = self._now - submission.delay
        why = None if submission.stored is None else cannot_start(submission)
        if why is not None:
            self.effects.tell("run", run, Reject(why))
            return
        self._waits(submission)
        self._admission.end_delay(submission)

    def restore(
        self,
        stored: Stored,
        submissions: list[Submission],
        rejects: dict[str, str],
        now: float,
        wall_now: float,
    ) -> None:
        """Restore the runs that were pending when the engine ended, in the order of their submission. Those
        without a submission are delayed."""
        self._now = now
        tried = (run.record.id for run in stored.pending if run.tried and run.deaths > 1)
        self.order.trials.begin(suspects_after_restart(stored.pending), tried)
        replaced = self._admission.restore(stored, submissions, now, wall_now)
        children: dict[str, list[str]] = {}
        for submission in submissions:
            if submission.terms.parent is not None:
                children.setdefault(submission.terms.parent, []).append(submission.id)
        self._restore_order(stored, submissions, wall_now)
        deaths = deaths_after_restart(stored.pending)
        for submission in submissions:
            if submission.stored is not None and awaits_executor(submission.stored):
                self._restore_body(submission, submission.stored, children.get(submission.id, []))
            elif submission.begun:
                self._recovering += 1
                recover = Recover(children.get(submission.id, []), deaths.get(submission.id, 0))
                self.effects.tell("run", submission.id, recover)
            else:
                self._restore_queued(submission, rejects.get(submission.id))
        for run in replaced:
            self.effects.tell("supervisor", "", cancel_replaced(run, "engine"))
        for name in dict.fromkeys(submission.handle for submission in submissions):
            self._admission.admit_next(name)

    def _restore_order(self, stored: Stored, submissions: list[Submission], wall_now: float) -> None:
        """Restore what the order depends on: the times at which runs got their places, which are in the order
        of the places whatever the clock did, and the buckets of rates."""
        latest = -math.inf
        placed = (submission for submission in submissions if submission.place is not None)
        for submission in sorted(placed, key=lambda submission: submission.place or 0):
            latest = submission.placed_at = max(latest, submission.placed_at)
        unused = self.order.restore_buckets(
            [(bucket.lane, bucket.key, self._now + bucket.full_at - wall_now) for bucket in stored.buckets],
            self._now,
        )
        for lane, keys in unused.items():
            self.effects.commit(Change((), memos=(BucketsFull(lane, tuple(keys)),)))

    def _restore_body(self, submission: Submission, stored: StoredRun, children: list[str]) -> None:
        """The run's body can still execute at its executor: it keeps the slot that it had."""
        run, executor, generation = submission.id, stored.record.executor, None
        assert executor is not None, "the run awaits its executor"
        if holds_slot(stored.record):
            generation = self.order.restore_slot(run, submission.lane, executor, self._key_of(run))
            self.order.trials.granted(run, self._now, executor)
        else:
            self.order.pool.restore(run, executor, has_slot=False)
            self.order.trials.granted(run, self._now, executor)
            self.order.trials.waits(run)
        self.effects.tell("run", run, Recover(children, awaits_executor=True, generation=generation))

    def _restore_queued(self, submission: Submission, reject: str | None) -> None:
        if reject is not None:
            self.effects.tell("run", submission.id, Reject(reject))
            return
        self._waits(submission)
        if submission.phase is Phase.QUEUED:
            self._enter_lane(submission)

    # Starts.

    def _grant_slots(self, now: float) -> None:
        if self._may_start():
            for run in self.order.trials.take_back():
                submission = self.pending.get(run)
                if submission is not None and not submission.over:
                    self._enter_lane(submission)
            for slot in self.order.grants(now, self._is_due):
                self._watch.drop(slot.run)
                self._admission.commit_start(self._start(self.pending[slot.run], slot))
            self._admission.end_turn()
            for run in self.order.take_blocked():
                self._report_blocked(self.pending[run])
        else:
            self._admission.end_turn()

    def _may_start(self) -> bool:
        """Whether runs can start: not while the store is down, and not before the recovery of all begun runs,
        whose places can be lower than the others'."""
        return not (self._admission.store_is_down or self._recovering or self._closed)

    def _report_blocked(self, submission: Submission) -> None:
        """A run only lacks an executor. That is reported once, and remains reported until the run starts or
        waits for something else.

        For a suspended run, `waiting_for` then no longer shows whether it has a body, so this is stored, too.
        """
        memos: tuple[Memo, ...] = ()
        if submission.begun and submission.terms.bodiless == submission.body_waits:
            submission.terms = replace(submission.terms, bodiless=not submission.body_waits)
            memos = (WakesAt(submission.id, None, submission.terms),)
        event = RunChanged(by="engine", waiting_for="executor", **submission.about())
        expect = _SUSPENDED if submission.begun else _QUEUED
        self.effects.commit(Change((event,), run=submission.id, expect=expect, memos=memos))

    def _start(self, submission: Submission, slot: Slot) -> Change:
        """The change that starts a run. The journal refuses it if the run has ended in the meantime."""
        generation = slot.generation
        resumes, attempt = submission.body_waits, submission.next_attempt
        event = RunStateChanged(
            seq=0,
            at=0,
            by="engine",
            run=submission.id,
            handle=submission.handle,
            lane=submission.lane,
            from_=Status.SUSPENDED if submission.begun else Status.QUEUED,
            to=Status.RUNNING,
            attempt=attempt,
            reason=None,
            place=submission.place,
            interactive=None if resumes else True,
            executor=None if resumes else slot.executor,
        )
        submission.begun = True
        taken = slot.taken
        memos: tuple[Memo, ...] = ()
        notify: tuple[tuple[Kind, str, object], ...] = (
            ("run", submission.id, Started(attempt, generation, resumes, event)),
        )
        if taken is not None:
            memos = (TokenTaken(taken.lane, taken.key, self._clock() + taken.full_in),)
            if taken.full:
                memos = (*memos, BucketsFull(taken.lane, taken.full))
            notify = (*notify, ("supervisor", "", Begun(submission.id)))
        return Change(
            (event,),
            run=submission.id,
            expect=_STARTS_FROM,
            generation=generation,
            memos=memos,
            notify=notify,
            notify_on_refusal=(("supervisor", "", NotStarted(submission.id, generation)),),
        )

    def _waits(self, submission: Submission) -> None:
        """A run does not start immediately: watch its deadlines and its waiting time, from the time of a
        delayed run on."""
        if submission.not_before is not None:
            return
        self._keep_time(submission)
        self._watch.add(submission, self._now)

    def _keep_time(self, submission: Submission) -> None:
        if submission.terms.queue_timeout is not None or submission.terms.deadline is not None:
            self.effects.tell("run", submission.id, KeepTime())

    def _is_due(self, run: str) -> bool:
        """Whether a deadline of the run has passed: its actor is about to end it, so it gets no slot."""
        submission = self.pending[run]
        terms, soon = submission.terms, self._now + _DUE_WITHIN
        if terms.deadline is not None and terms.deadline <= soon - submission.created_at:
            return True
        if submission.begun or terms.queue_timeout is None:
            return False
        return terms.queue_timeout <= soon - submission.waits_since

    def _enter_lane(self, submission: Submission) -> None:
        assert submission.place is not None, "a run enters its lane with a place"
        if submission.body_waits:
            demand = Demand(at=self.order.pool.body_of(submission.id))
        elif submission.job.special is not None:
            demand = IN_PROCESS
        else:
            demand = _demand(submission.job.name, submission.needs)
        self.order.enter(
            submission.id,
            submission.lane,
            submission.place,
            privileged=submission.privileged,
            demand=demand,
            queued_at=submission.placed_at,
            priority=submission.priority or 0,
            key=self._key_of(submission.id) if self.order.rules else None,
            has_body=submission.body_waits,
        )

    def _params_changed(self, submission: Submission) -> None:
        """A waiting run has other parameters, from which the lane may take its key."""
        self.order.set_key(submission.id, submission.lane, self._key_of(submission.id))

    def _key_of(self, run: str) -> str | None:
        submission = self.pending[run]
        rules = self.order.rules_of(submission.lane)
        if rules is DEFAULT_RULES:
            return None
        return key_of(rules, submission.key, submission.params)

    # Executors.

    def _executor_ready(self, message: ExecutorReady) -> None:
        self.order.pool.ready(
            message.executor, message.slots, message.jobs, message.labels, draining=message.draining
        )
        self.order.regroup()

    def _executor_removed(self, message: ExecutorRemoved) -> None:
        self.order.pool.removed(message.executor)
        self.order.regroup()

    def _executor_unfit(self, message: ExecutorUnfit) -> None:
        self.order.pool.unfit(message.executor, message.job, message.why)
        self.order.regroup()

    def _suspect(self, message: Suspect) -> None:
        if message.run in self.pending:
            self.order.trials.suspect(message.run, message.deaths)

    # Messages from runs and the journal.

    def _enter(self, message: Enter) -> None:
        submission = self.pending.get(message.run)
        if submission is None or submission.over or message.run in self.order.executing:
            return  # it has a slot; if it cannot use the slot, it releases it and requests another
        self.order.leave(message.run, submission.lane)
        if message.new_place:
            self._admission.draw_place_again(submission)
        submission.next_attempt, submission.body_waits = message.attempt, message.live_body
        if not message.live_body:
            self.order.pool.lose_body(message.run)
        self._enter_lane(submission)

    def _leave(self, message: Leave) -> None:
        submission = self.pending.get(message.run)
        if submission is not None:
            self.order.leave(message.run, submission.lane)
            has_slot = message.run in self.order.executing  # then its trial ends when it releases the slot
            if not (message.live_body or has_slot):
                self.order.trials.lost_body(message.run, self._now)
                self.order.pool.lose_body(message.run)

    def _left(self, message: Left) -> None:
        submission = self.pending[message.run]
        if message.generation is None:
            self.order.leave(message.run, submission.lane)
        else:
            self._release_slot(submission, message.generation, body_waits=message.body_waits)

    def _begun(self, message: Begun) -> None:
        self.order.settle(message.run, self._now, starts=True)

    def _not_started(self, message: NotStarted) -> None:
        self.order.settle(message.run, self._now, starts=False)
        submission = self.pending.get(message.run)
        if submission is not None:  # it is being cancelled, and its body still executes
            self._release_slot(submission, message.generation, body_waits=submission.body_waits)

    def _remove_from_lane(self, submission: Submission) -> None:
        """The run is no longer pending: remove it from its queue and release a slot granted to it."""
        self._watch.drop(submission.id)
        self.order.leave(submission.id, submission.lane)
        generation = self.order.executing.get(submission.id)
        if generation is not None:
            self._release_slot(submission, generation, body_waits=False)

    def _release_slot(self, submission: Submission, generation: int, *, body_waits: bool) -> None:
        run = submission.id
        self.order.release(run, submission.lane, generation, self._now, body_waits=body_waits)
        if self._waiters:
            for runs, reply in self._waiters:
                runs.discard(run)
                if not runs:
                    self.effects.answer(reply, True)
            self._waiters = [waiter for waiter in self._waiters if waiter[0] and not waiter[1].done]

    def _ended(self, message: RunsEnded) -> None:
        for ended in message.runs:
            submission = self._admission.ended(ended.run, self._now)
            assert submission is not None, "a run ends once"
            self._remove_from_lane(submission)
            self.order.forget(ended.run)
            self.handles.ended(submission, body_remains=ended.body_remains)
            self._admission.admit_next(submission.handle)

    def _not_stored(self, message: NotStored) -> None:
        submission = self.pending[message.run]
        self.order.settle(message.run, self._now, starts=False)
        self._remove_from_lane(submission)
        self._admission.not_stored(submission)
        self.handles.ended(submission, body_remains=False)
        self._admission.admit_next(submission.handle)

    def _being_cancelled(self, message: Cancelling) -> None:
        self.handles.being_cancelled(self.pending[message.run])

    def _body_gone(self, message: BodyGone) -> None:
        self._free_handle(message.handle, message.run, "engine", None)

    def _recovered(self, message: Recovered) -> None:
        self._recovering -= 1

    # Commands about runs and handles.

    def _cancel(self, message: Cancel) -> None:
        submission = self._admission.find(message.run)
        if submission is not None and not submission.begun:
            submission.cleared = True  # a cancel of a queued run always succeeds
            self.order.leave(message.run, submission.lane)
        self._route(message)

    def _route(self, message: Cancel | AnswerInterrupt | SendSignal) -> None:
        if self._admission.find(message.run) is not None:
            self.effects.tell("run", message.run, message)
        else:
            message.reply.set(None)

    def _inject(self, message: Inject) -> None:
        target = message.target
        admitted = self.handles.admitted(target)
        if self._admission.find(target) is not None:
            self.effects.tell("run", target, message)
        elif admitted is not None:
            self.effects.tell("run", admitted.id, message)
        elif self.handles.taken_by(target) is not None or self.handles.waiting(target):
            message.reply.fail(NoActiveRun(f"handle {shown(target)} has no active run"))
        else:
            message.reply.fail(
                NoActiveRun(f"{shown(target)} is neither a pending run nor a handle with an active run")
            )

    def _set_params(self, message: SetParams) -> None:
        locked = self.handles.locked(message.handle)
        if locked is not None:
            self.effects.answer(message.reply, error=locked, about=self.handles.admitted(message.handle))
            return
        self.handles.drafts[message.handle] = message.params
        changed = HandleChanged(seq=0, at=0, by=message.by, handle=message.handle, params=message.params)
        self.effects.commit(Change((changed,), reply=message.reply))

    def _release_handle(self, message: ReleaseHandle) -> None:
        if not self._free_handle(message.handle, None, message.by, message.reply):
            self.effects.answer(message.reply, False)

    def _free_handle(self, handle: str, run: str | None, by: str, reply: Reply[bool] | None) -> bool:
        freed = self.handles.free(handle, run)
        if freed is None:
            return False
        changed = HandleChanged(seq=0, at=0, by=by, handle=handle, freed=freed)
        self.effects.commit(Change((changed,), reply=reply, answer=True))
        self._admission.admit_next(handle)
        return True

    # Commands about lanes and the engine.

    def _set_concurrency(self, message: SetConcurrency) -> None:
        self.order.set_limit(message.lane, message.limit)
        self.effects.commit(Change((self._lane_changed(message.lane, message.by),), reply=message.reply))

    def _pause_lane(self, message: PauseLane) -> None:
        self.order.pause(message.lane, paused=message.paused)
        self.effects.commit(Change((self._lane_changed(message.lane, message.by),), reply=message.reply))

    def _set_lane(self, message: SetLane) -> None:
        lane, changes = message.lane, message.changes
        try:
            rules = check_rules(lane, changes, self.order.rules_of(lane))
        except GreenroomError as error:
            self.effects.answer(message.reply, error=error)
            return
        unused = self.order.set_rules(lane, rules, self._now, self._key_of)
        memos = (BucketsFull(lane, unused),) if unused else ()
        changed = self._lane_changed(lane, message.by)
        self.effects.commit(Change((changed,), memos=memos, reply=message.reply, answer=rules))

    def _set_priority(self, message: SetPriority) -> None:
        submission = self._admission.find(message.run)
        if submission is None:
            message.reply.set(None)
        elif submission.begun or submission.cleared or submission.over:
            error = Conflict(
                f"run {message.run} is no longer queued: its priority can be changed only before it starts"
            )
            self.effects.answer(message.reply, error=error, about=submission)
        else:
            submission.priority = message.priority
            self.order.set_priority(message.run, submission.lane, message.priority)
            event = RunChanged(by=message.by, priority=message.priority, **submission.about())
            self._admission.end_turn()  # the run may be created in this turn
            change = Change((event,), run=message.run, expect=_QUEUED, reply=message.reply, answer=True)
            self.effects.commit(change)

    def _set_max_concurrent(self, message: SetMaxConcurrent) -> None:
        self.order.limit = message.limit
        self._engine_changed(message.by, message.reply)

    def _set_draining(self, message: SetDraining) -> None:
        self.draining = message.draining
        self.order.hold(self.holding)
        self._engine_changed(message.by, message.reply)

    def _reset_lanes(self, message: ResetLanes) -> None:
        self.order.trials.reset()
        for lane in sorted({MAIN, *self.order.lanes}):
            detached = self.order.reset(lane)
            self.effects.commit(Change((self._lane_changed(lane, message.by),)))
            for run in detached:
                event = RunChanged(by=message.by, detached=True, **self.pending[run].about())
                self.effects.commit(Change((event,), run=run, expect=_HOLDS_SLOT))
        if self.draining:
            self.draining = False
            self.order.hold(self.holding)
            self._engine_changed(message.by, None)
        waiters, self._waiters = self._waiters, []
        for _, waits in waiters:
            self.effects.answer(waits, True)
        self.effects.answer(message.reply, True)

    def _wait_for_active(self, message: WaitForActive) -> None:
        runs = self.executing_here() if message.ending else set(self.order.executing)
        if runs:
            self._waiters.append((runs, message.reply))
        else:
            self.effects.answer(message.reply, True)

    def _not_waiting(self, message: NotWaiting) -> None:
        self._waiters = [waiter for waiter in self._waiters if waiter[1] is not message.reply]

    def _clear(self, message: Clear) -> None:
        by_lane = message.reason == "lane_cleared"
        named = {"lane": message.name} if by_lane else {"handle": message.name}
        runs = select_runs(message, self._admission.find_all(**named))
        for run in runs:
            self.order.leave(run, self.pending[run].lane)
        self.effects.help(lambda: cancel_all(runs, message, self._tell))

    def _close(self, message: Closing) -> None:
        self.closing = True
        self._closed = message.now
        self.order.hold(True)
        self.effects.answer(message.reply)

    def _lane_changed(self, lane: str, by: str) -> LaneChanged:
        limit, generation = self.order.limit_of(lane), self.order.generations.get(lane, 0)
        return LaneChanged(
            seq=0,
            at=0,
            by=by,
            lane=lane,
            limit=limit,
            generation=generation,
            paused=lane in self.order.paused,
            rules=self.order.rules_of(lane),
        )

    def _engine_changed(self, by: str, reply: Reply[object] | None) -> None:
        changed = EngineChanged(seq=0, at=0, by=by, max_concurrent=self.order.limit, draining=self.draining)
        change = Change((changed,), reply=reply)
        if self._schedules_wait and not self.draining:
            self._schedules_wait = False
            change.notify = (("schedules", "", Resumed()),)
        self.effects.commit(change)

    def _tell_when_resumed(self, message: TellWhenResumed) -> None:
        if self.holding:
            self._schedules_wait = True
        else:
            self.effects.tell("schedules", "", Resumed())

    # Long waits.

    def _warn_of_waits(self, now: float) -> None:
        """Warn of the longest wait in each lane and handle, and call the `on_wait` of the other runs."""
        groups: dict[tuple[Phase, str], list[Submission]] = {}
        for submission in self._watch.take_due(now):
            if not submission.committed:
                self._watch.watch_again(submission, now + _CHECK_AGAIN_AFTER)
                continue
            where = submission.lane if submission.phase is Phase.QUEUED else submission.handle
            groups.setdefault((submission.phase, where), []).append(submission)
        for (phase, where), waiting in groups.items():
            ahead: dict[str, int] = {}
            if phase is Phase.WAITING:
                ahead = {id: position for position, id in enumerate(self.handles.waiting(where))}
            for number, submission in enumerate(waiting):
                if number and submission.on_wait is None:
                    continue
                count = 0 if number else len(waiting)
                if not self._warnings.reports(submission, now):
                    self._warnings.count(count)
                    continue
                wait = self._wait_of(submission, ahead)
                if wait is not None:
                    self._warnings.add(submission, now, wait, count, draining=self.draining)

    def _wait_of(self, submission: Submission, ahead: dict[str, int]) -> Wait | None:
        if submission.phase is Phase.QUEUED:
            return self.order.wait_of(submission.id, submission.lane, self._now)
        if submission.id not in ahead:
            return None  # it was cancelled when it was next, and is about to end
        holder = self.handles.taken_by(submission.handle)
        return Wait(ahead[submission.id], [] if holder is None else [holder])


@lru_cache(1000)
def _demand(job: str, needs: tuple[str, ...]) -> Demand:
    """The demand of a new body. It is cached because nearly all runs of a job have the same one."""
    return Demand(job, needs)


class Supervisor(Actor):
    """See the module's docstring."""

    def __init__(
        self,
        *,
        max_pending: int,
        directory: Directory,
        spawn: Spawn,
        local_jobs: Container[str],
        clock: Callable[[], float],
        recall: Callable[[StoredRun], Submission],
    ) -> None:
        super().__init__("supervisor", "")
        self.machine = SupervisorMachine(max_pending, self.tell, local_jobs, clock, recall)
        self._directory = directory
        self._spawn = spawn

    def submission(self, run: str) -> Submission | None:
        """The submission of a pending run, to wake its actor."""
        return self.machine.submission(run)

    def restore(
        self, stored: Stored, submissions: list[Submission], rejects: dict[str, str], wall_now: float
    ) -> None:
        """Restore the stored state, before any message is received."""
        self.machine.restore(stored, submissions, rejects, trio.current_time(), wall_now)
        self._end_turn(trio.current_time())

    def report(self) -> dict[str, Any]:
        machine = self.machine
        order = machine.order
        return super().report() | {
            "pending": machine.count_pending,
            "delayed": len(machine.delays),
            "executing": list(order.executing),
            "limit": order.limit,
            "draining": machine.holding,
            "suspects": len(order.trials),
            "waiters": machine.waiters,
        }

    def reports(self) -> list[dict[str, Any]]:
        return [self.report(), *self.machine.handles.reports(), *self.machine.order.reports()]

    async def on_batch(self, messages: Sequence[Any]) -> None:
        now = trio.current_time()
        for message in messages:
            self.machine.receive(message, now)
        self._end_turn(now)

    async def on_deadline(self) -> None:
        now = trio.current_time()
        self.machine.on_deadline(now)
        self._end_turn(now)

    def _end_turn(self, now: float) -> None:
        self.machine.end_turn(now)
        self.machine.effects.carry_out(self._directory, self._spawn)
        self.deadline = self.machine.deadline()
