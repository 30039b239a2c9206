"""What a store must do, in the domain's words.

The journal is the only one who commits, one `Batch` at a time and never two at once; reads may come at any
moment and see only what is committed. A batch is one transaction: all of it is there afterwards, or none.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from ..protocol.events import Event, InterruptClosed
from ..protocol.records import RunRecord
from ..protocol.states import Status


class Terms(msgspec.Struct, frozen=True, gc=False):
    """What a run was submitted under, beyond what its record shows. Seconds; `None` means no limit."""

    request_id: str | None = None
    fingerprint: str | None = None
    queue_timeout: float | None = None
    run_timeout: float | None = None
    deadline: float | None = None
    parent: str | None = None


class Checkpoint(msgspec.Struct, frozen=True, gc=False):
    """The last checkpoint that a run saved for its handle and job."""

    handle: str
    job: str
    run: str
    value: Any


class MessagesTaken(msgspec.Struct, frozen=True, gc=False):
    """The body has taken this many more of its run's messages, oldest first."""

    run: str
    count: int


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
    """When a suspended run wants to go on, in Unix seconds."""

    run: str
    at: float


Memo = Checkpoint | MessagesTaken | FileFinished | FileGivenUp | FilesDoomed | WakesAt
"""What is remembered beside the events."""


class RunWrite(msgspec.Struct, gc=False):
    """A run's row after the batch. `expected` are the statuses that the stored row may have; `None` inserts
    it."""

    record: RunRecord
    expected: frozenset[Status] | None
    terms: Terms | None = None


class Batch(msgspec.Struct, gc=False):
    """One transaction: `last_seq` goes from `before` to `before` plus the number of events."""

    before: int
    events: list[Event]
    runs: dict[str, RunWrite]
    memos: list[Memo]


class RunQuery(msgspec.Struct, frozen=True):
    """Which runs to list, newest first; `before` is the id of the last run of the page before."""

    handle: str | None = None
    lane: str | None = None
    status: frozenset[Status] | None = None
    limit: int = 100
    before: str | None = None


class Store(Protocol):
    """Where the journal writes, and where everyone reads what is no longer in the engine's memory."""

    async def open(self, epoch: str) -> str:
        """Open, and return the epoch of the numbering: a new store takes the one that is offered."""

    async def commit(self, batch: Batch) -> None:
        """Make the batch durable, whole; when this returns it survives a crash."""

    async def run(self, id: str) -> RunRecord | None:
        """One run."""

    async def runs(self, query: RunQuery) -> list[RunRecord]:
        """The runs that fit, newest first."""

    async def history(self, run: str) -> list[Event]:
        """All stored events of a run, in order. Progress is kept on the run's row only."""

    async def checkpoint(self, handle: str, job: str) -> Checkpoint | None:
        """The last checkpoint of a handle for a job."""

    async def closed_interrupt(self, id: str) -> InterruptClosed | None:
        """How a question was closed, if it ever was."""

    async def close(self) -> None:
        """Let go of everything."""
