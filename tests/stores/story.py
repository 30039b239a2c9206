"""Makes batches for a store like the journal: numbered events, and one write for each run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from greenroom.persistence.store import Batch, Memo, RunWrite, Store, Stored, Terms
from greenroom.protocol.events import (
    EngineChanged,
    Event,
    ExecutorChanged,
    HandleChanged,
    InterruptClosed,
    InterruptOpened,
    LaneChanged,
    LeaderChanged,
    NodeChanged,
    RunChanged,
    RunEvent,
    RunLog,
    RunMessage,
    RunProgress,
    RunStateChanged,
    RunWaiting,
)
from greenroom.protocol.fold import next_record
from greenroom.protocol.records import RunRecord
from greenroom.protocol.states import ENDED, Status

from .conftest import Place

NOW = 1_700_000_000.25
"""The default time of events. Its fraction of a second must be stored, too."""


class Story:
    """The batches of one store."""

    def __init__(self, store: Store, stored: Stored) -> None:
        self.store = store
        self.stored = stored
        self.seq = stored.last_seq
        self.runs: dict[str, RunRecord] = {run.record.id: run.record for run in stored.pending}
        self.events: list[Event] = []

    async def tell(
        self,
        *events: Event,
        memos: Sequence[Memo] = (),
        terms: Mapping[str, Terms] | None = None,
        at: float = NOW,
    ) -> Batch:
        """Commit the events, and the memos, as one batch."""
        batch = self.batch(*events, memos=memos, terms=terms, at=at)
        await self.store.commit(batch)
        self.take(batch)
        return batch

    def batch(
        self,
        *events: Event,
        memos: Sequence[Memo] = (),
        terms: Mapping[str, Terms] | None = None,
        at: float = NOW,
    ) -> Batch:
        """The batch, not committed."""
        numbered = [replace(event, seq=self.seq + n, at=at) for n, event in enumerate(events, start=1)]
        runs = dict(self.runs)
        writes: dict[str, RunWrite] = {}
        for event in numbered:
            if not isinstance(event, RunEvent):
                continue
            before = runs.get(event.run)
            record = runs[event.run] = next_record(before, event)
            if event.run not in writes:
                expected = None if before is None else frozenset({before.status})
                writes[event.run] = RunWrite(record, expected, (terms or {}).get(event.run))
            write = writes[event.run]
            write.record = record
            if before is None:
                write.created = event.seq
            if isinstance(event, RunStateChanged) and event.to in ENDED:
                write.ended, write.holds_handle = event.seq, event.holds_handle
        return Batch(self.seq, numbered, writes, list(memos))

    def take(self, batch: Batch) -> None:
        """Continue from a committed batch."""
        self.seq = batch.after
        self.runs |= {id: write.record for id, write in batch.runs.items()}
        self.events += batch.events


@asynccontextmanager
async def opened(place: Place, *, now: float = NOW) -> AsyncIterator[Story]:
    """A store, from its opening to its close."""
    store = place.store()
    try:
        yield await begin(store, now=now)
    finally:
        await store.close()


async def begin(store: Store, *, now: float = NOW) -> Story:
    """Open a store and continue after its last event."""
    return Story(store, await store.open("0123456789abcdef", 3, now))


# Events. `of` returns the ids and names of a run's events.


def of(run: str, handle: str | None = None, lane: str = "main") -> dict[str, Any]:
    return {
        "seq": 0,
        "at": 0,
        "by": "test",
        "run": run,
        "handle": handle or f"handle of {run}",
        "lane": lane,
    }


def created(
    run: str,
    handle: str | None = None,
    lane: str = "main",
    *,
    place: int | None = None,
    params: Any = None,
    job: str = "job",
) -> RunStateChanged:
    return RunStateChanged(
        **of(run, handle, lane),
        from_=None,
        to=Status.QUEUED,
        attempt=0,
        reason=None,
        place=place,
        job=job,
        kind="start",
        params=params,
    )


def moved(run: RunRecord | RunStateChanged, to: Status, **fields: Any) -> RunStateChanged:
    """A transition of the run from its current status."""
    id, from_ = (run.id, run.status) if isinstance(run, RunRecord) else (run.run, run.to)
    fields = {"attempt": run.attempt, "place": run.place, "reason": None} | fields
    return RunStateChanged(**of(id, run.handle, run.lane), from_=from_, to=to, **fields)


def life(
    run: str, handle: str | None = None, lane: str = "main", *, place: int = 1, **fields: Any
) -> list[RunStateChanged]:
    """The events of a run from its submission to its success."""
    first = created(run, handle, lane, place=place)
    second = moved(first, Status.RUNNING, attempt=1)
    return [first, second, moved(second, Status.SUCCEEDED, **fields)]


def every_kind(run: str) -> list[Event]:
    """Events of every kind, of one run that executes at the end, and of its handle, lane and engine."""
    here = of(run)
    first = created(run, place=7, params={"n": 1})
    return [
        first,
        RunWaiting(**here, waited=2.5, ahead=1, blockers=["other"]),
        RunChanged(**here, waiting_for="executor"),
        moved(first, Status.RUNNING, attempt=1, interactive=True, executor="gpu-1"),
        RunChanged(**here, streaming=True),
        RunProgress(**here, attempt=1, done=1, total=3, stats={"mood": "good"}),
        RunLog(**here, attempt=1, text="a line", level="info"),
        RunMessage(**here, message={"text": "hello"}),
        InterruptOpened(**here, interrupt=f"{run}.1", key="1", data={"ask": "?"}, deadline=NOW + 60),
        InterruptClosed(**here, interrupt=f"{run}.1", outcome="answered", answer={"approved": True}),
        InterruptOpened(**here, interrupt=f"{run}.2", key="two", data=None, deadline=None),
        lane_changed("uploads", 2, 1),
        draft("alice", {"draft": 1}),
        engine_changed(5, draining=True),
        executor_changed("gpu-1", "draining", slots=4, labels=("gpu", "big"), jobs=("job", "other")),
        LeaderChanged(seq=0, at=0, by="engine", node="n1", address="http://n1:8735", term=3),
        NodeChanged(seq=0, at=0, by="engine", node="n2", status="joined", address="http://n2:8735"),
    ]


def lane_changed(lane: str, limit: int | None, generation: int = 0, **fields: Any) -> LaneChanged:
    return LaneChanged(seq=0, at=0, by="test", lane=lane, limit=limit, generation=generation, **fields)


def draft(handle: str, params: Any) -> HandleChanged:
    return HandleChanged(seq=0, at=0, by="test", handle=handle, params=params)


def freed(handle: str, run: str) -> HandleChanged:
    return HandleChanged(seq=0, at=0, by="test", handle=handle, freed=run)


def engine_changed(max_concurrent: int, *, draining: bool = False) -> EngineChanged:
    return EngineChanged(seq=0, at=0, by="test", max_concurrent=max_concurrent, draining=draining)


def executor_changed(executor: str, status: str = "attached", **fields: Any) -> ExecutorChanged:
    return ExecutorChanged(seq=0, at=0, by="engine", executor=executor, status=status, **fields)
