"""The guard: a simulation fails when code under test touches the real world.

Real time, real randomness, files, threads, sockets and processes would make two runs of one seed differ.
Whoever uses them is told so where it happens, and the simulation ends with a text that names what was
touched, and from where. Python's own audit events tell of files, sockets and processes; the functions of
time, randomness and threads are exchanged while a simulation lasts.

Let through are imports, the lines of source that tracebacks show, and log records (with the world's time).
The masks of WebSocket frames are drawn from the seed.
Not noticed are: what was opened before the simulation began; a function of time or randomness that is kept in
an object or a default value; what C libraries do by themselves; and when the garbage collector runs the
finalizers of cycles, which the simulation makes regular, but not for the code under test's own caches.
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
"""The audit events of the real world."""

_WITH_FILES = frozenset({"importlib", "zipimport", "linecache", "warnings", "logging"})
"""Who may open files: whatever has one of these modules on its stack."""

_STDLIB = os.path.realpath(sysconfig.get_path("stdlib"))


class RealWorldTouched(RuntimeError):
    """Code under test has left the simulation."""


class Guard:
    """One simulation's guard. `report` is told what was touched."""

    def __init__(self, report: Callable[[str], None], wall_clock: Callable[[], float], dice: Random) -> None:
        self.wall_clock = wall_clock
        self.dice = dice
        self._report = report
        self._thread = threading.get_ident()
        self._reporting = False

    @property
    def watches_here(self) -> bool:
        """Whether this is code under test: in the simulation's thread, and not the guard's own doing."""
        return not self._reporting and threading.get_ident() == self._thread

    def touched(self, what: str, frame: types.FrameType) -> RealWorldTouched:
        """Report it; returns what to raise."""
        self._reporting = True
        try:
            text = f"{_place(frame, what)}: {_advice(what)}"
            self._report(text)
            return RealWorldTouched(text)
        finally:
            self._reporting = False

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """One of the watched events happens."""
        if event in ("open", "sqlite3.connect") and arguments[0] in _HARMLESS:
            return
        if event == "open" and isinstance(arguments[0], int):
            return  # it is open already
        frame = sys._getframe(2)
        if not _on_stack(frame, _WITH_FILES):
            named = f"{event}({arguments[0]!r})" if arguments and isinstance(arguments[0], str) else event
            raise self.touched(named, frame)


_ADVICE = {
    ("time.", "datetime."): "take time from trio.current_time(), trio.sleep() or the world's clock",
    ("random.", "os.urandom", "uuid."): "take randomness from a random.Random that the world has seeded",
    ("open", "os.", "shutil.", "tempfile.", "glob."): "there are no files but those of run.open_file()",
    ("threads",): "there are no threads: call the function where it is needed",
}


def _advice(what: str) -> str:
    for beginnings, advice in _ADVICE.items():
        if what.startswith(beginnings):
            return f"in a simulation, {advice}"
    return "a simulation has none of that: give it to the code from outside"


_HARMLESS = frozenset({":memory:"})

_active: Guard | None = None
_hooked = False


@contextmanager
def guarded(report: Callable[[str], None], wall_clock: Callable[[], float], dice: Random) -> Iterator[None]:
    """Watch this thread while the block lasts. `report` is told of the first thing touched, and of each more;
    whoever touches gets a `RealWorldTouched`."""
    global _active, _hooked
    assert _active is None, "a process can have one guard at a time"
    if not _hooked:
        sys.addaudithook(_audit)  # it stays for as long as the process lives, and sleeps
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
    """The frames of this step of this task, from the innermost on."""
    at: types.FrameType | None = frame
    while at is not None and at.f_code.co_name != "unrolled_run":
        yield at
        at = at.f_back


def _on_stack(frame: types.FrameType, packages: frozenset[str]) -> bool:
    return any(package_of(at) in packages or "importlib" in at.f_code.co_filename for at in _frames(frame))


def _place(frame: types.FrameType, what: str) -> str:
    """Who has touched it: the innermost code that is not Python's own, nor trio's."""
    through = ""
    for at in _frames(frame):
        package, file = package_of(at), at.f_code.co_filename
        if package == "trio" or (os.path.realpath(file).startswith(_STDLIB) and "site-packages" not in file):
            through = f" through {package}.{at.f_code.co_name}"
            continue
        return f"{file}:{at.f_lineno}, in {at.f_code.co_name}, touches {what}{through}"
    return f"somebody touches {what}{through}"
