"""Version 4: the last place is in `meta`, and indexes contain only rows that queries need."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, inspect, text

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """Change what has not been changed yet."""
    connection = op.get_bind()
    if "last_place" not in {column["name"] for column in inspect(connection).get_columns("meta")}:
        op.add_column("meta", Column("last_place", BigInteger, nullable=False, server_default="0"))
    connection.execute(text("UPDATE meta SET last_place = (SELECT COALESCE(MAX(place), 0) FROM runs)"))
    if "runs_by_place" in {index["name"] for index in inspect(connection).get_indexes("runs")}:
        op.drop_index("runs_by_place", table_name="runs")
    if connection.dialect.name == "postgresql":  # MySQL and MariaDB have no partial indexes
        for name, columns, some in (
            ("runs_by_status", ["status", "id"], "status <> 'succeeded'"),
            ("runs_by_end", ["ended_seq"], "ended_seq IS NOT NULL"),
        ):
            op.drop_index(name, table_name="runs")
            op.create_index(name, "runs", columns, postgresql_where=text(some))
