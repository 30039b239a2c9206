"""The files of a SQLite database while it is open: whether they are still those at its path.

A process goes on writing to a file that was deleted or moved away, and every commit succeeds, into nothing
that anyone will find. So the database's file, its `-wal` and its `-shm` are compared, by device and inode,
with those that were opened. `persistence/database.py` calls this in worker threads, at each transaction.
"""

from __future__ import annotations

import os

from .addresses import Address
from .failures import StoreBroken, StoreDown

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

    def check(self, *, outcome_known: bool = True) -> None:
        """Raise `StoreBroken` if a file was deleted, moved or replaced; `outcome_known` as in there."""
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

    def _lost(self, path: str, how: str, outcome_known: bool) -> StoreBroken:
        remedy = (
            "put the right file back before the next start"
            if path == str(self._address.path)
            else "what was committed is saved when the engine ends in order; leave this file alone"
        )
        return StoreBroken(
            f"the store {self._address} can't be used: {path} was {how} while the engine used it; {remedy}",
            outcome_known=outcome_known,
            damaged=True,
        )
