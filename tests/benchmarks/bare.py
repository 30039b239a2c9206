"""The cost of a store's file without an engine: bare sqlite3 that writes the same rows; and large files.

This is the lower bound in the benchmark `store`: every batch of rows that an engine committed is written
again, with the same statements, to another file with the same tables and settings. The rows are already
encoded.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trio

from greenroom import Jobs, open_engine
from greenroom.persistence.addresses import parse_addresses
from greenroom.persistence.drivers import connect
from greenroom.persistence.sqlstore import SqlStore
from greenroom.persistence.statements import Statements
from greenroom.persistence.store import Batch
from greenroom.persistence.writing import write_batch

Statement = tuple[str, bool, Any]
"""SQL, whether it is executed for many rows, and its parameters."""

_ENGINE = "the floor"
_TERM = 1  # the term of the lease under which the tables were created
_ROWS_AT_ONCE = 20_000
_HANDLES = 1_000


class RecordingStore(SqlStore):
    """A store that records its commits."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.batches: list[Batch] = []

    async def commit(self, batch: Batch) -> None:
        self.batches.append(batch)
        await super().commit(batch)


class Floor:
    """A file with a store's tables, and bare sqlite3 to write it."""

    def __init__(self, path: Path) -> None:
        trio.run(_make_tables, path)
        self._connection = _connect(path)
        self._connection.execute("UPDATE meta SET engine = ?", (_ENGINE,))

    def write(self, group: list[Statement]) -> float:
        """Write the rows of one batch; returns the seconds that it took."""
        connection = self._connection
        start = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        for sql, many, parameters in group:
            if many:
                connection.executemany(sql, parameters)
            else:
                connection.execute(sql, parameters)
        connection.execute("COMMIT")
        return time.perf_counter() - start

    def close(self) -> None:
        self._connection.close()


def statements_of(batch: Batch) -> list[Statement]:
    """The statements that the store executes for a batch."""
    recorder = _Recorder()
    write_batch(batch, _ENGINE, _TERM, Statements("sqlite", recorder))
    return recorder.statements


class _Recorder:
    """Replaces the driver's cursor; every expected row exists."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.rowcount = 0

    def execute(self, sql: str, parameters: Any) -> None:
        self.statements.append((sql, False, parameters))
        self.rowcount = 1

    def executemany(self, sql: str, rows: list[Any]) -> None:
        self.statements.append((sql, True, rows))
        self.rowcount = len(rows)


# Files with many runs.


def fill(path: Path, jobs: Jobs, count: int, *, finished: bool, delay: float | None = None) -> None:
    """Create a store's file with this number of runs: finished runs of a thousand handles, with their events;
    or queued runs, each with its own handle. With a `delay`, they wait for their time. They are copies of a
    run that a real engine created."""
    trio.run(_make_one, path, jobs, finished, delay)
    connection = _connect(path)
    connection.execute("PRAGMA synchronous=OFF")
    run, events = _take_out(connection)
    ids = _ids(run["id"])
    handles = _HANDLES if finished else count
    insert = _insert("runs", run), _insert("events", events[0])
    record = _template(run["record"], run)
    texts = [_template(event["event"], run) for event in events]
    for first in range(0, count, _ROWS_AT_ONCE):
        runs: list[tuple[Any, ...]] = []
        history: list[tuple[Any, ...]] = []
        for number in range(first, min(first + _ROWS_AT_ONCE, count)):
            id, seq = next(ids), number * len(events)
            names = {"id": id, "handle": f"handle {number % handles}"}
            if delay is None:
                names["place"] = number + 1
            first_seq = seq + 1
            for event, text in zip(events, texts, strict=True):
                seq += 1
                filled = text % (names | {"seq": seq})
                history.append(tuple((event | {"seq": seq, "run": id, "event": filled}).values()))
            seqs = {"created_seq": first_seq, "ended_seq": seq if finished else None}
            row = run | names | seqs | {"record": record % names}
            runs.append(tuple(row.values()))
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(insert[0], runs)
        connection.executemany(insert[1], history)
        connection.execute("UPDATE meta SET last_seq = ?, last_place = ?", (seq, number + 1))
        connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


async def _make_one(path: Path, jobs: Jobs, finished: bool, delay: float | None) -> None:
    async with open_engine(jobs, store=f"sqlite:///{path}", max_concurrent=int(finished)) as engine:
        ticket = await engine.submit("nothing", handle="the handle", delay=delay)
        if finished:
            await ticket.result()


async def _make_tables(path: Path) -> None:
    store = SqlStore(f"sqlite:///{path}")
    await store.open("0" * 16, 3, time.time())
    await store.close()


def _connect(path: Path) -> sqlite3.Connection:
    connection: sqlite3.Connection = connect(parse_addresses(f"sqlite:///{path}"))
    return connection


def _take_out(connection: sqlite3.Connection) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Remove the only run and its events; returns them."""
    connection.row_factory = sqlite3.Row
    [run] = map(dict, connection.execute("SELECT * FROM runs"))
    events = [dict(row) for row in connection.execute("SELECT * FROM events WHERE run IS NOT NULL")]
    for table in ("runs", "events"):
        connection.execute(f"DELETE FROM {table}")
    return run, events


def _insert(table: str, row: dict[str, Any]) -> str:
    return f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"


def _template(text: str, run: dict[str, Any]) -> str:
    text = text.replace("%", "%%").replace(run["id"], "%(id)s").replace(run["handle"], "%(handle)s")
    return re.sub(r'"(seq|place)":\d+', r'"\1":%(\1)d', text)


def _ids(model: str) -> Iterator[str]:
    """Ascending ids that are older than this one, ten of them in each millisecond."""
    milliseconds = int(model[:12], 16) - 24 * 3600 * 1000
    for number in range(10**9):
        yield f"{milliseconds + number // 10:012x}{model[12:24]}{number:08x}"
