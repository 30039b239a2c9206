"""One engine per store: the lock that an engine holds as long as it lives. It is the quick first check. The
lease in the store decides (`persistence/lease.py`): it also holds where a lock's file is deleted, or where a
server drops the session of an engine that lives on.

For SQLite it is a lock on `<file>.lock` beside the database. It is never on the database itself, whose locks
would be dropped whenever any handle of it is closed. The file tells who holds it, for the one who is refused;
it stays where it is when the lock is released, because whoever deletes a lock's file makes two locks of one.

For servers it is an advisory lock (`persistence/advisory.py`). The operating system or the server ends the
lock of a process that has died, so no crash leaves one behind.
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
from .failures import StoreBroken, beside_the_file, in_use
from .filelock import BINARY, lock, read_at, write_at
from .traces import HOLDER_ENDS

T = TypeVar("T")


class StoreLock:
    """The lock of one store. Take it before the database is opened: a second engine then changes nothing."""

    def __init__(self, stores: str | Iterable[str | Address], *, in_threads: bool = True) -> None:
        addresses = parse_addresses(stores)
        self._lock: _NoLock | _FileLock | ServerLock
        if addresses[0].in_memory:
            self._lock = _NoLock()
        elif addresses[0].kind == "sqlite":
            self._lock = _FileLock(addresses[0])
        else:
            self._lock = ServerLock(addresses, holder=f"greenroom engine, {_me()}")
        self._in_threads = in_threads
        self._limiter = trio.CapacityLimiter(1)  # one call at a time on the one connection

    async def acquire(self) -> None:
        """Take it, or raise `Conflict`, which names the store and who holds it. It never waits for it.

        One that was lost can be acquired anew.
        """
        await self._call(self._lock.acquire)

    async def check(self) -> bool:
        """Whether it is still held."""
        return await self._call(self._lock.check)

    async def release(self) -> None:
        """Give it back; harmless if it isn't held."""
        with trio.CancelScope(shield=True):
            await self._call(self._lock.release)

    @property
    def identity(self) -> str:
        """Which file is locked, by device and inode, so that two names of one are told from two files; empty
        for a lock that is no file's."""
        return self._lock.identity if isinstance(self._lock, _FileLock) else ""

    @property
    def server(self) -> ServerLock | None:
        """The lock itself, if it is a server's. Its methods block."""
        return self._lock if isinstance(self._lock, ServerLock) else None

    async def _call(self, function: Callable[[], T]) -> T:
        if self._in_threads:
            return await trio.to_thread.run_sync(function, limiter=self._limiter)
        await trio.lowlevel.checkpoint()
        return function()


class _NoLock:
    """For a database that nobody else can open."""

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
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | BINARY, 0o644)
            try:
                self._lock(file)
            except BaseException:
                os.close(file)
                raise
        except OSError as error:
            raise beside_the_file(error, self._address) from error
        self._file = file
        if not self.check():  # the file was deleted in this very moment: what was locked is nobody's any more
            self.acquire()

    def _refuse_other_names(self) -> None:
        """SQLite keeps its log beside the name that it is opened by: by two names it damages the database,
        and neither engine would see the other's lock or lease."""
        try:
            names = os.stat(self._address.path).st_nlink
        except OSError:
            return  # it is not there yet, or whoever opens it says what is wrong
        if names > 1:
            raise StoreBroken(
                f"the store {self._address} can't be used: its file has {names} names (hard links), and "
                "SQLite damages a database that is opened by two of them; remove the other names, and make "
                "copies with greenroom db backup"
            )

    def _lock(self, file: int) -> None:
        try:
            lock(file)
        except BlockingIOError:
            holder = read_at(file, 200, 0).decode(errors="replace").strip()
            raise in_use(self._address, holder or "which has only just begun") from None
        self._show(file, f"{_me()}, since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")

    @staticmethod
    def _show(file: int, holder: str) -> None:
        """Name the holder; what stands behind it is the store's trace."""
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
            file, self._file = self._file, None
            self._show(file, "")
            os.close(file)


def _me() -> str:
    return f"pid {os.getpid()} on {socket.gethostname()}"
