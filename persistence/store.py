"""The interface of a store.

Only the journal commits, one `Batch` at a time. Reads can happen at any time and see only committed data. A
batch is one transaction: all of it is committed, or nothing. `failures.py` defines the errors of stores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from ..protocol.events import Event, InterruptClosed
from ..protocol.executors import JobTerms
from ..protocol.flow.records import FlowRow, NodeRun, VersionRow
from ..protocol.lanes import DEFAULT_RULES, LaneRules
from ..protocol.patterns import Within
from ..protocol.records import ExecutorState, RunRecord
from ..protocol.run_filter import RunFilter
from ..protocol.schedules import ScheduleRecord
from ..protocol.states import Status
from ..protocol.tracecontext import TraceContext
from ..protocol.webhooks import Webhook
from .flows import FlowMemo, FlowRunPage, FlowRunQuery, StoredFlow, WorkerRow
from .webhooks import DueWebhooks, WebhookCounts, WebhookMemo


class Terms(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The options of a submission that are not in the run's record. In seconds; `None` means no limit."""

    request_id: str | None = None
    fingerprint: str | None = None
    queue_timeout: float | None = None
    run_timeout: float | None = None
    deadline: float | None = None
    warn_after: float | None = 2.0
    parent: str | None = None
    ancestors: tuple[str, ...] = ()
    front: bool = False
    replaces: bool = False
    """Whether a delayed run replaces the runs of its handle when it is due."""
    was_due: bool = False
    """Whether the time of a run, which had reserved its handle, passed while it waited in its handle."""
    coalesces: bool = False
    """Whether a delayed run takes the parameters of later delayed submissions that coalesce."""
    waits: float | None = None
    """The duration of the run's last suspension. It limits the wait after a restart, also if the clock was
    set back."""
    bodiless: bool = False
    """Whether a suspended run waits without a body, which cannot have caused the death of a process."""
    announced: JobTerms | None = None
    """The job as an executor has announced it, if the engine itself does not have it."""
    trace: TraceContext | None = None
    """The trace that the run belongs to."""


class Checkpoint(msgspec.Struct, frozen=True, gc=False):
    """The last checkpoint that a run saved for its handle and job. `interrupts` and `calls` are how many the
    body had made by then; a resumed body counts from there."""

    handle: str
    job: str
    run: str
    value: Any
    interrupts: int = 0
    calls: int = 0


class AnswersSpent(msgspec.Struct, frozen=True, gc=False):
    """The body saved a checkpoint after these interrupts closed, so no later body gets their answers."""

    run: str
    interrupts: tuple[str, ...]


class MessagesTaken(msgspec.Struct, frozen=True, gc=False):
    """The body has taken messages, given by the seqs of their `run_message` events."""

    run: str
    seqs: tuple[int, ...]


class FileFinished(msgspec.Struct, frozen=True, gc=False):
    """A run is about to give a file its final name. `folder` is the id of the data folder that contains the
    file; empty for the engine's own."""

    run: str
    path: str
    folder: str = ""


class FileGivenUp(msgspec.Struct, frozen=True, gc=False):
    """The run did not give the file its final name."""

    run: str
    path: str
    folder: str = ""


class FilesDoomed(msgspec.Struct, frozen=True, gc=False):
    """A run's finished files must be deleted when it has ended."""

    run: str


class DeletionOwed(msgspec.Struct, frozen=True, gc=False):
    """Files of a run must be deleted from the data folder of an executor: finished ones by their paths, and
    all unfinished ones. It replaces the one for the same folder and run, and is kept when the run is pruned.
    """

    folder: str
    handle: str
    run: str
    paths: tuple[str, ...]


class DeletionDone(msgspec.Struct, frozen=True, gc=False):
    """The files of a run are deleted from this data folder."""

    folder: str
    run: str


class WakesAt(msgspec.Struct, frozen=True, gc=False):
    """When a suspended run resumes, in Unix seconds; `None` if no time is set. `terms`, if given, are the
    run's from now on."""

    run: str
    at: float | None
    terms: Terms | None = None


class Requested(msgspec.Struct, frozen=True, gc=False):
    """A request id was answered with this run, which another submission had created."""

    request_id: str
    run: str
    fingerprint: str | None


class Deaths(msgspec.Struct, frozen=True, gc=False):
    """The number of processes that died while executing a run (0 removes the entry). `tried`: the run has
    since executed long enough to be considered harmless."""

    run: str
    count: int
    tried: bool = False


class TokenTaken(msgspec.Struct, frozen=True, gc=False):
    """A run took a token of a lane's rate: the bucket of this key, or of the lane, is full again at `full_at`
    (Unix seconds)."""

    lane: str
    key: str | None
    full_at: float


class BucketsFull(msgspec.Struct, frozen=True, gc=False):
    """These buckets of a lane are full, or no longer used: of these keys, or of the lane."""

    lane: str
    keys: tuple[str | None, ...]


class ScheduleGone(msgspec.Struct, frozen=True, gc=False):
    """A schedule was deleted."""

    schedule: str


Memo = (
    Checkpoint
    | AnswersSpent
    | MessagesTaken
    | FileFinished
    | FileGivenUp
    | FilesDoomed
    | DeletionOwed
    | DeletionDone
    | WakesAt
    | Requested
    | Deaths
    | TokenTaken
    | BucketsFull
    | ScheduleRecord
    | ScheduleGone
    | WebhookMemo
    | FlowMemo
)
"""Data that is stored in addition to the events."""


class RunWrite(msgspec.Struct, gc=False):
    """A run's row after the batch. `expected` are the allowed statuses of the stored row; `None` inserts a
    new row. `created` and `ended` are the seqs of the events that created and ended the run, if they are in
    this batch; `holds_handle` is that of the ending event."""

    record: RunRecord
    expected: frozenset[Status] | None
    terms: Terms | None = None
    created: int | None = None
    ended: int | None = None
    holds_handle: bool = False


class Batch(msgspec.Struct, gc=False):
    """One transaction: `last_seq` changes from `before` to `before` plus the number of events."""

    before: int
    events: list[Event]
    runs: dict[str, RunWrite]
    memos: list[Memo]

    @property
    def after(self) -> int:
        """The last seq once the batch is committed."""
        return self.before + len(self.events)


class RunQuery(RunFilter, frozen=True, kw_only=True):
    """A query for a page of runs that match the filter, newest first; `before` is the id of the last run of
    the previous page."""

    limit: int = 100
    before: str | None = None
    within: Within | None = None

    @property
    def is_indexed(self) -> bool:
        """Whether the store need not read a run to know whether it matches: its columns and tags show it."""
        read = (self.job, self.flow, self.since, self.until, self.error)
        return all(value is None for value in read) and (self.within is None or self.within.jobs is None)

    def accepts(self, run: RunRecord) -> bool:
        """Whether a run matches the filter and is within the limits."""
        return self.matches(run) and (self.within is None or self.within.holds(run.handle, run.lane, run.job))


class Found(msgspec.Struct, gc=False):
    """Runs that match a query. `reached`: the id of the last run that was read, if the search stopped there
    before the page was full."""

    runs: list[RunRecord]
    reached: str | None = None


class StoredInterrupt(msgspec.Struct, frozen=True, gc=False):
    """An interrupt; `outcome` is `None` while it is open. No body can get the answer of a `spent` one, so its
    other fields need not be kept."""

    id: str
    run: str
    key: str
    data: Any
    opened_at: float
    deadline: float | None
    outcome: str | None = None
    answer: Any = None
    spent: bool = False


class StoredRun(msgspec.Struct, gc=False):
    """A pending run with everything that is needed to continue it. `files` are its finished files in the
    engine's data folder; `foreign_files` are those in other data folders, by the id of the folder. Delayed
    runs share their empty collections."""

    record: RunRecord
    terms: Terms
    wakes_at: float | None = None
    files_doomed: bool = False
    messages: list[tuple[int, Any]] = []
    interrupts: list[StoredInterrupt] = []
    files: list[str] = []
    foreign_files: dict[str, list[str]] = {}
    deaths: int = 0
    tried: bool = False


class StoredRequest(msgspec.Struct, gc=False):
    """A request id that still answers with its run; `ended_at` is when that run ended."""

    request_id: str
    run: str
    fingerprint: str | None
    ended_at: float | None


class StoredLane(msgspec.Struct, gc=False):
    """The settings of a lane, and its generation."""

    limit: int | None
    generation: int
    paused: bool = False
    rules: LaneRules = DEFAULT_RULES


class Stored(msgspec.Struct, gc=False):
    """The content of a store at its opening. `pending` is in the order of submission, in which a delayed run
    that has to wait in its handle at its time counts as submitted at that time; `ended` contains the
    last ended runs in the order in which they ended. `held` maps the handles that an abandoned body held to
    its run, and `abandoned` contains these runs, in the order of their ids. `versions` are those of flows,
    without definitions, in the order of their numbers. `executors` are as of the last seq, in the order of
    their names. `buckets` are those of rates that may not be full. `deletions` are
    those that are not done, in the order of their folders and runs. `last_id` is
    the highest id of a run."""

    epoch: str
    last_seq: int
    last_place: int
    max_concurrent: int
    draining: bool
    lanes: dict[str, StoredLane]
    drafts: dict[str, Any]
    held: dict[str, str]
    pending: list[StoredRun]
    ended: list[RunRecord]
    requests: list[StoredRequest]
    flows: list[FlowRow] = []
    versions: list[VersionRow] = []
    workers: list[WorkerRow] = []
    executors: dict[str, ExecutorState] = {}
    schedules: dict[str, ScheduleRecord] = {}
    deletions: list[DeletionOwed] = []
    last_id: str = ""
    abandoned: list[RunRecord] = []
    buckets: list[TokenTaken] = []
    webhooks: dict[str, frozenset[str]] = {}
    """The types of events that webhooks of pending runs deliver, by run."""
    owes_deliveries: bool = False
    """Whether webhooks have undelivered events."""


class Retention(msgspec.Struct, frozen=True):
    """How many ended runs and events to keep, and for how many seconds."""

    keep_runs: int | None = None
    keep_runs_for: float | None = None
    keep_events: int | None = None
    keep_events_for: float | None = None


class LeaseWatch(Protocol):
    """The callbacks of an engine for the lease of its store. All except `executing` are called in the
    engine's thread."""

    exits: bool
    """Whether the process exits when the lease has expired and a body still executes."""

    def lease_lapses(self, why: str) -> None:
        """Called when the lease is about to expire, or another engine has it: cancel all bodies."""

    def lease_over(self, executing: Sequence[str]) -> None:
        """Called when the lease has expired and the bodies of these runs still execute."""

    def lease_renewed(self) -> None:
        """Called when the lease is good: bodies can start."""

    def lease_lost(self, why: str) -> None:
        """Called when the lease is permanently lost: another engine has it, or the store is damaged."""

    def executing(self) -> Sequence[str]:
        """Return the runs whose bodies execute. Called from any thread."""


class StoreLease(Protocol):
    """The lease that an engine holds while it has the store. Bodies execute only while it is good."""

    @property
    def term(self) -> int:
        """Higher than that of every lease on the store before it."""

    def is_good(self) -> bool:
        """Whether bodies can execute now. If not, `lease_renewed` is called when they can."""

    def watch(self, watch: LeaseWatch) -> None:
        """Call this watch from now on."""

    async def keep(self) -> None:
        """Renew the lease until cancelled, if no thread does. Started before the store is opened."""


class Store(Protocol):
    """The store to which the journal commits, and from which the engine reads what is not in its memory."""

    async def open(self, epoch: str, max_concurrent: int, now: float) -> Stored:
        """Open the store for this engine only; a new store gets this epoch and this limit."""

    @property
    def lease(self) -> StoreLease | None:
        """The lease held while the store is open; `None` if no other engine can open the store."""

    @property
    def check_every(self) -> float:
        """Seconds without a commit after which the engine calls `check`; `math.inf` for never."""

    async def check(self) -> None:
        """Check that this engine still has the store; raises if it has not."""

    async def commit(self, batch: Batch) -> None:
        """Commit the batch. When this returns, the whole batch survives a crash."""

    async def committed(self, batch: Batch) -> bool:
        """Whether a batch whose commit failed with an unknown outcome is committed."""

    async def run(self, id: str) -> RunRecord | None:
        """Return one run."""

    async def runs(self, query: RunQuery) -> list[RunRecord]:
        """Return the runs that match, newest first."""

    async def search(self, query: RunQuery, most: int) -> Found:
        """Return the first of the runs that match, newest first, after reading at most `most` runs."""

    async def history(
        self,
        run: str,
        after: int = 0,
        limit: int | None = None,
        types: Sequence[str] | None = None,
        before: int | None = None,
    ) -> list[Event]:
        """Return the first `limit` stored events of a run after a seq, in order; with `before`, the last
        `limit` ones before that seq; with `types`, only those of these types. Progress is not among them: it
        is only in the run's row."""

    async def events(self, after: int, limit: int) -> list[Event]:
        """Return stored events after a seq, in order."""

    async def files(self, run: str) -> list[tuple[str, str]]:
        """Return the paths of the files that a run has recorded, each with the id of its data folder; `""` is
        the engine's own."""

    async def checkpoint(self, handle: str, job: str) -> Checkpoint | None:
        """Return the last checkpoint of a handle for a job."""

    async def closed_interrupt(self, id: str) -> InterruptClosed | None:
        """Return how an interrupt was closed, if it was."""

    async def version(self, id: str) -> VersionRow | None:
        """Return a version of a flow, with its definition."""

    async def flow(self, run: str) -> StoredFlow | None:
        """Return the stored walk of a run through its flow."""

    async def flow_runs(self, query: FlowRunQuery) -> FlowRunPage:
        """Return a page of the runs of flows that match, newest first, of at most `PAGE_BYTES`."""

    async def versions(self, ids: Sequence[str]) -> list[VersionRow]:
        """Return the first of these versions with their definitions, of at most `PAGE_BYTES`."""

    async def node_runs(self, run: str, after: int = 0, limit: int | None = None) -> list[NodeRun]:
        """Return the node runs of a run with a number above `after`, in order; with a `limit`, at most that
        many and at most `PAGE_BYTES`."""

    async def request_ids(self, runs: Sequence[str]) -> dict[str, str]:
        """Return the request ids of runs, by run; runs without one are omitted."""

    async def runs_of_requests(self, runs: Sequence[str], prefix: str) -> set[str]:
        """Return those of the runs that have a request id with this prefix."""

    async def due_webhooks(
        self,
        most: int,
        busy: Sequence[str],
        without: Sequence[str],
        among: Sequence[str] | None = None,
        failed: bool | None = None,
        horizon: float = math.inf,
    ) -> DueWebhooks:
        """Return at most `most` webhooks with undelivered events, those that are due first; except those of
        `busy` receivers, and those `without`, given by their ids. With `among`, only those of these
        receivers. If `failed` is false, only those without a failed attempt of their next event; if it is
        true, those with one are added to those of `among`. Those that are due after the `horizon` precede
        all others: the clock was set back."""

    async def webhook(self, id: str) -> Webhook | None:
        """Return one webhook."""

    async def dead_webhooks(self, limit: int, after: str | None) -> list[Webhook]:
        """Return dead webhooks, in the order of their ids, after an id."""

    async def failing_webhooks(self, limit: int, after: str | None) -> list[Webhook]:
        """Return failing webhooks that are not dead, in the order of their ids, after an id."""

    async def count_webhooks(self) -> WebhookCounts:
        """Count failing and dead webhooks."""

    async def prune(self, retention: Retention, now: float, most: int) -> int:
        """Delete at most `most` ended runs and `most` events that need not be kept; returns their number."""

    async def close(self) -> None:
        """Close the store."""
