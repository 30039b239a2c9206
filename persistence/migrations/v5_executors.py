"""Version 5: executors, and files in their data folders."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, MetaData, String, Table, Text, inspect
from sqlalchemy.dialects import mysql

revision = "5"
down_revision = "4"

tables = MetaData()

_Name = String(256).with_variant(mysql.VARBINARY(1024), "mysql", "mariadb")
_Json = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")


def _table(name: str, *columns: Column[object]) -> None:
    Table(name, tables, *columns, mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin")


_table(
    "executors",
    Column("id", String(32), primary_key=True),
    Column("executor", _Json, nullable=False),
    Column("record", _Json, nullable=False),
)
_table(
    "deletions",
    Column("id", String(32), primary_key=True),
    Column("record", _Json, nullable=False),
)


def upgrade() -> None:
    """Create what does not exist yet."""
    connection = op.get_bind()
    tables.create_all(connection)
    if "folder" not in {column["name"] for column in inspect(connection).get_columns("files")}:
        op.add_column("files", Column("folder", _Name, nullable=False, server_default=""))
