"""Online backup of a SQLite store: a consistent copy, also while an engine uses the store.

It uses SQLite's backup API on a separate connection, which reads one state of the database and does not block
writers. For servers, use their own backup programs.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from ..protocol.errors import Conflict, Invalid
from . import schema
from .addresses import Address, parse_addresses
from .failures import StoreBroken, failure
from .files import sync_folder

_PROGRAMS = {"postgresql": "pg_dump", "mysql": "mysqldump --single-transaction (or mariadb-dump)"}


def back_up(stores: str | Iterable[str], file: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Copy a SQLite store into a file, which appears only when it is complete; returns its path. Blocks."""
    [address, *_] = parse_addresses(stores)
    if address.kind != "sqlite":
        raise Invalid(
            f"cannot back up the store {address}, which is on a server: use the server's program, "
            f"{_PROGRAMS[address.kind]}; the engine can keep running"
        )
    if address.in_memory:
        raise Invalid("cannot back up a store in memory: it exists only in its process")
    if not address.path.exists():
        raise StoreBroken(f"the store {address} does not exist: check its path")
    target = Path(os.path.realpath(file))
    if target == address.path:
        raise Invalid(f"{target} is the store itself: use another file for the backup")
    if target.exists() and not overwrite:
        raise Conflict(f"{target} already exists: use another file, or --overwrite")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        _copy(address, part)
        with part.open("rb") as copy:
            os.fsync(copy.fileno())
        part.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise StoreBroken(f"cannot write the backup {target}: {error.strerror or error}") from error
    finally:
        for leftover in (part, Path(f"{part}-journal")):
            leftover.unlink(missing_ok=True)
    return target


def _copy(address: Address, part: Path) -> None:
    part.touch(mode=0o600)  # the system's error is clearer than SQLite's
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(address.database)}?mode=rw", uri=True)) as source,
            closing(sqlite3.connect(part)) as copy,
        ):
            source.execute("PRAGMA busy_timeout=5000")
            wanted = ("table", schema.meta.name)
            found = source.execute("SELECT 1 FROM sqlite_schema WHERE type = ? AND name = ?", wanted)
            if found.fetchone() is None:
                raise StoreBroken(f"{address.path} is not a Greenroom store: its tables are missing")
            source.backup(copy)  # in one step: with several, each commit of the engine would restart it
            if copy.execute("SELECT 1 FROM sqlite_schema WHERE name = 'leases'").fetchone() is not None:
                # The lease belongs to the original; no engine holds the copy.
                copy.execute("UPDATE leases SET holder = NULL, expires_at = 0")
                copy.commit()
    except sqlite3.Error as error:
        raise failure(error, address, committing=False) or error from error
