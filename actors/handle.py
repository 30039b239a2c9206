"""A handle: admits runs, one at a time, and answers submissions that find it taken by their `on_conflict`.

It is taken from the moment it admits a run until that run has ended and its body is gone. While it is taken,
its draft is locked. It asks the journal for its draft only when a submission wants it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import trio

from ..protocol.errors import Conflict, GreenroomError, HandleLocked, NoActiveRun
from ..protocol.events import HandleChanged
from ..protocol.states import Status
from .actor import Actor, Delivery
from .change import Change
from .channel import Reply
from .journal import Answer, Journal
from .messages import (
    BodyGone,
    Cancelling,
    Done,
    Entering,
    Inject,
    Joined,
    LongWait,
    Refused,
    ReleaseHandle,
    SetParams,
    Submission,
    Submit,
    Waiting,
    cancel_replaced,
)
from .ownership import Ownership
from .waitwatch import WaitWatch


class Handle(Actor):
    """See the module's text."""

    rests = True

    def __init__(self, name: str, ownership: Ownership, delivery: Delivery, journal: Journal) -> None:
        super().__init__("handle", name)
        self._ownership = ownership
        self._delivery = delivery
        self._journal = journal
        self._admitted: Submission | None = None
        self._cancelling = False  # whether the admitted run is being cancelled
        self._remains: str | None = None  # an ended run whose abandoned body still executes
        self._waiting: OrderedDict[str, Submission] | None = None  # most handles never need it
        self._replacing: tuple[str, ...] = ()  # the waiting runs that came to replace others, newest first
        self._watch: WaitWatch | None = None
        ownership.claim(name)

    def restore(
        self, admitted: Submission | None, waiting: list[Submission], newest: Submission | None
    ) -> None:
        """After a restart, before anything is told: the run that it had admitted, those that wait, and the
        newest of them that came to replace others."""
        self._admitted = admitted
        if admitted is not None and admitted.stored is not None:
            stored = admitted.stored
            self._cancelling = stored.record.status is Status.CANCELLING or stored.files_doomed
        if waiting:
            self._waiting = OrderedDict((submission.id, submission) for submission in waiting)
        if newest is not None:
            self._replace_again(newest, [submission for submission in waiting if submission.terms.front])
        self._admit_next()

    def _replace_again(self, newest: Submission, replacing: list[Submission]) -> None:
        """A replacement and the cancel of what it replaces are two commits: a crash may come between them."""
        replaced = [submission for submission in replacing if submission is not newest]
        if newest is not self._admitted:
            self._replacing = tuple(submission.id for submission in replacing)
            if self._admitted is not None:
                self._cancelling = True
                replaced.append(self._admitted)
        for submission in replaced:
            self._tell(cancel_replaced(submission.id, newest.by))

    def has_work(self) -> bool:
        if self._taken_by() is not None or self._waiting:
            return True
        self._ownership.release(self.name)
        return False

    def report(self) -> dict[str, Any]:
        return super().report() | {"taken_by": self._taken_by(), "waiting": len(self._waiting or ())}

    async def on_batch(self, messages: Sequence[Any]) -> None:
        for message in messages:
            if type(message) is Submit:
                await self._submit(message)
            else:
                _HANDLERS[type(message)](self, message)
        if self._watch is not None:
            self.deadline = self._watch.deadline()

    async def on_deadline(self) -> None:
        assert self._watch is not None, "only waiting runs set a deadline"
        assert self._waiting is not None, "only waiting runs set a deadline"
        now = trio.current_time()
        holder = self._taken_by()
        due = list(self._watch.take_told(now))
        ahead = {id: position for position, id in enumerate(self._waiting)} if due else {}
        for submission, count in due:
            blockers = [] if holder is None else [holder]
            self._tell(
                LongWait(submission, now - submission.created_at, ahead[submission.id], blockers, count),
            )
        self.deadline = self._watch.deadline()

    async def _submit(self, message: Submit) -> None:
        submission, reply = message.submission, message.reply
        try:
            await self._resolve_params(submission)
        except GreenroomError as error:
            self._tell(Refused(submission, error, reply))
            return
        holder = self._taken_by()
        if holder is None and not self._waiting:
            self._admit(submission, reply)
        elif message.on_conflict == "queue":
            self._wait(submission, reply, None)
        elif message.on_conflict == "replace":
            self._replace(submission, reply)
        elif message.on_conflict == "join" and self._can_join(submission):
            assert self._admitted is not None, "only an admitted run can be joined"
            self._tell(Joined(submission, self._admitted, reply))
        else:
            conflict = self._conflict(message.on_conflict, holder)
            self._tell(Refused(submission, conflict, reply, about=self._active()))

    async def _resolve_params(self, submission: Submission) -> None:
        """Put the draft where no parameters were given. Those that were given have been checked already."""
        job = submission.job
        if submission.params is not None or job.params_type is None:
            return
        draft = await self._journal.look(lambda committed: committed.draft(self.name))
        params = {} if draft is None else draft
        job.check(params)
        submission.params = params

    def _replace(self, submission: Submission, reply: Reply[Any]) -> None:
        replaced = self._replacing  # superseded before they have started
        if self._admitted is not None and not self._cancelling:
            replaced = (*replaced, self._admitted.id)
        self._replacing = (submission.id, *self._replacing)
        self._wait(submission, reply, replaced)

    def _can_join(self, submission: Submission) -> bool:
        admitted = self._admitted
        return (
            admitted is not None
            and not self._cancelling
            and admitted.job is submission.job
            and admitted.params == submission.params
        )

    def _conflict(self, on_conflict: str, holder: str | None) -> Conflict:
        first = self._active()
        active = holder if first is None else first.id
        why = {
            "join": "it runs something else, or is being cancelled",
            "reject": "wait for it, cancel it, or submit with on_conflict 'queue', 'replace' or 'join'",
        }[on_conflict]
        return Conflict(f"handle {self.name!r} is taken by run {active}: {why}", active_run=active)

    def _admit(self, submission: Submission, reply: Reply[Any] | None) -> None:
        self._admitted = submission
        self._cancelling = False
        self._tell(Entering(submission, reply))

    def _wait(self, submission: Submission, reply: Reply[Any], replaces: tuple[str, ...] | None) -> None:
        """Let it wait. One that comes to replace others waits in front; they are told when it is stored."""
        if self._waiting is None:
            self._waiting = OrderedDict()
        self._waiting[submission.id] = submission
        if replaces is not None:
            self._waiting.move_to_end(submission.id, last=False)
        if self._watch is None:
            self._watch = WaitWatch()
        self._watch.add(submission, trio.current_time())
        self._tell(Waiting(submission, replaces, reply))

    def _admit_next(self) -> None:
        if self._waiting and self._taken_by() is None:
            id, submission = self._waiting.popitem(last=False)
            self._unwatch(id)
            self._replaces_no_more(id)
            self._admit(submission, None)

    def _unwatch(self, id: str) -> None:
        if self._watch is not None:
            self._watch.drop(id)

    def _done(self, message: Done) -> None:
        id = message.run
        if self._admitted is not None and self._admitted.id == id:
            self._admitted = None
            self._remains = id if message.body_remains else None
        elif self._waiting is not None and self._waiting.pop(id, None) is not None:
            self._unwatch(id)
        self._replaces_no_more(id)
        self._admit_next()

    def _replaces_no_more(self, run: str) -> None:
        if run in self._replacing:
            self._replacing = tuple(id for id in self._replacing if id != run)

    def _body_gone(self, message: BodyGone) -> None:
        if self._remains == message.run:
            self._free("engine", None)

    def _release(self, message: ReleaseHandle) -> None:
        if self._remains is None:
            self._tell(Answer(message.reply, False))
        else:
            self._free(message.by, message.reply)

    def _free(self, by: str, reply: Reply[bool] | None) -> None:
        freed = HandleChanged(seq=0, at=0, by=by, handle=self.name, freed=self._remains)
        self._journal.tell(Change((freed,), reply=reply, answer=True))
        self._remains = None
        self._admit_next()

    def _being_cancelled(self, message: Cancelling) -> None:
        if self._admitted is not None and self._admitted.id == message.run:
            self._cancelling = True

    def _set_params(self, message: SetParams) -> None:
        holder = self._taken_by()
        if holder is not None:
            error = HandleLocked(
                f"handle {self.name!r} is locked by run {holder}: "
                "its parameters can change when that has ended",
                active_run=holder,
            )
            self._tell(Answer(message.reply, error=error, about=self._admitted))
            return
        changed = HandleChanged(seq=0, at=0, by=message.by, handle=self.name, params=message.params)
        self._journal.tell(Change((changed,), reply=message.reply))

    def _inject(self, message: Inject) -> None:
        if self._admitted is None:
            message.reply.fail(NoActiveRun(f"handle {self.name!r} has no active run"))
        else:  # by way of the supervisor, who may not have had the run created yet
            self._tell(Inject(self._admitted.id, message.message, message.by, message.reply))

    def _active(self) -> Submission | None:
        """The run that a refusal names, unless that has ended and only its body remains."""
        if self._admitted is not None or self._remains is not None or not self._waiting:
            return self._admitted
        return next(iter(self._waiting.values()))

    def _taken_by(self) -> str | None:
        return self._admitted.id if self._admitted is not None else self._remains

    def _tell(self, message: object) -> None:
        """To the supervisor, who passes answers on to the journal: so they stay behind the admission that
        they may name, which takes the same way."""
        self._delivery.tell("supervisor", "", message)


_HANDLERS: dict[type, Callable[[Any, Any], None]] = {
    Done: Handle._done,
    BodyGone: Handle._body_gone,
    Cancelling: Handle._being_cancelled,
    SetParams: Handle._set_params,
    ReleaseHandle: Handle._release,
    Inject: Handle._inject,
}
