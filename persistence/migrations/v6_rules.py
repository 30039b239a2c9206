"""Version 6: rules of lanes, and the buckets of their rates."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Boolean, Column, MetaData, String, Table, Text, inspect, text
from sqlalchemy.dialects import mysql
from sqlalchemy.types import Double

revision = "6"
down_revision = "5"

tables = MetaData()

_Name = String(256).with_variant(mysql.VARBINARY(1024), "mysql", "mariadb")
_Json = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")

Table(
    "buckets",
    tables,
    Column("id", String(32), primary_key=True),
    Column("lane", _Name, nullable=False),
    Column("key", _Json),
    Column("full_at", Double, nullable=False),
    mysql_charset="utf8mb4",
    mysql_collate="utf8mb4_bin",
)


def upgrade() -> None:
    """Create what does not exist yet."""
    connection = op.get_bind()
    tables.create_all(connection)
    known = {column["name"] for column in inspect(connection).get_columns("lanes")}
    if "paused" not in known:
        op.add_column("lanes", Column("paused", Boolean, nullable=False, server_default=text("FALSE")))
    if "rules" not in known:
        op.add_column("lanes", Column("rules", _Json))
