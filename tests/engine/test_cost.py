"""The cost of a run that does nothing, counted: messages, tasks, steps of the scheduler, and commits.

Nothing is timed, so the results are the same on every computer; `tests/benchmarks` measures time.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from greenroom import Engine, Jobs, Run, open_engine
from greenroom.actors import actor
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.sqlstore import SqlStore
from greenroom.persistence.store import Batch

AT_ONCE = 200

jobs = Jobs()


@jobs.job("nothing")
async def nothing(run: Run) -> None:
    pass


@pytest.fixture(autouse=True)
def store_kind() -> None:
    """The work of the store for a commit is not counted."""


class Cost(trio.abc.Instrument):
    """Counts for the block of `counted`; tasks whose names begin with `caller` are not the engine's."""

    def __init__(self) -> None:
        self.messages: Counter[str] = Counter()
        self.spawned: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self._count(self.spawned, task)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._count(self.steps, task)

    def _count(self, counter: Counter[str], task: trio.lowlevel.Task) -> None:
        if task is not trio.lowlevel.current_root_task() and not task.name.startswith("caller"):
            counter[task.name.split(" ")[0]] += 1

    def see_message(self, kind: actor.Kind, name: str, message: object) -> None:
        self.messages[f"{kind} {type(message).__name__}"] += 1


@contextmanager
def counted() -> Iterator[Cost]:
    cost = Cost()
    before, actor.observer = actor.observer, cost.see_message
    trio.lowlevel.add_instrument(cost)
    try:
        yield cost
    finally:
        trio.lowlevel.remove_instrument(cost)
        actor.observer = before


async def run_all(engine: Engine, name: str) -> None:
    """Concurrent runs, each on a separate handle."""

    async def client(number: int) -> None:
        ticket = await engine.submit("nothing", handle=f"{name} {number}")
        await ticket.result()

    async with trio.open_nursery() as nursery:
        for number in range(AT_ONCE):
            nursery.start_soon(client, number, name=f"caller {number}")


async def cost_under_load(limit: int) -> Cost:
    """The cost of concurrent runs in an engine that has just executed the same number."""
    costs: list[Cost] = []

    async def caller() -> None:
        async with open_engine(jobs, store="memory:", max_concurrent=limit) as engine:
            await run_all(engine, "first")
            with counted() as cost:
                await run_all(engine, "then")
            costs.append(cost)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(caller, name="caller")
    return costs[0]


@pytest.mark.parametrize("limit", [AT_ONCE, 10])
async def test_a_run_takes_at_most_8_messages(limit: int):
    cost = await cost_under_load(limit)
    for message in ("journal Written", "supervisor RunsEnded"):  # one for each commit, of any number of runs
        assert cost.messages.pop(message) <= 2 * AT_ONCE / min(limit, AT_ONCE) + 2
    assert cost.messages.total() <= 8 * AT_ONCE, cost.messages


@pytest.mark.parametrize("limit", [AT_ONCE, 10])
async def test_a_run_on_a_new_handle_takes_at_most_2_tasks(limit: int):
    cost = await cost_under_load(limit)
    assert cost.spawned.total() <= 2 * AT_ONCE, cost.spawned


@pytest.mark.parametrize("limit", [AT_ONCE, 10])
async def test_a_run_takes_at_most_5_steps_of_the_scheduler(limit: int):
    cost = await cost_under_load(limit)
    assert cost.steps.total() <= 5 * AT_ONCE, cost.steps


class CountingStore(MemoryStore):
    """Records the number of runs in each commit."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[int] = []

    async def commit(self, batch: Batch) -> None:
        self.commits.append(len(batch.runs))
        await super().commit(batch)


class CountingFile(SqlStore):
    """The same in a file, where a commit takes time."""

    def __init__(self, file: Path) -> None:
        super().__init__(f"sqlite:///{file}")
        self.commits: list[int] = []

    async def commit(self, batch: Batch) -> None:
        self.commits.append(len(batch.runs))
        await super().commit(batch)


async def test_a_single_run_takes_at_most_2_commits():
    store = CountingStore()
    async with open_engine(jobs, store=store) as engine:
        store.commits.clear()
        ticket = await engine.submit("nothing", handle="handle")
        await ticket.result()
        assert store.commits == [1, 1]


async def test_the_run_that_gets_the_slot_of_another_is_started_by_the_commit_of_its_end(tmp_path: Path):
    store = CountingFile(tmp_path / "engine.db")
    async with open_engine(jobs, store=store, max_concurrent=10) as engine:
        await run_all(engine, "handle")
    assert len(store.commits) <= 1.2 * AT_ONCE / 10 + 5, store.commits


async def test_a_stream_of_queries_does_not_delay_a_commit(tmp_path: Path):
    """The message in each turn is no change, but is answered with the next batch."""
    store, turns = CountingFile(tmp_path / "engine.db"), 0
    async with open_engine(jobs, store=store) as engine, trio.open_nursery() as nursery:
        before = len(store.commits)
        for handle in ("one", "another"):
            nursery.start_soon(partial(engine.submit, "nothing", handle=handle))
        while len(store.commits) == before and turns < 3000:
            nursery.start_soon(engine.snapshot)
            await trio.lowlevel.checkpoint()
            turns += 1
    assert turns < 3000


async def test_concurrent_runs_share_their_commits():
    store = CountingStore()
    async with open_engine(jobs, store=store, max_concurrent=AT_ONCE) as engine:
        store.commits.clear()
        await run_all(engine, "handle")
        assert store.commits == [AT_ONCE, AT_ONCE]
