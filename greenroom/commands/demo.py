"""`greenroom demo`: demos of an engine and of a cluster, without setup."""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import trio

from ..config.clusters import is_shared
from ..demo import takeover
from ..demo.postgresql import is_installed, run_postgresql
from ..demo.scenario import play
from ..persistence import migrating
from .exits import Exit, Stopped, report_errors


@click.group(invoke_without_command=True)
@click.option("--once", is_flag=True, help="Exit after one round of about ten seconds.")
@click.pass_context
@report_errors
def demo(ctx: click.Context, once: bool) -> None:
    """Run a demo: mirror accounts from a small site, with conflicts and cancels.

    The demo uses a real engine with a store and files in a temporary folder, and a gateway that other
    terminals can use at the same time. It shows a second start that is refused, a cancel that keeps files,
    a cancel that deletes them, and an interrupt: press y or n to answer. Press q or Ctrl-C to exit.

    \b
    Examples:
      greenroom demo
      greenroom demo --once
      greenroom demo cluster
    """
    if ctx.invoked_subcommand is not None:
        return
    logging.getLogger("greenroom").addHandler(logging.NullHandler())  # logs would disturb the live table
    with TemporaryDirectory(prefix="greenroom-demo-") as folder:
        if not trio.run(partial(play, Path(folder), once=once)) and once:
            sys.exit(Exit.FAILED)


@demo.command()
@click.option("--once", is_flag=True, help="Exit after one leader was killed.")
@report_errors
def cluster(once: bool) -> None:
    """Run a demo of a cluster: kill the leader of three nodes under load.

    Three nodes share a store: that of GREENROOM_STORE if it is on PostgreSQL, MySQL or MariaDB, else one on a
    private PostgreSQL server in a temporary folder. Runs are submitted at all nodes while the leader is
    killed. Then the demo checks that each acknowledged run succeeds once, and that no event is missing.
    Press q or Ctrl-C to exit.

    \b
    Examples:
      greenroom demo cluster
      GREENROOM_STORE=postgresql://me:secret@db.example/test greenroom demo cluster --once
    """
    logging.getLogger("greenroom").addHandler(logging.NullHandler())  # logs would disturb the live table
    store = os.environ.get("GREENROOM_STORE", "")
    shared = bool(store) and is_shared(store)
    if not shared and not is_installed():
        raise Stopped(
            "the demo of a cluster requires PostgreSQL: install it (on Debian: apt-get install postgresql) "
            "and its driver (pip install 'greenroom[postgres]'), or set GREENROOM_STORE to the address of a "
            "database on PostgreSQL, MySQL or MariaDB",
            Exit.FAILED,
        )
    with TemporaryDirectory(prefix="greenroom-demo-") as folder:
        if not trio.run(_play_cluster, store if shared else None, Path(folder), once) and once:
            sys.exit(Exit.FAILED)


async def _play_cluster(store: str | None, folder: Path, once: bool) -> bool:
    if store is None:
        async with run_postgresql(folder) as private:
            return await _play_cluster(private, folder, once)
    await migrating.upgrade(store)
    return await takeover.play(store, folder, once=once)
