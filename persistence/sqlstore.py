"""The store on a SQL database: SQLite, PostgreSQL, MySQL or MariaDB.

One engine has a store at a time. That is guarded twice: by a lock that is held as long as the store is open,
and in every batch, which advances `last_seq` only under this engine's id.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from functools import partial

import trio
from sqlalchemy import Connection, select, update

from ..protocol.errors import Conflict
from ..protocol.events import Event, InterruptClosed
from ..protocol.flow.records import NodeRun, VersionRow
from ..protocol.records import RunRecord
from . import schema
from .database import LONG_CALL, Connect, DatabaseManager
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
from .reading_flows import (
    read_flow,
    read_flow_runs,
    read_node_runs,
    read_request_ids,
    read_version,
    read_versions,
)
from .statements import Statements
from .store import Batch, Checkpoint, Retention, RunQuery, Stored
from .traces import LockTrace, Trace, Witness, contradiction
from .versions import migrate_file, require_version
from .writing import write_batch

logger = logging.getLogger("greenroom")

_CHECKED_EVERY = 5.0
"""Seconds after which an idle engine looks whether it still has its lock, which dies with its connection."""

_LARGE = 1000
"""A batch of so many events and memos may take as long again as a small one."""

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
        self._epoch = ""
        self._witnesses: list[Witness] = []
        self._accepts = False
        self._trace: LockTrace | None = None  # of a SQLite file
        first = self._database.addresses[0]
        if first.kind == "sqlite" and not first.in_memory:
            self._trace = LockTrace(f"{first.path}.lock")
            # With less than full syncing, the last commits may be lost with the machine.
            if first.parameters.get("synchronous") != "normal":
                self._witnesses.append(self._trace)
        self._checked = -math.inf  # when it was sure to have the store for itself

    def when_damaged(self, tell: Callable[[StoreBroken], None]) -> None:
        """Have it told when a call, a read also, finds that what is stored can't be relied on."""
        self._database.when_damaged = tell

    def expect(self, witness: Witness | None, *, accept: bool) -> None:
        """Refuse at the opening what can't be the store that the witness knows, or `accept` it as it is."""
        if witness is not None and not self._database.addresses[0].in_memory:
            self._witnesses.append(witness)
        self._accepts = accept

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
            self._compare(connection, epoch)
            if connection.execute(select(schema.meta.c.id)).first() is None:
                connection.execute(schema.meta.insert(), _first_row(epoch, max_concurrent))
            holder = f"process {os.getpid()} on {socket.gethostname()}"
            connection.execute(update(schema.meta).values(engine=self._engine, holder=holder))
            return read_all(connection, now)

        stored = await self._database.with_retry(begin, limit=LONG_CALL)
        self._epoch = stored.epoch
        await self._database.read(lambda _: self._note(stored.last_seq))
        return stored

    def _compare(self, connection: Connection, epoch: str) -> None:
        """Refuse a store that isn't what the witnesses know; one that is accepted begins a new numbering, for
        those who followed the old one."""
        row = connection.execute(select(schema.meta.c.epoch, schema.meta.c.last_seq)).first()
        found = None if row is None else Trace(row.epoch, row.last_seq)
        problem = contradiction(self._database.name, found, self._witnesses)
        if problem is None:
            return
        if not self._accepts:
            raise StoreBroken(problem)
        logger.warning("the store %s is accepted as it is, under a new epoch", self._database.name)
        connection.execute(update(schema.meta).values(epoch=epoch))

    def _note(self, seq: int) -> None:
        if self._trace is not None:
            self._trace.note(Trace(self._epoch, seq))

    @property
    def check_every(self) -> float:
        if self._database.addresses[0].in_memory or not self.in_threads:
            return math.inf
        return _CHECKED_EVERY

    async def check(self) -> None:
        if self._database.kind == "sqlite":
            await self._database.check()  # the lock on its file lasts as long as the process
            return
        if not await self._lock.check():
            try:
                await self._lock.acquire()
            except Conflict as error:
                raise StoreBroken(
                    f"the connection that held the store was lost, and meanwhile: {error.message}"
                ) from error
        self._checked = trio.current_time()

    async def commit(self, batch: Batch) -> None:
        is_server = self._database.kind != "sqlite"  # a file is looked at in the commit itself
        if is_server and trio.current_time() >= self._checked + _TRUSTED_FOR:
            await self.check()

        def write(connection: Connection) -> None:
            write_batch(batch, self._engine, Statements(self._database.kind, connection))

        def write_unless_done(connection: Connection) -> None:
            if not self._is_committed(connection, batch):
                write(connection)

        share = 1 + (len(batch.events) + len(batch.memos)) / _LARGE
        await self._database.with_retry(
            write,
            again=write_unless_done,
            limit=self._database.call_timeout * share,
            then=partial(self._note, batch.after),
        )

    async def committed(self, batch: Batch) -> bool:
        look = partial(self._is_committed, batch=batch)
        if self._database.kind == "sqlite":
            return await self._database.read(look)
        # It waits for a transaction that the server may still have open: its COMMIT may be on the way.
        return await self._database.run(look)

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

    async def versions(self, ids: Sequence[str]) -> list[VersionRow]:
        return await self._database.read(lambda connection: read_versions(connection, ids))

    async def node_runs(self, run: str, after: int = 0, limit: int | None = None) -> list[NodeRun]:
        return await self._database.read(lambda connection: read_node_runs(connection, run, after, limit))

    async def request_ids(self, runs: Sequence[str]) -> dict[str, str]:
        return await self._database.read(lambda connection: read_request_ids(connection, runs))

    async def prune(self, retention: Retention, now: float, most: int) -> int:
        return await self._database.run(
            lambda connection: prune(connection, retention, now, most), limit=LONG_CALL
        )

    async def close(self) -> None:
        try:
            await self._database.close()
        finally:
            if self._trace is not None:
                self._trace.close()
            await self._lock.release()

    def _is_committed(self, connection: Connection, batch: Batch) -> bool:
        """Whether the batch is there. A seq that fits neither before nor after it, or another engine's id,
        means that this is not the store that the batch was meant for any more."""
        meta = select(schema.meta.c.last_seq, schema.meta.c.engine).with_for_update()
        row = connection.execute(meta).one()
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
