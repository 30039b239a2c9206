"""Version 6: schedules."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, MetaData, String, Table, Text
from sqlalchemy.dialects import mysql

revision = "6"
down_revision = "5"

tables = MetaData()

_Json = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")

Table(
    "schedules",
    tables,
    Column("id", String(32), primary_key=True),
    Column("record", _Json, nullable=False),
    mysql_charset="utf8mb4",
    mysql_collate="utf8mb4_bin",
)


def upgrade() -> None:
    """Create what does not exist yet."""
    tables.create_all(op.get_bind())
