"""One engine per store: the lock that an engine holds while it runs.

The lock is the quick first check. The lease in the store decides (`persistence/lease.py`): it also works if
the lock file is deleted, or if a server drops the session of a running engine.

For SQLite it is a lock on `<file>.lock` next to the database. It is not on the database itself, because those
locks are dropped when any handle of the file is closed. The lock file contains the holder, for the error
message of a second engine. It is never deleted, because a process that locks a new file would not exclude one
that holds the deleted file.

For servers it is an advisory lock (`persistence/advisory.py`). The operating system or the server releases
the lock of a process that has died.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TypeVar

import trio

from .addresses import Address, parse_addresses
from .advisory import ServerLock
from .failures import StoreBroken, folder_failure, in_use
from .filelock import BINARY, lock, read_at, write_at
from .traces import HOLDER_ENDS

T = TypeVar("T")


class StoreLock:
    """The lock of one store. Taken before the database is opened, so a second engine changes nothing.

    The nodes of a cluster have none (`shared`): a server keeps the lock of a paused or unreachable process,
    so it must not decide who leads.
    """

    def __init__(
        self, stores: str | Iterable[str | Address], *, in_threads: bool = True, shared: bool = False
    ) -> None:
        addresses = parse_addresses(stores)
        self._lock: _NoLock | _FileLock | ServerLock
        if addresses[0].in_memory or shared:
            self._lock = _NoLock()
        elif addresses[0].kind == "sqlite":
            self._lock = _FileLock(addresses[0])
        else:
            self._lock = ServerLock(addresses, holder=f"greenroom engine, {_me()}")
        self._in_threads = in_threads
        self._limiter = trio.CapacityLimiter(1)  # one call at a time on the one connection

    async def acquire(self) -> None:
        """Take the lock, or raise `Conflict` with the store and the holder. Does not wait for the lock.

        A lost lock can be acquired again.
        """
        await self._call(self._lock.acquire)

    async def check(self) -> bool:
        """Whether the lock is still held."""
        return await self._call(self._lock.check)

    async def release(self) -> None:
        """Release the lock; does nothing if it is not held."""
        with trio.CancelScope(shield=True):
            await self._call(self._lock.release)

    @property
    def identity(self) -> str:
        """The device and inode of the locked file, which distinguish two files from two names of one file.

        Empty if the lock is not on a file.
        """
        return self._lock.identity if isinstance(self._lock, _FileLock) else ""

    @property
    def server(self) -> ServerLock | None:
        """The server's advisory lock, if there is one. Its methods block."""
        return self._lock if isinstance(self._lock, ServerLock) else None

    async def _call(self, function: Callable[[], T]) -> T:
        if self._in_threads:
            return await trio.to_thread.run_sync(function, limiter=self._limiter)
        await trio.lowlevel.checkpoint()
        return function()


class _NoLock:
    """For a database that no other process can open."""

    def acquire(self) -> None:
        pass

    def check(self) -> bool:
        return True

    def release(self) -> None:
        pass


class _FileLock:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._path = f"{address.path}.lock"
        self._file: int | None = None

    def acquire(self) -> None:
        if self.check():
            return
        self.release()
        self._refuse_other_names()
        try:
            file = self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | BINARY, 0o644)
            _open.add(self)
            try:
                self._lock(file)
            except BaseException:
                self._close()
                raise
        except OSError as error:
            raise folder_failure(error, self._address) from error
        if not self.check():  # the file was deleted before the lock was taken: lock the new one
            self.acquire()

    def _refuse_other_names(self) -> None:
        """Refuse a database with several hard links. SQLite derives the name of its log from the name of the
        database: opened by two names, the database is damaged, and neither engine sees the other's lock."""
        try:
            names = os.stat(self._address.path).st_nlink
        except OSError:
            return  # it does not exist yet, or opening it reports the error
        if names > 1:
            raise StoreBroken(
                f"cannot use the store {self._address}: its file has {names} hard links, and SQLite damages "
                "a database that is opened by two of them; remove the other links, and make copies with "
                "greenroom db backup"
            )

    def _lock(self, file: int) -> None:
        try:
            lock(file)
        except BlockingIOError:
            holder = read_at(file, 200, 0).decode(errors="replace").strip()
            raise in_use(self._address, holder or "just started") from None
        self._show(file, f"{_me()}, since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")

    @staticmethod
    def _show(file: int, holder: str) -> None:
        """Write the holder to the lock file, and keep the trace behind it."""
        if os.fstat(file).st_size > HOLDER_ENDS:
            write_at(file, holder.encode()[: HOLDER_ENDS - 1].ljust(HOLDER_ENDS - 1) + b"\n", 0)
        else:
            os.ftruncate(file, 0)
            write_at(file, f"{holder}\n".encode() if holder else b"", 0)

    @property
    def identity(self) -> str:
        if self._file is None:
            return ""
        locked = os.fstat(self._file)
        return f"{locked.st_dev}:{locked.st_ino}"

    def check(self) -> bool:
        if self._file is None:
            return False
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except OSError:
            return False

    def release(self) -> None:
        if self._file is not None:
            try:
                self._show(self._file, "")
            finally:
                self._close()

    def leave_to_parent(self) -> None:
        """In a forked child: close its copy of the file. The lock belongs to the open file, so a child that
        outlives its parent would keep it."""
        self._close()

    def _close(self) -> None:
        _open.discard(self)
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


_open: set[_FileLock] = set()
"""The locks whose file this process has open."""


def _leave_to_parent() -> None:
    for inherited in list(_open):
        inherited.leave_to_parent()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_leave_to_parent)


def _me() -> str:
    return f"pid {os.getpid()} on {socket.gethostname()}"
