"""The lock that shows whether child processes of an engine still exist, also after the engine was killed.

Each child has the locked file open from its start to its end, and the system releases the lock with the last
of them. An engine that opens the store of a killed engine waits until the lock is free: before that, a body
of the killed engine could still execute.

The file is next to a SQLite database. For a database server, it is in the data folder, and its name contains
a hash of the store's address.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import trio

from .addresses import Address
from .filelock import BINARY, lock, lock_shared

_CHECK_EVERY = 0.02


def executor_lock_path(store: Address, data_dir: str | os.PathLike[str]) -> Path | None:
    """The path of the lock file for a store; `None` if no other process can open the store."""
    if store.in_memory:
        return None
    if store.kind == "sqlite":
        return Path(f"{store.path}.executors.lock").absolute()
    digest = hashlib.blake2b(str(store).encode(), digest_size=8).hexdigest()
    return Path(data_dir, f".greenroom-executors-{digest}.lock").absolute()


class ExecutorLock:
    """The lock file at this path. It is never deleted, as the lock file of a store."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def is_free(self) -> bool:
        """Whether no child of an earlier engine exists."""
        try:
            file = os.open(self.path, os.O_RDWR | BINARY)
        except FileNotFoundError:
            return True
        try:
            lock(file)
        except BlockingIOError:
            return False
        finally:
            os.close(file)
        return True

    async def wait(self, timeout: float) -> bool:
        """Wait until no child of an earlier engine exists; returns whether that is so after the timeout."""
        with trio.move_on_after(timeout):
            while not self.is_free():  # noqa: ASYNC110 # the system does not report that a lock is free
                await trio.sleep(_CHECK_EVERY)
        return self.is_free()

    def hold(self) -> int:
        """Open the file and lock it together with other children. The file is for a child; close it here."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | BINARY, 0o644)
        try:
            lock_shared(file)
        except BaseException:
            os.close(file)
            raise
        return file
