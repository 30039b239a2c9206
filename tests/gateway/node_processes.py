"""Nodes of a cluster as processes on a PostgreSQL server, each in its own folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.cli.served import Served
from tests.servers import Server


@contextmanager
def node_processes(
    database: Server, folder: Path, count: int = 3, *, toml: str = ""
) -> Iterator[list[Served]]:
    """This number of nodes, all of which follow or lead. They are killed at the end."""
    store = database.fresh_database()
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text("the secret of the tests")
    subprocess.run(
        [sys.executable, "-m", "greenroom", "db", "upgrade", "--store", store],
        check=True,
        capture_output=True,
    )
    with ExitStack() as stack:
        nodes = []
        for number in range(1, count + 1):
            its = folder / f"node{number}"
            its.mkdir()
            nodes.append(
                stack.enter_context(
                    Served(
                        its,
                        "--cluster",
                        toml=toml,
                        GREENROOM_STORE=store,
                        GREENROOM_CLUSTER_SECRET_FILE=str(secret),
                    )
                )
            )
        yield nodes
