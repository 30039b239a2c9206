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
from typing import Any

import trio

from ...persistence.store import Stored, StoredRun
from ...protocol.lanes import DEFAULT_RULES, key_of
from ...protocol.states import PENDING, Status
from ..actor import Actor, Directory
from ..effects import Effects, Spawn
from ..engine.recovery import cannot_start
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
    StoreIsDown,
    Submission,
    Submit,
    SubmitMany,
    Suspect,
    WaitForActive,
    cancel_replaced,
)
from ..schedules.messages import TellWhenResumed
from .active_runs import ActiveRuns
from .admission import Admission
from .batches import submit_many
from .delays import Delays
from .handles import Handles
from .long_waits import LongWaits
from .order import Order
from .restoring import restore_body, restore_order
from .run_commands import RunCommands
from .settings import Settings
from .starts import blocked, demand_of, start_of
from .stored_bodies import awaits_executor
from .trials import deaths_after_restart, suspects_after_restart

_DUE_WITHIN = 0.001
"""Seconds before the deadline of a queued run within which the run is granted no slot."""


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
        self._clock = clock
        self.effects = Effects()
        self.order = Order(local_jobs)
        self.handles = Handles()
        self.active = ActiveRuns(self.effects, self.order)
        self._closed = False  # no run starts
        self.delays = Delays(clock)
        self._admission = Admission(
            max_pending,
            self.effects,
            self.handles,
            self.delays,
            self.order,
            holding=lambda: self.settings.holding,
            enter=self._enter_lane,
            waits=self._waits,
            params_changed=self._params_changed,
            now=lambda: self._now,
            recall=recall,
        )
        self.submission = self._admission.find
        """Returns the submission of a pending run."""
        self._waits_long = LongWaits(self.effects, self.order, self.handles)
        self._recovering = 0  # runs that began before a restart and are not recovered yet
        self._now = 0.0
        admission = self._admission
        settings = self.settings = Settings(
            self.effects, self.order, self.active, admission.pending, self._key_of
        )
        commands = self._commands = RunCommands(self.effects, self.order, self.handles, admission, tell)
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
            Cancel: commands.cancel,
            AnswerInterrupt: commands.route,
            SendSignal: commands.route,
            Inject: commands.inject,
            SetParams: commands.set_params,
            ReleaseHandle: commands.release_handle,
            SetConcurrency: settings.set_concurrency,
            PauseLane: settings.pause_lane,
            SetLane: lambda message: settings.set_lane(message, self._now),
            SetPriority: commands.set_priority,
            SetMaxConcurrent: settings.set_max_concurrent,
            SetDraining: settings.set_draining,
            TellWhenResumed: settings.tell_when_resumed,
            ResetLanes: settings.reset_lanes,
            WaitForActive: self.active.wait,
            NotWaiting: self.active.not_waiting,
            Clear: commands.clear,
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

    def receive(self, message: Any, now: float) -> None:
        """Handle one message of this turn."""
        self._now = now
        self._handlers[type(message)](message)

    def end_turn(self, now: float) -> None:
        """Report runs that wait too long, and grant the free slots."""
        self._now = now
        self._waits_long.emit(now)
        self._grant_slots(now)

    def on_deadline(self, now: float) -> None:
        """End the trials that are due, warn of long waits, and admit delayed runs at their time."""
        self._now = now
        for deaths in self.order.trials.take_tried(now):
            self.effects.commit(Change((), run=deaths.run, expect=PENDING, memos=(deaths,)))
        self._waits_long.find(now, draining=self.settings.draining)
        if self._delays_end_at() <= now:
            self._now = now
            for run in self.delays.due(now):
                self._end_delay(run)

    def deadline(self) -> float:
        """When `on_deadline` must be called."""
        return min(
            self.order.trials.deadline(),
            self.order.deadline() if self._may_start() else math.inf,
            self._waits_long.deadline(),
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
        begun = [run for run in stored.pending if run.record.status is not Status.QUEUED]
        tried = (run.record.id for run in begun if run.tried and run.deaths > 1)
        self.order.trials.begin(suspects_after_restart(begun), tried)
        replaced = self._admission.restore(stored, submissions, now, wall_now)
        children: dict[str, list[str]] = {}
        for submission in submissions:
            if submission.terms.parent is not None:
                children.setdefault(submission.terms.parent, []).append(submission.id)
        restore_order(self.order, self.effects, stored, submissions, now, wall_now)
        deaths = deaths_after_restart(begun)
        for submission in submissions:
            if submission.stored is not None and awaits_executor(submission.stored):
                generation = restore_body(self.order, submission, self._key_of(submission.id), now)
                recover = Recover(
                    children.get(submission.id, []), awaits_executor=True, generation=generation
                )
                self.effects.tell("run", submission.id, recover)
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
                self._waits_long.drop(slot.run)
                self._admission.commit_start(start_of(self.pending[slot.run], slot, self._clock))
            self._admission.end_turn()
            for run in self.order.take_blocked():
                self.effects.commit(blocked(self.pending[run]))
        else:
            self._admission.end_turn()

    def _may_start(self) -> bool:
        """Whether runs can start: not while the store is down, and not before the recovery of all begun runs,
        whose places can be lower than the others'."""
        return not (self._admission.store_is_down or self._recovering or self._closed)

    def _waits(self, submission: Submission) -> None:
        """A run does not start immediately: watch its deadlines and its waiting time, from the time of a
        delayed run on."""
        if submission.not_before is not None:
            return
        self._keep_time(submission)
        self._waits_long.add(submission, self._now)

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
        self.order.enter(
            submission.id,
            submission.lane,
            submission.place,
            privileged=submission.privileged,
            demand=demand_of(submission, self.order.pool),
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
        self._waits_long.drop(submission.id)
        self.order.leave(submission.id, submission.lane)
        generation = self.order.executing.get(submission.id)
        if generation is not None:
            self._release_slot(submission, generation, body_waits=False)

    def _release_slot(self, submission: Submission, generation: int, *, body_waits: bool) -> None:
        run = submission.id
        self.order.release(run, submission.lane, generation, self._now, body_waits=body_waits)
        if self.active.waiters:
            self.active.released(run)

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
        self._commands.free_handle(message.handle, message.run, "engine", None)

    def _recovered(self, message: Recovered) -> None:
        self._recovering -= 1

    def _close(self, message: Closing) -> None:
        self.settings.close()
        self._closed = message.now
        self.effects.answer(message.reply)


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
        self.submission = self.machine.submission
        """Returns the submission of a pending run, to wake its actor."""
        self._directory = directory
        self._spawn = spawn

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
            "draining": machine.settings.holding,
            "suspects": len(order.trials),
            "waiters": len(machine.active.waiters),
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
