"""The journal: the one actor through which every change goes, and the only one who commits.

Each time it wakes it takes what its mailbox holds, decides every compare-and-set against its projection of
what is committed (and against the changes before it in the batch), numbers the changes that hold, and commits
them in one transaction. Only then does it apply them to the projection, tell the actors that wait for them,
publish the events, and answer. While one batch is being written the next one gathers.

Everything that would name state which is not committed yet goes through this mailbox behind the change it
depends on, so nothing is shown to anyone before it is durable.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import trio

from ..persistence.failures import StoreBroken, StoreDown
from ..persistence.store import Batch, Checkpoint, Store
from ..protocol.errors import GreenroomError, Unavailable
from ..protocol.fold import Projection
from ..protocol.records import RunRecord
from .actor import Actor, Delivery
from .change import Change, Committed, Outcome, ProgressReport
from .channel import Reply
from .draft import Draft
from .journalmessages import Answer, Look, Mention, NotRead, StoreIsDamaged, WatchEnd
from .messages import Forget, NotStored, StoreIsDown
from .outage import Outage, unavailable
from .stream import Stream

T = TypeVar("T")

_A_MOMENT = 0.05

_QUIET_TURNS = 4
_MANY = 1000


class Journal(Actor):
    """See the module's text."""

    fails_with = (StoreBroken,)

    def __init__(
        self,
        store: Store,
        stream: Stream,
        delivery: Delivery,
        clock: Callable[[], float],
        *,
        gathers: bool,
    ) -> None:
        super().__init__("journal", "")
        self._gathers = gathers
        self._store = store
        self._stream = stream
        self._delivery = delivery
        self._clock = clock
        self.look_for_suspends: Callable[[], None] = lambda: None
        """Called whenever the journal does something, to notice that the machine was suspended."""
        self._outage = Outage(store, self._tell_supervisor, self._answer_meanwhile)
        self._mentions: list[Change] = []
        self._mentioned_by = math.inf  # when they are to be committed
        self._watchers: dict[str, list[Reply[RunRecord | None]]] = {}

    def begin(self, projection: Projection) -> None:
        """Go on from what is committed."""
        self._projection = projection

    @property
    def commit_seconds(self) -> float:
        """How long the last commit took."""
        return self._outage.took

    @property
    def store_is_down(self) -> bool:
        """Whether everything waits for the store to come back."""
        return self._outage.down or self._outage.silent

    @property
    def draining(self) -> bool:
        """Whether the engine drains, as far as is committed."""
        return self._projection.draining

    async def ask(self, change: Change) -> Outcome:
        """Have a change decided and committed."""
        reply: Reply[Outcome] = Reply()
        change.reply = reply
        self.tell(change)
        return await reply.get()

    def look_now(self, read: Callable[[Projection], T]) -> T:
        """What is committed and known, without waiting for a commit that is under way."""
        return read(self._projection)

    async def look(self, read: Callable[[Projection], T]) -> T:
        """Ask about what is committed. While the store is down, that is what is known already."""
        if self.store_is_down:
            await trio.lowlevel.checkpoint()
            return self.look_now(read)
        reply: Reply[T] = Reply()
        self.tell(Look(read, reply))
        return await reply.get()

    async def read(self, call: Callable[[], Awaitable[T]]) -> T:
        """Read the store, for a body or a helper task that can't go on without: it waits for one that is
        down."""
        while True:
            try:
                return await call()
            except StoreDown as error:
                back: Reply[None] = Reply()
                self.tell(NotRead(error, self._outage.commits, back))
                await back.get()

    async def checkpoint(self, handle: str, job: str) -> Checkpoint | None:
        """What was last saved for a handle and job."""
        return await self.read(partial(self._store.checkpoint, handle, job))

    async def load_run(self, id: str) -> RunRecord | None:
        """A run, however long ago it ended."""
        return await self.read(partial(self._store.run, id))

    def hurry(self, until: float) -> None:
        """The engine is being left: a store that is down is not waited for beyond this time."""
        self._outage.patience = until

    def close(self) -> None:
        """Answer everyone who still waits for a run: nothing is going to happen any more."""
        for replies in self._watchers.values():
            for reply in replies:
                reply.fail(Unavailable("the engine has stopped; what is stored goes on at its next start"))
        self._watchers.clear()
        self._stream.close()

    def report(self) -> dict[str, Any]:
        watchers = sum(len(replies) for replies in self._watchers.values())
        return super().report() | {"watchers": watchers}

    async def on_batch(self, messages: Sequence[Any]) -> None:
        self.look_for_suspends()
        changes: list[Change | ProgressReport] = []
        later: list[Any] = []
        if self._gathers:
            messages = await self._gather(messages)
        for message in messages:
            kind = type(message)
            if kind is Change or kind is ProgressReport:
                changes.append(message)
            elif kind is Mention:
                self._mentions.append(message.change)
            elif kind is StoreIsDamaged:
                raise message.error
            else:
                later.append(message)
        if changes and self._mentions:
            changes, self._mentions = [*self._mentions, *changes], []
        await self._commit(changes, later)

    async def _gather(self, messages: Sequence[Any]) -> Sequence[Any]:
        """Take along what actors that can act now are about to send: a commit costs more than some turns."""
        gathered, quiet = list(messages), 0
        while quiet < _QUIET_TURNS and len(gathered) < _MANY:
            await trio.lowlevel.checkpoint()
            more = self.mailbox.drain()
            gathered += more
            quiet = 0 if more else quiet + 1
        return gathered

    async def _commit(self, changes: list[Change | ProgressReport], later: list[Any]) -> None:
        draft = Draft(self._projection, self._clock(), changes)
        while draft.writes and not await self._outage.commit(draft.batch()):
            changes = self._refuse_new_runs(changes)
            later = [message for message in later if not _refuse_answer(message)]
            draft = Draft(self._projection, self._clock(), changes)
        await self._outage.until_back(Batch(draft.seq, [], {}, []))
        self._show(draft)
        for message in later:
            await self._answer(message)
        self._set_deadline()

    async def on_deadline(self) -> None:
        self.look_for_suspends()
        if self._mentions:
            changes, self._mentions = self._mentions, []
            await self._commit([*changes], [])
        else:
            await self._outage.check(self._nothing())
            self._set_deadline()

    def _set_deadline(self) -> None:
        now = trio.current_time()
        self.deadline = now + self._store.check_every
        if not self._mentions:
            self._mentioned_by = math.inf
        elif self._mentioned_by == math.inf:
            self._mentioned_by = now + _A_MOMENT
        self.deadline = min(self.deadline, self._mentioned_by)

    def _refuse_new_runs(self, changes: list[Change | ProgressReport]) -> list[Change | ProgressReport]:
        """The store is down and has none of these changes. Whoever wants a run is told so now; the rest is
        kept until the store is back."""
        kept: list[Change | ProgressReport] = []
        for change in changes:
            if isinstance(change, Change) and _wanted_from_outside(change):
                self._refuse_new_run(change)
            else:
                kept.append(change)
        return kept

    def _refuse_new_run(self, change: Change) -> None:
        submission = change.submission
        assert submission is not None, "a change that creates a run has its submission"
        submission.over = submission.refused = True
        self._delivery.tell("supervisor", "", NotStored(submission.id))
        self._delivery.tell("run", submission.id, Forget())
        if change.reply is not None:
            change.reply.fail(unavailable())

    def _answer_meanwhile(self) -> None:
        """While the store is down: refuse the new runs that have come, answer what needs no commit, and leave
        the rest where it is."""
        for message in self.mailbox.drain():
            kind = type(message)
            if kind is Change and _wanted_from_outside(message):
                self._refuse_new_run(message)
            elif kind is Look:
                self._look(message)
            elif kind is StoreIsDamaged:
                raise message.error
            elif not _refuse_answer(message):
                self.mailbox.put(message)

    def job_of(self, run: str) -> str | None:
        """The job of a run, if that is committed and still in memory."""
        found = self._projection.runs.get(run)
        return None if found is None else found.job

    def _show(self, draft: Draft) -> None:
        """The batch is durable: now everyone may know, the actors first."""
        projection = self._projection
        for event, record in zip(draft.events, draft.records, strict=True):
            projection.apply(event, record)
        tell = self._delivery.tell
        for change, outcome in draft.decided:
            if outcome.held:
                if change.submission is not None and not change.creates:
                    change.submission.over = True
                for kind, name, message in change.tells:
                    tell(kind, name, message)
                if change.watch is not None and change.run is not None:
                    self._watchers.setdefault(change.run, []).append(change.watch)
            else:
                for kind, name, message in change.else_tells:
                    tell(kind, name, message)
        if draft.events:
            self._stream.publish(draft.events)
        for record in draft.ended:
            for reply in self._watchers.pop(record.id, ()):
                reply.set(record)
        for change, outcome in draft.decided:
            if change.tells_run and change.run is not None:
                tell("run", change.run, Committed(outcome))
            elif change.reply is not None:
                change.reply.set(outcome if change.answer is None or not outcome.held else change.answer)

    def _tell_supervisor(self, down: bool) -> None:
        self._delivery.tell("supervisor", "", StoreIsDown(down))

    async def _answer(self, message: Any) -> None:
        kind = type(message)
        if kind is WatchEnd:
            run = self._projection.runs.get(message.run)
            if run is None or run.ended:
                message.reply.set(run)
            else:
                self._watchers.setdefault(message.run, []).append(message.reply)
        elif kind is Look:
            self._look(message)
        elif kind is NotRead:
            if message.commits == self._outage.commits:  # else it has come back since
                await self._outage.wait_after(message.error, self._nothing())
            message.reply.set(None)
        elif not _refuse_answer(message):
            if message.error is not None:
                message.reply.fail(message.error)
            else:
                message.reply.set(message.value)

    def _nothing(self) -> Batch:
        return Batch(self._projection.seq, [], {}, [])

    def _look(self, message: Look) -> None:
        try:
            message.reply.set(message.read(self._projection))
        except GreenroomError as error:
            message.reply.fail(error)


def _refuse_answer(message: Any) -> bool:
    """Whether it was an answer that can't be given, because the run that it is about could not be stored."""
    if type(message) is not Answer or message.about is None or not message.about.refused:
        return False
    message.reply.fail(unavailable())
    return True


def _wanted_from_outside(change: Change) -> bool:
    """Whether it creates a run that no other run waits for; a body that calls a child waits out an outage."""
    return change.creates and change.submission is not None and not change.submission.terms.ancestors
