"""Admission: each submission is refused, joins a run, waits in its handle, or is admitted.

A part of the supervisor's machine. It keeps the submissions of all pending runs, enforces `max_pending`, asks
the handles (`handles.py`) for the result of a conflict, draws the places, and keeps the request ids. The
journal creates the runs in the order of their submission. An admitted run enters its lane immediately;
whether it starts is decided at the end of the turn, and its creation and start are then one change. A delayed
run meets its handle at its time or, if it reserves its handle, at once; it enters its lane at its time.

A submission is first decided (`decide`) and then carried out. Until then the decision can be taken back
(`undo`), which batches need (`batches.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NoReturn

import msgspec
from msgspec.structs import replace

from ...persistence.store import Memo, Requested, Stored, StoredRun, WakesAt
from ...protocol.errors import Conflict, Draining, GreenroomError, Internal, QueueFull
from ...protocol.events import RunChanged
from ...protocol.fold import Projection
from ...protocol.records import UNTIL_HANDLE_FREE, UNTIL_TIME
from ...protocol.states import Status
from ...protocol.submission import OnConflict
from ...protocol.values import same_json
from ..actor import Kind
from ..channel import Reply
from ..effects import Effects
from ..journal.change import Change
from ..journal.messages import AnswerMany, Look, WatchEnd, unavailable
from ..messages import Accepted, Coalesced, FindRequest, Phase, Submission, Submit
from .creation import Creation, cancels_of
from .delays import Delays
from .handles import Admit, Coalesce, Decision, Handles, Join, Refuse, Wait
from .order import Order
from .request_ids import RequestIds, in_use, other_use
from .stored_bodies import held_elsewhere

_STORED = frozenset(Status)
_QUEUED = frozenset({Status.QUEUED})


class Repeat(msgspec.Struct, frozen=True):
    """The request id was used before: the submission joins that run. If it was used for another submission,
    the journal calls `refuse` for the error."""

    run: str
    refuse: Callable[[Projection], Conflict] | None


class Delay(msgspec.Struct, frozen=True):
    """The run meets its handle at its time."""


DELAY = Delay()


class Admission:
    """See the module's docstring.

    `holding` returns whether only children of executing runs are accepted. `enter` queues a run in its lane.
    `waits` is called with each new run that does not start immediately, `params_changed` with each waiting
    run that got other parameters, and `now` returns the time of this turn. `recall` returns the submission
    of a stored run: some delayed runs of an earlier engine are in `delays`, but not in `pending` until `find`
    has returned them.
    """

    def __init__(
        self,
        max_pending: int,
        effects: Effects,
        handles: Handles,
        delays: Delays,
        order: Order,
        *,
        holding: Callable[[], bool],
        enter: Callable[[Submission], None],
        waits: Callable[[Submission], None],
        params_changed: Callable[[Submission], None],
        now: Callable[[], float],
        recall: Callable[[StoredRun], Submission],
    ) -> None:
        self.pending: dict[str, Submission] = {}
        self.store_is_down = False
        # What this turn sends to the journal, in order.
        self._placed: list[Creation | Change | AnswerMany] = []
        self._last: dict[str, int] = {}  # run: the index of its last entry in `_placed`
        self._committed = 0  # how many entries of `_placed` are sent to the journal
        self._max_pending = max_pending
        self._effects = effects
        self._handles = handles
        self._delays = delays
        self._recall = recall
        self._holding = holding
        self._enter = enter
        self._waits = waits
        self._params_changed = params_changed
        self._order = order
        self._now = now
        self._requests = RequestIds(lambda run: run in self.pending)
        self._debounced: dict[str, dict[str, None]] = {}  # handle: its delayed runs that coalesce
        self._coalescing: dict[str, list[Submit]] = {}  # uncommitted request ids, with their repeats
        self._last_place = 0
        self._children_held: list[Submit] = []  # submitted by bodies while the store is down

    def restore(
        self,
        stored: Stored,
        submissions: list[Submission],
        now: float,
        wall_now: float,
    ) -> list[str]:
        """Restore the runs that were pending when the engine ended, in the order of their submission. Those
        without a submission are delayed.

        Returns the replaced runs that still have to be cancelled.
        """
        self._last_place = stored.last_place
        self._handles.drafts.update(stored.drafts)
        for handle, run in held_elsewhere(stored).items():
            self._handles.restore_remains(handle, run.id)
        for request in stored.requests:
            self._requests.restore(request, now, wall_now)
        admitted: dict[str, Submission] = {}
        waiting: dict[str, list[Submission]] = {}
        replacing: dict[str, Submission] = {}
        for submission in submissions:
            self.pending[submission.id] = submission
            if submission.terms.front:
                replacing[submission.handle] = submission
            if submission.place is not None:
                if submission.phase is not Phase.DELAYED:
                    submission.phase = Phase.QUEUED
                admitted[submission.handle] = submission
            elif submission.phase is Phase.WAITING:
                queue = waiting.setdefault(submission.handle, [])
                queue.insert(0 if submission.terms.front else len(queue), submission)
        replaced: list[str] = []
        for name in dict.fromkeys((*admitted, *waiting)):
            replaced += self._handles.restore(
                name, admitted.get(name), waiting.get(name, []), replacing.get(name)
            )
        self._delays.restore(self._delayed(stored), now)
        return replaced

    def _delayed(self, stored: Stored) -> Iterator[tuple[str, float, StoredRun | None]]:
        for one in stored.pending:
            record, known = one.record, self.pending.get(one.record.id)
            at = record.not_before if known is None else known.not_before
            if at is not None:
                if one.terms.coalesces:
                    self._debounced.setdefault(record.handle, {})[record.id] = None
                yield record.id, at, one if known is None else None

    def find(self, run: str) -> Submission | None:
        """The submission of a pending run."""
        submission = self.pending.get(run)
        if submission is None and self._delays.without_submission:
            stored = self._delays.take_stored(run)
            if stored is not None:
                submission = self.pending[run] = self._recall(stored)
        return submission

    def find_all(self, *, lane: str | None = None, handle: str | None = None) -> Iterable[Submission]:
        """The submissions of all pending runs, at least of those in a lane or of a handle."""
        records = [stored.record for stored in self._delays.all_stored()]
        for record in records:
            if lane == record.lane or handle == record.handle:
                self.find(record.id)
        return self.pending.values()

    def __len__(self) -> int:
        return len(self.pending) + self._delays.without_submission

    # Submissions.

    def submit(self, message: Submit, now: float) -> None:
        """Handle a submission."""
        submission, reply = message.submission, message.reply
        if submission.terms.request_id is not None:
            if submission.terms.request_id in self._coalescing:
                self._coalescing[submission.terms.request_id].append(message)  # the commit decides its run
                return
            repeat = self.repeat(submission, now)
            if repeat is not None:
                self._answer_repeat(submission, repeat, reply)
                return
        if self.store_is_down and submission.terms.ancestors:
            self._children_held.append(message)  # its parent's body waits until the store is back
            return
        if self.store_is_down:
            reply.fail(unavailable())  # not by way of the journal, which waits for the store
            return
        decision = self.decide(submission, message.on_conflict)
        match decision:
            case Admit() | Wait() | Delay():
                self.create(submission, decision, reply)
            case Join(admitted):
                self._effects.answer(reply, self.join_admitted(submission, admitted), about=admitted)
            case Coalesce(waiting):
                self._coalesce(message, waiting)
            case Refuse(error, about):
                self._effects.answer(reply, error=error, about=about)

    def repeat(self, submission: Submission, now: float) -> Repeat | None:
        """The earlier use of the submission's request id, if there is one."""
        request_id = submission.terms.request_id
        if request_id in self._coalescing:  # in a batch, which cannot wait for another submission
            return Repeat("", partial(in_use, request_id))
        request = None if request_id is None else self._requests.find(request_id, now)
        if request_id is None or request is None:
            return None
        if request.fingerprint == submission.terms.fingerprint:
            return Repeat(request.run, None)
        return Repeat(request.run, partial(other_use, request_id, request.run))

    def decide(
        self, submission: Submission, on_conflict: OnConflict, *, in_batch: bool = False
    ) -> Decision | Delay:
        """Decide about a submission whose request id is new. Nothing is sent and no place is drawn."""
        refusal = self._refusal(submission) or self._take_draft(submission)
        if refusal is not None:
            return Refuse(refusal, None)
        if submission.priority is None:
            rules = self._order.rules.get(submission.lane)
            submission.priority = 0 if rules is None else rules.priority
        decision: Decision | Delay | None = None
        if submission.not_before is not None:
            decision = self._delay(submission)
        if decision is None:
            decision = self._handles.decide(submission, on_conflict, in_batch=in_batch)
        match decision:
            case Admit() | Wait() | Delay():
                run = submission.id
                self.pending[run] = submission
            case Join(admitted):
                run = admitted.id
            case Coalesce() | Refuse():
                return decision
        if submission.terms.request_id is not None:
            self._requests.add(submission.terms.request_id, run, submission.terms.fingerprint)
        return decision

    def _coalesce(self, message: Submit, waiting: Submission) -> None:
        """Give a run that has not begun the parameters of a submission, which joins it.

        The supervisor decides here, so its start of the run can only follow. The run can still end at the
        same time, at a deadline: then the change is refused, and the submission is decided again.
        """
        submission, run = message.submission, waiting.id
        created = self._last.get(run, -1) + 1
        if created > self._committed:  # created in this turn, with the parameters that it has now
            self._commit_up_to(created)
            self._committed = created
        events: tuple[RunChanged, ...] = ()
        if not same_json(waiting.params, submission.params):
            waiting.params = submission.params
            self._params_changed(waiting)
            events = (RunChanged(by=submission.by, params=submission.params, **waiting.about()),)
        memos: tuple[Requested, ...] = ()
        notify: tuple[tuple[Kind, str, object], ...] = ()
        request_id = submission.terms.request_id
        if request_id is not None:
            self._coalescing[request_id] = []
            memos = (Requested(request_id, run, submission.terms.fingerprint),)
            notify = (("supervisor", "", Coalesced(message, run, held=True)),)
        if waiting.shared is None:  # not the submission's own reply, which it needs if it is decided again
            waiting.shared = Reply()
            self._effects.tell("journal", "", WatchEnd(run, waiting.shared))
        change = Change(
            events,
            run=run,
            expect=_QUEUED,
            memos=memos,
            notify=notify,
            notify_on_refusal=(("supervisor", "", Coalesced(message, run, held=False)),),
            reply=message.reply,
            answer=Accepted(run, True, waiting.shared),
        )
        self._place(run, change)

    def coalesced(self, message: Coalesced, now: float) -> None:
        """A submission has joined a waiting run; or that has ended, and the submission is decided again."""
        terms = message.submit.submission.terms
        repeats: list[Submit] = []
        if terms.request_id is not None:
            repeats = self._coalescing.pop(terms.request_id)
            if message.held:
                self._requests.add(terms.request_id, message.run, terms.fingerprint)
        for submit in repeats if message.held else (message.submit, *repeats):
            self.submit(submit, now)

    def _delay(self, submission: Submission) -> Delay | Coalesce | None:
        """A delayed run meets its handle later, unless it coalesces with an earlier one or one that waits, or
        reserves its handle."""
        if submission.reserves:
            return None
        if submission.terms.coalesces:
            for run in reversed(self._debounced.get(submission.handle, {})):
                earlier = self.find(run)
                if earlier is not None and self._handles.takes(earlier, submission):
                    return Coalesce(earlier)
            waiting = self._handles.last_equal(submission)
            if waiting is not None:
                return Coalesce(waiting)
        return DELAY

    def undo(self, submission: Submission, decision: Decision | Delay) -> None:
        """Take back the last decision that is neither carried out nor taken back."""
        if isinstance(decision, Refuse):
            return
        if submission.terms.request_id is not None:
            self._requests.take_back(submission.terms.request_id)
        if not isinstance(decision, Join):
            del self.pending[submission.id]
            self._handles.ended(submission, body_remains=False)

    def create(
        self, submission: Submission, decision: Admit | Wait | Delay, reply: Reply[Accepted] | None
    ) -> None:
        """Create a run at the end of the turn. `reply` is answered when that is committed."""
        delayed = submission.not_before is not None
        match decision:
            case Delay():
                submission.phase = Phase.DELAYED
                new = Creation(submission, None, reply, delayed=True)
            case Admit():
                self._admit(submission)
                new = Creation(submission, submission.place, reply, delayed=delayed)
            case Wait(replaces):
                if replaces is not None:
                    submission.terms = replace(submission.terms, front=True)
                new = Creation(submission, None, reply, replaces or ())
        self._place(submission.id, new)
        if isinstance(decision, Delay) and submission.terms.coalesces:
            self._debounced.setdefault(submission.handle, {})[submission.id] = None
        if submission.not_before is not None:
            submission.delay = self._delays.add(submission.id, submission.not_before, self._now())

    def join_admitted(self, submission: Submission, admitted: Submission) -> Accepted:
        """Join the admitted run of the handle, and record the request id."""
        request_id = submission.terms.request_id
        if request_id is not None:
            memo = Requested(request_id, admitted.id, submission.terms.fingerprint)
            self._placed.append(Change((), run=admitted.id, expect=_STORED, memos=(memo,)))
        return self.join(submission, admitted.id)

    def join(self, submission: Submission, run: str) -> Accepted:
        """Join a run, which can have ended. Returns the answer, to be sent after the commits before it."""
        ended, pending = submission.ended, self.find(run)
        if pending is None or submission.terms.parent is not None:  # a body can fail its own reply
            self._effects.tell("journal", "", WatchEnd(run, ended))
        elif pending.shared is not None:
            ended = pending.shared
        else:
            pending.shared = ended
            self._effects.tell("journal", "", WatchEnd(run, ended))
        return Accepted(run, True, ended)

    def answer(self, answer: AnswerMany) -> None:
        """Answer a batch after its changes, so that the journal knows whether it has refused them."""
        self._placed.append(answer)

    def _answer_repeat(self, submission: Submission, repeat: Repeat, reply: Reply[Accepted]) -> None:
        if repeat.refuse is None:
            accepted = self.join(submission, repeat.run)
            self._effects.answer(reply, accepted, about=self.pending.get(repeat.run))
        else:
            self._effects.tell("journal", "", Look(partial(_raise, repeat.refuse), reply))

    def find_request(self, message: FindRequest, now: float) -> None:
        """Answer which run a request id has created."""
        request = self._requests.find(message.request_id, now)
        found = None
        if request is not None:
            pending = self.pending.get(request.run)
            parent = None if pending is None else pending.terms.parent
            found = (request.run, request.fingerprint, parent)
        self._effects.answer(message.reply, found)

    def _refusal(self, submission: Submission) -> GreenroomError | None:
        # The child of an executing run is accepted: without the child, that run could not finish.
        if self._holding() and not submission.terms.ancestors:
            return Draining("engine is draining and accepts no new runs: retry after it resumes")
        if submission.id in self.pending or submission.id in self._delays.runs:
            return Internal(f"run id {submission.id} already exists: the source of run ids is not unique")
        pending = len(self.pending) + self._delays.without_submission
        if pending >= self._max_pending:
            return QueueFull(
                f"{pending} runs are pending, which is the limit (max_pending): retry later",
                max_pending=self._max_pending,
            )
        return None

    def _take_draft(self, submission: Submission) -> GreenroomError | None:
        """Use the handle's draft if the submission has no parameters; others are already checked."""
        job = submission.job
        if submission.params is not None or job.params_type is None:
            return None
        draft = self._handles.drafts.get(submission.handle)
        params = {} if draft is None else draft
        try:
            job.check(params)
        except GreenroomError as error:
            return error
        submission.params = params
        return None

    def _admit(self, submission: Submission) -> None:
        self._draw_place(submission)
        if submission.not_before is not None:  # it only reserves its handle
            submission.phase = Phase.DELAYED
        else:
            submission.phase = Phase.QUEUED
            self._enter(submission)

    def commit_start(self, start: Change) -> None:
        """Send a start to the journal, after all earlier entries of this turn. A new run is created by the
        same change."""
        assert start.run is not None, "a run starts"
        own = self._last.get(start.run, -1)
        if own < self._committed:
            self._effects.commit(start)
            return
        self._commit_up_to(own)
        self._committed = own + 1
        placed = self._placed[own]
        if isinstance(placed, Creation) and placed.place is not None:
            self._effects.commit(placed.change(start))
        else:
            self._commit(placed)
            self._effects.commit(start)

    def end_turn(self) -> None:
        """Send the journal the entries of this turn that were not sent with a start."""
        if self._placed:
            self._commit_up_to(len(self._placed))
            self._placed.clear()
            self._last.clear()
            self._committed = 0

    def _commit_up_to(self, end: int) -> None:
        for placed in self._placed[self._committed : end]:
            self._commit(placed)

    def _commit(self, placed: Creation | Change | AnswerMany) -> None:
        if isinstance(placed, Creation):
            self._effects.commit(placed.change(None))
            self._waits(placed.submission)
        else:
            self._effects.tell("journal", "", placed)

    def _place(self, run: str, placed: Creation | Change) -> None:
        self._last[run] = len(self._placed)
        self._placed.append(placed)

    # Later.

    def admit_next(self, handle: str) -> None:
        """If a handle is free, admit the first run that waits there."""
        submission = self._handles.admit_next(handle)
        if submission is None or submission.over or submission.cleared:
            return  # it was cancelled when it was next; the one after it follows at its end
        self._admit(submission)
        self._get_place(submission, Status.QUEUED)

    def end_delay(self, submission: Submission) -> None:
        """A delayed run is due: it enters its lane, unless it has to wait in its handle."""
        if submission.phase is not Phase.DELAYED:
            self._stay_due(submission)
            return
        self._not_debounced(submission)
        if submission.place is None:
            decision = self._handles.decide(submission, "replace" if submission.terms.replaces else "queue")
            if isinstance(decision, Wait):
                self._wait_in_handle(submission, decision.replaces)
                return
        self._admit(submission)
        self._get_place(submission, Status.QUEUED)

    def _wait_in_handle(self, submission: Submission, replaces: tuple[str, ...] | None) -> None:
        submission.phase = Phase.WAITING
        front = replaces is not None
        memos: tuple[Memo, ...] = ()
        if front:
            submission.terms = replace(submission.terms, front=True)
            memos = (WakesAt(submission.id, None, submission.terms),)
        waits = RunChanged(by="engine", waiting_for=UNTIL_HANDLE_FREE, front=front, **submission.about())
        self._place(
            submission.id,
            Change(
                (waits,),
                run=submission.id,
                expect=_QUEUED,
                memos=memos,
                notify=cancels_of(replaces or (), submission.by),
            ),
        )

    def _stay_due(self, submission: Submission) -> None:
        """A run that has reserved its handle, and waits there, is due: it remains so after a restart, also if
        the clock is set back."""
        submission.terms = replace(submission.terms, was_due=True)
        memo = WakesAt(submission.id, None, submission.terms)
        self._place(submission.id, Change((), run=submission.id, expect=_QUEUED, memos=(memo,)))

    def draw_place_again(self, submission: Submission) -> None:
        """Draw a new place for a retry."""
        self._draw_place(submission)
        self._get_place(submission, Status.SUSPENDED)

    def _get_place(self, submission: Submission, status: Status) -> None:
        waiting_for = UNTIL_TIME if submission.phase is Phase.DELAYED else None
        placed = RunChanged(
            by="engine", place=submission.place, waiting_for=waiting_for, **submission.about()
        )
        self._place(submission.id, Change((placed,), run=submission.id, expect=frozenset({status})))

    def ended(self, run: str, now: float) -> Submission | None:
        """The run has ended: forget it."""
        self._requests.ended(run, now)
        if run in self._delays.runs:
            self._delays.drop(run)
        submission = self.pending.pop(run, None)
        if submission is not None and submission.terms.coalesces:
            self._not_debounced(submission)
        return submission

    def _not_debounced(self, submission: Submission) -> None:
        if submission.terms.coalesces and submission.handle in self._debounced:
            runs = self._debounced[submission.handle]
            runs.pop(submission.id, None)
            if not runs:
                del self._debounced[submission.handle]

    def not_stored(self, submission: Submission) -> None:
        """The run could not be stored: forget it and its request ids."""
        self.pending.pop(submission.id, None)
        self._not_debounced(submission)
        self._delays.drop(submission.id)
        self._requests.forget(submission.id)

    def set_store_down(self, now: float, *, down: bool) -> None:
        """The store went down, or is back."""
        self.store_is_down = down
        if not down:
            held, self._children_held = self._children_held, []
            for child in held:
                self.submit(child, now)

    def _draw_place(self, submission: Submission) -> None:
        self._last_place += 1
        submission.place, submission.placed_at = self._last_place, self._now()


def _raise(refuse: Callable[[Projection], Conflict], committed: Projection) -> NoReturn:
    raise refuse(committed)
