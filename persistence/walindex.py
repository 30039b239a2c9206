"""The header of SQLite's `-shm` file: how much of the write-ahead log and of the database counts.

Every connection of a SQLite database shares this header. It is read to notice that the `-wal` or the database
was truncated under a live engine, which SQLite itself does not notice for a long time. The format is that of
https://www.sqlite.org/walformat.html, section 2; numbers are in the machine's byte order.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import msgspec

from .filelock import BINARY, read_at

_HEADER = struct.Struct("=IIIBBHII24x")
_ALL = struct.Struct(f"={_HEADER.size}s{_HEADER.size}sI")
"""The header, its second copy, and how many frames of the log were copied into the database."""
_LOG_HEADER = 32
_FRAME_HEADER = 24


class LogState(msgspec.Struct, frozen=True):
    """One state of the header. Two that are equal are the same state, because it counts its changes."""

    header: bytes
    log_size: int
    """How many bytes the `-wal` has at least; 0 if nothing in it counts."""
    database_size: int
    """How many bytes the database has once everything in the `-wal` is copied into it."""
    copied: bool
    """Whether everything is copied."""


class LogIndex:
    """The open `-shm` file of a database that some connection keeps open."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY | BINARY)

    def read(self) -> LogState | None:
        """The state, or `None` while it is being changed."""
        found = read_at(self._file, _ALL.size, 0)
        if len(found) < _ALL.size:
            return None
        header, second, copied = _ALL.unpack(found)
        if header != second:
            return None
        _, _, _, initialized, _, page, frames, pages = _HEADER.unpack(header)
        if not initialized:
            return None
        page = 65536 if page == 1 else page
        log_size = _LOG_HEADER + frames * (_FRAME_HEADER + page) if frames else 0
        return LogState(header, log_size, pages * page, copied >= frames)

    def close(self) -> None:
        """Call it when the engine's connections are closed. SQLite's locks on this file are the process's:
        closing the file drops those of every other connection that the program may have made itself. SQLite
        deletes the file with the last connection; until then it stays open. On Windows,
        locks belong to open files, and a file that is open here could not be deleted."""
        if os.name == "nt" or os.fstat(self._file).st_nlink == 0:
            os.close(self._file)
