"""Version 2: tables for flows and workers."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.types import Double

revision = "2"
down_revision = "1"

tables = MetaData()

_Json = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
_Id = String(64)


def _table(name: str, *parts: Column[object] | Index) -> None:
    Table(name, tables, *parts, mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin")


_table(
    "flows",
    Column("id", _Id, primary_key=True),
    Column("record", _Json, nullable=False),
)
_table(
    "flow_versions",
    Column("id", _Id, primary_key=True),
    Column("flow", _Id, nullable=False),
    Column("version", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("definition", _Json, nullable=False),
    Index("flow_versions_by_number", "flow", "version", unique=True),
)
_table(
    "flow_runs",
    Column("run", _Id, primary_key=True),
    Column("version", _Id, nullable=False),
    Column("numbered", Integer, nullable=False),
    Column("state", _Json, nullable=False),
    Index("flow_runs_by_version", "version", "run"),
)
_table(
    "node_runs",
    Column("run", _Id, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("record", _Json, nullable=False),
)
_table(
    "workers",
    Column("id", String(32), primary_key=True),
    Column("record", _Json, nullable=False),
)


def upgrade() -> None:
    """Create what does not exist yet."""
    connection = op.get_bind()
    tables.create_all(connection)
    for table in tables.tables.values():
        for index in table.indexes:
            index.create(connection, checkfirst=True)
