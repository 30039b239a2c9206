"""A run that the supervisor creates at the end of a turn, and the change that does it."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from ...protocol.events import Event, RunStateChanged
from ...protocol.records import UNTIL_TIME
from ...protocol.states import Status
from ..actor import Kind
from ..channel import Reply
from ..journal.change import Change
from ..messages import Accepted, Submission, cancel_replaced


class Creation(msgspec.Struct, frozen=True, gc=False):
    """A run to create at the end of the turn: its place, unless it waits in its handle, and the runs that it
    replaces. If it is delayed, it waits for its time outside its lane. It lives for one turn, so the garbage
    collector need not track it."""

    submission: Submission
    place: int | None
    reply: Reply[Accepted] | None
    replaces: tuple[str, ...] = ()
    delayed: bool = False

    def change(self, start: Change | None) -> Change:
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
        if submission.uncommon or submission.priority or submission.key:
            uncommon = submission.uncommon or {}
            created = replace(created, priority=submission.priority or 0, key=submission.key, **uncommon)
        if self.delayed:
            created = replace(created, waiting_for=UNTIL_TIME)
        cancels = cancels_of(self.replaces, submission.by) if self.replaces else ()
        events: tuple[Event, ...] = (created,) if start is None else (created, *start.events)
        if submission.events:
            events = (created, *submission.events, *events[1:])
        return Change(
            events,
            run=submission.id,
            generation=None if start is None else start.generation,
            memos=submission.memos if start is None else (*submission.memos, *start.memos),
            notify=cancels if start is None else (*cancels, *start.notify),
            terms=submission.terms,
            watch=submission.ended,
            submission=submission,
            creates=True,
            reply=self.reply,
            answer=None if self.reply is None else Accepted(submission.id, False),
        )


def cancels_of(replaced: tuple[str, ...], by: str) -> tuple[tuple[Kind, str, object], ...]:
    """The messages that cancel replaced runs."""
    return tuple(("supervisor", "", cancel_replaced(run, by)) for run in replaced)
