"""Admission: each submission is refused, joins a run, waits in its handle, or is admitted.

A part of the supervisor's machine. It keeps the submissions of all pending runs, enforces `max_pending`, asks
the handles (`handles.py`) for the result of a conflict, draws the places, and keeps the request ids. The
journal creates the runs in the order of their submission. An admitted run enters its lane immediately;
whether it starts is decided at the end of the turn, and its creation and start are then one change.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NoReturn

import msgspec
from msgspec.structs import replace

from ...persistence.store import Requested, Stored
from ...protocol.errors import Conflict, Draining, GreenroomError, Internal, QueueFull
from ...protocol.events import Event, RunChanged, RunStateChanged
from ...protocol.fold import Projection
from ...protocol.states import Status
from ...protocol.values import shown
from ..actor import Kind
from ..channel import Reply
from ..effects import Effects
from ..journal.change import Change
from ..journal.messages import Look, WatchEnd, unavailable
from ..messages import Accepted, FindRequest, Phase, Submission, Submit, cancel_replaced
from .handles import Admit, Handles, Join, Refuse, Wait
from .request_ids import RequestIds
from .stored_bodies import held_elsewhere

_STORED = frozenset(Status)


class Admission:
    """See the module's docstring.

    `holding` returns whether only children of executing runs are accepted. `enter` queues a run in its lane.
    `waits` is called with each new run that does not start immediately.
    """

    def __init__(
        self,
        max_pending: int,
        effects: Effects,
        handles: Handles,
        *,
        holding: Callable[[], bool],
        enter: Callable[[Submission], None],
        waits: Callable[[Submission], None],
    ) -> None:
        self.pending: dict[str, Submission] = {}
        self.store_is_down = False
        self._placed: list[_New | Change] = []  # the new runs and new places of this turn, in order
        self._last: dict[str, int] = {}  # run: the index of its last entry in `_placed`
        self._committed = 0  # how many entries of `_placed` are sent to the journal
        self._max_pending = max_pending
        self._effects = effects
        self._handles = handles
        self._holding = holding
        self._enter = enter
        self._waits = waits
        self._requests = RequestIds(lambda run: run in self.pending)
        self._last_place = 0
        self._children_held: list[Submit] = []  # submitted by bodies while the store is down

    def restore(
        self, stored: Stored, submissions: list[Submission], now: float, wall_now: float
    ) -> list[str]:
        """Restore the runs that were pending when the engine ended, in the order of their submission.

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
                submission.phase = Phase.QUEUED
                admitted[submission.handle] = submission
            else:
                queue = waiting.setdefault(submission.handle, [])
                queue.insert(0 if submission.terms.front else len(queue), submission)
        replaced: list[str] = []
        for name in dict.fromkeys((*admitted, *waiting)):
            replaced += self._handles.restore(
                name, admitted.get(name), waiting.get(name, []), replacing.get(name)
            )
        return replaced

    # Submissions.

    def submit(self, message: Submit, now: float) -> None:
        """Handle a submission."""
        submission = message.submission
        request_id = submission.terms.request_id
        if request_id is not None and self._is_repeat(request_id, message, now):
            return
        if self.store_is_down and submission.terms.ancestors:
            self._children_held.append(message)  # its parent's body waits until the store is back
            return
        if self.store_is_down:
            message.reply.fail(unavailable())  # not by way of the journal, which waits for the store
            return
        refusal = self._refusal(submission) or self._take_draft(submission)
        if refusal is not None:
            self._effects.answer(message.reply, error=refusal)
            return
        decision = self._handles.decide(submission, message.on_conflict)
        match decision:
            case Admit():
                self.pending[submission.id] = submission
                self._admit(submission)
                self._place(submission.id, _New(submission, submission.place, message.reply))
            case Wait(replaces):
                self.pending[submission.id] = submission
                if replaces is not None:
                    submission.terms = replace(submission.terms, front=True)
                self._place(submission.id, _New(submission, None, message.reply, replaces or ()))
            case Join(admitted):
                self._join(submission, message.reply, admitted.id, admitted)
            case Refuse(error, about):
                self._effects.answer(message.reply, error=error, about=about)
                return
        if request_id is not None:
            run = decision.admitted.id if isinstance(decision, Join) else submission.id
            self._requests.add(request_id, run, submission.terms.fingerprint)
            if isinstance(decision, Join):
                memo = Requested(request_id, run, submission.terms.fingerprint)
                self._placed.append(Change((), run=run, expect=_STORED, memos=(memo,)))

    def _is_repeat(self, request_id: str, message: Submit, now: float) -> bool:
        request = self._requests.find(request_id, now)
        if request is None:
            return False
        if request.fingerprint != message.submission.terms.fingerprint:
            refuse = partial(_refuse_other_use, request_id, request.run)
            self._effects.tell("journal", "", Look(refuse, message.reply))
        else:
            self._join(message.submission, message.reply, request.run, self.pending.get(request.run))
        return True

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
        if submission.id in self.pending:
            return Internal(f"run id {submission.id} already exists: the source of run ids is not unique")
        if len(self.pending) >= self._max_pending:
            return QueueFull(
                f"{len(self.pending)} runs are pending, which is the limit (max_pending): retry later",
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
        submission.place = self._draw_place()
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
        if isinstance(placed, _New) and placed.place is not None:
            self._effects.commit(placed.creation(start))
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

    def _commit(self, placed: _New | Change) -> None:
        if isinstance(placed, Change):
            self._effects.commit(placed)
        else:
            self._effects.commit(placed.creation(None))
            self._waits(placed.submission)

    def _place(self, run: str, placed: _New | Change) -> None:
        self._last[run] = len(self._placed)
        self._placed.append(placed)

    def _join(
        self, submission: Submission, reply: Reply[Accepted], run: str, pending: Submission | None
    ) -> None:
        ended = submission.ended
        if pending is None or submission.terms.parent is not None:  # a body can fail its own reply
            self._effects.tell("journal", "", WatchEnd(run, ended))
        elif pending.shared is not None:
            ended = pending.shared
        else:
            pending.shared = ended
            self._effects.tell("journal", "", WatchEnd(run, ended))
        self._effects.answer(reply, Accepted(run, True, ended), about=pending)

    # Later.

    def admit_next(self, handle: str) -> None:
        """If a handle is free, admit the first run that waits there."""
        submission = self._handles.admit_next(handle)
        if submission is None or submission.over or submission.cleared:
            return  # it was cancelled when it was next; the one after it follows at its end
        self._admit(submission)
        self._get_place(submission, Status.QUEUED)

    def draw_place_again(self, submission: Submission) -> None:
        """Draw a new place for a retry."""
        submission.place = self._draw_place()
        self._get_place(submission, Status.SUSPENDED)

    def _get_place(self, submission: Submission, status: Status) -> None:
        placed = RunChanged(by="engine", place=submission.place, **submission.about())
        self._place(submission.id, Change((placed,), run=submission.id, expect=frozenset({status})))

    def ended(self, run: str, now: float) -> Submission | None:
        """The run has ended: forget it."""
        self._requests.ended(run, now)
        return self.pending.pop(run, None)

    def not_stored(self, submission: Submission) -> None:
        """The run could not be stored: forget it and its request ids."""
        self.pending.pop(submission.id, None)
        self._requests.forget(submission.id)

    def set_store_down(self, now: float, *, down: bool) -> None:
        """The store went down, or is back."""
        self.store_is_down = down
        if not down:
            held, self._children_held = self._children_held, []
            for child in held:
                self.submit(child, now)

    def _draw_place(self) -> int:
        self._last_place += 1
        return self._last_place


class _New(msgspec.Struct, frozen=True, gc=False):
    """A run to create at the end of the turn: its place, unless it waits in its handle, and the runs that it
    replaces. It lives for one turn, so the garbage collector need not track it."""

    submission: Submission
    place: int | None
    reply: Reply[Accepted]
    replaces: tuple[str, ...] = ()

    def creation(self, start: Change | None) -> Change:
        """The change that creates the run and, with a slot, starts it."""
        submission = self.submission
        created = RunStateChanged(
            seq=0,
            at=0,
            by=submission.by,
            run=submission.id,
            handle=submission.handle,
            lane=submission.lane,
            from_=None,
            to=Status.QUEUED,
            attempt=0,
            reason=None,
            place=self.place,
            job=submission.job.name,
            kind=submission.kind,
            params=submission.params,
            needs=submission.needs,
        )
        if submission.terms.front:  # rare: Python builds a dict for a call with more than 15 keywords
            created = replace(created, front=True)
        if submission.uncommon:
            created = replace(created, **submission.uncommon)
        cancels: tuple[tuple[Kind, str, object], ...] = tuple(
            ("supervisor", "", cancel_replaced(run, submission.by)) for run in self.replaces
        )
        events: tuple[Event, ...] = (created,) if start is None else (created, *start.events)
        if submission.events:
            events = (created, *submission.events, *events[1:])
        return Change(
            events,
            run=submission.id,
            generation=None if start is None else start.generation,
            memos=submission.memos,
            notify=cancels if start is None else (*cancels, *start.notify),
            terms=submission.terms,
            watch=submission.ended,
            submission=submission,
            creates=True,
            reply=self.reply,
            answer=Accepted(submission.id, False),
        )


def _refuse_other_use(request_id: str, id: str, committed: Projection) -> NoReturn:
    run = committed.runs.get(id)
    details = {} if run is None else {"run": run}
    raise Conflict(
        f"request_id {shown(request_id)} was already used for another submission: use a new one", **details
    )
