"""The rules of DESIGN.md in plain Python: what an engine may commit, and what of it together.

`Rules` reads each batch at the moment it becomes durable, keeps its own small picture of runs, handles and
lanes (`told.py`), and writes down whatever breaks a rule as a fault. What belongs together stands in one
module each: here the state machine, handles, questions and messages; in `order.py` limits and the order of
places; in `restarts.py` what a restart must bring back and make of it; in `witness.py` what bodies, files and
clients show. Nothing here knows trio, or the engine's code. Where the outcome is a race, every outcome is
accepted that the rules allow, and no other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from ..persistence.store import (
    Batch,
    Checkpoint,
    FileFinished,
    FilesDoomed,
    MessagesTaken,
    Requested,
    RunWrite,
)
from ..protocol.events import (
    EngineChanged,
    Event,
    EventBase,
    HandleChanged,
    InterruptClosed,
    InterruptOpened,
    LaneChanged,
    RunChanged,
    RunEvent,
    RunLog,
    RunMessage,
    RunProgress,
    RunStateChanged,
)
from ..protocol.records import Snapshot
from ..protocol.states import ENDED, Status, allowed_from, rank
from .order import Order
from .restarts import Restarts
from .told import EXECUTES, Told, ToldRun
from .witness import Body, Witness

_FLAGS = ("interactive", "streaming", "compacting")


class Rules:
    """See the module's text. `faults` is empty as long as every rule holds."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.told = Told()
        self.order = Order(self.told, self.faults.append)
        self.restarts = Restarts(self.told, self.order, self.faults.append)
        self.witness = Witness(self.told, self.faults.append)
        self.cleared: dict[str, bool] = {}
        """Runs that someone has cleared, and whether only if they still wait in their handle."""
        self._interrupts: set[str] = set()
        self._last_place = 0
        self.is_left = False

    # The engine's lives.

    def opened(self, *args: Any, **options: Any) -> None:
        """An engine has opened the store; see `Restarts.opened`."""
        self.is_left = False
        self.witness.new_life()
        self.restarts.opened(*args, **options)

    def leaving(self) -> None:
        """The engine is being left: it need not start anything any more."""
        self.is_left = True

    def stopped(self) -> None:
        """The engine has ended in order."""
        self.restarts.stopped()
        self.witness.stopped()
        self.cleared.clear()

    def crashed(self) -> None:
        """The engine's process is gone, its bodies with it."""
        self.is_left = True
        self.witness.new_life()
        self.cleared.clear()

    def end_instant(self, now: float) -> None:
        """The clock (of trio) moves on: everything that was said has had its effect."""
        if not self.restarts.settled:
            self.restarts.settle()
        self.order.end_instant(self.witness.awake(now), leaving=self.is_left)
        if not self.is_left:
            self.witness.end_instant(lambda run: self.restarts.job(run).cancel == "cooperative")
        for name, handle in self.told.handles.items():
            if handle.holder is None and handle.waiting and not self.is_left:
                self._wrong(f"handle {name} is free, yet {handle.waiting} wait")
            if handle.holder is not None and handle.replacing and not self.is_left:
                self._judge_replaced(self.told.runs[handle.holder])
        for id, in_handle in self.cleared.items():
            run = self.told.runs[id]
            if run.status is Status.QUEUED and (run.place is None or not in_handle):
                self._wrong(f"{run} was cleared, and is still queued")
        self.cleared.clear()

    def _judge_replaced(self, run: ToldRun) -> None:
        post_processing = self.witness.executes(run.id) and not run.flags["interactive"]
        if not run.ended and run.status is not Status.CANCELLING and not post_processing:
            self._wrong(f"{run} was to be replaced, and is not being cancelled")

    # What bodies and clients see; see `Witness`.

    def body_begins(self, body: Body) -> None:
        """A body takes its first step."""
        self.witness.begins(body)

    def body_ends(self, run: str) -> None:
        """A body has taken its last step."""
        self.witness.ends(run)

    def shown(self, event: Event) -> None:
        """A client was shown an event."""
        self.witness.shown(event)

    def shown_snapshot(self, snapshot: Snapshot) -> None:
        """A client was shown a snapshot."""
        self.witness.shown_snapshot(snapshot)

    def files(
        self, parts: Iterable[tuple[str, str, str]], files: Mapping[tuple[str, str], str], *, at_rest: bool
    ) -> None:
        """What lies on the disk, just before an instant ends; `at_rest` after the engine has ended."""
        self.witness.files(parts, files, at_rest)

    # What is committed.

    def commit(self, batch: Batch) -> None:
        """A batch has become durable."""
        if batch.before != self.told.seq:
            self._wrong(f"a batch follows seq {batch.before}")
        for event in batch.events:
            self.take(event)
        for memo in batch.memos:
            self._remember(memo)
        for id, write in batch.runs.items():
            self._compare(self.told.runs[id], write)

    def take(self, event: Event) -> None:
        """Read the next event."""
        if event.seq != self.told.seq + 1:
            self._fault(event, f"the event before it was {self.told.seq}")
        self.told.events.append(event)
        if isinstance(event, RunEvent):
            self._run_event(event)
        elif isinstance(event, LaneChanged):
            self._lane_changed(event)
        elif isinstance(event, HandleChanged):
            self._handle_changed(event)
        elif isinstance(event, EngineChanged):
            self._engine_changed(event)
        self.order.note_room()

    def _remember(self, memo: Any) -> None:
        told = self.told
        if isinstance(memo, Checkpoint):
            told.checkpoints[memo.handle, memo.job] = (memo.run, memo.value)
        elif isinstance(memo, FileFinished):
            told.recorded.add((memo.run, memo.path))
        elif isinstance(memo, FilesDoomed):
            told.runs[memo.run].doomed = True
        elif isinstance(memo, MessagesTaken):
            for seq in memo.seqs:
                if told.runs[memo.run].messages.pop(seq, None) is None:
                    self._wrong(f"message {seq} of {told.runs[memo.run]} is taken, but none waits")
        elif isinstance(memo, Requested):
            told.requests[memo.request_id] = memo.run

    def _compare(self, run: ToldRun, write: RunWrite) -> None:
        record, terms = write.record, write.terms
        written = (record.status, record.reason, record.attempt, record.place, record.params)
        if written != (run.status, run.reason, run.attempt, run.place, run.params):
            self._wrong(f"{record} was written for {run}")
        if terms is not None and terms.request_id is not None:
            known = self.told.requests.setdefault(terms.request_id, run.id)
            if known != run.id and not self.told.runs[known].ended:
                self._wrong(f"{run} has the request id of run {known}, which is pending")
            self.told.requests[terms.request_id] = run.id

    # Runs.

    def _run_event(self, event: RunEvent) -> None:
        run = self.told.runs.get(event.run)
        if run is None:
            if isinstance(event, RunStateChanged) and event.from_ is None:
                self._created(event)
            else:
                self._fault(event, "no event has created this run")
            return
        if (event.handle, event.lane) != (run.handle, run.lane):
            self._fault(event, f"it is about {run}")
        if run.ended:
            self._fault(event, f"it is about {run}, which ended with {run.ended_in}")
        if isinstance(event, RunStateChanged):
            self._transition(event, run)
        elif isinstance(event, RunChanged):
            self._changed(event, run)
        elif isinstance(event, RunProgress | RunLog):
            if event.attempt != run.attempt or run.status not in (Status.SUSPENDED, *EXECUTES):
                self._fault(event, f"a body reports, in attempt {run.attempt} of {run}")
        elif isinstance(event, RunMessage):
            self._message(event, run)
        elif isinstance(event, InterruptOpened):
            self._question(event, run)
        elif isinstance(event, InterruptClosed):
            self._answer(event, run)

    def _created(self, event: RunStateChanged) -> None:
        run = self.told.runs[event.run] = self.told.pending[event.run] = ToldRun(event)
        handle = self.told.handle(run.handle)
        if event.to is not Status.QUEUED or event.attempt != 0:
            self._fault(event, "a run begins queued, before its first attempt")
        if run.parent is not None:
            self.told.runs[run.parent].called = True
            if run.handle in self.told.handles_above(run):
                self._fault(event, "its handle is held by a run that waits for it")
        if event.place is not None:
            if handle.waiting:
                self._fault(event, f"it overtakes {handle.waiting}, which wait in the handle")
            self._admit(event, run, event.place)
        elif event.front:
            handle.waiting.insert(0, run.id)
            for older in handle.replacing:
                self.told.runs[older].superseded = True
            handle.replacing.append(run.id)
        else:
            handle.waiting.append(run.id)

    def _admit(self, event: RunEvent, run: ToldRun, place: int) -> None:
        handle = self.told.handle(run.handle)
        if handle.holder is not None:
            self._fault(event, f"the handle is held by {self.told.runs[handle.holder]}")
        if run.superseded:
            self._fault(event, f"{run} was superseded by a newer replacement")
        handle.hold(event.seq, run.id)
        self._place(event, run, place)

    def _place(self, event: RunEvent, run: ToldRun, place: int) -> None:
        if place <= self._last_place:
            self._fault(event, f"places as high as {self._last_place} were drawn before")
        self._last_place = run.place = place

    def _transition(self, event: RunStateChanged, run: ToldRun) -> None:
        before, to = run.status, event.to
        if event.from_ != before:
            self._fault(event, f"the run was {before}")
        if before not in allowed_from(to) or rank(to) < rank(before):
            self._fault(event, f"the table allows no way from {before} to {to}")
        if run.fate is not None and (to, event.reason) not in run.fate:
            self._fault(event, f"a restart must make of {run} one of {run.fate}")
        attempts: Collection[int] = run.next_attempts if to is Status.RUNNING else (run.attempt,)
        if event.attempt not in attempts:
            self._fault(event, f"the attempt was {run.attempt}, and the next is {run.next_attempts}")
        if event.place != run.place and not (to in ENDED and (event.place or 0) > (run.place or 0)):
            self._fault(event, f"the place was {run.place}")  # an end may overtake the place just drawn
        if to is Status.CANCELLING and not run.flags["interactive"] and event.reason != "shutdown":
            self._fault(event, f"{run} takes no cancel now")
        if to is Status.RUNNING:
            self._begins(event, run)
        elif run.stands_in_queue:
            self.order.left_queue(run)
        run.status, run.attempt, run.reason, run.fate = to, event.attempt, event.reason, None
        run.place = event.place
        run.statuses.append((event.seq, to))
        run.waits_for_slot = to is Status.SUSPENDED and event.waiting_for == "slot"
        if event.interactive is not None:
            run.flags.update(interactive=event.interactive, streaming=False, compacting=False)
        if to is Status.SUSPENDED:
            run.next_attempts = (run.attempt + (self.restarts.costs_attempt(run, event.reason)),)
        if to is not Status.CANCELLING and to is not Status.RUNNING:
            run.holds_slot = False
        if to in ENDED:
            self._ended(event, run)

    def _begins(self, event: RunStateChanged, run: ToldRun) -> None:
        holder = self.told.handle(run.handle).holder
        if holder != run.id:
            self._fault(event, f"the handle is held by {holder}")
        if run.place is None:
            self._fault(event, "it has no place")
        if (why := self.order.begins(event, run)) is not None:
            self._fault(event, why)
        run.holds_slot = True
        run.called = run.drew_place = run.restored = False
        run.next_attempts = (event.attempt,)

    def _ended(self, event: RunStateChanged, run: ToldRun) -> None:
        run.ended_in = event.seq
        self.told.pending.pop(run.id, None)
        handle = self.told.handle(run.handle)
        if run.questions:
            self._fault(event, f"questions are left open: {run.questions}")
        if self.witness.executes(run.id) and not event.holds_handle:
            self._fault(event, "its body executes still")
        if event.holds_handle and self.witness.has_no_body(run.id):
            self._fault(event, "it has no body that could hold the handle")
        if handle.holder == run.id and not event.holds_handle:
            handle.hold(event.seq, None)
        for names in (handle.waiting, handle.replacing):
            if run.id in names:
                names.remove(run.id)

    def _changed(self, event: RunChanged, run: ToldRun) -> None:
        if event.place is not None:
            self._draws_place(event, run, event.place)
        if event.detached:
            if not run.holds_slot and run.status is not Status.CANCELLING:  # whose wait was just over
                self._fault(event, f"{run} holds no slot that it could lose")
            run.holds_slot = False
        changed = {name: value for name in _FLAGS if (value := getattr(event, name)) is not None}
        if any(changed.values()) and not self.witness.executes(run.id):
            self._fault(event, f"{run} has no body")
        run.flags.update(changed)

    def _draws_place(self, event: RunChanged, run: ToldRun, place: int) -> None:
        handle = self.told.handle(run.handle)
        if run.status is Status.QUEUED:
            if handle.waiting[:1] != [run.id]:
                self._fault(event, f"first in the handle is the first of {handle.waiting}")
            handle.waiting = [id for id in handle.waiting if id != run.id]
            handle.replacing = [id for id in handle.replacing if id != run.id]
            self._admit(event, run, place)
            return
        if run.status is not Status.SUSPENDED or run.drew_place or self.witness.executes(run.id):
            self._fault(event, f"{run} is no retry that needs a place")
        self._place(event, run, place)
        run.drew_place = run.waits_for_slot = True
        run.next_attempts = (run.attempt + 1,)

    # Questions and messages.

    def _question(self, event: InterruptOpened, run: ToldRun) -> None:
        if event.interrupt in self._interrupts:
            self._fault(event, "the question was asked before")
        if event.key in run.answers or event.key in run.questions.values():
            self._fault(event, f"{run} has asked under this key, and the answer is kept")
        self._interrupts.add(event.interrupt)
        run.asked.append(event.interrupt)
        run.questions[event.interrupt] = event.key

    def _answer(self, event: InterruptClosed, run: ToldRun) -> None:
        key = run.questions.pop(event.interrupt, None)
        if key is None:
            self._fault(event, "the question is not open")
        elif event.outcome == "answered":
            run.answers[key] = event.answer

    def _message(self, event: RunMessage, run: ToldRun) -> None:
        if not run.flags["interactive"] or run.flags["compacting"]:
            self._fault(event, f"{run} takes no messages now: {run.flags}")
        if self.restarts.job(run).accepts == "streaming" and not run.flags["streaming"]:
            self._fault(event, f"{run} takes messages only while it streams")
        run.messages[event.seq] = event.message
        self.witness.message(run.id, event.message)

    # Lanes, handles, the engine.

    def _lane_changed(self, event: LaneChanged) -> None:
        lane = self.told.lane(event.lane)
        if event.generation not in (lane.generation, lane.generation + 1):
            self._fault(event, f"the generation was {lane.generation}")
        self.order.lane_changed(event, lane.generation)
        lane.limit, lane.generation = event.limit, event.generation
        if event.by != "engine":
            self.restarts.overruled(event.lane)

    def _handle_changed(self, event: HandleChanged) -> None:
        handle = self.told.handle(event.handle)
        if event.params is not msgspec.UNSET:
            if handle.holder is not None:
                self._fault(event, f"the handle is locked by {self.told.runs[handle.holder]}")
            handle.draft = event.params
        if event.freed is not None:
            if handle.holder != event.freed or not self.told.runs[event.freed].ended:
                self._fault(event, f"the handle is held by {handle.holder}")
            if event.by == "engine" and self.witness.executes(event.freed):
                self._fault(event, "the body executes still")
            self.witness.released(event.freed)
            handle.hold(event.seq, None)

    def _engine_changed(self, event: EngineChanged) -> None:
        self.order.engine_changed(event.max_concurrent, event.draining)
        self.told.max_concurrent = event.max_concurrent
        if event.by != "engine":
            self.restarts.overruled(None)
        if event.draining != self.told.draining[-1][1]:
            self.told.draining.append((event.seq, event.draining))

    def _fault(self, event: EventBase, why: str) -> None:
        self.faults.append(f"{event}: {why}")

    def _wrong(self, what: str) -> None:
        self.faults.append(f"after {self.told.seq}, {what}")
