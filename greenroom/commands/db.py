"""`greenroom db`: the store's tables, what it keeps, its backup.

What these commands do stands in `persistence/`; here are only their words.
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
from .exits import Exit, Stopped, told


def _configured(ctx: click.Context, param: click.Parameter, store: str | None) -> str:
    """The store that is named, or the one of the configuration."""
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
    help="Where the store is: sqlite:///file, postgresql://… or mysql://…; several addresses of one server "
    "with commas between them. [default: what greenroom.toml says, or sqlite:///greenroom.db]",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")


@click.group()
def db() -> None:
    """The store: its tables, what it keeps, its backup.

    \b
    Examples:
      greenroom db upgrade --store postgresql://me:secret@db.example/greenroom
      greenroom db prune --keep-runs 100000 --keep-events-for 30d
      greenroom db backup nightly.db
    """


@db.command()
@_store
@_as_json
@told
def upgrade(store: str, as_json: bool) -> None:
    """Make the tables, or bring them to this version of Greenroom.

    A database on a server needs this before its first engine and after an upgrade of Greenroom; a SQLite
    file does it by itself. It is refused while an engine has the store.

    \b
    Examples:
      greenroom db upgrade --store postgresql://me:secret@db.example/greenroom
      GREENROOM_STORE=mysql://me:secret@db.example/greenroom greenroom db upgrade
    """
    before = trio.run(migrating.upgrade, store)
    if before is None:
        done = f"the tables have been made (schema {SCHEMA_VERSION})."
    elif before == SCHEMA_VERSION:
        done = f"nothing to do, it has schema {SCHEMA_VERSION} already."
    else:
        done = f"upgraded from schema {before} to {SCHEMA_VERSION}."
    _say(store, done, as_json, before=before, schema=SCHEMA_VERSION)


@db.command()
@_store
@_as_json
@told
def current(store: str, as_json: bool) -> None:
    """Show the version of the tables, and the one that is needed.

    \b
    Example:
      greenroom db current --store sqlite:////var/lib/app/greenroom.db
    """
    found = trio.run(migrating.current, store)
    shown = "no schema" if found is None else f"schema {found}"
    text = f"{shown}; this Greenroom needs {SCHEMA_VERSION}."
    _say(store, text, as_json, schema=found, needed=SCHEMA_VERSION)


@db.command()
@_store
@_as_json
@told
def check(store: str, as_json: bool) -> None:
    """Check that an engine can use the store: version, tables, and for SQLite the file itself.

    Exits with 1 if something is wrong. It can be done beside a live engine.

    \b
    Example:
      greenroom db check && systemctl start app
    """
    faults = trio.run(migrating.check, store)
    if faults:
        raise Stopped(f"{_name(store)}: {' '.join('; '.join(faults).split())}", Exit.FAILED)
    _say(store, f"all is well (schema {SCHEMA_VERSION}).", as_json, schema=SCHEMA_VERSION)


@db.command()
@_store
@click.option("--keep-runs", type=click.IntRange(0), metavar="N", help="Keep the N runs that ended last.")
@click.option("--keep-runs-for", type=Duration(), metavar="TIME", help="Keep runs that ended within TIME.")
@click.option("--keep-events", type=click.IntRange(0), metavar="N", help="Keep the last N events.")
@click.option("--keep-events-for", type=Duration(), metavar="TIME", help="Keep the events within TIME.")
@_as_json
@told
def prune(
    store: str,
    keep_runs: int | None,
    keep_runs_for: float | None,
    keep_events: int | None,
    keep_events_for: float | None,
    as_json: bool,
) -> None:
    """Forget ended runs and old events.

    What meets every given condition is kept, and the rest forgotten; runs that have not ended are never
    touched, nor those whose request id may still be repeated (for a day after their end). TIME is in seconds,
    or like 90m, 12h, 30d, 4w. It is refused while an engine has the store: that one prunes by itself, with
    `keep_runs` and `keep_events` of `open_engine`.

    \b
    Examples:
      greenroom db prune --keep-runs 100000
      greenroom db prune --keep-runs-for 30d --keep-events-for 7d
    """
    retention = Retention(keep_runs, keep_runs_for, keep_events, keep_events_for)
    if retention == Retention():
        raise click.UsageError("say what to keep, with --keep-runs, --keep-runs-for, --keep-events or …-for")
    forgotten = trio.run(migrating.prune_all, store, retention, time.time())
    _say(store, f"{forgotten} runs and events forgotten.", as_json, forgotten=forgotten)


@db.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@_store
@_as_json
@told
def backup(file: Path, overwrite: bool, store: str, as_json: bool) -> None:
    """Copy a SQLite store into FILE, whole, also beside a live engine.

    A database on a server is backed up with the server's own program: pg_dump or mysqldump.

    \b
    Examples:
      greenroom db backup nightly.db
      greenroom db backup --overwrite --store sqlite:////var/lib/app/greenroom.db /backup/greenroom.db
    """
    made = trio.run(trio.to_thread.run_sync, partial(back_up, store, file, overwrite=overwrite))
    _say(store, f"backed up to {made}.", as_json, file=str(made))


def _say(store: str, text: str, as_json: bool, **told: Any) -> None:
    """What has been done or found, as a sentence or for programs."""
    name = _name(store)
    click.echo(json.dumps({"store": name, **told}) if as_json else f"{name}: {text}")


def _name(store: str) -> str:
    """The store without its password."""
    return str(parse_addresses(store)[0])
