"""What lies beside a store and tells how far it had come: so that one that was emptied, replaced by an older
copy, or robbed of its write-ahead log is noticed when it is opened, rather than taken for what it was.

A SQLite store's lock file notes the epoch and the last seq after each commit (`LockTrace`). It isn't synced:
it survives the death of the process, and after that of the machine it can only be behind. The folder of run
files notes the same now and then (`persistence/runs_dir.py`), for every kind of store.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Protocol

import msgspec

from .filelock import BINARY, read_at, write_at

HOLDER_ENDS = 256
"""Before this offset the lock file names its holder; what stands behind it is the trace."""
_TRACE_ENDS = 512


class Trace(msgspec.Struct, frozen=True):
    """Everything up to this seq of this store was committed."""

    epoch: str
    seq: int


class Witness(Protocol):
    """Something beside a store that keeps a trace of it."""

    @property
    def where(self) -> str:
        """What it is, for an error."""

    def trace(self) -> Trace | None:
        """What it knows; `None` for nothing."""


class LockTrace:
    """The trace in the lock file of a SQLite store. Its methods block, for as long as a page of memory takes;
    what can't be written or read counts as not known."""

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
        """Note how far the store has come."""
        content = msgspec.json.encode(trace).ljust(_TRACE_ENDS - HOLDER_ENDS - 1) + b"\n"
        with contextlib.suppress(OSError):  # the commit holds all the same
            if self._file is None:
                self._file = os.open(self.where, os.O_RDWR | BINARY)
                holder = read_at(self._file, HOLDER_ENDS, 0).rstrip(b"\0\n ")
                write_at(self._file, holder.ljust(HOLDER_ENDS - 1) + b"\n", 0)
            write_at(self._file, content, HOLDER_ENDS)

    def close(self) -> None:
        """Note nothing more."""
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)


def fits(found: Trace | None, known: Trace) -> bool:
    """Whether a store has everything that was known of it."""
    return found is not None and found.epoch == known.epoch and found.seq >= known.seq


def contradiction(store: str, found: Trace | None, witnesses: Iterable[Witness]) -> str | None:
    """Why the store can't be the one that the witnesses know, in one sentence; `None` if it may be. `found`
    is what the store holds itself, `None` for a new one."""
    for witness in witnesses:
        known = witness.trace()
        if known is None or fits(found, known):
            continue
        if found is None:
            state = "is empty"
        elif found.epoch != known.epoch:
            state = "is another one"
        else:
            state = f"ends at seq {found.seq}"
        return (
            f"the store {store} {state}, but {witness.where} knows of one that had come to seq {known.seq}: "
            "put back what is missing (a SQLite store is its file and its -wal), or accept the store as it "
            "is, with greenroom serve --accept-store or open_engine(accept_store=True)"
        )
    return None
