"""Rules 4, 8 and 10: the state machine, attempts, parameters, handles, interrupts and messages of runs.

Reads the events of runs, one by one, checks them, and updates the model.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from msgspec import UNSET

from ...protocol.events import (
    EventBase,
    InterruptClosed,
    InterruptOpened,
    NodeRan,
    NodeStarted,
    RunChanged,
    RunEvent,
    RunLog,
    RunMessage,
    RunProgress,
    RunSignal,
    RunStateChanged,
)
from ...protocol.states import ENDED, Status, allowed_from, rank
from ...protocol.values import same_json
from ..model.state import EXECUTES, ModelRun

if TYPE_CHECKING:
    from .rules import Rules

_FLAGS = ("interactive", "streaming", "compacting")


class TransitionRules:
    """See the module's docstring. Part of `Rules`, whose other parts it uses."""

    def __init__(self, rules: Rules) -> None:
        self.model = rules.model
        self.order = rules.order
        self.recovery = rules.recovery
        self.observations = rules.observations
        self.executors = rules.executors
        self.flows = rules.flows
        self.time_limits = rules.time_limits
        self.retries = rules.retries
        self.delays = rules.delays
        self._report = rules.faults.append
        self._interrupts: set[str] = set()
        self._last_place = 0

    def take(self, event: RunEvent) -> None:
        """Read the next event of a run."""
        run = self.model.runs.get(event.run)
        if run is None:
            if isinstance(event, RunStateChanged) and event.from_ is None:
                self._created(event)
            else:
                self._fault(event, "no event has created this run")
            return
        if (event.handle, event.lane) != (run.handle, run.lane):
            self._fault(event, f"it belongs to {run}")
        if run.ended:
            self._fault(event, f"it belongs to {run}, which ended at seq {run.ended_in}")
        if isinstance(event, RunStateChanged):
            self._transition(event, run)
        elif isinstance(event, RunChanged):
            self._changed(event, run)
        elif isinstance(event, RunProgress | RunLog):
            if event.attempt != run.attempt or run.status not in (Status.SUSPENDED, *EXECUTES):
                self._fault(event, f"a body reports, but its run is in attempt {run.attempt}: {run}")
        elif isinstance(event, RunMessage):
            self._message(event, run)
        elif isinstance(event, RunSignal):
            run.messages[event.seq] = {"key": event.key, "value": event.value}
            self.flows.signal(event.run, event.seq, event.key, event.value)
        elif isinstance(event, NodeStarted | NodeRan):
            self.flows.take(event)
        elif isinstance(event, InterruptOpened):
            self._interrupt(event, run)
        elif isinstance(event, InterruptClosed):
            self._answer(event, run)

    def _created(self, event: RunStateChanged) -> None:
        run = self.model.runs[event.run] = self.model.pending[event.run] = ModelRun(event)
        run.terms = self.model.coming.get(event.run, run.terms)
        handle = self.model.handle(run.handle)
        if event.to is not Status.QUEUED or event.attempt != 0:
            self._fault(event, "a run must be created with status queued and attempt 0")
        if event.parent != run.parent:
            self._fault(event, f"{event.by} created it, but its parent is {event.parent}")
        if run.parent is not None:
            self.model.runs[run.parent].called = True
            if run.handle in self.model.handles_above(run):
                self._fault(event, "its handle is held by a run that waits for it (deadlock)")
        self.delays.created(event, run)
        if event.place is not None:
            if handle.waiting:
                self._fault(event, f"it overtakes runs that wait in the handle: {handle.waiting}")
            self._admit(event, run, event.place)
        elif not run.delayed:
            self._waits(run, front=event.front)

    def _waits(self, run: ModelRun, *, front: bool) -> None:
        handle = self.model.handle(run.handle)
        if front:
            handle.waiting.insert(0, run.id)
            for older in handle.replacing:
                self.model.runs[older].superseded = True
            handle.replacing.append(run.id)
        else:
            handle.waiting.append(run.id)

    def _admit(self, event: RunEvent, run: ModelRun, place: int) -> None:
        handle = self.model.handle(run.handle)
        if handle.holder is not None:
            self._fault(event, f"the handle is held by {self.model.runs[handle.holder]}")
        if run.superseded:
            self._fault(event, f"{run} was superseded by a newer replacement")
        handle.hold(event.seq, run.id)
        self._place(event, run, place)

    def _place(self, event: RunEvent, run: ModelRun, place: int) -> None:
        if place <= self._last_place:
            self._fault(event, f"a place must be higher than the last one (last: {self._last_place})")
        self._last_place = run.place = place
        run.placed_at = event.at

    def _transition(self, event: RunStateChanged, run: ModelRun) -> None:
        before, to = run.status, event.to
        self.flows.transition(event, run)
        self.time_limits.transition(event, run)
        self.retries.transition(event, run)
        if event.from_ != before:
            self._fault(event, f"the run was {before}")
        if before not in allowed_from(to) or rank(to) < rank(before):
            self._fault(event, f"the state machine allows no transition from {before} to {to}")
        if run.fate is not None and (to, event.reason) not in run.fate:
            self._fault(event, f"after a restart, {run} must change to one of {run.fate}")
        attempts: Collection[int] = run.next_attempts if to is Status.RUNNING else (run.attempt,)
        if event.attempt not in attempts:
            self._fault(
                event, f"the attempt was {run.attempt}, and the next must be one of {run.next_attempts}"
            )
        if event.place != run.place:
            self._fault(event, f"the place was {run.place}")
        if to is Status.CANCELLING and not run.flags["interactive"] and event.reason != "shutdown":
            self._fault(event, f"{run} is not interactive, so it cannot be cancelled")
        if to is Status.RUNNING:
            self._begins(event, run)
        elif run.is_in_queue or before is Status.SUSPENDED:
            self.order.left_queue(run)
        elif event.reason == "lease_lost":
            self.order.comes_back(run)
        if (to is Status.SUSPENDED and event.interactive is False) or (
            to in ENDED and not event.holds_handle
        ):
            self._loses_body(run, event.reason)
        run.status, run.attempt, run.reason, run.fate = to, event.attempt, event.reason, None
        run.place = event.place
        run.statuses.append((event.seq, to))
        run.error = event.error
        run.waits_for_slot = to is Status.SUSPENDED and event.waiting_for == "slot"
        if event.interactive is not None:
            run.has_body = event.interactive
            run.flags.update(interactive=event.interactive, streaming=False, compacting=False)
        if to is Status.SUSPENDED:
            run.next_attempts = (run.attempt + (self.recovery.costs_attempt(run, event.reason)),)
        if to is not Status.CANCELLING and to is not Status.RUNNING:
            run.holds_slot = False
        if to in ENDED:
            self._ended(event, run)

    def _loses_body(self, run: ModelRun, reason: str | None) -> None:
        self.executors.loses_body(run, reason)
        if run.executor is not None:
            run.executor, run.was_elsewhere = None, True

    def _begins(self, event: RunStateChanged, run: ModelRun) -> None:
        holder = self.model.handle(run.handle).holder
        if holder != run.id:
            self._fault(event, f"the handle is held by {holder}")
        if run.place is None:
            self._fault(event, "it has no place")
        self.delays.starts(event, run)
        if event.interactive:
            run.executor, run.fence = event.executor, event.seq
            self.executors.starts(event, run)
        if (why := self.order.begins(event, run)) is not None:
            self._fault(event, why)
        run.holds_slot = True
        self.executors.slot_taken(event, run)
        run.called = run.drew_place = run.restored = False
        run.next_attempts = (event.attempt,)

    def _ended(self, event: RunStateChanged, run: ModelRun) -> None:
        run.ended_in = event.seq
        self.model.pending.pop(run.id, None)
        handle = self.model.handle(run.handle)
        if run.interrupts:
            self._fault(event, f"interrupts are still open: {run.interrupts}")
        if self.observations.executes(run.id) and not event.holds_handle:
            self._fault(event, "its body still executes")
        if event.holds_handle and run.executor is None and self.observations.has_no_body(run.id):
            self._fault(event, "it has no body that could keep the handle")
        if handle.holder == run.id and not event.holds_handle:
            handle.hold(event.seq, None)
        for names in (handle.waiting, handle.replacing):
            if run.id in names:
                names.remove(run.id)

    def _changed(self, event: RunChanged, run: ModelRun) -> None:
        was_delayed = run.delayed
        self.delays.changed(event, run)
        if event.place is not None:
            self._draws_place(event, run, event.place, was_delayed=was_delayed)
        elif was_delayed and not run.delayed:
            self.model.pending[run.id] = self.model.pending.pop(run.id)  # it counts as submitted now
            self._waits(run, front=event.front)
        if event.priority is not None:
            if run.status is not Status.QUEUED:
                self._fault(event, f"the priority of {run} changes after its start")
            run.priority = event.priority
        if event.params is not UNSET:
            self._takes_params(event, run)
        if event.detached:
            # A run that is being cancelled may have waited without a slot until just now.
            if not run.holds_slot and run.status is not Status.CANCELLING:
                self._fault(event, f"{run} has no slot that it could lose")
            run.holds_slot = False
        changed = {name: value for name in _FLAGS if (value := getattr(event, name)) is not None}
        awaits = run.reason == "message" and run.status is Status.SUSPENDED
        has_body = run.executor is not None or self.observations.executes(run.id)
        if any(changed.values()) and not has_body and not awaits:
            self._fault(event, f"{run} has no body")
        run.flags.update(changed)
        run.has_body = run.has_body and len(changed) < len(_FLAGS)  # all flags change when the body ends
        if len(changed) == len(_FLAGS) and not changed["streaming"]:  # its body has ended
            self._loses_body(run, None)
        suspended = run.status is Status.SUSPENDED and not run.restored
        if suspended and changed == dict.fromkeys(_FLAGS, False) and not self.observations.executes(run.id):
            run.next_attempts = (run.attempt + self.recovery.costs_attempt(run, "lease_lost"),)

    def _takes_params(self, event: RunChanged, run: ModelRun) -> None:
        if run.status is not Status.QUEUED:
            self._fault(event, f"the parameters of {run} change, although it has begun")
        if run.parent is not None or run.walks:
            self._fault(event, f"{run} takes the parameters of another submission")
        run.take_params(event.seq, event.params)

    def _draws_place(self, event: RunChanged, run: ModelRun, place: int, *, was_delayed: bool) -> None:
        handle = self.model.handle(run.handle)
        if was_delayed and run.place is not None:  # it has reserved its handle
            self._place(event, run, place)
            return
        if was_delayed:
            if handle.waiting:
                self._fault(event, f"it overtakes runs that wait in the handle: {handle.waiting}")
            self._admit(event, run, place)
            return
        if run.status is Status.QUEUED:
            if handle.waiting[:1] != [run.id]:
                self._fault(event, f"it is not the first run that waits in the handle: {handle.waiting}")
            handle.waiting = [id for id in handle.waiting if id != run.id]
            handle.replacing = [id for id in handle.replacing if id != run.id]
            self._admit(event, run, place)
            return
        if run.status is not Status.SUSPENDED or run.drew_place or self.observations.executes(run.id):
            self._fault(event, f"only a retry draws a new place: {run}")
        self._place(event, run, place)
        run.drew_place = run.waits_for_slot = True
        run.next_attempts = (run.attempt + 1,)

    # Interrupts and messages.

    def _interrupt(self, event: InterruptOpened, run: ModelRun) -> None:
        if event.interrupt in self._interrupts:
            self._fault(event, "the interrupt was opened before")
        kept = run.answers.get(event.key)
        same = kept is not None and same_json(run.data[kept[0]], event.data)
        if same or event.key in run.interrupts.values():
            self._fault(event, f"{run} has opened an interrupt with this key before, and its answer is kept")
        run.answers.pop(event.key, None)
        run.data[event.interrupt] = event.data
        self._interrupts.add(event.interrupt)
        run.interrupt_ids.append(event.interrupt)
        run.interrupts[event.interrupt] = event.key

    def _answer(self, event: InterruptClosed, run: ModelRun) -> None:
        key = run.interrupts.pop(event.interrupt, None)
        if key is None:
            self._fault(event, "the interrupt is not open")
        elif event.outcome == "answered":
            run.answers[key] = (event.interrupt, event.answer)

    def _message(self, event: RunMessage, run: ModelRun) -> None:
        awaited = run.reason == "message" and not self.observations.executes(run.id)
        if not run.flags["interactive"] or run.flags["compacting"]:
            self._fault(event, f"{run} accepts no messages now: {run.flags}")
        if self.recovery.job(run).accepts == "streaming" and not (run.flags["streaming"] or awaited):
            self._fault(event, f"{run} accepts messages only while it streams")
        run.messages[event.seq] = event.message
        self.observations.message(run.id, event.message)

    def _fault(self, event: EventBase, why: str) -> None:
        self._report(f"{event}: {why}")
