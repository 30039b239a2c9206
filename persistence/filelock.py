"""What the store's lock file requires of the operating system: locks, and access at an offset.

The lock belongs to the open file, not to the process: two engines in one process exclude each other, too. The
system releases it when the file is closed, also by the end of the process.
"""

from __future__ import annotations

import os

try:
    import fcntl
except ModuleNotFoundError:  # on Windows
    from .filelock_windows import lock, lock_shared, read_at, write_at
else:

    def lock(file: int) -> None:
        """Lock an open file, or raise `BlockingIOError` if another one has it locked."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def lock_shared(file: int) -> None:
        """Lock an open file together with others that do so; otherwise like `lock`."""
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def read_at(file: int, size: int, offset: int) -> bytes:
        """Read at most `size` bytes from an offset."""
        return os.pread(file, size, offset)

    def write_at(file: int, data: bytes, offset: int) -> None:
        """Write at an offset."""
        os.pwrite(file, data, offset)


__all__ = ["BINARY", "lock", "lock_shared", "read_at", "write_at"]

BINARY: int = getattr(os, "O_BINARY", 0)
"""For `os.open`: without it, Windows translates the ends of lines."""
