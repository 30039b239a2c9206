"""The benchmarks still run, with small sizes; their results are not checked here. `GREENROOM_BENCHMARKS=long`
adds the one that executes an earlier version."""

import logging
import sqlite3
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
import trio

from greenroom import open_engine
from greenroom.protocol.states import Status

from . import aio, batches, before, cluster, delays, executors, flows, gateway, memory, order, store
from .bare import Floor, RecordingStore, fill, statements_of
from .figures import Figure, as_json, as_lines
from .versions import NoHistory, lay_out_commit

MEMORY = {"HANDLES": 10, "RUNS": 20, "ROUNDS": 1, "SHORT": 20, "LONG": 200, "TRACED": 20, "IDLE_RUNS": 5}
STORE = {"HANDLES": 10, "RUNS": 20, "ROUNDS": 2, "ALONE": 5, "QUEUED": 20, "FINISHED": 20}
GATEWAY = {
    "SUBSCRIBERS": 3,
    "RUNS": 100,
    "ROUNDS": 1,
    "ALONE": 5,
    "COMMANDS": 100,
    "CONNECTIONS": 5,
    "IDLE": 5,
}

FLOWS = {
    "HANDLES": 5,
    "RUNS": 10,
    "FLOWS": 5,
    "ROUNDS": 1,
    "CALLS": 10,
    "WAITING": 20,
    "SIGNALS": 3,
    "BUSY": 1,
}

AIO = {"SUBMITS": 5, "EVENTS": 30, "ROUNDS": 1}

EXECUTORS = {"COMPUTING": 4, "RUNS": 20, "CLIENTS": 5, "ALONE": 5, "ROUNDS": 1}

CLUSTER = {
    "PENDING": 20,
    "TTL": 2.0,
    "TAKEOVERS": 1,
    "HANDOVERS": 1,
    "CLIENTS": 4,
    "COMMANDS": 20,
    "ROUNDS": 1,
}

ORDER = {"QUEUED": 40, "KEYS": 5, "ROUNDS": 1, "CLIENTS": 5}
BATCHES = {"RUNS": 20, "CLIENTS": 2, "ROUNDS": 1}

BEFORE = {
    "RUNS": 20,
    "DURABLE_RUNS": 20,
    "CLIENTS": 5,
    "FEW_CLIENTS": 4,
    "FEW_SLOTS": 2,
    "ALONE": 5,
    "SHORT": 10,
    "LONG": 20,
    "SHORT_TIMES": 1,
    "BURST": 10,
    "SUBMITTERS": 2,
    "ROUNDS": 1,
    "BARE_ROUNDS": 1,
}


@pytest.fixture(autouse=True)
def _level():
    logger = logging.getLogger("greenroom")
    level = logger.level
    yield
    logger.setLevel(level)


def figures_in_small(
    benchmark: ModuleType, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> list[Figure]:
    for name, size in sizes.items():
        monkeypatch.setattr(benchmark, name, size)
    return list(benchmark.measure())


def assert_same_reports(name: str, figures: list[Figure]) -> None:
    told = msgspec.json.decode(as_json(name, figures))
    assert [figure["name"] for figure in told["figures"]] == [figure.name for figure in figures]
    table = "\n".join(as_lines(figures))
    assert all(figure.name in table for figure in figures)


def test_the_memory_benchmark_reports_the_same_as_a_table_and_as_json(monkeypatch: pytest.MonkeyPatch):
    figures = figures_in_small(memory, {**MEMORY, "SHORT_TIMES": 1}, monkeypatch)
    assert_same_reports("memory", figures)
    assert sum(figure.passed is not None for figure in figures) == 5


def test_the_store_benchmark_reports_the_same_as_a_table_and_as_json(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store, "measure_round_trips", lambda: iter(()))  # tests/stores counts them, too
    figures = figures_in_small(store, STORE, monkeypatch)
    assert_same_reports("store", figures)
    assert sum(figure.passed is not None for figure in figures) == 6


def test_the_benchmark_of_delays_reports_the_same_as_a_table_and_as_json(monkeypatch: pytest.MonkeyPatch):
    figures = figures_in_small(delays, {"DELAYED": 20, "ROUNDS": 1}, monkeypatch)
    assert_same_reports("delays", figures)
    assert sum(figure.passed is not None for figure in figures) == 2


def test_the_gateway_benchmark_reports_the_same_as_a_table_and_as_json(monkeypatch: pytest.MonkeyPatch):
    figures = figures_in_small(gateway, GATEWAY, monkeypatch)
    assert_same_reports("gateway", figures)
    assert sum(figure.passed is not None for figure in figures) == 5


def test_the_flows_benchmark_reports_the_same_as_a_table_and_as_json(monkeypatch: pytest.MonkeyPatch):
    figures = figures_in_small(flows, FLOWS, monkeypatch)
    assert_same_reports("flows", figures)
    assert sum(figure.passed is not None for figure in figures) == 3


def test_the_aio_benchmark_reports_the_same_as_a_table_and_as_json(monkeypatch: pytest.MonkeyPatch):
    figures = figures_in_small(aio, AIO, monkeypatch)
    assert_same_reports("aio", figures)
    assert sum(figure.passed is not None for figure in figures) == 4


def test_the_executors_benchmark_reports_the_same_as_a_table_and_as_json(monkeypatch: pytest.MonkeyPatch):
    figures = figures_in_small(executors, EXECUTORS, monkeypatch)
    assert_same_reports("executors", figures)
    assert sum(figure.passed is not None for figure in figures) == 6


@pytest.mark.long("GREENROOM_CHAOS")
def test_the_order_benchmark_reports_the_same_as_a_table_and_as_json(monkeypatch: pytest.MonkeyPatch):
    figures = figures_in_small(order, ORDER, monkeypatch)
    assert_same_reports("order", figures)


@pytest.mark.long("GREENROOM_BENCHMARKS")
def test_the_cluster_benchmark_reports_the_same_as_a_table_and_as_json(monkeypatch: pytest.MonkeyPatch):
    figures = figures_in_small(cluster, CLUSTER, monkeypatch)
    assert_same_reports("cluster", figures)
    assert sum(figure.passed is not None for figure in figures) == 4


def test_the_batches_benchmark_reports_the_same_as_a_table_and_as_json(monkeypatch: pytest.MonkeyPatch):
    figures = figures_in_small(batches, BATCHES, monkeypatch)
    assert_same_reports("batches", figures)
    assert sum(figure.passed is not None for figure in figures) == 4


@pytest.mark.long("GREENROOM_BENCHMARKS")
def test_the_before_benchmark_reports_the_same_as_a_table_and_as_json(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store, "ALONE", 5)
    try:
        figures = figures_in_small(before, BEFORE, monkeypatch)
    except NoHistory as error:
        pytest.skip(str(error))
    assert_same_reports("before", figures)
    assert sum(figure.passed is not None for figure in figures) == 7


def test_a_commit_that_is_not_in_the_history_is_named(tmp_path: Path):
    with pytest.raises(NoHistory, match="fetch the history"):
        lay_out_commit("0" * 40, tmp_path / "version")


def test_the_floor_writes_exactly_the_rows_that_the_engine_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(store, "HANDLES", 10)
    monkeypatch.setattr(store, "RUNS", 20)
    recording = RecordingStore(f"sqlite:///{tmp_path}/engine.db")
    trio.run(store.run_clients, recording)
    floor = Floor(tmp_path / "floor.db")
    for batch in recording.batches:
        floor.write(statements_of(batch))
    floor.close()
    for table in ("runs", "events"):
        assert rows(tmp_path / "floor.db", table) == rows(tmp_path / "engine.db", table) != []


@pytest.mark.parametrize("finished", [True, False])
async def test_an_engine_finds_the_runs_that_a_file_was_filled_with(finished: bool, tmp_path: Path):
    path = tmp_path / "filled.db"
    await trio.to_thread.run_sync(lambda: fill(path, memory.jobs, 25, finished=finished))
    async with open_engine(memory.jobs, store=f"sqlite:///{path}", max_concurrent=0) as engine:
        snapshot = await engine.snapshot()
        expected = Status.SUCCEEDED if finished else Status.QUEUED
        assert [run.status for run in snapshot.runs.values()] == [expected] * 25
        assert [run.place for run in snapshot.runs.values()] == list(range(1, 26))
        for id, run in snapshot.runs.items():
            history = await engine.history(id)
            assert [event.run for event in history] == [id] * (3 if finished else 1)
            assert {event.handle for event in history} == {run.handle}


def rows(path: Path, table: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    found = connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
    connection.close()
    return found
