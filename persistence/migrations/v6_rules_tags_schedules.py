"""Version 6: rules of lanes with the buckets of their rates, tags of runs, schedules, and webhooks."""

from __future__ import annotations

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import Double

revision = "6"
down_revision = "5"

tables = MetaData()

_Name = String(256).with_variant(mysql.VARBINARY(1024), "mysql", "mariadb")
_Json = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")


def _table(name: str, *items: SchemaItem) -> None:
    Table(name, tables, *items, mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin")


_table(
    "buckets",
    Column("id", String(32), primary_key=True),
    Column("lane", _Name, nullable=False),
    Column("key", _Json),
    Column("full_at", Double, nullable=False),
)
_table(
    "run_tags",
    Column("tag", String(32), primary_key=True),
    Column("run", String(64), primary_key=True),
    Index("run_tags_by_run", "run"),
)
_table(
    "schedules",
    Column("id", String(32), primary_key=True),
    Column("record", _Json, nullable=False),
)
_table(
    "webhooks",
    Column("id", String(32), primary_key=True),
    Column("run", String(64), nullable=False),
    Column("receiver", String(32), nullable=False),
    Column("url", Text, nullable=False),
    Column("types", _Json, nullable=False),
    Column("delivered", BigInteger, nullable=False),
    Column("marked", BigInteger, nullable=False),
    Column("ended", Boolean, nullable=False),
    Column("next_at", Double),
    Column("attempts", Integer, nullable=False),
    Column("failing_since", Double),
    Column("error", Text),
    Column("dead_at", Double),
    Index("webhooks_by_time", "next_at"),
    Index("webhooks_by_run", "run"),
)


def upgrade() -> None:
    """Create what does not exist yet."""
    connection = op.get_bind()
    tables.create_all(connection)
    for table in tables.tables.values():
        for index in table.indexes:
            index.create(connection, checkfirst=True)
    known = {column["name"] for column in inspect(connection).get_columns("lanes")}
    if "paused" not in known:
        op.add_column("lanes", Column("paused", Boolean, nullable=False, server_default=text("FALSE")))
    if "rules" not in known:
        op.add_column("lanes", Column("rules", _Json))
