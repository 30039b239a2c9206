"""Version 7: webhooks."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.types import Double

revision = "7"
down_revision = "6"

tables = MetaData()

_Json = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")

webhooks = Table(
    "webhooks",
    tables,
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
    Index("webhooks_by_failure", "failing_since", "dead_at"),
    Index("webhooks_by_run", "run"),
    mysql_charset="utf8mb4",
    mysql_collate="utf8mb4_bin",
)


def upgrade() -> None:
    """Create what does not exist yet."""
    connection = op.get_bind()
    tables.create_all(connection)
    for index in webhooks.indexes:
        index.create(connection, checkfirst=True)
