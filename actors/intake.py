"""How runs come in: every submission passes here on its way to its handle, and again on its way to its lane.

A part of the supervisor. It knows each pending run by its submission, refuses what is too much, draws the
places, keeps the request ids, and has the journal store what a handle has admitted or lets wait.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NoReturn

import trio
from msgspec.structs import replace

from ..persistence.store import Requested, Stored
from ..protocol.errors import Conflict, Draining, GreenroomError, Internal, QueueFull
from ..protocol.events import RunChanged, RunStateChanged
from ..protocol.fold import Projection
from ..protocol.states import Status
from .actor import Directory
from .change import Change
from .channel import Reply
from .handle import Handle
from .journal import Answer, Journal, Look, WatchEnd
from .messages import (
    Accepted,
    Enter,
    Entering,
    FindRequest,
    Joined,
    KeepTime,
    NotStored,
    Phase,
    Recover,
    Refused,
    Reject,
    Retry,
    Submission,
    Submit,
    Waiting,
    cancel_replaced,
)
from .outage import unavailable
from .requests import Requests
from .slots import Slots
from .suspects import deaths_after_restart

_QUEUED = frozenset({Status.QUEUED})
_SUSPENDED = frozenset({Status.SUSPENDED})


class Intake:
    """See the module's text. `holding` says whether only children of what executes are let in."""

    def __init__(
        self,
        *,
        max_pending: int,
        directory: Directory,
        journal: Journal,
        slots: Slots,
        holding: Callable[[], bool],
    ) -> None:
        self.pending: dict[str, Submission] = {}
        self.store_is_down = False
        self._max_pending = max_pending
        self._directory = directory
        self._journal = journal
        self._slots = slots
        self._holding = holding
        self._requests = Requests(lambda run: run in self.pending)
        self._last_place = 0
        self._children_held: list[Submit] = []  # submitted by bodies while the store is down

    def restore(
        self, stored: Stored, submissions: list[Submission], rejects: dict[str, str], wall_now: float
    ) -> int:
        """Take up the runs that were pending when the engine ended, in the order of their submission; returns
        how many of them had begun, and are going to say that they have `Recovered`."""
        self._last_place = stored.last_place
        for request in stored.requests:
            self._requests.restore(request, trio.current_time(), wall_now)
        children: dict[str, list[str]] = {}
        deaths = deaths_after_restart(stored.pending)
        admitted: dict[str, Submission] = {}
        waiting: dict[str, list[Submission]] = {}
        replacing: dict[str, Submission] = {}
        for submission in submissions:
            self.pending[submission.id] = submission
            if submission.terms.front:
                replacing[submission.handle] = submission
            if submission.terms.parent is not None:
                children.setdefault(submission.terms.parent, []).append(submission.id)
            if submission.place is not None:
                admitted[submission.handle] = submission
            else:
                queue = waiting.setdefault(submission.handle, [])
                queue.insert(0 if submission.terms.front else len(queue), submission)
        for submission in submissions:
            recover = Recover(children.get(submission.id, []), deaths.get(submission.id, 0))
            self._restore_run(submission, recover, rejects.get(submission.id))
        for name in dict.fromkeys((*admitted, *waiting)):
            handle = self._directory.lay_down("handle", name)
            assert isinstance(handle, Handle), "that is what its maker makes"
            handle.restore(admitted.get(name), waiting.get(name, []), replacing.get(name))
        return sum(submission.begun for submission in submissions)

    def _restore_run(self, submission: Submission, recover: Recover, reject: str | None) -> None:
        if submission.begun:
            submission.phase = Phase.QUEUED
            self._directory.tell("run", submission.id, recover)
            return
        if reject is not None:
            self._directory.tell("run", submission.id, Reject(reject))
        else:
            self._keep_time(submission)
        if submission.place is None:
            submission.phase = Phase.WAITING
        else:
            submission.phase = Phase.QUEUED
            if reject is None:
                self._enter_lane(submission)

    # Submissions.

    def submit(self, message: Submit) -> None:
        """Pass a submission on to its handle, unless it is refused or repeats another."""
        submission = message.submission
        request_id = submission.terms.request_id
        if request_id is not None and self._is_repeat(request_id, message):
            return
        if self.store_is_down and submission.terms.ancestors:
            self._children_held.append(message)  # its parent is a body, which goes on when the store is back
            return
        if self.store_is_down:
            message.reply.fail(unavailable())  # the journal is busy with waiting, and this names no state
            return
        refusal = self._refusal(submission)
        if refusal is not None:
            self._journal.tell(Answer(message.reply, error=refusal))
            return
        if request_id is not None:
            self._requests.begin(request_id, submission.id, submission.terms.fingerprint)
        self.pending[submission.id] = submission
        self._directory.tell("handle", submission.handle, message)

    def _is_repeat(self, request_id: str, message: Submit) -> bool:
        request = self._requests.find(request_id, trio.current_time())
        if request is None:
            return False
        if request.fingerprint != message.submission.terms.fingerprint:
            refuse = partial(_refuse_other_use, request_id, request.run)
            self._journal.tell(Look(refuse, message.reply))
        elif request.accepted:
            self._join(message.submission, message.reply, request.run, self.pending.get(request.run))
        else:
            request.repeats.append(message)
        return True

    def find_request(self, message: FindRequest) -> None:
        """Tell which run a request id has made."""
        request = self._requests.find(message.request_id, trio.current_time())
        found = None
        if request is not None:
            pending = self.pending.get(request.run)
            parent = None if pending is None else pending.terms.parent
            found = (request.run, request.fingerprint, parent)
        self._journal.tell(Answer(message.reply, found))

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

    # What handles decide.

    def entering(self, message: Entering) -> None:
        """The handle admits the run: it draws its place and enters its lane."""
        submission = message.submission
        if submission.over or submission.cleared:
            return  # it was cancelled as its turn came, and its handle is being told
        submission.place = self._draw_place()
        if message.reply is None:
            placed = RunChanged(by="engine", place=submission.place, **submission.about())
            self._journal.tell(Change((placed,), run=submission.id, expect=_QUEUED))
        else:
            self._create(submission, None, message.reply)
        submission.phase = Phase.QUEUED
        self._enter_lane(submission)

    def waiting(self, message: Waiting) -> None:
        """The run waits in its handle."""
        self._create(message.submission, message.replaces, message.reply)
        message.submission.phase = Phase.WAITING

    def _create(
        self, submission: Submission, replaces: tuple[str, ...] | None, reply: Reply[Accepted]
    ) -> None:
        front = replaces is not None
        if front:
            submission.terms = replace(submission.terms, front=True)
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
            place=submission.place,
            job=submission.job.name,
            kind=submission.kind,
            params=submission.params,
            front=front,
        )
        self._journal.tell(
            Change(
                (created,),
                run=submission.id,
                memos=submission.memos,
                terms=submission.terms,
                watch=submission.ended,
                submission=submission,
                creates=True,
                tells=tuple(
                    ("supervisor", "", cancel_replaced(run, submission.by)) for run in replaces or ()
                ),
                reply=reply,
                answer=Accepted(submission.id, False),
            )
        )
        self._keep_time(submission)
        request_id = submission.terms.request_id
        if request_id is not None:
            self._accept_request(request_id, submission.id)

    def joined(self, message: Joined) -> None:
        """The submission is answered with the run that its handle has admitted."""
        submission = message.submission
        del self.pending[submission.id]
        run = message.admitted.id
        self._join(submission, message.reply, run, message.admitted)
        request_id = submission.terms.request_id
        if request_id is not None:
            memo = Requested(request_id, run, submission.terms.fingerprint)
            self._journal.tell(Change((), run=run, memos=(memo,)))
            self._accept_request(request_id, run)
            if run not in self.pending:  # it has ended just now
                self._requests.ended(run, trio.current_time())

    def refused(self, message: Refused) -> None:
        """The handle refuses the submission, and its request id is free again."""
        submission = message.submission
        del self.pending[submission.id]
        self._journal.tell(Answer(message.reply, error=message.error, about=message.about))
        request_id = submission.terms.request_id
        if request_id is not None:
            for repeat in self._requests.refuse(request_id):
                self.submit(repeat)

    def _accept_request(self, request_id: str, run: str) -> None:
        for repeat in self._requests.accept(request_id, run):
            self._join(repeat.submission, repeat.reply, run, self.pending.get(run))

    def _join(
        self, submission: Submission, reply: Reply[Accepted], run: str, pending: Submission | None
    ) -> None:
        ended = submission.ended
        if pending is None or submission.terms.parent is not None:  # a body has a reply of its own, to fail
            self._journal.tell(WatchEnd(run, ended))
        elif pending.shared is not None:
            ended = pending.shared
        else:
            pending.shared = ended
            self._journal.tell(WatchEnd(run, ended))
        self._journal.tell(Answer(reply, Accepted(run, True, ended), about=pending))

    # Later.

    def retry(self, message: Retry) -> None:
        """The run is tried again, at a new place."""
        submission = self.pending.get(message.run)
        if submission is None or submission.over:
            return
        submission.place = self._draw_place()
        placed = RunChanged(by="engine", place=submission.place, **submission.about())
        self._journal.tell(Change((placed,), run=submission.id, expect=_SUSPENDED))
        self._enter_lane(submission)

    def ended(self, run: str) -> None:
        """The run is pending no longer."""
        self.pending.pop(run, None)
        self._requests.ended(run, trio.current_time())

    def not_stored(self, message: NotStored) -> None:
        """The run could not be stored: it never was."""
        submission = self.pending.pop(message.run)
        self._slots.left(message.run, message.lane, None, trio.current_time())
        request_id = submission.terms.request_id
        if request_id is not None:
            self._requests.forget(request_id, message.run)

    def enter_again(self, run: str) -> None:
        """The run had to wait outside its lane's queue, and does so no longer."""
        submission = self.pending.get(run)
        if submission is not None and not submission.over:
            self._enter_lane(submission)

    def store_is(self, *, down: bool) -> None:
        """The store has failed, or is back."""
        self.store_is_down = down
        if not down:
            held, self._children_held = self._children_held, []
            for child in held:
                self.submit(child)

    def _keep_time(self, submission: Submission) -> None:
        if submission.terms.queue_timeout is not None or submission.terms.deadline is not None:
            self._directory.tell("run", submission.id, KeepTime())

    def _draw_place(self) -> int:
        self._last_place += 1
        return self._last_place

    def _enter_lane(self, submission: Submission) -> None:
        assert submission.place is not None, "a run enters its lane with a place"
        self._slots.entering(submission.lane, submission.place)
        self._directory.tell("lane", submission.lane, Enter(submission, submission.place, True))


def _refuse_other_use(request_id: str, id: str, committed: Projection) -> NoReturn:
    run = committed.runs.get(id)
    details = {} if run is None else {"run": run}
    raise Conflict(f"request_id {request_id!r} was used for another submission: use a new one", **details)
