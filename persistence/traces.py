"""Traces of a store's last committed state, kept outside of it. They reveal at the opening that a store was
emptied, replaced by an older copy, or has lost its write-ahead log.

The lock file of a SQLite store contains the epoch and the last seq of each commit (`LockTrace`). It is not
synced: it survives a crash of the process, and after a crash of the machine it is at most out of date. The
folder of run files records the same from time to time, for every kind of store (`persistence/runs_dir.py`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Protocol

import msgspec

from .filelock import BINARY, read_at, write_at

HOLDER_ENDS = 256
"""The offset in the lock file before which is the holder, and after which is the trace."""
_TRACE_ENDS = 512


class Trace(msgspec.Struct, frozen=True):
    """The events of this epoch up to this seq were committed."""

    epoch: str
    seq: int


class Witness(Protocol):
    """Anything outside of a store that keeps a trace of it."""

    @property
    def where(self) -> str:
        """The name of the witness in an error."""

    def trace(self) -> Trace | None:
        """Return its trace, or `None` if it has none."""


class LockTrace:
    """The trace in the lock file of a SQLite store. Its methods block briefly. Errors of reading or writing
    count as no trace."""

    def __init__(self, path: str) -> None:
        self.where = path
        self._file: int | None = None

    def trace(self) -> Trace | None:
        try:
            with open(self.where, "rb") as file:
                file.seek(HOLDER_ENDS)
                return msgspec.json.decode(file.read(_TRACE_ENDS - HOLDER_ENDS), type=Trace)
        except (OSError, msgspec.MsgspecError):
            return None

    def note(self, trace: Trace) -> None:
        """Record the last committed seq."""
        content = msgspec.json.encode(trace).ljust(_TRACE_ENDS - HOLDER_ENDS - 1) + b"\n"
        with contextlib.suppress(OSError):  # the commit has succeeded anyway
            if self._file is None:
                self._file = os.open(self.where, os.O_RDWR | BINARY)
                holder = read_at(self._file, HOLDER_ENDS, 0).rstrip(b"\0\n ")
                write_at(self._file, holder.ljust(HOLDER_ENDS - 1) + b"\n", 0)
            write_at(self._file, content, HOLDER_ENDS)

    def close(self) -> None:
        """Close the lock file."""
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)


def fits(found: Trace | None, known: Trace) -> bool:
    """Whether a store contains everything that a trace records."""
    return found is not None and found.epoch == known.epoch and found.seq >= known.seq


def contradiction(store: str, found: Trace | None, witnesses: Iterable[Witness]) -> str | None:
    """Return an error message if the store contradicts a witness, else `None`.

    `found` is the store's own epoch and seq, or `None` for a new store.
    """
    for witness in witnesses:
        known = witness.trace()
        if known is None or fits(found, known):
            continue
        if found is None:
            state = "is empty"
        elif found.epoch != known.epoch:
            state = "is a different store"
        else:
            state = f"ends at seq {found.seq}"
        return (
            f"the store {store} {state}, but {witness.where} records seq {known.seq} of a previous state: "
            "restore the missing files (a SQLite store is its file and its -wal), or accept the store as it "
            "is with greenroom serve --accept-store or open_engine(accept_store=True)"
        )
    return None
