"""The tables of a SQL store, the same for every database.

Values are JSON text. Data that queries and compare-and-sets use has its own columns; the rest of a run is in
its `record`. Names of handles and lanes are compared byte by byte.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.types import Double, TypeEngine

SCHEMA_VERSION = 7

metadata = MetaData()

_Json = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
_Seq = BigInteger().with_variant(Integer(), "sqlite")  # as a key, SQLite's row id, which needs no index
_Id = String(64)
_InterruptId = String(80)


class _NameType(TypeDecorator[str]):
    """A name of a handle, lane, job or request. It is stored as bytes in MySQL and MariaDB, whose comparisons
    of text ignore trailing spaces."""

    impl = String(256)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name in ("mysql", "mariadb"):
            return dialect.type_descriptor(mysql.VARBINARY(1024))
        return dialect.type_descriptor(String(256))

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        return value.encode() if value is not None and dialect.name in ("mysql", "mariadb") else value

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        return value.decode() if isinstance(value, bytes) else value


_Name = _NameType()

meta = Table(
    "meta",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # there is one row, with id 1
    Column("schema_version", Integer, nullable=False),
    Column("epoch", String(32), nullable=False),
    Column("engine", String(32)),  # the engine that has the store: the term of its lease, and its id
    Column("holder", String(256)),  # a readable description of it
    Column("last_seq", BigInteger, nullable=False),
    Column("max_concurrent", Integer),
    Column("draining", Boolean, nullable=False, default=False),
    Column("last_place", BigInteger, nullable=False, server_default="0"),  # the highest place ever drawn
)

NOT_SUCCEEDED = text("status <> 'succeeded'")
"""The runs in the partial index `runs_by_status`. Queries repeat the condition to use the index."""

_HAS_ENDED = text("ended_seq IS NOT NULL")

runs = Table(
    "runs",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("handle", _Name, nullable=False),
    Column("lane", _Name, nullable=False),
    Column("status", String(16), nullable=False),
    Column("place", BigInteger),
    Column("created_seq", BigInteger, nullable=False),  # of the event that created it; or `SET_CREATED`
    Column("ended_seq", BigInteger),  # the seq of the event that ended it
    Column("ended_at", Double),
    Column("wakes_at", Double),
    Column("files_doomed", Boolean, nullable=False, default=False),
    Column("terms", _Json, nullable=False),
    Column("record", _Json, nullable=False),
    # Each index costs most commits another page, so there are only these: to list the runs of a handle,
    Index("runs_by_handle", "handle", "id", mysql_length={"handle": 128}),
    # to list the runs of a lane,
    Index("runs_by_lane", "lane", "id", mysql_length={"lane": 128}),
    # to read the pending runs when an engine opens the store, and to list failed runs,
    Index("runs_by_status", "status", "id", sqlite_where=NOT_SUCCEEDED, postgresql_where=NOT_SUCCEEDED),
    # and to read the last ended runs when an engine opens the store, and the first ones for retention.
    Index("runs_by_end", "ended_seq", sqlite_where=_HAS_ENDED, postgresql_where=_HAS_ENDED),
)

run_tags = Table(
    "run_tags",
    metadata,
    Column("tag", String(32), primary_key=True),  # a hash of name and value, or of the parent's id
    Column("run", _Id, primary_key=True),
    Index("run_tags_by_run", "run"),  # for retention
    sqlite_with_rowid=False,
)
"""Finds the runs with a tag, and those that a run has called, newest first. Other runs have no rows."""

events = Table(
    "events",
    metadata,
    Column("seq", _Seq, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("run", _Id),
    Column("event", _Json, nullable=False),
    Index("events_by_run", "run", "seq"),  # for the history of a run, and for retention
)

handles = Table(
    "handles",
    metadata,
    Column("name", _Name, primary_key=True),
    Column("params", _Json, nullable=False),
)

held = Table(
    "held",
    metadata,
    Column("handle", _Name, primary_key=True),
    Column("run", _Id, nullable=False),
)

lanes = Table(
    "lanes",
    metadata,
    Column("name", _Name, primary_key=True),
    Column("slots", Integer),  # its limit; "limit" is a reserved word
    Column("generation", Integer, nullable=False),
    Column("paused", Boolean, nullable=False, server_default="0"),
    Column("rules", _Json),
)

buckets = Table(
    "buckets",
    metadata,
    Column("id", String(32), primary_key=True),  # a hash of lane and key
    Column("lane", _Name, nullable=False),
    Column("key", _Json),  # `None` for the lane's own bucket
    Column("full_at", Double, nullable=False),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("id", String(32), primary_key=True),  # a hash of handle and job
    Column("handle", _Name, nullable=False),
    Column("job", _Name, nullable=False),
    Column("run", _Id, nullable=False),
    Column("value", _Json, nullable=False),
    # The numbers of interrupts and calls that the body had made: a resumed body counts from there.
    Column("interrupts", Integer, nullable=False, server_default="0"),
    Column("calls", Integer, nullable=False, server_default="0"),
    Index("checkpoints_by_run", "run"),
)

messages = Table(
    "messages",
    metadata,
    Column("seq", _Seq, primary_key=True, autoincrement=False),
    Column("run", _Id, nullable=False),
    Column("value", _Json, nullable=False),
    Index("messages_by_run", "run", "seq"),
)

interrupts = Table(
    "interrupts",
    metadata,
    Column("id", _InterruptId, primary_key=True),
    Column("run", _Id, nullable=False),
    Column("question", _Json, nullable=False),
    Column("closed", _Json),
    Index("interrupts_by_run", "run"),
)

files = Table(
    "files",
    metadata,
    Column("id", String(32), primary_key=True),  # a hash of run, path and folder
    Column("run", _Id, nullable=False),
    Column("path", _Json, nullable=False),
    Column("folder", _Name, nullable=False, server_default=""),  # its data folder's id; "": the engine's
    Index("files_by_run", "run"),
)

requests = Table(
    "requests",
    metadata,
    Column("request_id", _Name, primary_key=True),
    Column("run", _Id, nullable=False),
    Column("fingerprint", String(32)),
    Index("requests_by_run", "run"),
)

flows = Table(
    "flows",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("record", _Json, nullable=False),
)

flow_versions = Table(
    "flow_versions",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("flow", _Id, nullable=False),
    Column("version", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("definition", _Json, nullable=False),
    Index("flow_versions_by_number", "flow", "version", unique=True),
)

flow_runs = Table(
    "flow_runs",
    metadata,
    Column("run", _Id, primary_key=True),
    Column("version", _Id, nullable=False),
    Column("numbered", Integer, nullable=False),  # the number of the last node run included in the state
    Column("state", _Json, nullable=False),
    Index("flow_runs_by_version", "version", "run"),
)

node_runs = Table(
    "node_runs",
    metadata,
    Column("run", _Id, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("record", _Json, nullable=False),
)

workers = Table(
    "workers",
    metadata,
    Column("id", String(32), primary_key=True),  # a hash of the worker's own id
    Column("record", _Json, nullable=False),
)

deaths = Table(
    "deaths",
    metadata,
    Column("run", _Id, primary_key=True),
    # Processes that died while executing the run; negative if it has since executed without harm.
    Column("count", Integer, nullable=False),
)

executors = Table(
    "executors",
    metadata,
    Column("id", String(32), primary_key=True),  # a hash of the executor's own id
    Column("executor", _Json, nullable=False),
    Column("record", _Json, nullable=False),
)

schedules = Table(
    "schedules",
    metadata,
    Column("id", String(32), primary_key=True),  # a hash of the schedule's name
    Column("record", _Json, nullable=False),
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", String(32), primary_key=True),  # a hash of run and URL
    Column("run", _Id, nullable=False),
    Column("receiver", String(32), nullable=False),  # a hash of the URL's scheme, host and port
    Column("url", Text, nullable=False),
    Column("types", _Json, nullable=False),
    Column("delivered", BigInteger, nullable=False),  # all events up to this seq are delivered
    Column("marked", BigInteger, nullable=False),  # the seq of the last event that concerns it
    Column("ended", Boolean, nullable=False, default=False),  # whether that event ended the run
    Column("next_at", Double),  # when the next attempt is due; `None` if there is nothing to deliver, or dead
    Column("attempts", Integer, nullable=False),
    Column("failing_since", Double),
    Column("error", Text),
    Column("dead_at", Double),
    Index("webhooks_by_time", "next_at"),  # to find what is due
    Index("webhooks_by_failure", "failing_since", "dead_at"),  # to count those that fail
    Index("webhooks_by_run", "run"),  # to mark those of a run, and for retention
)
"""The webhooks of runs with events that are not delivered, or that are pending."""

deletions = Table(
    "deletions",
    metadata,
    Column("id", String(32), primary_key=True),  # a hash of folder and run
    Column("record", _Json, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("holder", String(256)),  # `None` once the lease was released
    Column("term", BigInteger, nullable=False),  # higher than any previous term of this lease
    Column("address", Text),  # the holder's address
    Column("expires_at", Double, nullable=False),  # Unix seconds by the database's clock
)

for _table in metadata.sorted_tables:
    _table.dialect_options["mysql"]["charset"] = "utf8mb4"
    _table.dialect_options["mysql"]["collate"] = "utf8mb4_bin"
