"""`keep_runs` and `keep_events`: what the store deletes during the work, and what it never deletes."""

import logging
import math
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import greenroom
from greenroom import Jobs, Keep, Run
from greenroom.errors import Invalid, NotFound
from greenroom.persistence.failures import StoreDown
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.sqlstore import SqlStore
from greenroom.persistence.store import Store

from .support import PATIENCE, Bodies, open_engine

LONG = 200.0
"""Seconds after which pruning is complete."""


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest) -> Store:
    return MemoryStore() if request.param == "memory" else sql()


def sql() -> SqlStore:
    """A SQL store without threads."""
    return SqlStore("sqlite:///:memory:", in_threads=False)


async def finish_some(engine: Any, bodies: Bodies, count: int, **options: Any) -> list[str]:
    """Execute some runs, one after the other; return their ids."""
    ids = []
    for number in range(count):
        ticket = await engine.submit("wait", handle=f"h{number}", params={}, **options)
        bodies.end(ticket)
        await ticket.result()
        ids.append(ticket.id)
    return ids


async def stored(engine: Any) -> list[str]:
    return [run.id for run in await engine.list_runs(limit=1000)][::-1]


async def test_everything_is_kept_by_default(store: Store, autojump_clock: MockClock):
    bodies = Bodies()
    async with open_engine(bodies.jobs, store) as engine:
        ids = await finish_some(engine, bodies, 20)
        await trio.sleep(LONG)
        assert await stored(engine) == ids


async def test_the_runs_that_ended_last_are_kept(store: Store, autojump_clock: MockClock):
    bodies = Bodies()
    async with open_engine(bodies.jobs, store, keep_runs=5) as engine:
        ids = await finish_some(engine, bodies, 12)
        await trio.sleep(LONG)
        assert await stored(engine) == ids[-5:]
        more = await finish_some(engine, bodies, 3)
        await trio.sleep(LONG)
        assert await stored(engine) == [*ids[-2:], *more]


async def test_more_runs_than_fit_into_one_batch_are_deleted(store: Store, autojump_clock: MockClock):
    bodies = Bodies()
    async with open_engine(bodies.jobs, store, keep_runs=0) as engine:
        await finish_some(engine, bodies, 500)
        await trio.sleep(10)  # the next periodic pruning would be later
        assert await stored(engine) == []


async def test_runs_are_deleted_by_age(store: Store, autojump_clock: MockClock):
    bodies = Bodies()
    async with open_engine(bodies.jobs, store, keep_runs=Keep(age=3600)) as engine:
        await finish_some(engine, bodies, 3)
        await trio.sleep(3000)
        young = await finish_some(engine, bodies, 2)
        assert len(await stored(engine)) == 5
        await trio.sleep(700)
        assert await stored(engine) == young
        await trio.sleep(3600)
        assert await stored(engine) == []


async def test_both_bounds_apply_together(store: Store, autojump_clock: MockClock):
    bodies = Bodies()
    async with open_engine(bodies.jobs, store, keep_runs=Keep(count=4, age=3600)) as engine:
        ids = await finish_some(engine, bodies, 6)
        await trio.sleep(LONG)
        assert await stored(engine) == ids[-4:]
        await trio.sleep(3700)
        assert await stored(engine) == []


async def test_an_active_run_is_never_deleted(store: Store, autojump_clock: MockClock):
    bodies = Bodies()
    async with open_engine(bodies.jobs, store, keep_runs=0, keep_events=0) as engine:
        active = await engine.submit("wait", handle="active", params={})
        await finish_some(engine, bodies, 10)
        await trio.sleep(LONG)
        assert await stored(engine) == [active.id]
        assert [event.to for event in await engine.history(active.id)] == ["queued", "running"]
        bodies.end(active)
        await active.result()


async def test_a_run_whose_request_may_be_repeated_is_kept_for_a_day(autojump_clock: MockClock):
    bodies, store = Bodies(), sql()  # without a restart, the engine keeps requests in memory
    async with open_engine(bodies.jobs, store, keep_runs=0) as engine:
        [id] = await finish_some(engine, bodies, 1, request_id="once")
        await trio.sleep(LONG)
        assert await stored(engine) == [id]
        await trio.sleep(24 * 3600)
        assert await stored(engine) == []


async def test_a_checkpoint_is_deleted_with_the_run_that_saved_it(store: Store, autojump_clock: MockClock):
    bodies, found = Bodies(), []

    @bodies.jobs.job("saves")
    async def saves(run: Run) -> None:
        found.append((run.handle, run.kind, run.checkpoint))
        if run.checkpoint is None:
            await run.save_checkpoint("kept")

    async with open_engine(bodies.jobs, store, keep_runs=3) as engine:
        for handle in ("old", "new"):
            await (await engine.submit("saves", handle=handle)).result()
        await finish_some(engine, bodies, 2)
        await trio.sleep(LONG)
        assert [run.handle for run in await engine.list_runs()] == ["h1", "h0", "new"]
        for handle in ("old", "new"):
            await (await engine.submit("saves", handle=handle, kind="continue")).result()
    assert found[2:] == [("old", "continue", None), ("new", "continue", "kept")]


@pytest.mark.parametrize("leave", [False, True])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_the_children_of_a_pending_run_are_kept_for_as_long_as_it_may_call_them_again(
    kind: str, leave: bool, autojump_clock: MockClock, tmp_path: Path
):
    charged, memory = [], MemoryStore()

    def store() -> Store:
        if kind == "memory":
            return memory
        url = f"sqlite:///{tmp_path}/kept.db"
        return SqlStore(url, lease_ttl=24 * 3600, in_threads=False)  # renewed seldom during these days

    def jobs() -> Jobs:
        jobs = Jobs()

        @jobs.job("charge")
        async def charge(run: Run) -> str:
            charged.append(run.id)
            return "charged"

        @jobs.job("pays", resumable=True, run_timeout=math.inf)
        async def pays(run: Run) -> Any:
            result = await run.call("charge", handle="card")
            await run.sleep(3 * 24 * 3600)
            return result

        return jobs

    options: dict[str, Any] = {"keep_runs": 0, "clock": lambda: 1e9 + trio.current_time()}
    async with open_engine(jobs(), store(), **options) as engine:
        ticket = await engine.submit("pays", handle="h")
        await trio.sleep(2 * 24 * 3600)
        assert len(await stored(engine)) == 2
        if not leave:
            assert await ticket.result() == "charged"
    if leave:
        async with open_engine(jobs(), store(), **options) as engine:
            await trio.sleep(2 * 24 * 3600)  # it calls again, two and more days after the child's end
            assert await stored(engine) == [ticket.id, charged[0]]
            await trio.sleep(3 * 24 * 3600)
            assert await stored(engine) == []
    assert len(charged) == 1


async def test_old_events_are_deleted_and_their_runs_stay(autojump_clock: MockClock):
    bodies, store = Bodies(), sql()
    async with open_engine(bodies.jobs, store, keep_events=6) as engine:
        ids = await finish_some(engine, bodies, 10)
        await trio.sleep(LONG)
        last = (await engine.snapshot()).seq
        assert [event.seq for event in await store.events(0, 1000)] == list(range(last - 5, last + 1))
        assert await stored(engine) == ids
        assert await engine.history(ids[0]) == []


async def test_the_next_engine_prunes_after_a_stopped_one(autojump_clock: MockClock):
    store, bodies = MemoryStore(), Bodies()
    async with open_engine(bodies.jobs, store) as engine:
        ids = await finish_some(engine, bodies, 10)
    async with open_engine(bodies.jobs, store, keep_runs=3) as engine:
        await trio.sleep(LONG)
        assert await stored(engine) == ids[-3:]


async def test_a_deleted_run_is_not_found_after_a_restart(autojump_clock: MockClock):
    store, bodies = MemoryStore(), Bodies()
    async with open_engine(bodies.jobs, store, keep_runs=1) as engine:
        first, last = await finish_some(engine, bodies, 2)
        await trio.sleep(LONG)
    async with open_engine(bodies.jobs, store, keep_runs=1) as engine:
        assert (await engine.get_run(last)).status == "succeeded"
        with pytest.raises(NotFound):
            await engine.get_run(first)


class FailingStore(MemoryStore):
    """A store that cannot prune for some time."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: Exception | None = None
        self.attempts = 0

    async def prune(self, *given: Any) -> int:
        self.attempts += 1
        if self.failure is not None:
            raise self.failure
        return await super().prune(*given)


@pytest.mark.parametrize("failure", [StoreDown("the store is unavailable: gone"), KeyError("a bug")])
async def test_a_failure_is_logged_once_and_harms_nothing(
    failure: Exception, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
):
    store, bodies = FailingStore(), Bodies()
    store.failure = failure
    async with open_engine(bodies.jobs, store, keep_runs=2) as engine:
        ids = await finish_some(engine, bodies, 5)
        await trio.sleep(1000)
        assert await stored(engine) == ids
        assert 5 < store.attempts < 60
        [record] = [record for record in caplog.records if "pruning failed" in record.message]
        assert record.levelno == logging.ERROR
        store.failure = None
        await trio.sleep(LONG)
        assert await stored(engine) == ids[-2:]


async def test_an_idle_engine_seldom_queries_its_store(autojump_clock: MockClock):
    store, bodies = FailingStore(), Bodies()
    async with open_engine(bodies.jobs, store, keep_runs=Keep(count=2, age=math.inf)):
        await trio.sleep(6000)
        assert store.attempts <= 101


@pytest.mark.parametrize("keep", [-1, True, 1.5, "3"])
async def test_an_invalid_number_to_keep_is_refused_by_name(keep: Any, autojump_clock: MockClock):
    for name in ("keep_runs", "keep_events"):
        with pytest.raises(Invalid, match=name):
            async with open_engine(Bodies().jobs, **{name: keep}):
                pass


@pytest.mark.parametrize(
    "bad", [{"count": -1}, {"count": True}, {"age": -1}, {"age": "1h"}, {"age": math.nan}]
)
def test_an_invalid_keep_is_refused(bad: dict[str, Any]):
    with pytest.raises(Invalid, match=next(iter(bad))):
        Keep(**bad)


async def test_an_engine_on_a_file_prunes_while_it_works(tmp_path: Path):
    # On the real clock: threads do not work with mock time.
    bodies = Bodies()
    url = f"sqlite:///{tmp_path}/store.db"
    async with greenroom.open_engine(bodies.jobs, url, data_dir=tmp_path / "data") as engine:
        await finish_some(engine, bodies, 9)
    async with greenroom.open_engine(bodies.jobs, url, data_dir=tmp_path / "data", keep_runs=4) as engine:
        with trio.fail_after(PATIENCE):
            while len(await stored(engine)) != 4:  # other tasks continue while it reads
                pass
