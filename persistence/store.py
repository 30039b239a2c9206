"""What a store must do, in the domain's words.

The journal is the only one who commits, one `Batch` at a time and never two at once; reads may come at any
moment and see only what is committed. A batch is one transaction: all of it is there afterwards, or none.
What a store raises when it can't do its work stands in `failures.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from ..protocol.events import Event, InterruptClosed
from ..protocol.flow.records import FlowRow, NodeRun, VersionRow
from ..protocol.patterns import Within
from ..protocol.records import RunRecord
from ..protocol.states import Status
from .flows import FlowMemo, FlowRunPage, FlowRunQuery, StoredFlow, WorkerRow


class Terms(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a run was submitted under, beyond what its record shows. Seconds; `None` means no limit."""

    request_id: str | None = None
    fingerprint: str | None = None
    queue_timeout: float | None = None
    run_timeout: float | None = None
    deadline: float | None = None
    warn_after: float | None = 2.0
    parent: str | None = None
    ancestors: tuple[str, ...] = ()
    front: bool = False
    waits: float | None = None
    """How long the run wanted to wait when it was last suspended: a restart doesn't make it wait longer,
    whatever the clock says."""
    bodiless: bool = False
    """Whether the run, if it waits, does so without a body: what it does can kill no process."""


class Checkpoint(msgspec.Struct, frozen=True, gc=False):
    """The last checkpoint that a run saved for its handle and job. `interrupts` and `calls` are how many of
    them the body had made by then: a body that goes on from here counts on from there."""

    handle: str
    job: str
    run: str
    value: Any
    interrupts: int = 0
    calls: int = 0


class AnswersSpent(msgspec.Struct, frozen=True, gc=False):
    """The body saved a checkpoint after these interrupts were closed: no later body gets their answers."""

    run: str
    interrupts: tuple[str, ...]


class MessagesTaken(msgspec.Struct, frozen=True, gc=False):
    """The body has taken messages, named by the seqs of their `run_message` events."""

    run: str
    seqs: tuple[int, ...]


class FileFinished(msgspec.Struct, frozen=True, gc=False):
    """A run is about to give a file its final name."""

    run: str
    path: str


class FileGivenUp(msgspec.Struct, frozen=True, gc=False):
    """The file was not given its final name after all."""

    run: str
    path: str


class FilesDoomed(msgspec.Struct, frozen=True, gc=False):
    """A run's finished files are to be deleted when it has ended."""

    run: str


class WakesAt(msgspec.Struct, frozen=True, gc=False):
    """When a suspended run wants to go on, in Unix seconds; `None` for not by itself. `terms` are the run's,
    with how long that is."""

    run: str
    at: float | None
    terms: Terms | None = None


class Requested(msgspec.Struct, frozen=True, gc=False):
    """A request id was answered with this run, which another submission had made."""

    request_id: str
    run: str
    fingerprint: str | None


class Deaths(msgspec.Struct, frozen=True, gc=False):
    """How many processes have died while they executed a run, 0 to forget it; and whether it has executed for
    long enough since then to be taken for harmless."""

    run: str
    count: int
    tried: bool = False


Memo = (
    Checkpoint
    | AnswersSpent
    | MessagesTaken
    | FileFinished
    | FileGivenUp
    | FilesDoomed
    | WakesAt
    | Requested
    | Deaths
    | FlowMemo
)
"""What is remembered beside the events."""


class RunWrite(msgspec.Struct, gc=False):
    """A run's row after the batch. `expected` are the statuses that the stored row may have; `None` inserts
    it. `created` and `ended` are the seqs of the events that did so, if this batch holds them; `holds_handle`
    as in the latter."""

    record: RunRecord
    expected: frozenset[Status] | None
    terms: Terms | None = None
    created: int | None = None
    ended: int | None = None
    holds_handle: bool = False


class Batch(msgspec.Struct, gc=False):
    """One transaction: `last_seq` goes from `before` to `before` plus the number of events."""

    before: int
    events: list[Event]
    runs: dict[str, RunWrite]
    memos: list[Memo]

    @property
    def after(self) -> int:
        """The last seq once the batch is committed."""
        return self.before + len(self.events)


class RunQuery(msgspec.Struct, frozen=True):
    """Which runs to list, newest first; `before` is the id of the last run of the page before. Of `within`
    only the handles and lanes count."""

    handle: str | None = None
    lane: str | None = None
    status: frozenset[Status] | None = None
    limit: int = 100
    before: str | None = None
    within: Within | None = None


class StoredInterrupt(msgspec.Struct, frozen=True, gc=False):
    """An interrupt that was asked; `outcome` is `None` while it is open. Of one that is `spent` nothing else
    need be kept: its answer is given to nobody any more."""

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
    """A pending run with everything that is needed to go on with it."""

    record: RunRecord
    terms: Terms
    wakes_at: float | None = None
    files_doomed: bool = False
    messages: list[tuple[int, Any]] = []
    interrupts: list[StoredInterrupt] = []
    files: list[str] = []
    deaths: int = 0
    tried: bool = False


class StoredRequest(msgspec.Struct, gc=False):
    """A request id that still answers with its run; `ended_at` is when that run ended."""

    request_id: str
    run: str
    fingerprint: str | None
    ended_at: float | None


class Stored(msgspec.Struct, gc=False):
    """What a store holds when it is opened. `pending` is in the order of submission, `ended` in that of the
    ends, the last of them only; `held` are handles that an abandoned body held, with its run. `versions` are
    those of flows, without their definitions, in the order of their numbers. `last_id` is the highest of the
    runs' ids."""

    epoch: str
    last_seq: int
    last_place: int
    max_concurrent: int
    draining: bool
    lanes: dict[str, tuple[int | None, int]]
    drafts: dict[str, Any]
    held: dict[str, str]
    pending: list[StoredRun]
    ended: list[RunRecord]
    requests: list[StoredRequest]
    flows: list[FlowRow] = []
    versions: list[VersionRow] = []
    workers: list[WorkerRow] = []
    last_id: str = ""


class Retention(msgspec.Struct, frozen=True):
    """What to keep of ended runs and of events: at most so many, and none older than so many seconds."""

    keep_runs: int | None = None
    keep_runs_for: float | None = None
    keep_events: int | None = None
    keep_events_for: float | None = None


class LeaseWatch(Protocol):
    """What an engine does about the lease of its store. All but `executing` is called in the engine's own
    thread."""

    exits: bool
    """Whether the process ends when the lease is over and a body still executes."""

    def lease_lapses(self, why: str) -> None:
        """The lease could not be renewed and is about to end, or somebody else has it: no body may go on."""

    def lease_over(self, executing: Sequence[str]) -> None:
        """It has ended, and the bodies of these runs still execute."""

    def lease_renewed(self) -> None:
        """It is good: bodies may begin."""

    def lease_lost(self, why: str) -> None:
        """It is lost for good: somebody else has it, or the store is damaged."""

    def executing(self) -> Sequence[str]:
        """The runs whose bodies execute. It may be called from any thread."""


class StoreLease(Protocol):
    """A store's lease, which its engine holds as long as it has the store. Bodies execute only under it."""

    def is_good(self) -> bool:
        """Whether bodies may execute just now. Where it says no, `lease_renewed` is called when they may."""

    def watch(self, watch: LeaseWatch) -> None:
        """Have somebody told, from now on."""

    async def keep(self) -> None:
        """Renew it for as long as this is not cancelled, where no thread does. Begun before the opening."""


class Store(Protocol):
    """Where the journal writes, and where everyone reads what is no longer in the engine's memory."""

    async def open(self, epoch: str, max_concurrent: int, now: float) -> Stored:
        """Open, for this engine alone; a new store takes the epoch and the limit that are offered."""

    @property
    def lease(self) -> StoreLease | None:
        """The lease that is held while the store is open; `None` where nobody else can open it."""

    @property
    def check_every(self) -> float:
        """Seconds after which an engine that had nothing to commit should `check`; `math.inf` for never."""

    async def check(self) -> None:
        """Make sure that this engine still has the store for itself. Where its hold on it was lost, take it
        again; raises if someone else has it meanwhile."""

    async def commit(self, batch: Batch) -> None:
        """Make the batch durable, whole; when this returns it survives a crash."""

    async def committed(self, batch: Batch) -> bool:
        """Whether a batch is there whose commit failed with an unknown outcome."""

    async def run(self, id: str) -> RunRecord | None:
        """One run."""

    async def runs(self, query: RunQuery) -> list[RunRecord]:
        """The runs that fit, newest first."""

    async def history(self, run: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """The stored events of a run after a seq, in order, and no more than `limit`. Progress is kept on the
        run's row only."""

    async def events(self, after: int, limit: int) -> list[Event]:
        """Stored events from a seq on, in order."""

    async def checkpoint(self, handle: str, job: str) -> Checkpoint | None:
        """The last checkpoint of a handle for a job."""

    async def closed_interrupt(self, id: str) -> InterruptClosed | None:
        """How an interrupt was closed, if it ever was."""

    async def version(self, id: str) -> VersionRow | None:
        """A version of a flow, with its definition."""

    async def flow(self, run: str) -> StoredFlow | None:
        """How far a run has walked its flow."""

    async def flow_runs(self, query: FlowRunQuery) -> FlowRunPage:
        """The runs of flows that fit, newest first: no more than asked for, as far as `PAGE_BYTES` go."""

    async def versions(self, ids: Sequence[str]) -> list[VersionRow]:
        """Some versions with their definitions, in this order: the first ones, as far as `PAGE_BYTES` go."""

    async def node_runs(self, run: str, after: int = 0, limit: int | None = None) -> list[NodeRun]:
        """The tries of a run's nodes whose number is higher than `after`, in order; with a `limit`, not more,
        and as far as `PAGE_BYTES` go."""

    async def request_ids(self, runs: Sequence[str]) -> dict[str, str]:
        """Under which request ids runs were submitted; those without one are left out."""

    async def prune(self, retention: Retention, now: float, most: int) -> int:
        """Forget up to `most` ended runs and `most` events that need not be kept; returns how many."""

    async def close(self) -> None:
        """Let go of everything."""
