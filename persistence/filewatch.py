"""The files of a SQLite database while it is open: whether they are still those at its path.

A process goes on writing to a file that was deleted or moved away, and every commit succeeds, into nothing
that anyone will find. So the database's file, its `-wal` and its `-shm` are compared, by device and inode,
with those that were opened. A truncated file keeps its inode, so the sizes are compared, too, with what
SQLite itself counts on (`persistence/walindex.py`). `persistence/database.py` calls this in worker threads,
at each transaction.
"""

from __future__ import annotations

import os
from pathlib import Path

from .addresses import Address
from .failures import StoreBroken, StoreDown
from .walindex import LogIndex

_ENDINGS = ("", "-wal", "-shm")


class FileWatch:
    """The files of one database. Make it when they are open, and as long as some connection keeps them so."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._opened: dict[str, tuple[int, int]] = {}
        for ending in _ENDINGS:
            path = f"{address.path}{ending}"
            status = os.stat(path)
            self._opened[path] = status.st_dev, status.st_ino
        self._size = os.stat(address.path).st_size  # of the database, as it was last seen
        self._index = LogIndex(Path(f"{address.path}-shm"))

    def close(self) -> None:
        """Call it when the engine's connections are closed."""
        self._index.close()

    def check(self, *, outcome_known: bool = True) -> None:
        """Raise `StoreBroken` if a file was deleted, moved, replaced or truncated; `outcome_known` as in
        there."""
        state = self._index.read()
        before = self._size  # as it was at most by now: another thread may be here, too
        sizes: list[int] = []
        for path, opened in self._opened.items():
            try:
                status = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                raise self._lost(path, "deleted or moved away", outcome_known) from None
            except OSError as error:  # the disk, or the right to look
                raise StoreDown(
                    f"the store {self._address} is unavailable: {error}", outcome_known=outcome_known
                ) from error
            if (status.st_dev, status.st_ino) != opened:
                raise self._lost(path, "replaced by another file", outcome_known)
            sizes.append(status.st_size)
        self._size = sizes[0]
        if state is None:
            return
        # Until everything in the log is copied, the database may be smaller than it will be. But it never
        # shrinks below that size, nor otherwise than to it (VACUUM).
        database_size = state.database_size if state.copied else min(before, state.database_size)
        for path, size, least in zip(self._opened, sizes, (database_size, state.log_size), strict=False):
            # In another state by now, another program may have copied the log and emptied it.
            if size < least and self._index.read() == state:
                raise self._lost(path, "truncated", outcome_known)

    def _lost(self, path: str, how: str, outcome_known: bool) -> StoreBroken:
        remedy = (
            "restore the store from a backup"
            if how == "truncated"
            else "put the right file back before the next start"
            if path == str(self._address.path)
            else "what was committed is saved when the engine ends in order; leave this file alone"
        )
        return StoreBroken(
            f"the store {self._address} can't be used: {path} was {how} while the engine used it; {remedy}",
            outcome_known=outcome_known,
            damaged=True,
        )
