"""How runs come in: each submission is refused, joined, left to wait in its handle, or admitted.

A part of the supervisor's machine. It knows each pending run by its submission, refuses what is too much,
asks the handles (`handles.py`) what a conflict leads to, draws the places, keeps the request ids, and has the
journal create them, in the order of their submission. An admitted run enters its lane at once; whether it
starts is decided at the end of the turn, and creation and start are then one change.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NoReturn

import msgspec
from msgspec.structs import replace

from ...persistence.store import Requested, Stored
from ...protocol.errors import Conflict, Draining, GreenroomError, Internal, QueueFull
from ...protocol.events import RunChanged, RunStateChanged
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
from .requests import Requests

_STORED = frozenset(Status)


class Admission:
    """See the module's text. `holding` says whether only children of what executes are let in; `enter` lets a
    run into its lane; `waits` is told of a new run that doesn't start at once."""

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
        self._placed: list[_New | Change] = []  # new runs and new places of this turn, in order
        self._last: dict[str, int] = {}  # run: where the last of them stands that is about it
        self._committed = 0  # how many of them are
        self._max_pending = max_pending
        self._effects = effects
        self._handles = handles
        self._holding = holding
        self._enter = enter
        self._waits = waits
        self._requests = Requests(lambda run: run in self.pending)
        self._last_place = 0
        self._children_held: list[Submit] = []  # submitted by bodies while the store is down

    def restore(
        self, stored: Stored, submissions: list[Submission], now: float, wall_now: float
    ) -> list[str]:
        """Take up the runs that were pending when the engine ended, in the order of their submission. Returns
        those that are still to be cancelled because others came to replace them."""
        self._last_place = stored.last_place
        self._handles.drafts.update(stored.drafts)
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
        """Decide about a submission."""
        submission = message.submission
        request_id = submission.terms.request_id
        if request_id is not None and self._is_repeat(request_id, message, now):
            return
        if self.store_is_down and submission.terms.ancestors:
            self._children_held.append(message)  # its parent is a body, which goes on when the store is back
            return
        if self.store_is_down:
            message.reply.fail(unavailable())  # the journal is busy with waiting, and this names no state
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
        """Tell which run a request id has made."""
        request = self._requests.find(message.request_id, now)
        found = None
        if request is not None:
            pending = self.pending.get(request.run)
            parent = None if pending is None else pending.terms.parent
            found = (request.run, request.fingerprint, parent)
        self._effects.answer(message.reply, found)

    def _refusal(self, submission: Submission) -> GreenroomError | None:
        # The child of a run that is executing already is let in: without it, that run could not finish.
        if self._holding() and not submission.terms.ancestors:
            return Draining("the engine is draining and takes no new runs: try again when it has resumed")
        if submission.id in self.pending:
            return Internal(f"the ids that this engine was given repeat themselves: {submission.id}")
        if len(self.pending) >= self._max_pending:
            return QueueFull(
                f"{len(self.pending)} runs are pending, all that max_pending allows: try again later",
                max_pending=self._max_pending,
            )
        return None

    def _take_draft(self, submission: Submission) -> GreenroomError | None:
        """Put the handle's draft where no parameters were given; those that were given have been checked."""
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
        """Have the journal commit a start, behind all that has got its place before this run. A new run is
        created by the same change."""
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
        """Have the journal commit what has not been committed with a start."""
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
        if pending is None or submission.terms.parent is not None:  # a body has a reply of its own, to fail
            self._effects.tell("journal", "", WatchEnd(run, ended))
        elif pending.shared is not None:
            ended = pending.shared
        else:
            pending.shared = ended
            self._effects.tell("journal", "", WatchEnd(run, ended))
        self._effects.answer(reply, Accepted(run, True, ended), about=pending)

    # Later.

    def admit_next(self, handle: str) -> None:
        """If a handle is free, let the first run that waits there into its lane."""
        submission = self._handles.admit_next(handle)
        if submission is None or submission.over or submission.cleared:
            return  # it was cancelled as its turn came, and the one after it follows at its end
        self._admit(submission)
        self._get_place(submission, Status.QUEUED)

    def draw_place_again(self, submission: Submission) -> None:
        """A run is tried again, at a new place."""
        submission.place = self._draw_place()
        self._get_place(submission, Status.SUSPENDED)

    def _get_place(self, submission: Submission, status: Status) -> None:
        placed = RunChanged(by="engine", place=submission.place, **submission.about())
        self._place(submission.id, Change((placed,), run=submission.id, expect=frozenset({status})))

    def ended(self, run: str, now: float) -> Submission | None:
        """The run is pending no longer."""
        self._requests.ended(run, now)
        return self.pending.pop(run, None)

    def not_stored(self, submission: Submission) -> None:
        """The run could not be stored: it never was."""
        self.pending.pop(submission.id, None)
        self._requests.forget(submission.id)

    def store_is(self, now: float, *, down: bool) -> None:
        """The store has failed, or is back."""
        self.store_is_down = down
        if not down:
            held, self._children_held = self._children_held, []
            for child in held:
                self.submit(child, now)

    def _draw_place(self) -> int:
        self._last_place += 1
        return self._last_place


class _New(msgspec.Struct, frozen=True, gc=False):
    """A run that is to be created at the end of the turn, its place if it doesn't wait in its handle, and the
    runs that it replaces. The turn is all its life, so the garbage collector need not track it."""

    submission: Submission
    place: int | None
    reply: Reply[Accepted]
    replaces: tuple[str, ...] = ()

    def creation(self, start: Change | None) -> Change:
        """The change that creates the run, and starts it if it has a slot."""
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
            front=submission.terms.front,
        )
        cancels: tuple[tuple[Kind, str, object], ...] = tuple(
            ("supervisor", "", cancel_replaced(run, submission.by)) for run in self.replaces
        )
        return Change(
            (created,) if start is None else (created, *start.events),
            run=submission.id,
            generation=None if start is None else start.generation,
            memos=submission.memos,
            tells=cancels if start is None else (*cancels, *start.tells),
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
        f"request_id {shown(request_id)} was used for another submission: use a new one", **details
    )
