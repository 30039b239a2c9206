"""Version 1: all tables."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.types import Double

revision = "1"
down_revision = None

tables = MetaData()

_Json = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
_Id = String(64)
_Name = String(256).with_variant(mysql.VARBINARY(1024), "mysql", "mariadb")


def _table(name: str, *parts: Column[object] | Index) -> None:
    Table(name, tables, *parts, mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin")


_table(
    "meta",
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("schema_version", Integer, nullable=False),
    Column("epoch", String(32), nullable=False),
    Column("engine", String(32)),
    Column("holder", String(256)),
    Column("last_seq", BigInteger, nullable=False),
    Column("max_concurrent", Integer),
    Column("draining", Boolean, nullable=False),
)
_table(
    "runs",
    Column("id", _Id, primary_key=True),
    Column("handle", _Name, nullable=False),
    Column("lane", _Name, nullable=False),
    Column("status", String(16), nullable=False),
    Column("place", BigInteger),
    Column("created_seq", BigInteger, nullable=False),
    Column("ended_seq", BigInteger),
    Column("ended_at", Double),
    Column("wakes_at", Double),
    Column("files_doomed", Boolean, nullable=False),
    Column("terms", _Json, nullable=False),
    Column("record", _Json, nullable=False),
    Index("runs_by_handle", "handle", "id", mysql_length={"handle": 128}),
    Index("runs_by_lane", "lane", "id", mysql_length={"lane": 128}),
    Index("runs_by_status", "status", "id"),
    Index("runs_by_end", "ended_seq"),
    Index("runs_by_place", "place"),
)
_table(
    "events",
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("run", _Id),
    Column("event", _Json, nullable=False),
    Index("events_by_run", "run", "seq"),
)
_table(
    "handles",
    Column("name", _Name, primary_key=True),
    Column("params", _Json, nullable=False),
)
_table(
    "held",
    Column("handle", _Name, primary_key=True),
    Column("run", _Id, nullable=False),
)
_table(
    "lanes",
    Column("name", _Name, primary_key=True),
    Column("slots", Integer),
    Column("generation", Integer, nullable=False),
)
_table(
    "checkpoints",
    Column("id", String(32), primary_key=True),
    Column("handle", _Name, nullable=False),
    Column("job", _Name, nullable=False),
    Column("run", _Id, nullable=False),
    Column("value", _Json, nullable=False),
)
_table(
    "messages",
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("run", _Id, nullable=False),
    Column("value", _Json, nullable=False),
    Index("messages_by_run", "run", "seq"),
)
_table(
    "interrupts",
    Column("id", String(80), primary_key=True),
    Column("run", _Id, nullable=False),
    Column("question", _Json, nullable=False),
    Column("closed", _Json),
    Index("interrupts_by_run", "run"),
)
_table(
    "files",
    Column("id", String(32), primary_key=True),
    Column("run", _Id, nullable=False),
    Column("path", _Json, nullable=False),
    Index("files_by_run", "run"),
)
_table(
    "requests",
    Column("request_id", _Name, primary_key=True),
    Column("run", _Id, nullable=False),
    Column("fingerprint", String(32)),
    Index("requests_by_run", "run"),
)


def upgrade() -> None:
    """Create what does not exist yet."""
    connection = op.get_bind()
    tables.create_all(connection)
    for table in tables.tables.values():
        for index in table.indexes:
            index.create(connection, checkfirst=True)
