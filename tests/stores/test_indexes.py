"""Queries of a store with many ended runs use an index, and do not scan all runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from greenroom.persistence.flows import FlowRunQuery
from greenroom.persistence.reading import read_all, read_history, read_run
from greenroom.persistence.reading_flows import read_flow_runs
from greenroom.persistence.searching import read_runs, search_runs
from greenroom.persistence.sqlstore import SqlStore
from greenroom.persistence.statements import Statements
from greenroom.persistence.store import RunQuery
from greenroom.persistence.writing import write_batch
from greenroom.protocol.states import Status

from .story import NOW, begin, life

FAILED = frozenset({Status.FAILED, Status.TIMED_OUT})
TAGS = {"customer": "42", "env": "prod"}

READS: dict[str, Callable[[Connection], object]] = {
    "at the opening": lambda connection: read_all(connection, NOW),
    "one run": lambda connection: read_run(connection, "r1"),
    "the runs of a handle": lambda connection: read_runs(connection, RunQuery(handle="a", limit=10)),
    "the runs of a lane": lambda connection: read_runs(connection, RunQuery(lane="a", limit=10)),
    "runs that failed": lambda connection: read_runs(connection, RunQuery(status=FAILED, limit=10)),
    "runs with tags": lambda connection: read_runs(connection, RunQuery(tags=TAGS, limit=10)),
    "runs with tags that failed": lambda connection: read_runs(
        connection, RunQuery(tags=TAGS, status=FAILED, before="r9", limit=10)
    ),
    "children of a run": lambda connection: read_runs(connection, RunQuery(parent="r1", limit=10)),
    "runs of a job that failed": lambda connection: search_runs(
        connection, RunQuery(status=FAILED, job="mirror"), 10
    ),
    "runs of flows that failed": lambda connection: read_flow_runs(connection, FlowRunQuery(status=FAILED)),
    "a history": lambda connection: read_history(connection, "r1", 0, 10),
    "the end of a history": lambda connection: read_history(connection, "r1", 0, 10, before=99),
}


async def plans_of(file: Path, read: Callable[[Connection], object]) -> list[str]:
    """Return SQLite's query plan, a line for each table."""
    store = SqlStore(f"sqlite:///{file}")
    await begin(store)
    plans = await store._database.read(
        lambda connection: explained(connection.connection.driver_connection, partial(read, connection))
    )
    await store.close()
    return plans


def explained(driver: Any, do: Callable[[], object]) -> list[str]:
    """Return the query plans of the statements that a function executes."""
    assert isinstance(driver, sqlite3.Connection)
    said: list[str] = []
    driver.set_trace_callback(said.append)
    do()
    driver.set_trace_callback(None)
    queries = [sql for sql in said if sql.lstrip().startswith(("SELECT", "UPDATE", "DELETE"))]
    assert queries
    return [row[3] for sql in queries for row in driver.execute(f"EXPLAIN QUERY PLAN {sql}")]


@pytest.mark.parametrize("name", READS)
async def test_no_query_scans_all_runs_or_all_events(name: str, tmp_path: Path) -> None:
    plans = await plans_of(tmp_path / "store.db", READS[name])
    for plan in plans:
        assert not plan.startswith(("SCAN runs", "SCAN events")) or "USING" in plan, plans


async def test_pending_or_failed_runs_are_found_by_their_index(tmp_path: Path) -> None:
    for name in ("at the opening", "runs that failed", "runs of a job that failed"):
        plans = await plans_of(tmp_path / "store.db", READS[name])
        assert any("runs_by_status (status=?" in plan for plan in plans), plans


@pytest.mark.parametrize("name", ["runs with tags", "runs with tags that failed", "children of a run"])
async def test_tags_find_their_runs_in_the_order_of_the_list(name: str, tmp_path: Path) -> None:
    plans = await plans_of(tmp_path / "store.db", READS[name])
    assert plans[0].startswith("SEARCH tag_"), plans
    assert not any("TEMP B-TREE" in plan or "SCAN" in plan for plan in plans), plans


async def test_a_compare_and_set_finds_its_run_by_the_id(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/store.db")
    story = await begin(store)
    await story.tell(*life("r1")[:2])
    batch = story.batch(life("r1")[2])

    def write(cursor: Any) -> list[str]:
        statements = Statements("sqlite", cursor)
        return explained(cursor.connection, lambda: write_batch(batch, *store.engine_lease.fence, statements))

    plans = await store._database.commit(write)
    await store.close()
    [plan] = [plan for plan in plans if " runs " in plan]
    assert plan.endswith("runs USING INDEX sqlite_autoindex_runs_1 (id=?)")
