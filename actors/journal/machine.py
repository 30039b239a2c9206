"""The machine of the journal: which changes are accepted, their batches, and who is notified when.

One batch is written at a time, while the next one gathers. When a batch is committed, the machine applies its
events to the projection, notifies the actors, publishes the events, and answers the replies, in this order.
Replies that depend on a batch are answered with that batch. While the store is down, new runs are refused
immediately, queries are answered immediately, and everything else waits.

No I/O here: `job` is the next job for the committer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from ...persistence.store import Batch
from ...protocol.errors import GreenroomError, Unavailable
from ...protocol.events import Event
from ...protocol.fold import Projection
from ...protocol.records import RunRecord
from ..channel import Reply
from ..effects import Effects
from ..messages import Ended, Forget, NotStored, RunsEnded, StoreIsDown
from .batch import DecidedBatch
from .change import Change, Committed, ProgressReport
from .committer import (
    AwaitStore,
    Check,
    CommitFailed,
    NotWritten,
    StoreIsBack,
    StoreIsGivenUp,
    WentDown,
    Write,
    Written,
)
from .messages import (
    Answer,
    AnswerMany,
    Look,
    Mention,
    ReadFailed,
    StoreIsDamaged,
    WatchEnd,
    unavailable,
)

_MENTION_DELAY = 0.05
"""Seconds for which a `Mention` waits for another change to be committed with."""

Changes = list[Change | ProgressReport]


class JournalMachine:
    """See the module's docstring. Call `receive` for the messages of a turn and then `end_turn`, or call
    `on_deadline`."""

    def __init__(
        self,
        clock: Callable[[], float],
        publish: Callable[[Sequence[Event]], object],
        commits: Callable[[], int],
        check_every: float,
    ) -> None:
        self.effects = Effects()
        self.webhooks: dict[str, frozenset[str]] = {}
        """The types of events that the webhooks of pending runs deliver, by run."""
        self.wake_webhooks: Callable[[], None] = lambda: None
        """Called when events to deliver are committed. It must be fast, and must not raise."""
        self.job: Write | AwaitStore | Check | None = None
        self.deadline = math.inf
        self._clock = clock
        self._publish = publish
        self._commits = commits
        self._check_every = check_every
        self._down = False
        self._busy = False  # whether the committer has a job
        self._written: tuple[DecidedBatch, Changes, list[Any]] | None = None  # the batch being written
        self._changes: Changes = []  # for the next batch
        self._later: list[Any] = []  # answered when the next batch is committed
        self._mentions: list[Change] = []
        self._mentioned_by = math.inf  # the deadline for their commit
        self._unread: list[Reply[None]] = []  # answered when the store is back
        self._watchers: dict[str, Reply[RunRecord | None]] = {}  # nearly always one for each run
        self._more_watchers: dict[str, list[Reply[RunRecord | None]]] = {}

    def begin(self, projection: Projection) -> None:
        """Continue from the committed state."""
        self.projection = projection

    @property
    def writing(self) -> Changes:
        """The changes being written, for the log."""
        return [] if self._written is None else self._written[1]

    @property
    def gathered(self) -> int:
        """The number of changes in the next batch; 0 while another batch is being written."""
        return 0 if self._busy else len(self._changes)

    @property
    def watchers(self) -> int:
        """The number of replies that wait for the end of a run."""
        return len(self._watchers) + sum(len(replies) for replies in self._more_watchers.values())

    def receive(self, message: Any) -> None:
        """Handle a message."""
        handler = _HANDLERS.get(type(message))
        if handler is not None:
            handler(self, message)
        elif not _refuse_answer(message):
            self._later.append(message)

    def end_turn(self, now: float) -> None:
        """Begin the next batch, if none is being written."""
        if not self._busy and (self._changes or self._later):
            self._begin_batch([*self._mentions, *self._changes] if self._changes else [])
        self._set_deadline(now)

    def on_deadline(self, now: float) -> None:
        """Commit the mentions, or check a store that has not been written for a while."""
        if self._busy:
            pass
        elif self._mentions:
            self._begin_batch(list(self._mentions))
        else:
            self._start_job(Check(self._nothing()))
        self._set_deadline(now)

    def close(self) -> None:
        """Fail all replies that still wait for the end of a run."""
        for reply in chain(self._watchers.values(), *self._more_watchers.values()):
            reply.fail(Unavailable("engine has stopped; stored runs resume on restart"))
        self._watchers.clear()
        self._more_watchers.clear()

    def _set_deadline(self, now: float) -> None:
        if not self._mentions:
            self._mentioned_by = math.inf
        elif self._mentioned_by == math.inf:
            self._mentioned_by = now + _MENTION_DELAY
        self.deadline = math.inf if self._busy else min(now + self._check_every, self._mentioned_by)

    # Batches.

    def _begin_batch(self, changes: Changes) -> None:
        if changes:
            self._changes, self._mentions = [], []
        later, self._later = self._later, []
        self._write(changes, later)

    def _write(self, changes: Changes, later: list[Any]) -> None:
        batch = DecidedBatch(self.projection, self._clock(), changes, self.webhooks)
        if batch.writes:
            self._written = batch, changes, later
            self._start_job(Write(batch.to_commit()))
        elif self._down:
            self._written = batch, changes, later
            self._start_job(AwaitStore(self._nothing()))
        else:
            self._show(batch, later)

    def _start_job(self, job: Write | AwaitStore | Check) -> None:
        self.job, self._busy = job, True

    def _is_written(self, message: Written) -> None:
        self._busy = False
        self._show_written()

    def _is_not_written(self, message: NotWritten) -> None:
        """The store is down: refuse new runs now, and keep the rest until the store is back."""
        assert self._written is not None, "a batch was to be written"
        _, changes, later = self._written
        changes = [change for change in changes if not self._refuse_new_run(change)]
        self._later = [message for message in self._later if not _refuse_answer(message)]
        self._write(changes, [message for message in later if not _refuse_answer(message)])

    def _went_down(self, message: WentDown) -> None:
        self._down = True
        self.effects.tell("supervisor", "", StoreIsDown(True))
        self._changes = [change for change in self._changes if not self._refuse_new_run(change)]
        later, self._later = self._later, []
        for waiting in later:
            self.receive(waiting)

    def _is_back(self, message: StoreIsBack) -> None:
        if self._down:
            self._down = False
            self.effects.tell("supervisor", "", StoreIsDown(False))
        self._release_readers(message)

    def _release_readers(self, message: StoreIsBack | StoreIsGivenUp) -> None:
        for reply in self._unread:
            reply.set(None)
        self._unread.clear()
        if self._written is None or not self._written[0].writes:  # else its outcome follows
            self._busy = False
            self._show_written()

    def _show_written(self) -> None:
        if self._written is not None:
            (batch, _, later), self._written = self._written, None
            self._show(batch, later)

    def _change(self, message: Change | ProgressReport) -> None:
        if not self._down or not self._refuse_new_run(message):
            self._changes.append(message)

    def _refuse_new_run(self, change: Change | ProgressReport) -> bool:
        """While the store is down: refuse a change that creates a run from outside; whether it was one."""
        if isinstance(change, ProgressReport) or not _is_from_outside(change):
            return False
        submission = change.submission
        assert submission is not None, "a change that creates a run has its submission"
        submission.over = submission.refused = True
        self.effects.tell("supervisor", "", NotStored(submission.id))
        self.effects.tell("run", submission.id, Forget())
        if change.reply is not None:
            change.reply.fail(unavailable())
        return True

    # After a commit.

    def _show(self, batch: DecidedBatch, later: list[Any]) -> None:
        """The batch is durable: make it visible, to the actors first."""
        projection, tell = self.projection, self.effects.tell
        for event, record in zip(batch.events, batch.records, strict=True):
            projection.apply(event, record)
        if batch.webhooks or self.webhooks:
            self._follow_webhooks(batch)
        ended: list[Ended] = []
        for change, outcome in batch.decided:
            if not outcome.held:
                for kind, name, message in change.notify_on_refusal:
                    tell(kind, name, message)
                continue
            if change.submission is not None:
                if change.creates:
                    change.submission.committed = True
                else:
                    change.submission.over = True
            for kind, name, message in change.notify:
                tell(kind, name, message)
            if change.ended is not None:
                ended.append(change.ended)
            if change.watch is not None and change.run is not None:
                self._watchers[change.run] = change.watch
        if ended:
            tell("supervisor", "", RunsEnded(ended))
        for change, outcome in batch.decided:
            if change.notify_run and change.run is not None:
                tell("run", change.run, Committed(outcome))
        if batch.events:
            self._publish(batch.events)
        for record in batch.ended:
            if record.id in self._watchers:
                self._watchers.pop(record.id).set(record)
            for reply in self._more_watchers.pop(record.id, ()):
                reply.set(record)
        for change, outcome in batch.decided:
            if change.reply is None:
                continue
            if change.answer is None or not (outcome.held or change.notify_on_refusal):
                change.reply.set(outcome)
            elif outcome.held:
                change.reply.set(change.answer)
        for message in later:
            self._answer(message)

    def _follow_webhooks(self, batch: DecidedBatch) -> None:
        self.webhooks |= batch.webhooks
        for run in batch.ended:
            self.webhooks.pop(run.id, None)
        if batch.marks_webhooks:
            self.wake_webhooks()

    def _answer(self, message: Any) -> None:
        kind = type(message)
        if kind is WatchEnd:
            run = self.projection.runs.get(message.run)
            if run is None or run.ended:
                message.reply.set(run)
            elif message.run not in self._watchers or self._watchers[message.run].done:
                self._watchers[message.run] = message.reply
            else:
                watchers = self._more_watchers.setdefault(message.run, [])
                if len(watchers) & (len(watchers) - 1) == 0:  # at powers of 2: remove those that are answered
                    watchers[:] = [reply for reply in watchers if not reply.done]
                watchers.append(message.reply)
        elif kind is Look:
            self._look(message)
        elif kind is ReadFailed:
            self._read_failed(message)
        elif not _refuse_answer(message):
            if kind is AnswerMany:
                message.reply.set(
                    [made(self.projection) if callable(made) else made for made in message.outcomes]
                )
            elif message.error is not None:
                message.reply.fail(message.error)
            else:
                message.reply.set(message.value)

    def _read_failed(self, message: ReadFailed) -> None:
        if message.commits != self._commits():  # the store has been written since
            message.reply.set(None)
            return
        self._unread.append(message.reply)
        if not self._busy:
            self._start_job(AwaitStore(self._nothing(), message.error))

    def _nothing(self) -> Batch:
        return Batch(self.projection.seq, [], {}, [])

    def _on_look(self, message: Look) -> None:
        if self._down:
            self._look(message)
        else:
            self._later.append(message)

    def _look(self, message: Look) -> None:
        try:
            message.reply.set(message.read(self.projection))
        except GreenroomError as error:
            message.reply.fail(error)

    def _mention(self, message: Mention) -> None:
        self._mentions.append(message.change)

    def _fails(self, message: StoreIsDamaged | CommitFailed) -> None:
        raise message.error


def _refuse_answer(message: Any) -> bool:
    """Fail an answer about a run that could not be stored; whether it was one."""
    kind = type(message)
    if kind is AnswerMany:
        if not any(about is not None and about.refused for about in message.about):
            return False
    elif kind is not Answer or message.about is None or not message.about.refused:
        return False
    message.reply.fail(unavailable())
    return True


def _is_from_outside(change: Change) -> bool:
    """Whether it creates a run that is no child: a body that calls a child waits until the store is back."""
    return change.creates and change.submission is not None and not change.submission.terms.ancestors


_HANDLERS: dict[type, Callable[[JournalMachine, Any], None]] = {
    Change: JournalMachine._change,
    ProgressReport: JournalMachine._change,
    Mention: JournalMachine._mention,
    Look: JournalMachine._on_look,
    Written: JournalMachine._is_written,
    NotWritten: JournalMachine._is_not_written,
    WentDown: JournalMachine._went_down,
    StoreIsBack: JournalMachine._is_back,
    StoreIsGivenUp: JournalMachine._release_readers,
    StoreIsDamaged: JournalMachine._fails,
    CommitFailed: JournalMachine._fails,
}
