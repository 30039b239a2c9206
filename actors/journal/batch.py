"""A batch of changes: the result of each compare-and-set, and the numbering of the accepted events.

Plain data without messages: the projection is only read, and nothing is committed here.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence

from msgspec.structs import force_setattr

from ...persistence.store import Batch, Memo, RunWrite
from ...persistence.webhooks import WebhookAdded
from ...protocol.events import Event, LaneChanged, RunEvent, RunProgress, RunStateChanged
from ...protocol.fold import Projection, next_record
from ...protocol.records import RunRecord
from ...protocol.states import ENDED
from ..webhooks.marking import Types, marks
from .change import REPORTING, Change, Outcome, ProgressReport

_NO_WEBHOOKS: dict[str, frozenset[str]] = {}


class DecidedBatch:
    """A batch decided against the projection: its events, records, memos, and the outcome of each change.

    `webhooks` are those of pending runs, and the batch's own `webhooks` those that it adds. `marks_webhooks`:
    some have an event to deliver when the batch is committed.
    """

    def __init__(
        self,
        projection: Projection,
        now: float,
        changes: Sequence[Change | ProgressReport],
        webhooks: dict[str, frozenset[str]] = _NO_WEBHOOKS,
    ) -> None:
        self._projection = projection
        self._now = now
        self._seq = projection.seq
        self._fresh: dict[str, RunRecord] = {}
        self._generations: dict[str, int] = {}
        self._writes: dict[str, RunWrite] = {}
        self.events: list[Event] = []
        self.records: list[RunRecord | None] = []
        self.memos: list[Memo] = []
        self.ended: list[RunRecord] = []
        self.decided: list[tuple[Change, Outcome]] = []
        self.webhooks: dict[str, frozenset[str]] = {}
        for change in changes:
            if isinstance(change, Change):
                self.decided.append((change, self._decide(change)))
            else:
                self._progress(change)
        self.marks_webhooks = bool(self.webhooks)
        if webhooks or self.webhooks:
            self._mark(ChainMap(self.webhooks, webhooks) if self.webhooks else webhooks)

    @property
    def seq(self) -> int:
        """The last seq after the commit of the batch."""
        return self._seq

    @property
    def writes(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.events or self.memos)

    def to_commit(self) -> Batch:
        return Batch(self._projection.seq, self.events, self._writes, self.memos)

    def _decide(self, change: Change) -> Outcome:
        """Compare, and number the events if every comparison succeeds."""
        run = None
        if change.run is not None:
            run = self._fresh.get(change.run) or self._projection.runs.get(change.run)
            if not self._holds(change, run):
                return Outcome(False, run, self._seq)
        for event in change.events:
            run = self._add(event, change)
        if change.memos:
            self.memos.extend(change.memos)
            if change.creates:
                self._add_webhooks(change.memos)
        return Outcome(True, run, self._seq)

    def _add_webhooks(self, memos: Sequence[Memo]) -> None:
        for memo in memos:
            if isinstance(memo, WebhookAdded):
                run = memo.webhook.run
                self.webhooks[run] = self.webhooks.get(run, frozenset()).union(memo.webhook.types)

    def _mark(self, webhooks: Types) -> None:
        marked = marks(self.events, {run.id for run in self.ended}, webhooks, self._now)
        self.memos += marked
        self.marks_webhooks = self.marks_webhooks or bool(marked)

    def _progress(self, report: ProgressReport) -> None:
        """Add the latest progress of a body, if its run is still executing this attempt."""
        latest, report.latest = report.latest or report.taken, None
        report.taken = latest
        run = self._fresh.get(report.run) or self._projection.runs.get(report.run)
        if latest is None or run is None or run.attempt != report.attempt or run.status not in REPORTING:
            return
        done, total, stats = latest
        event = RunProgress(
            seq=0,
            at=0,
            by="body",
            run=report.run,
            handle=report.handle,
            lane=report.lane,
            attempt=report.attempt,
            done=done,
            total=total,
            stats=stats,
        )
        self._add(event, None)

    def _holds(self, change: Change, run: RunRecord | None) -> bool:
        for event in change.events:
            if type(event) is RunStateChanged:
                if event.from_ is not (None if run is None else run.status):
                    return False
                break
        if change.expect is not None and (run is None or run.status not in change.expect):
            return False
        if change.attempt is not None and (run is None or run.attempt != change.attempt):
            return False
        return change.generation is None or run is None or self._generation(run.lane) == change.generation

    def _generation(self, lane: str) -> int:
        fresh = self._generations.get(lane)
        return self._projection.generation(lane) if fresh is None else fresh

    def _add(self, event: Event, change: Change | None) -> RunRecord | None:
        self._seq += 1
        # The event is not visible to anyone yet, so its seq and time can be set in place.
        force_setattr(event, "seq", self._seq)
        force_setattr(event, "at", self._now)
        self.events.append(event)
        if not isinstance(event, RunEvent):
            if type(event) is LaneChanged:
                self._generations[event.lane] = event.generation
            self.records.append(None)
            return None
        id = event.run
        before = self._fresh.get(id) or self._projection.runs.get(id)
        record = next_record(before, event)
        self._fresh[id] = record
        self.records.append(record)
        write = self._writes.get(id)
        if write is None:
            expected = None
            if before is not None:
                expected = REPORTING if change is None else change.expect or frozenset({before.status})
            terms = change.terms if change is not None else None
            write = RunWrite(record, expected, terms, self._seq if before is None else None)
            self._writes[id] = write
        else:
            write.record = record
        if record.status in ENDED and (before is None or before.status not in ENDED):
            self.ended.append(record)
            write.ended = self._seq
            write.holds_handle = isinstance(event, RunStateChanged) and event.holds_handle
        return record
