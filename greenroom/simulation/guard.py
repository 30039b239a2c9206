"""The guard: a simulation fails when code under test touches the real world.

Real time, real randomness, files, threads, sockets and processes would make two runs of one seed differ.
Whoever uses them is told so where it happens, and the simulation ends with a text that names what was
touched, and from where. Python's own audit events tell of files, sockets and processes; the functions of
time, randomness and threads are exchanged while a simulation lasts.

Let through are imports, the lines of source that tracebacks show, and log records (with the world's time).
Not noticed are: what was opened before the simulation began; a function of time or randomness that is kept in
an object or a default value; what C libraries do by themselves; and when the garbage collector runs the
finalizers of cycles, which the simulation makes regular, but not for the code under test's own caches.
"""

from __future__ import annotations

import _thread
import ctypes
import datetime
import gc
import os
import random
import sys
import sysconfig
import threading
import time
import types
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio._threads
from trio._core._thread_cache import start_thread_soon

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

_TIME = """
    time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns
    thread_time thread_time_ns clock_gettime clock_gettime_ns sleep
    """.split()
_TIME_BY_DEFAULT = {"localtime": 1, "gmtime": 1, "ctime": 1, "asctime": 1, "strftime": 2}
"""Functions that tell the present time when they are given less than so many arguments."""

_WITH_FILES = frozenset({"importlib", "zipimport", "linecache", "warnings", "logging"})
"""Who may open files: whatever has one of these modules on its stack."""

_WITH_CLOCKS = frozenset(
    "logging trio sqlalchemy threading queue hypothesis _pytest pluggy coverage importlib".split()
)
"""Who may look at a clock: modules of these packages."""

_STDLIB = os.path.realpath(sysconfig.get_path("stdlib"))


class RealWorldTouched(RuntimeError):
    """Code under test has left the simulation."""


_Report = Callable[[str], None]


class _Guard:
    """One simulation's guard. `report` is told what was touched, `wall_clock` the world's time."""

    def __init__(self, report: _Report, wall_clock: Callable[[], float]) -> None:
        self._report = report
        self._wall_clock = wall_clock
        self._thread = threading.get_ident()
        self._replaced: dict[
            int, tuple[Any, Any]
        ] = {}  # by the id of the original: it, and what stands for it
        self._undo: list[Callable[[], None]] = []
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

    # Time and randomness.

    def exchange(self) -> None:
        """Put guarded functions where the real ones are."""
        for name in _TIME:
            self._exchange(time, name, self._guarded(f"time.{name}", getattr(time, name)))
        for name, enough in _TIME_BY_DEFAULT.items():
            self._exchange(time, name, self._guarded(f"time.{name}", getattr(time, name), enough))
        for name in random.__all__:
            function = getattr(random, name)
            if isinstance(function, types.MethodType | types.BuiltinMethodType):
                self._exchange(random, name, self._guarded(f"random.{name}", function))
        self._exchange(random, "_urandom", self._guarded("os.urandom", os.urandom))
        self._exchange(os, "urandom", self._guarded("os.urandom", os.urandom))
        self._exchange(uuid, "uuid1", self._guarded("uuid.uuid1", uuid.uuid1))
        self._exchange(uuid, "uuid4", self._guarded("uuid.uuid4", uuid.uuid4))
        self._exchange(random.Random, "seed", self._guarded_seed())
        self._exchange(threading.Thread, "start", self._guarded("threads", threading.Thread.start))
        self._exchange(_thread, "start_new_thread", self._guarded("threads", _thread.start_new_thread))
        self._exchange(trio._threads, "start_thread_soon", self._guarded("threads", start_thread_soon))
        for name in ("now", "utcnow"):
            self._exchange_in_c(datetime.datetime, name, self._guarded_now(name))
        self._exchange_where_imported()

    def restore(self) -> None:
        """Put the real functions back."""
        while self._undo:
            self._undo.pop()()

    def _guarded(self, what: str, real: Any, enough: int | None = None) -> Callable[..., Any]:
        def guarded(*arguments: Any, **options: Any) -> Any:
            if (enough is not None and len(arguments) >= enough) or not self.watches_here:
                return real(*arguments, **options)
            caller = sys._getframe(1)
            if what.startswith("time.") and _package(caller) in _WITH_CLOCKS:
                return self._wall_clock() if what == "time.time" else real(*arguments, **options)
            raise self.touched(what, caller)

        return guarded

    def _guarded_seed(self) -> Callable[..., None]:
        real = random.Random.seed

        def seed(source: random.Random, a: Any = None, *arguments: Any, **options: Any) -> None:
            if a is None and self.watches_here:
                raise self.touched("random.Random()", sys._getframe(1))
            real(source, a, *arguments, **options)

        return seed

    def _guarded_now(self, name: str) -> Any:
        real = vars(datetime.datetime)[name]

        def now(kind: type[datetime.datetime], *arguments: Any, **options: Any) -> Any:
            if self.watches_here and _package(sys._getframe(1)) not in _WITH_CLOCKS:
                raise self.touched(f"datetime.{name}", sys._getframe(1))
            return real.__get__(None, kind)(*arguments, **options)

        return classmethod(now)

    def _exchange(self, owner: Any, name: str, guarded: Any) -> None:
        real = vars(owner)[name]
        self._replaced.setdefault(id(real), (real, guarded))
        setattr(owner, name, guarded)
        self._undo.append(lambda: setattr(owner, name, real))

    def _exchange_in_c(self, owner: type, name: str, guarded: Any) -> None:
        """The same for a class that is written in C, whose attributes Python does not let anyone set."""
        [attributes] = gc.get_referents(owner.__dict__)
        real = attributes[name]

        def put(value: Any) -> None:
            attributes[name] = value
            ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))

        put(guarded)
        self._undo.append(lambda: put(real))

    def _exchange_where_imported(self) -> None:
        """For modules that have said `from time import time`."""
        for names, name, real in _imported(self._replaced):
            names[name] = self._replaced[id(real)][1]
            self._undo.append(lambda names=names, name=name, real=real: names.update({name: real}))  # type: ignore[misc]


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

_active: _Guard | None = None
_hooked = False


@contextmanager
def guarded(report: _Report, wall_clock: Callable[[], float]) -> Iterator[None]:
    """Watch this thread while the block lasts. `report` is told of the first thing touched, and of each more;
    whoever touches gets a `RealWorldTouched`."""
    global _active, _hooked
    assert _active is None, "a process can have one guard at a time"
    if not _hooked:
        sys.addaudithook(_audit)  # it stays for as long as the process lives, and sleeps
        _hooked = True
    guard = _Guard(report, wall_clock)
    guard.exchange()
    _active = guard
    try:
        yield
    finally:
        _active = None
        guard.restore()


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _active is not None and event in _WATCHED and _active.watches_here:
        _active.audit(event, arguments)


_by_module: dict[str, list[tuple[str, Any]]] = {}


def _imported(replaced: dict[int, tuple[Any, Any]]) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Where modules of the code under test hold the real functions under names of their own."""
    for module_name, module in list(sys.modules.items()):
        found = _by_module.get(module_name)
        if found is None:
            found = _by_module[module_name] = []
            if isinstance(module, types.ModuleType) and _is_under_test(module_name):
                found += [(name, value) for name, value in vars(module).items() if id(value) in replaced]
        for name, real in found:
            if vars(module).get(name) is real:
                yield vars(module), name, real


def _is_under_test(module: str) -> bool:
    package = module.partition(".")[0]
    ours = module.startswith(__package__)
    return not ours and package not in sys.stdlib_module_names and package not in _WITH_CLOCKS


def _package(frame: types.FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0].removeprefix("_frozen_")


def _frames(frame: types.FrameType) -> Iterator[types.FrameType]:
    """The frames of this step of this task, from the innermost on."""
    at: types.FrameType | None = frame
    while at is not None and at.f_code.co_name != "unrolled_run":
        yield at
        at = at.f_back


def _on_stack(frame: types.FrameType, packages: frozenset[str]) -> bool:
    return any(_package(at) in packages or "importlib" in at.f_code.co_filename for at in _frames(frame))


def _place(frame: types.FrameType, what: str) -> str:
    """Who has touched it: the innermost code that is not Python's own, nor trio's."""
    through = ""
    for at in _frames(frame):
        package, file = _package(at), at.f_code.co_filename
        if package == "trio" or (os.path.realpath(file).startswith(_STDLIB) and "site-packages" not in file):
            through = f" through {package}.{at.f_code.co_name}"
            continue
        return f"{file}:{at.f_lineno}, in {at.f_code.co_name}, touches {what}{through}"
    return f"somebody touches {what}{through}"
