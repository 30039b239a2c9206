"""`greenroom db`: upgrade, check, prune and back up the store.

These commands are implemented in `persistence/`; this module has their options and their output.
"""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import click
import trio

from ..persistence import migrating
from ..persistence.addresses import parse_addresses
from ..persistence.backup import back_up
from ..persistence.schema import SCHEMA_VERSION
from ..persistence.store import Retention
from .config import configured
from .durations import Duration
from .exits import Exit, Stopped, report_errors


def _configured(ctx: click.Context, param: click.Parameter, store: str | None) -> str:
    """The store of the option, or of the configuration."""
    if store is not None:
        return store
    named = configured().engine.store
    return named if isinstance(named, str) else ",".join(named)


_store = click.option(
    "--store",
    metavar="URL",
    envvar="GREENROOM_STORE",
    callback=_configured,
    show_envvar=True,
    help="The address of the store: sqlite:///file, postgresql://… or mysql://…; several addresses of one "
    "server are separated by commas. [default: from the configuration, or sqlite:///greenroom.db]",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group()
def db() -> None:
    """Manage the store: upgrade, check, prune and back up.

    \b
    Examples:
      greenroom db upgrade --store postgresql://me:secret@db.example/greenroom
      greenroom db prune --keep-runs 100000 --keep-events-for 30d
      greenroom db backup nightly.db
    """


@db.command()
@_store
@_as_json
@report_errors
def upgrade(store: str, as_json: bool) -> None:
    """Create the tables, or migrate them to this version of Greenroom.

    A database server requires this before the first engine and after an upgrade of Greenroom; a SQLite file
    is migrated automatically. The command is refused while an engine uses the store.

    \b
    Examples:
      greenroom db upgrade --store postgresql://me:secret@db.example/greenroom
      GREENROOM_STORE=mysql://me:secret@db.example/greenroom greenroom db upgrade
    """
    before = trio.run(migrating.upgrade, store)
    if before is None:
        done = f"created the tables (schema {SCHEMA_VERSION})."
    elif before == SCHEMA_VERSION:
        done = f"nothing to do (schema {SCHEMA_VERSION})."
    else:
        done = f"upgraded from schema {before} to {SCHEMA_VERSION}."
    _echo(store, done, as_json, before=before, schema=SCHEMA_VERSION)


@db.command()
@_store
@_as_json
@report_errors
def current(store: str, as_json: bool) -> None:
    """Show the schema version of the tables, and the required version.

    \b
    Example:
      greenroom db current --store sqlite:////var/lib/app/greenroom.db
    """
    found = trio.run(migrating.current, store)
    shown = "no schema" if found is None else f"schema {found}"
    text = f"{shown}; this version of Greenroom requires schema {SCHEMA_VERSION}."
    _echo(store, text, as_json, schema=found, needed=SCHEMA_VERSION)


@db.command()
@_store
@_as_json
@report_errors
def check(store: str, as_json: bool) -> None:
    """Check that an engine can use the store: version, tables, and for SQLite the file itself.

    Exits with code 1 if there is an error. It can run while an engine uses the store.

    \b
    Example:
      greenroom db check && systemctl start app
    """
    faults = trio.run(migrating.check, store)
    if faults:
        raise Stopped(f"{_name(store)}: {' '.join('; '.join(faults).split())}", Exit.FAILED)
    _echo(store, f"no errors (schema {SCHEMA_VERSION}).", as_json, schema=SCHEMA_VERSION)


@db.command()
@_store
@click.option("--keep-runs", type=click.IntRange(0), metavar="N", help="Keep the last N ended runs.")
@click.option(
    "--keep-runs-for", type=Duration(), metavar="TIME", help="Keep runs that ended in the last TIME."
)
@click.option("--keep-events", type=click.IntRange(0), metavar="N", help="Keep the last N events.")
@click.option("--keep-events-for", type=Duration(), metavar="TIME", help="Keep the events of the last TIME.")
@_as_json
@report_errors
def prune(
    store: str,
    keep_runs: int | None,
    keep_runs_for: float | None,
    keep_events: int | None,
    keep_events_for: float | None,
    as_json: bool,
) -> None:
    """Delete ended runs and old events.

    Runs and events that satisfy all given conditions are kept, the rest is deleted. Pending runs are never
    deleted, nor runs with a request id in the first day after their end. TIME is in seconds, or like 90m,
    12h, 30d, 4w. The command is refused while an engine uses the store; an engine prunes automatically, with
    `keep_runs` and `keep_events`.

    \b
    Examples:
      greenroom db prune --keep-runs 100000
      greenroom db prune --keep-runs-for 30d --keep-events-for 7d
    """
    retention = Retention(keep_runs, keep_runs_for, keep_events, keep_events_for)
    if retention == Retention():
        raise click.UsageError(
            "at least one of --keep-runs, --keep-runs-for, --keep-events and --keep-events-for is required"
        )
    forgotten = trio.run(migrating.prune_all, store, retention, time.time())
    _echo(store, f"deleted {forgotten} runs and events.", as_json, forgotten=forgotten)


@db.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@_store
@_as_json
@report_errors
def backup(file: Path, overwrite: bool, store: str, as_json: bool) -> None:
    """Copy a SQLite store to FILE, also while an engine uses it.

    To back up a database server, use its own program: pg_dump or mysqldump.

    \b
    Examples:
      greenroom db backup nightly.db
      greenroom db backup --overwrite --store sqlite:////var/lib/app/greenroom.db /backup/greenroom.db
    """
    made = trio.run(trio.to_thread.run_sync, partial(back_up, store, file, overwrite=overwrite))
    _echo(store, f"backed up to {made}.", as_json, file=str(made))


def _echo(store: str, text: str, as_json: bool, **values: Any) -> None:
    """Print the result, as text or as JSON."""
    name = _name(store)
    click.echo(json.dumps({"store": name, **values}) if as_json else f"{name}: {text}")


def _name(store: str) -> str:
    """The store's URL without its password."""
    return str(parse_addresses(store)[0])
