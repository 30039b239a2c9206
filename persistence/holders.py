"""Which process holds a lease, and whether it still lives.

A holder's name tells enough for another process on the same machine to see at once that it has died, so that
a restart after a crash needs not wait until the lease expires. About a process on another machine, or in
another container, nothing can be known: there the expiry decides.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
from pathlib import Path

import msgspec

_live: set[str] = set()
"""The ids of the leases that this process holds."""

_LONGEST_HOST = 64


class Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process that holds a lease. In the store it is JSON text."""

    id: str
    """Drawn anew at each opening."""
    host: str = ""
    pid: int = 0
    started: int = 0
    """When the process was started, in the system's own unit; 0 where the system doesn't tell."""
    machine: str = ""
    """Stands for one boot of one machine, and one space of process ids on it."""
    lock: str = ""
    """The lock file that the process keeps locked as long as it lives, by device and inode."""

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}"

    def text(self) -> str:
        """As it stands in the store."""
        return msgspec.json.encode(self).decode()


def read_holder(text: str) -> Holder:
    """From the store's text; a text of somebody else is a holder of whom nothing is known."""
    try:
        return msgspec.json.decode(text, type=Holder)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return Holder(id=text, host="an unknown machine")


def this_process(lock: str = "") -> Holder:
    """A new name for this process."""
    pid = os.getpid()
    return Holder(
        secrets.token_hex(8), socket.gethostname()[:_LONGEST_HOST], pid, _started(pid), _machine(), lock
    )


def begins(holder: Holder) -> None:
    """This process holds a lease from now on, under that name."""
    _live.add(holder.id)


def ends(holder: Holder) -> None:
    """It doesn't hold it any more."""
    _live.discard(holder.id)


def is_alive(holder: Holder, lock: str = "") -> bool | None:
    """Whether the holder lives; `None` where nobody can know. `lock` is the lock file that the asking process
    has locked: a holder that had locked the same one doesn't any more."""
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
    except OSError:  # no Linux: nothing is known about other processes
        return ""
    return hashlib.blake2b(f"{boot} {space}".encode(), digest_size=8).hexdigest()


def _started(pid: int) -> int:
    """The process's start in ticks since the boot; -1 if it has died and only its parent doesn't know yet, 0
    if there is no such process, or nobody tells."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    state, *rest = stat.rpartition(b")")[2].split()
    return -1 if state in (b"Z", b"X") else int(rest[18])


def _exists(pid: int) -> bool:
    """Whether there is such a process, although this user may not look at it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
