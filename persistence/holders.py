"""The process that holds a lease, and whether it is still alive.

From a holder's record, another process on the same machine can determine that the holder has died, so a
restart after a crash does not wait for the lease to expire. For a process on another machine, or in another
container, this is impossible, and the expiry decides.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
from pathlib import Path

import msgspec

_live: set[str] = set()
"""The ids of the holders in this process that hold a lease."""

_LONGEST_HOST = 64


class Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process that holds a lease. In the store it is JSON text."""

    id: str
    """A new random id for each opening of a store."""
    host: str = ""
    pid: int = 0
    started: int = 0
    """The start time of the process, in the system's unit; 0 if unknown."""
    machine: str = ""
    """An id of one boot of one machine, and of one PID namespace on it; empty if unknown."""
    lock: str = ""
    """The device and inode of the lock file that the process keeps locked while it runs."""

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}"

    def text(self) -> str:
        """Return the JSON text for the store."""
        return msgspec.json.encode(self).decode()


def read_holder(text: str) -> Holder:
    """Parse the store's text; an unreadable text gives a holder without any data."""
    try:
        return msgspec.json.decode(text, type=Holder)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return Holder(id=text, host="an unknown machine")


def this_process(lock: str = "") -> Holder:
    """Return a new holder for this process."""
    pid = os.getpid()
    return Holder(
        secrets.token_hex(8), socket.gethostname()[:_LONGEST_HOST], pid, _started(pid), _machine(), lock
    )


def begins(holder: Holder) -> None:
    """Record that this process holds a lease as this holder."""
    _live.add(holder.id)


def ends(holder: Holder) -> None:
    """Record that this process no longer holds the lease."""
    _live.discard(holder.id)


def is_alive(holder: Holder, lock: str = "") -> bool | None:
    """Whether the holder is alive; `None` if unknown.

    `lock` is the lock file that the calling process has locked: a holder that had locked the same file has
    ended.
    """
    if lock and holder.lock == lock:
        return False
    if holder.pid and holder.started and holder.machine == _machine() != "":
        started = _started(holder.pid)
        if started != holder.started:
            return None if started == 0 and _exists(holder.pid) else False
        return holder.id in _live if holder.pid == os.getpid() else True
    return None


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = os.readlink("/proc/self/ns/pid")
    except OSError:  # not Linux: nothing is known about other processes
        return ""
    return hashlib.blake2b(f"{boot} {space}".encode(), digest_size=8).hexdigest()


def _started(pid: int) -> int:
    """Return the process's start in ticks since the boot; -1 for a zombie, 0 if there is no such process or
    the system does not report it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    state, *rest = stat.rpartition(b")")[2].split()
    return -1 if state in (b"Z", b"X") else int(rest[18])


def _exists(pid: int) -> bool:
    """Whether the process exists, also if this user has no permission to inspect it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
