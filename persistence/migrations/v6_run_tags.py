"""Version 6: the tags of runs."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Index, MetaData, String, Table

revision = "6"
down_revision = "5"

tables = MetaData()

Table(
    "run_tags",
    tables,
    Column("tag", String(32), primary_key=True),
    Column("run", String(64), primary_key=True),
    Index("run_tags_by_run", "run"),
    mysql_charset="utf8mb4",
    mysql_collate="utf8mb4_bin",
)


def upgrade() -> None:
    """Create what does not exist yet."""
    connection = op.get_bind()
    tables.create_all(connection)
    for table in tables.tables.values():
        for index in table.indexes:
            index.create(connection, checkfirst=True)
