"""`filelock.py` for Windows, where other processes can neither read nor write locked bytes.

So the locked byte is beyond the end of the file, and every program can read who holds the lock.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

_msvcrt: Any = import_module("msvcrt")  # type checkers know this module on Windows only

_LOCKED = 1 << 30
"""The offset of the locked byte."""


def lock(file: int) -> None:
    """Lock an open file, or raise `BlockingIOError` if another one has it locked."""
    os.lseek(file, _LOCKED, os.SEEK_SET)
    try:
        _msvcrt.locking(file, _msvcrt.LK_NBLCK, 1)
    except PermissionError as error:  # what Windows calls it
        raise BlockingIOError(*error.args) from None


def lock_shared(file: int) -> None:
    """Not available: engines have no child processes on Windows."""
    raise NotImplementedError("child processes of engines require a Unix system")


def read_at(file: int, size: int, offset: int) -> bytes:
    """Read at most `size` bytes from an offset. Only one thread at a time can use the file."""
    os.lseek(file, offset, os.SEEK_SET)
    return os.read(file, size)


def write_at(file: int, data: bytes, offset: int) -> None:
    """Write at an offset. Only one thread at a time can use the file."""
    os.lseek(file, offset, os.SEEK_SET)
    os.write(file, data)
