"""What is committed of one run, as its actor knows it, and the way to commit more.

The actor is the only one who changes its run's status, so what stands here is what the store will hold once
everything that was asked for is committed. The compare-and-set of the journal checks it all the same.
"""

from __future__ import annotations

from typing import Any

from ..persistence.store import Memo
from ..protocol.events import Event, RunChanged, RunStateChanged
from ..protocol.states import ENDED, Status, allowed_from
from .actor import Kind
from .change import REPORTING, Change, Outcome
from .journal import Journal
from .messages import Cancelling, Done, Enter, EntersAgain, Leave, Left, Submission


class Ledger:
    """Status, attempt, and the generation of the slot that the run holds (`None` without one)."""

    __slots__ = ("_journal", "attempt", "generation", "status", "submission")

    def __init__(self, submission: Submission, journal: Journal) -> None:
        self.submission = submission
        self.status = Status.QUEUED
        self.attempt = 0
        self.generation: int | None = None
        self._journal = journal

    @property
    def ended(self) -> bool:
        """Whether the run's status is final."""
        return self.status in ENDED

    async def move(
        self,
        to: Status,
        *before: Event,
        live_body: bool,
        reason: str | None,
        by: str = "engine",
        attempt: int | None = None,
        generation: int | None = None,
        waiting_for: str | None = None,
        interactive: bool | None = None,
        result: Any = None,
        error: str | None = None,
        holds_handle: bool = False,
        memos: tuple[Memo, ...] = (),
        enters_again: bool = False,
    ) -> Outcome:
        """Commit a transition, together with the events `before` it, and tell those whom it concerns. A run
        that `enters_again` stands in its lane's queue before anyone can get its slot."""
        submission = self.submission
        attempt = self.attempt if attempt is None else attempt
        event = RunStateChanged(
            seq=0,
            at=0,
            by=by,
            run=submission.id,
            handle=submission.handle,
            lane=submission.lane,
            from_=self.status,
            to=to,
            attempt=attempt,
            reason=reason,
            place=submission.place,
            waiting_for=waiting_for,
            interactive=interactive,
            result=result,
            error=error,
            holds_handle=holds_handle,
        )
        change = Change(
            (*before, event),
            run=submission.id,
            expect=allowed_from(to, live_body=live_body),
            generation=generation,
            memos=memos,
            tells=self._tells(to, holds_handle, enters_again),
            submission=submission if to in ENDED else None,
        )
        outcome = await self._journal.ask(change)
        if outcome.held:
            if to is Status.RUNNING:
                self.generation = generation
                submission.begun = True
            elif to is not Status.CANCELLING or self.status is Status.SUSPENDED:
                self.generation = None
            self.status = to
            self.attempt = attempt
        return outcome

    async def note(self, *events: Event, memos: tuple[Memo, ...] = ()) -> Outcome:
        """Commit events that are no transition."""
        return await self._journal.ask(Change(events, run=self.submission.id, expect=REPORTING, memos=memos))

    def changed(self, **flags: bool) -> RunChanged:
        """The event that some of the run's flags have changed."""
        return RunChanged(by="body", **(self.submission.about() | flags))

    def without_body(self, *, awaits_message: bool = False) -> RunChanged:
        """The event that the run has no body now, and so is in no phase of one; it can be talked to only if
        it waits for a message to get a body."""
        return self.changed(interactive=awaits_message, streaming=False, compacting=False)

    def _tells(
        self, to: Status, holds_handle: bool, enters_again: bool
    ) -> tuple[tuple[Kind, str, object], ...]:
        """Who must hear of it before anyone else: the lane and the supervisor, when the run gives back its
        slot or its place in the queue; the handle, when it may be freed or can't be joined any more."""
        id, lane, handle = self.submission.id, self.submission.lane, self.submission.handle
        if to is Status.RUNNING:
            return ()
        if to is Status.CANCELLING and self.status is Status.RUNNING:
            return (("handle", handle, Cancelling(id)),)  # the body keeps its slot until it has ended
        ended = to in ENDED
        leaves: tuple[tuple[Kind, str, object], ...] = (
            ("lane", lane, Leave(id, self.generation)),
            ("supervisor", "", Left(id, lane, self.generation, ended)),
        )
        if ended:
            return (*leaves, ("handle", handle, Done(id, holds_handle)))
        if to is Status.CANCELLING:
            return (*leaves, ("handle", handle, Cancelling(id)))
        if enters_again:
            place = self.submission.place
            assert place is not None, "a run that executed has a place"
            enter = Enter(self.submission, place, True)
            return (*leaves, ("lane", lane, enter), ("supervisor", "", EntersAgain(lane, place)))
        return leaves
