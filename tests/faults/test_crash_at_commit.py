"""A crash before, within and after each commit of a scenario, and commits with an unknown outcome.

The same small scenario is repeated in mock time, each time with a fault at another commit.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any, Literal
from unittest.mock import patch

import attrs
import pytest
import trio

from greenroom import Engine, Jobs, Run, open_engine
from greenroom.errors import NoActiveRun, NotInteractive, RunEnded, Unavailable
from greenroom.persistence import sqlstore
from greenroom.persistence.failures import StoreDown
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.sqlstore import SqlStore
from greenroom.persistence.statements import Statements
from greenroom.persistence.store import Batch, RunQuery, Store
from greenroom.persistence.writing import write_batch
from greenroom.protocol.events import Event, InterruptOpened, RunProgress, RunStateChanged
from greenroom.protocol.records import RunRecord, Snapshot
from greenroom.protocol.states import ENDED, allowed_from

PATIENCE = 1000.0

Place = Literal["before", "within", "after"]


class Crash(Exception):
    """Raised in place of a crash of the process."""


class Faulty:
    """A store that fails at its `at`th commit, or at every one if that is `None`."""

    def __init__(self, store: Store, fail: Callable[[Faulty, Batch], Any], at: int | None) -> None:
        self.store = store
        self.commits = 0
        self.failed: Batch | None = None
        self.contents: Contents | None = None  # before the commit that failed
        self.looks = 0  # the number of checks whether a batch is committed
        self.unreachable = 0  # how many of the next checks fail
        self.dies = False  # the times of the checks
        self._fail = fail
        self._at = at

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def commit(self, batch: Batch) -> None:
        self.commits += 1
        if self._at not in (None, self.commits):
            await self.store.commit(batch)
            return
        self.failed = batch
        self.contents = await contents(self.store)
        await self._fail(self, batch)

    async def committed(self, batch: Batch) -> bool:
        self.looks += 1
        if self.dies:
            raise Crash
        if self.unreachable:
            self.unreachable -= 1
            raise StoreDown("nobody answers")
        return await self.store.committed(batch)


async def crash_before(faulty: Faulty, batch: Batch) -> None:
    raise Crash


async def crash_within(faulty: Faulty, batch: Batch) -> None:
    """Crash after some of its statements, each time after another number of them, or after all."""
    left = 1 + faulty.commits % 8

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal left
            if not left:
                raise Crash
            left -= 1
            return method(*arguments)

        return call

    def write_all(*arguments: Any) -> None:
        write_batch(*arguments)
        raise Crash

    with ExitStack() as patches:
        for name in ("one", "insert", "replace", "update", "delete"):
            patches.enter_context(patch.object(Statements, name, counted(getattr(Statements, name))))
        patches.enter_context(patch.object(sqlstore, "write_batch", write_all))
        await faulty.store.commit(batch)


async def crash_after(faulty: Faulty, batch: Batch) -> None:
    await faulty.store.commit(batch)
    raise Crash


async def unknown_before(faulty: Faulty, batch: Batch) -> None:
    raise StoreDown("the line was lost", outcome_known=False)


async def unknown_after(faulty: Faulty, batch: Batch) -> None:
    await faulty.store.commit(batch)
    raise StoreDown("the line was lost", outcome_known=False)


CRASHES = {"before": crash_before, "within": crash_within, "after": crash_after}
UNKNOWN = {"not made": unknown_before, "made": unknown_after}


@attrs.frozen
class Contents:
    """Return all queryable data of a store."""

    last_seq: int
    runs: dict[str, RunRecord]
    events: dict[int, Event]


async def contents(store: Store) -> Contents:
    runs = {run.id: run for run in await store.runs(RunQuery(limit=1000))}
    events: dict[int, Event] = {}
    for id in runs:
        events.update((one.seq, one) for one in await store.history(id))
    events.update((one.seq, one) for one in await store.events(0, 100_000))
    return Contents(max(events, default=0), runs, events)


class Story:
    """The scenario, and the answers that its users received."""

    def __init__(self) -> None:
        self.submitted: dict[str, str] = {}  # the runs of the request ids
        self.events: list[Event] = []
        self.checkpoints: dict[str, Any] = {}
        self.resolved: dict[str, Any] = {}
        self.answers: dict[str, Any] = {}
        self.ended: dict[str, RunRecord | None] = {}
        self.bodies: dict[str, int] = {}
        self.jobs = Jobs()
        self.jobs.job("steps", resumable=True)(self.steps)
        self.jobs.job("asker", resumable=True)(self.asker)
        self.jobs.job("retried", max_attempts=3, backoff=1.0)(self.retried)
        self.jobs.job("plain")(self.plain)
        self.jobs.job("parent", resumable=True)(self.parent)

    # Jobs.

    async def steps(self, run: Run, params: dict[str, Any]) -> int:
        assert (run.checkpoint or 0) >= self.checkpoints.get(run.id, 0)
        for step in range(run.checkpoint or 0, 3):
            await run.sleep(1)
            await run.save_checkpoint(step + 1)
            self.checkpoints[run.id] = step + 1
            await run.progress(step + 1, 3)
        return run.checkpoint

    async def asker(self, run: Run, params: dict[str, Any]) -> Any:
        answer = await run.interrupt({"question": "why"}, timeout=1000)
        await run.log("I have asked")
        message = await run.next_message()
        return [answer, message]

    async def retried(self, run: Run, params: dict[str, Any]) -> str:
        await trio.sleep(1)
        if run.attempt == 1:
            raise ValueError("not this time")
        return "at last"

    async def plain(self, run: Run, params: dict[str, Any]) -> str:
        self.bodies[run.id] = self.bodies.get(run.id, 0) + 1
        await trio.sleep(1)
        return "done"

    async def parent(self, run: Run, params: dict[str, Any]) -> Any:
        while True:
            try:
                return await run.call("steps", handle="child", params={})
            except Unavailable:
                await trio.sleep(1)

    # Users.

    async def tell(self, engine: Engine) -> None:
        """Submit everything that is not submitted yet, and make all runs end."""
        async with trio.open_nursery() as nursery:
            snapshot = await engine.snapshot()
            nursery.start_soon(self.follow, engine, snapshot, nursery)
            async with trio.open_nursery() as users:
                for job, handle in (
                    ("steps", "a"),
                    ("plain", "a"),
                    ("asker", "b"),
                    ("retried", "c"),
                    ("parent", "d"),
                ):
                    users.start_soon(self.submit, engine, job, handle)
            await until_all_have_ended(engine)
            nursery.cancel_scope.cancel()

    async def submit(self, engine: Engine, job: str, handle: str) -> None:
        request_id = f"{job} {handle}"
        while True:
            try:
                ticket = await engine.submit(
                    job, handle=handle, params={}, on_conflict="queue", request_id=request_id
                )
            except Unavailable:  # the outcome of the commit is being checked
                await trio.sleep(1)
            else:
                break
        assert self.submitted.setdefault(request_id, ticket.id) == ticket.id
        if job == "asker":
            await self.send_message(engine, ticket.id)
        try:
            await ticket.result()
        except RunEnded as error:
            self.ended[ticket.id] = error.run
        else:
            self.ended[ticket.id] = await engine.get_run(ticket.id)

    async def send_message(self, engine: Engine, run: str) -> None:
        while True:
            await trio.sleep(5)
            try:
                await engine.inject(run, "a message")
            except NotInteractive:
                continue  # it has not started yet
            except NoActiveRun:
                return
            return

    async def follow(self, engine: Engine, snapshot: Snapshot, nursery: trio.Nursery) -> None:
        events = engine.events(after=snapshot.seq)
        for interrupt in snapshot.interrupts:
            nursery.start_soon(self.answer, engine, interrupt)
        async for one in events:
            assert isinstance(one, Event)
            self.events.append(one)
            if isinstance(one, InterruptOpened):
                nursery.start_soon(self.answer, engine, one.interrupt)

    async def answer(self, engine: Engine, interrupt: str) -> None:
        if await engine.answer(interrupt, "because") == "resolved":
            assert interrupt not in self.resolved
            self.resolved[interrupt] = "because"

    # The checks at the end, and at any earlier time.

    def check_what_was_told(self, now: Contents) -> None:
        seqs = [one.seq for one in self.events]
        assert seqs == sorted(set(seqs)), "an event was told twice"
        for one in self.events:
            assert now.events.get(one.seq) == (None if isinstance(one, RunProgress) else one)
        for request_id, id in self.submitted.items():
            assert now.runs[id].job == request_id.split()[0]
        for id, run in self.ended.items():
            assert now.runs[id] == run

    def check_the_end(self, now: Contents) -> None:
        self.check_what_was_told(now)
        statuses: dict[str, Any] = {}
        for _, one in sorted(now.events.items()):
            if isinstance(one, RunStateChanged):
                assert one.from_ == statuses.get(one.run)
                assert one.from_ is None or one.from_ in allowed_from(one.to)
                statuses[one.run] = one.to
        assert set(statuses.values()) <= ENDED
        assert statuses == {id: run.status for id, run in now.runs.items()}
        assert max(self.bodies.values(), default=1) == 1, "a body was repeated that may not be"
        results = {run.job: run.result for run in now.runs.values() if run.status == "succeeded"}
        expected = {
            "steps": 3,
            "parent": 3,
            "asker": ["because", "a message"],
            "retried": "at last",
            "plain": "done",
        }
        if "plain" not in results:
            del expected["plain"]
            [plain] = [run for run in now.runs.values() if run.job == "plain"]
            assert (plain.status, plain.reason) == ("failed", "crashed")
        assert results == expected
        assert len(now.runs) == 6


async def until_all_have_ended(engine: Engine) -> None:
    events = engine.events()
    while any(not run.ended for run in (await engine.snapshot()).runs.values()):
        await anext(events)


@asynccontextmanager
async def opened(story: Story, store: Store) -> AsyncIterator[Engine]:
    numbers = random.Random(1)
    async with open_engine(story.jobs, store, data_dir="/nowhere", random=numbers) as engine:
        yield engine


Reopen = Callable[[], Store]


@pytest.fixture(params=["memory", "sqlite"])
def reopen(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Reopen]]:
    """Return a maker of stores, all of which have the same data."""
    # The machine does not crash here: a folder in memory avoids waits for the disk.
    folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)

    def fresh(name: str) -> Reopen:
        if request.param == "memory":
            store = MemoryStore()
            return lambda: store
        return lambda: SqlStore(f"sqlite:///{folder}/{name}.db?synchronous=normal", in_threads=False)

    yield fresh
    shutil.rmtree(folder)


async def crash_and_go_on(
    reopen: Reopen, fail: Callable[[Faulty, Batch], Any], at: int, *, made: bool
) -> bool:
    """Execute the scenario until the commit that fails, check the store, and execute the rest. False if there
    were fewer commits."""
    story = Story()
    faulty = Faulty(reopen(), fail, at)
    try:
        with trio.fail_after(PATIENCE):
            async with opened(story, faulty) as engine:
                await story.tell(engine)
    except Crash:
        assert faulty.failed is not None
    if faulty.failed is None:
        return False
    store = reopen()
    await store.open("", 1, 0.0)
    now = await contents(store)
    await store.close()
    before, batch = faulty.contents, faulty.failed
    assert before is not None
    if made:
        made = {one.seq: one for one in batch.events if not isinstance(one, RunProgress)}
        assert now.events == before.events | made
        assert now.runs == before.runs | {id: write.record for id, write in batch.runs.items()}
    else:
        assert now == before
    story.check_what_was_told(now)
    with trio.fail_after(PATIENCE):
        async with opened(story, reopen()) as engine:
            await story.tell(engine)
    store = reopen()
    await store.open("", 1, 0.0)
    story.check_the_end(await contents(store))
    await store.close()
    return True


def commits(reopen: Callable[[str], Reopen]) -> Iterator[int]:
    """The index of the failing commit: each one in memory, every second one on the slower SQLite."""
    return itertools.count(1, 1 if isinstance(reopen("")(), MemoryStore) else 2)


@pytest.mark.parametrize("place", CRASHES)
async def test_after_a_crash_at_any_commit_all_of_it_is_stored_or_nothing(
    reopen: Callable[[str], Reopen], place: Place, autojump_clock: trio.testing.MockClock
):
    if isinstance(reopen("")(), MemoryStore) and place == "within":
        place = "before"  # a commit in memory is atomic
    for at in commits(reopen):
        if not await crash_and_go_on(reopen(str(at)), CRASHES[place], at, made=place == "after"):
            break
    assert at > 20, "the story has hardly any commits"


@pytest.mark.parametrize("made", UNKNOWN)
async def test_after_a_commit_with_an_unknown_outcome_the_engine_continues_correctly(
    reopen: Callable[[str], Reopen], made: str, autojump_clock: trio.testing.MockClock
):
    for at in commits(reopen):
        story = Story()
        faulty = Faulty(reopen(str(at))(), UNKNOWN[made], at)
        faulty.unreachable = at % 3
        with trio.fail_after(PATIENCE):
            async with opened(story, faulty) as engine:
                await story.tell(engine)
                now = await contents(faulty.store)
        story.check_the_end(now)
        assert_no_crash_is_in(now)
        if faulty.failed is None:
            break
        assert faulty.looks == at % 3 + 1
    assert at > 20, "the story has hardly any commits"


@pytest.mark.parametrize("made", UNKNOWN)
async def test_after_a_crash_while_an_outcome_is_unknown_all_of_it_is_stored_or_nothing(
    reopen: Callable[[str], Reopen], made: str, autojump_clock: trio.testing.MockClock
):
    async def fail(faulty: Faulty, batch: Batch) -> None:
        faulty.dies = True
        await UNKNOWN[made](faulty, batch)

    for at in commits(reopen):
        if not await crash_and_go_on(reopen(str(at)), fail, at, made=made == "made"):
            break
    assert at > 20, "the story has hardly any commits"


@pytest.mark.parametrize("made", UNKNOWN)
async def test_any_commit_can_have_an_unknown_outcome(
    reopen: Callable[[str], Reopen], made: str, autojump_clock: trio.testing.MockClock
):
    lots = random.Random(made)

    async def fail(faulty: Faulty, batch: Batch) -> None:
        if lots.random() < 0.5:
            await UNKNOWN[made](faulty, batch)
        else:
            await faulty.store.commit(batch)

    story = Story()
    faulty = Faulty(reopen("all")(), fail, None)
    with trio.fail_after(PATIENCE):
        async with opened(story, faulty) as engine:
            await story.tell(engine)
            now = await contents(faulty.store)
    story.check_the_end(now)
    assert_no_crash_is_in(now)


def assert_no_crash_is_in(now: Contents) -> None:
    assert {run.status for run in now.runs.values()} == {"succeeded"}


async def test_an_idle_engine_accepts_runs_again_after_an_outage_that_only_submissions_detected(
    reopen: Callable[[str], Reopen], autojump_clock: trio.testing.MockClock
):
    async def fail(faulty: Faulty, batch: Batch) -> None:
        raise StoreDown("nobody answers")

    story = Story()
    async with opened(story, Faulty(reopen("idle")(), fail, 1)) as engine:
        with pytest.raises(Unavailable):
            await engine.submit("plain", handle="a", params={})
        await trio.sleep(60)
        ticket = await engine.submit("plain", handle="a", params={})
        assert await ticket.result() == "done"


async def test_a_body_that_calls_a_child_during_an_outage_continues(
    reopen: Callable[[str], Reopen], autojump_clock: trio.testing.MockClock
):
    until = 0.0

    async def fail(faulty: Faulty, batch: Batch) -> None:
        if trio.current_time() < until:
            raise StoreDown("nobody answers")
        await faulty.store.commit(batch)

    story = Story()
    begin = trio.Event()

    @story.jobs.job("caller")
    async def caller(run: Run, params: dict[str, Any]) -> Any:
        await begin.wait()
        return await run.call("plain", handle="child", params={})

    async with opened(story, Faulty(reopen("call")(), fail, None)) as engine:
        ticket = await engine.submit("caller", handle="a", params={})
        await trio.sleep(1)
        until = trio.current_time() + 30
        begin.set()
        assert await ticket.result() == "done"


BATCH: Any = [
    {"job": "plain", "handle": f"handle {number % 30}", "params": {}, "on_conflict": "queue"}
    | {"request_id": f"run {number}"}
    for number in range(100)
]
"""Some runs start immediately, some are queued, and some wait in their handles."""


async def submit_batch(engine: Engine) -> None:
    """Submit the batch until its outcome is known; all of its runs must exist then, in their order."""
    while True:
        try:
            tickets = await engine.submit_many(BATCH)
        except Unavailable:
            await trio.sleep(1)
        else:
            break
    runs = await engine.list_runs(limit=1000)
    assert [run.id for run in reversed(runs)] == [ticket.id for ticket in tickets]
    assert len({ticket.joined for ticket in tickets}) == 1, "a part of the batch existed before"


async def submit_batch_and_crash(faulty: Faulty) -> None:
    with trio.fail_after(PATIENCE):
        async with opened(Story(), faulty) as engine:
            await engine.submit_many(BATCH)
            await trio.sleep_forever()


@pytest.mark.parametrize("place", CRASHES)
async def test_after_a_crash_all_runs_of_a_batch_are_stored_or_none(
    reopen: Callable[[str], Reopen], place: Place, autojump_clock: trio.testing.MockClock
):
    if isinstance(reopen("")(), MemoryStore) and place == "within":
        place = "before"  # a commit in memory is atomic
    for at in range(1, 4):
        open_store = reopen(str(at))
        faulty = Faulty(open_store(), CRASHES[place], at)
        with pytest.raises(Crash):
            await submit_batch_and_crash(faulty)
        store = open_store()
        await store.open("", 1, 0.0)
        assert len((await contents(store)).runs) == (100 if at > 1 or place == "after" else 0)
        await store.close()
        async with opened(Story(), open_store()) as engine:
            await submit_batch(engine)


@pytest.mark.parametrize("made", UNKNOWN)
async def test_after_an_unknown_outcome_a_batch_is_accepted_or_refused_as_a_whole(
    reopen: Callable[[str], Reopen], made: str, autojump_clock: trio.testing.MockClock
):
    for at in range(1, 4):
        faulty = Faulty(reopen(str(at))(), UNKNOWN[made], at)
        with trio.fail_after(PATIENCE):
            async with opened(Story(), faulty) as engine:
                await submit_batch(engine)


async def test_a_batch_that_is_refused_during_an_outage_has_created_no_run(
    reopen: Callable[[str], Reopen], autojump_clock: trio.testing.MockClock
):
    async def fail(faulty: Faulty, batch: Batch) -> None:
        raise StoreDown("nobody answers")

    async with opened(Story(), Faulty(reopen("refused")(), fail, 1)) as engine:
        for all_or_nothing in (True, False):
            with pytest.raises(Unavailable, match="nothing was changed"):
                await engine.submit_many(BATCH, all_or_nothing=all_or_nothing)
            assert not (await engine.snapshot()).runs
        await trio.sleep(60)
        await submit_batch(engine)
