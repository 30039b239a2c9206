"""Version 3: leases, deaths of processes per run, and the counts of a checkpoint."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, Text, inspect
from sqlalchemy.types import Double

revision = "3"
down_revision = "2"

tables = MetaData()


def _table(name: str, *columns: Column[object]) -> None:
    Table(name, tables, *columns, mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin")


_table(
    "deaths",
    Column("run", String(64), primary_key=True),
    Column("count", Integer, nullable=False),
)
_table(
    "leases",
    Column("name", String(64), primary_key=True),
    Column("holder", String(256)),
    Column("term", BigInteger, nullable=False),
    Column("address", Text),
    Column("expires_at", Double, nullable=False),
)


def upgrade() -> None:
    """Create what does not exist yet."""
    connection = op.get_bind()
    tables.create_all(connection)
    columns = {column["name"] for column in inspect(connection).get_columns("checkpoints")}
    for name in ("interrupts", "calls"):
        if name not in columns:
            op.add_column("checkpoints", Column(name, Integer, nullable=False, server_default="0"))
    checkpoints = Table("checkpoints", MetaData(), Column("run", String(64)))
    Index("checkpoints_by_run", checkpoints.c.run).create(connection, checkfirst=True)
