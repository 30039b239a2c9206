"""The guard: a simulation fails when code under test touches the real world.

Real time, real randomness, files, threads, sockets and processes would make two simulations of one seed
differ. Code that uses them gets a `RealWorldTouched` at that place, and the simulation fails with a message
that names what was touched, and where. Python's audit events report files, sockets and processes; the
functions for time, randomness and threads are replaced during a simulation.

Allowed are imports, reading source lines for tracebacks, and log records (with the world's time).
The masks of WebSocket frames are drawn from the seed.
Not detected are: anything opened before the simulation started; a function for time or randomness that is
kept in an object or a default value; what C libraries do internally; and the time at which the garbage
collector finalizes cycles, which the simulation makes regular, except for caches of the code under test.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from .stand_ins import exchanged, package_of

_WATCHED = frozenset(
    """
    open os.listdir os.scandir os.mkdir os.rmdir os.remove os.rename os.link os.symlink os.truncate os.chmod
    os.chown os.utime os.system os.exec os.fork os.forkpty os.posix_spawn os.spawn os.kill
    socket.__new__ socket.connect socket.bind socket.getaddrinfo socket.gethostbyname socket.sendto
    subprocess.Popen sqlite3.connect tempfile.mkstemp tempfile.mkdtemp
    shutil.copyfile shutil.move shutil.rmtree glob.glob
    """.split()
)
"""The audit events that report a use of the real world."""

_WITH_FILES = frozenset({"importlib", "zipimport", "linecache", "warnings", "logging"})
"""Code may open files if one of these modules is on its stack."""

_STDLIB = os.path.realpath(sysconfig.get_path("stdlib"))


class RealWorldTouched(RuntimeError):
    """Code under test used real time, randomness, files, threads or sockets in a simulation."""


class Guard:
    """The guard of one simulation. It calls `report` with a text about what was touched."""

    def __init__(self, report: Callable[[str], None], wall_clock: Callable[[], float], dice: Random) -> None:
        self.wall_clock = wall_clock
        self.dice = dice
        self._report = report
        self._thread = threading.get_ident()
        self._reporting = False

    @property
    def watches_here(self) -> bool:
        """Whether code under test is running: in the simulation's thread, and not in the guard itself."""
        return not self._reporting and threading.get_ident() == self._thread

    def touched(self, what: str, frame: types.FrameType) -> RealWorldTouched:
        """Report a use of the real world; returns the exception to raise."""
        self._reporting = True
        try:
            text = f"{_place(frame, what)}: {_advice(what)}"
            self._report(text)
            return RealWorldTouched(text)
        finally:
            self._reporting = False

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Handle one of the watched audit events."""
        if event in ("open", "sqlite3.connect") and arguments[0] in _HARMLESS:
            return
        if event == "open" and isinstance(arguments[0], int):
            return  # a file descriptor: the file is open already
        frame = sys._getframe(2)
        if not _on_stack(frame, _WITH_FILES):
            named = f"{event}({arguments[0]!r})" if arguments and isinstance(arguments[0], str) else event
            raise self.touched(named, frame)


_ADVICE = {
    ("time.", "datetime."): "use trio.current_time(), trio.sleep() or world.clock",
    ("random.", "os.urandom", "uuid."): "use a random.Random that the world has seeded (world.random)",
    ("open", "os.", "shutil.", "tempfile.", "glob."): "the only files are those of run.open_file()",
    ("threads",): "there are no threads: call the function directly",
}


def _advice(what: str) -> str:
    for beginnings, advice in _ADVICE.items():
        if what.startswith(beginnings):
            return f"in a simulation, {advice}"
    return "not available in a simulation: pass a substitute to the code under test"


_HARMLESS = frozenset({":memory:"})

_active: Guard | None = None
_hooked = False


@contextmanager
def guarded(report: Callable[[str], None], wall_clock: Callable[[], float], dice: Random) -> Iterator[None]:
    """Watch this thread while the block lasts. Each use of the real world calls `report`, and raises
    `RealWorldTouched` in the code that did it."""
    global _active, _hooked
    assert _active is None, "a process can have one guard at a time"
    if not _hooked:
        sys.addaudithook(_audit)  # cannot be removed; it does nothing while no guard is active
        _hooked = True
    _active = Guard(report, wall_clock, dice)
    try:
        with exchanged(_active):
            yield
    finally:
        _active = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _active is not None and event in _WATCHED and _active.watches_here:
        _active.audit(event, arguments)


def _frames(frame: types.FrameType) -> Iterator[types.FrameType]:
    """The frames of this step of this task, innermost first."""
    at: types.FrameType | None = frame
    while at is not None and at.f_code.co_name != "unrolled_run":
        yield at
        at = at.f_back


def _on_stack(frame: types.FrameType, packages: frozenset[str]) -> bool:
    return any(package_of(at) in packages or "importlib" in at.f_code.co_filename for at in _frames(frame))


def _place(frame: types.FrameType, what: str) -> str:
    """Describe which code touched it: the innermost frame outside the standard library and trio."""
    through = ""
    for at in _frames(frame):
        package, file = package_of(at), at.f_code.co_filename
        if package == "trio" or (os.path.realpath(file).startswith(_STDLIB) and "site-packages" not in file):
            through = f" through {package}.{at.f_code.co_name}"
            continue
        return f"{file}:{at.f_lineno}, in {at.f_code.co_name}, touches {what}{through}"
    return f"unknown code touches {what}{through}"
