"""A copy of a store that is whole, also while an engine works on it.

For SQLite it is made by the database's own backup, on a connection of its own: it reads one state of the
database and holds up nobody who writes. Servers have programs for it that do it better.
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
    """Copy a SQLite store into a file, which is there only when it is complete; returns its path. Blocks."""
    [address, *_] = parse_addresses(stores)
    if address.kind != "sqlite":
        raise Invalid(
            f"the store {address} is on a server, which is backed up by its own program: "
            f"{_PROGRAMS[address.kind]}, beside a live engine or not"
        )
    if address.in_memory:
        raise Invalid("a store in memory is gone with its process: there is nothing to back up")
    if not address.path.exists():
        raise StoreBroken(f"the store {address} is not there: check its path")
    target = Path(os.path.realpath(file))
    if target == address.path:
        raise Invalid(f"{target} is the store itself: name another file for its backup")
    if target.exists() and not overwrite:
        raise Conflict(f"{target} exists already: name another file, or say --overwrite")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        _copy(address, part)
        with part.open("rb") as copy:
            os.fsync(copy.fileno())
        part.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise StoreBroken(f"the backup {target} can't be written: {error.strerror or error}") from error
    finally:
        for leftover in (part, Path(f"{part}-journal")):
            leftover.unlink(missing_ok=True)
    return target


def _copy(address: Address, part: Path) -> None:
    part.touch(mode=0o600)  # what it can't write, the system names better than SQLite
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(address.database)}?mode=rw", uri=True)) as source,
            closing(sqlite3.connect(part)) as copy,
        ):
            source.execute("PRAGMA busy_timeout=5000")
            wanted = ("table", schema.meta.name)
            found = source.execute("SELECT 1 FROM sqlite_schema WHERE type = ? AND name = ?", wanted)
            if found.fetchone() is None:
                raise StoreBroken(f"{address.path} is not a Greenroom store: it has none of its tables")
            source.backup(copy)  # in one step: in several, each write of the engine would begin it anew
            if copy.execute("SELECT 1 FROM sqlite_schema WHERE name = 'leases'").fetchone() is not None:
                # The engine has the original, and nobody the copy.
                copy.execute("UPDATE leases SET holder = NULL, expires_at = 0")
                copy.commit()
    except sqlite3.Error as error:
        raise failure(error, address, committing=False) or error from error
