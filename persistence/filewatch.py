"""Detect that files of an open SQLite database were deleted, moved, replaced or truncated.

A process can continue to write to a deleted or moved file: every commit succeeds, but its data is lost. So
the device and inode of the database, its `-wal` and its `-shm` are compared with those of the opened files. A
truncated file keeps its inode, so the sizes are compared with what SQLite expects
(`persistence/walindex.py`). `persistence/database.py` calls this in worker threads at each transaction.
"""

from __future__ import annotations

import os
from pathlib import Path

from .addresses import Address
from .failures import StoreBroken, StoreDown
from .walindex import LogIndex

_ENDINGS = ("", "-wal", "-shm")


class FileWatch:
    """The files of one database. Create it while a connection keeps them open."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._opened: dict[str, tuple[int, int]] = {}
        for ending in _ENDINGS:
            path = f"{address.path}{ending}"
            status = os.stat(path)
            self._opened[path] = status.st_dev, status.st_ino
        self._size = os.stat(address.path).st_size  # of the database at the last check
        self._index = LogIndex(Path(f"{address.path}-shm"))

    def close(self) -> None:
        """Close the index. Call it after the engine's connections are closed."""
        self._index.close()

    def check(self, *, outcome_known: bool = True) -> None:
        """Raise `StoreBroken` with `outcome_known` if a file was deleted, moved, replaced or truncated."""
        state = self._index.read()
        before = self._size  # an upper bound: another thread can be here, too
        sizes: list[int] = []
        for path, opened in self._opened.items():
            try:
                status = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                raise self._lost(path, "deleted or moved", outcome_known) from None
            except OSError as error:  # an error of the disk, or missing permission
                raise StoreDown(
                    f"the store is unavailable: {self._address}: {error}", outcome_known=outcome_known
                ) from error
            if (status.st_dev, status.st_ino) != opened:
                raise self._lost(path, "replaced by another file", outcome_known)
            sizes.append(status.st_size)
        self._size = sizes[0]
        if state is None:
            return
        # Until the log is copied completely, the database can be smaller than its final size. It only shrinks
        # (VACUUM) to that size, never below.
        database_size = state.database_size if state.copied else min(before, state.database_size)
        for path, size, least in zip(self._opened, sizes, (database_size, state.log_size), strict=False):
            # If the state has changed, another program may have copied and truncated the log.
            if size < least and self._index.read() == state:
                raise self._lost(path, "truncated", outcome_known)

    def _lost(self, path: str, how: str, outcome_known: bool) -> StoreBroken:
        remedy = (
            "restore the store from a backup"
            if how == "truncated"
            else "restore the original file before the next start"
            if path == str(self._address.path)
            else "the engine saves all commits at a normal shutdown; leave this file unchanged"
        )
        return StoreBroken(
            f"cannot use the store {self._address}: {path} was {how} while the engine used it; {remedy}",
            outcome_known=outcome_known,
            damaged=True,
        )
