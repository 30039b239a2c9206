"""The header of SQLite's `-shm` file: the valid sizes of the write-ahead log and of the database.

All connections of a SQLite database share this header. It is read to detect that the `-wal` or the database
was truncated under a running engine, which SQLite itself does not detect for a long time. The format is that
of https://www.sqlite.org/walformat.html, section 2; numbers are in the machine's byte order.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import msgspec

from .filelock import BINARY, read_at

_HEADER = struct.Struct("=IIIBBHII24x")
_ALL = struct.Struct(f"={_HEADER.size}s{_HEADER.size}sI")
"""The header, its second copy, and the number of frames of the log that were copied into the database."""
_LOG_HEADER = 32
_FRAME_HEADER = 24


class LogState(msgspec.Struct, frozen=True):
    """One state of the header. Equal headers are the same state, because a header counts its changes."""

    header: bytes
    log_size: int
    """The minimum size of the `-wal` in bytes; 0 if nothing in it is valid."""
    database_size: int
    """The size of the database in bytes after all of the `-wal` is copied into it."""
    copied: bool
    """Whether all of it is copied."""


class LogIndex:
    """The `-shm` file of a database that a connection keeps open."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY | BINARY)

    def read(self) -> LogState | None:
        """Return the state, or `None` during a change."""
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
        """Close the file if SQLite has deleted it. Call this after the engine's connections are closed.

        SQLite's locks on this file belong to the process: closing the file would release the locks of other
        connections that the program has. SQLite deletes the file with the last connection. On Windows, locks
        belong to open files, and an open file could not be deleted, so the file is always closed.
        """
        if os.name == "nt" or os.fstat(self._file).st_nlink == 0:
            os.close(self._file)
