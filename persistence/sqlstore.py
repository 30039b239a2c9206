"""The store on a SQL database: SQLite, PostgreSQL, MySQL or MariaDB.

One engine has a store at a time. That is guarded twice: by a lock that is held as long as the store is open,
and in every batch, which advances `last_seq` only under this engine's id.
"""

from __future__ import annotations

import math
import os
import secrets
import socket
from collections.abc import Callable, Sequence

import trio
from sqlalchemy import Connection, select, update

from ..protocol.errors import Conflict
from ..protocol.events import Event, InterruptClosed
from ..protocol.flow.records import NodeRun, VersionRow
from ..protocol.records import RunRecord
from . import schema
from .database import Connect, DatabaseManager
from .drivers import connect
from .failures import StoreBroken
from .flows import FlowRunPage, FlowRunQuery, StoredFlow
from .locks import StoreLock
from .pruning import prune
from .reading import (
    read_all,
    read_checkpoint,
    read_closed_interrupt,
    read_events,
    read_history,
    read_run,
    read_runs,
)
from .reading_flows import read_flow, read_flow_runs, read_node_runs, read_request_ids, read_version
from .statements import Statements
from .store import Batch, Checkpoint, Retention, RunQuery, Stored
from .versions import migrate_file, require_version
from .writing import write_batch

_CHECKED_EVERY = 5.0
"""Seconds after which an idle engine looks whether it still has its lock, which dies with its connection."""

_TRUSTED_FOR = 1.0
"""Seconds for which a commit relies on the last look."""


def _new_engine_id() -> str:
    return secrets.token_hex(16)


class SqlStore:
    """A store whose addresses are `stores`, primary first. For simulation, connections and the ids that tell
    engines apart can be made in another way."""

    def __init__(
        self,
        stores: str | Sequence[str],
        *,
        in_threads: bool = True,
        connect: Connect = connect,
        new_engine_id: Callable[[], str] = _new_engine_id,
    ) -> None:
        self._database = DatabaseManager(stores, in_threads=in_threads, connect=connect)
        self._new_engine_id = new_engine_id
        self._lock = StoreLock(self._database.addresses, in_threads=in_threads)
        self._engine = ""
        self._checked = -math.inf  # when it was sure to have the store for itself

    @property
    def in_threads(self) -> bool:
        """Whether it works in threads, and so what is beside it may do so too."""
        return self._database.in_threads

    async def open(self, epoch: str, max_concurrent: int, now: float) -> Stored:
        await self._lock.acquire()
        await self._database.open()
        self._engine = self._new_engine_id()

        def begin(connection: Connection) -> Stored:
            if self._database.kind == "sqlite":
                migrate_file(connection, self._database.name)
            require_version(connection, self._database.name)
            if connection.execute(select(schema.meta.c.id)).first() is None:
                connection.execute(schema.meta.insert(), _first_row(epoch, max_concurrent))
            holder = f"process {os.getpid()} on {socket.gethostname()}"
            connection.execute(update(schema.meta).values(engine=self._engine, holder=holder))
            return read_all(connection, now)

        return await self._database.with_retry(begin)

    @property
    def check_every(self) -> float:
        return math.inf if self._database.kind == "sqlite" else _CHECKED_EVERY

    async def check(self) -> None:
        if self._database.kind == "sqlite":
            return  # the lock on its file lasts as long as the process
        if not await self._lock.check():
            try:
                await self._lock.acquire()
            except Conflict as error:
                raise StoreBroken(
                    f"the connection that held the store was lost, and meanwhile: {error.message}"
                ) from error
        self._checked = trio.current_time()

    async def commit(self, batch: Batch) -> None:
        if trio.current_time() >= self._checked + _TRUSTED_FOR:
            await self.check()

        def write(connection: Connection) -> None:
            write_batch(batch, self._engine, Statements(self._database.kind, connection))

        def write_unless_done(connection: Connection) -> None:
            if not self._is_committed(connection, batch):
                write(connection)

        await self._database.with_retry(write, again=write_unless_done)

    async def committed(self, batch: Batch) -> bool:
        return await self._database.read(lambda connection: self._is_committed(connection, batch))

    async def run(self, id: str) -> RunRecord | None:
        return await self._database.read(lambda connection: read_run(connection, id))

    async def runs(self, query: RunQuery) -> list[RunRecord]:
        return await self._database.read(lambda connection: read_runs(connection, query))

    async def history(self, run: str, after: int = 0, limit: int | None = None) -> list[Event]:
        return await self._database.read(lambda connection: read_history(connection, run, after, limit))

    async def events(self, after: int, limit: int) -> list[Event]:
        return await self._database.read(lambda connection: read_events(connection, after, limit))

    async def checkpoint(self, handle: str, job: str) -> Checkpoint | None:
        return await self._database.read(lambda connection: read_checkpoint(connection, handle, job))

    async def closed_interrupt(self, id: str) -> InterruptClosed | None:
        return await self._database.read(lambda connection: read_closed_interrupt(connection, id))

    async def version(self, id: str) -> VersionRow | None:
        return await self._database.read(lambda connection: read_version(connection, id))

    async def flow(self, run: str) -> StoredFlow | None:
        return await self._database.read(lambda connection: read_flow(connection, run))

    async def flow_runs(self, query: FlowRunQuery) -> FlowRunPage:
        return await self._database.read(lambda connection: read_flow_runs(connection, query))

    async def node_runs(self, run: str) -> list[NodeRun]:
        return await self._database.read(lambda connection: read_node_runs(connection, run))

    async def request_ids(self, runs: Sequence[str]) -> dict[str, str]:
        return await self._database.read(lambda connection: read_request_ids(connection, runs))

    async def prune(self, retention: Retention, now: float, most: int) -> int:
        return await self._database.run(lambda connection: prune(connection, retention, now, most))

    async def close(self) -> None:
        try:
            await self._database.close()
        finally:
            await self._lock.release()

    def _is_committed(self, connection: Connection, batch: Batch) -> bool:
        """Whether the batch is there. A seq that fits neither before nor after it, or another engine's id,
        means that this is not the store that the batch was meant for any more."""
        row = connection.execute(select(schema.meta.c.last_seq, schema.meta.c.engine)).one()
        if row.engine != self._engine or row.last_seq not in (batch.before, batch.after):
            raise StoreBroken(
                f"the store {self._database.name} is at seq {row.last_seq}, and this engine knows of "
                f"{batch.before}: another engine has written to it, or it is a copy that lags behind"
            )
        return bool(row.last_seq == batch.after) and bool(batch.events)


def _first_row(epoch: str, max_concurrent: int) -> dict[str, object]:
    return {
        "id": 1,
        "schema_version": schema.SCHEMA_VERSION,
        "epoch": epoch,
        "last_seq": 0,
        "max_concurrent": max_concurrent,
        "draining": False,
    }
