"""Stand-ins for the functions for time, randomness and threads, which report each call to the guard.

While a guard watches, they replace the real functions, also in modules of the code under test that have
imported them by name. A stand-in that is kept longer behaves like the real function.
"""

from __future__ import annotations

import _thread
import ctypes
import datetime
import gc
import os
import random
import sys
import threading
import time
import types
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import trio._threads
from trio._core._thread_cache import start_thread_soon

if TYPE_CHECKING:
    from .guard import Guard

_TIME = """
    time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns
    thread_time thread_time_ns clock_gettime clock_gettime_ns sleep
    """.split()
_TIME_BY_DEFAULT = {"localtime": 1, "gmtime": 1, "ctime": 1, "asctime": 1, "strftime": 2}
"""Functions that return the present time if they are called with fewer arguments than this."""

_WITH_CLOCKS = frozenset(
    """
    logging trio sqlalchemy threading queue hypothesis _pytest pluggy coverage importlib prometheus_client
    """.split()
)
"""Modules of these packages may read a clock."""

_WITH_DICE = frozenset({"wsproto"})
"""Modules of these packages may draw random bytes, which then come from the simulation's seed: wsproto masks
WebSocket frames with them."""


_watcher: Guard | None = None


@contextmanager
def exchanged(watcher: Guard) -> Iterator[None]:
    """Replace the real functions by the stand-ins while the block lasts."""
    global _watcher
    with ExitStack() as undo:
        for exchange in _EXCHANGES:
            exchange.put(exchange.stand_in)
            undo.callback(exchange.put, exchange.real)
        for names, name, real in _imported():
            names[name] = _STAND_INS[id(real)].stand_in
            undo.callback(names.update, {name: real})
        _watcher = watcher
        undo.callback(_stop_watching)
        yield


def _stop_watching() -> None:
    global _watcher
    _watcher = None


class _Exchange(NamedTuple):
    """A real function, its stand-in, and a function that installs either of them."""

    real: Any
    stand_in: Any
    put: Callable[[Any], None]


def _watches() -> Guard | None:
    return _watcher if _watcher is not None and _watcher.watches_here else None


def _stand_in(what: str, real: Any, enough: int | None = None) -> Callable[..., Any]:
    """A stand-in that calls `real` if the caller is not watched, or passes at least `enough` arguments."""

    def stand_in(*arguments: Any, **options: Any) -> Any:
        watcher = _watches()
        if watcher is None or (enough is not None and len(arguments) >= enough):
            return real(*arguments, **options)
        caller = sys._getframe(1)
        if what.startswith("time.") and package_of(caller) in _WITH_CLOCKS:
            return watcher.wall_clock() if what == "time.time" else real(*arguments, **options)
        if what == "os.urandom" and package_of(caller) in _WITH_DICE:
            return watcher.dice.randbytes(*arguments)
        raise watcher.touched(what, caller)

    return stand_in


def _seed(source: random.Random, a: Any = None, *arguments: Any, **options: Any) -> None:
    """`random.Random.seed`, which without an argument takes a seed from the operating system."""
    watcher = _watches()
    if a is None and watcher is not None:
        raise watcher.touched("random.Random()", sys._getframe(1))
    _real_seed(source, a, *arguments, **options)


_real_seed = random.Random.seed


def _now(name: str, real: Any) -> Any:
    """A stand-in for a class method of `datetime` that returns the present time."""

    def now(kind: type[datetime.datetime], *arguments: Any, **options: Any) -> Any:
        watcher = _watches()
        if watcher is not None and package_of(sys._getframe(1)) not in _WITH_CLOCKS:
            raise watcher.touched(f"datetime.{name}", sys._getframe(1))
        return real.__get__(None, kind)(*arguments, **options)

    return classmethod(now)


def _in_python(owner: Any, name: str, stand_in: Any) -> _Exchange:
    return _Exchange(vars(owner)[name], stand_in, lambda value: setattr(owner, name, value))


def _in_c(owner: type, name: str) -> _Exchange:
    """For a class that is written in C: Python does not allow setting its attributes."""
    [attributes] = gc.get_referents(owner.__dict__)

    def put(value: Any) -> None:
        attributes[name] = value
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))

    return _Exchange(attributes[name], _now(name, attributes[name]), put)


def _exchanges() -> Iterator[_Exchange]:
    for name in _TIME:
        yield _in_python(time, name, _stand_in(f"time.{name}", getattr(time, name)))
    for name, enough in _TIME_BY_DEFAULT.items():
        yield _in_python(time, name, _stand_in(f"time.{name}", getattr(time, name), enough))
    for name in random.__all__:
        function = getattr(random, name)
        if isinstance(function, types.MethodType | types.BuiltinMethodType):
            yield _in_python(random, name, _stand_in(f"random.{name}", function))
    yield _in_python(os, "urandom", _stand_in("os.urandom", os.urandom))
    yield _in_python(random, "_urandom", _stand_in("os.urandom", os.urandom))
    yield _in_python(random.Random, "seed", _seed)
    for name in ("uuid1", "uuid4"):
        yield _in_python(uuid, name, _stand_in(f"uuid.{name}", getattr(uuid, name)))
    for name in ("now", "utcnow"):
        yield _in_c(datetime.datetime, name)
    yield _in_python(threading.Thread, "start", _stand_in("threads", threading.Thread.start))
    yield _in_python(_thread, "start_new_thread", _stand_in("threads", _thread.start_new_thread))
    yield _in_python(trio._threads, "start_thread_soon", _stand_in("threads", start_thread_soon))


_EXCHANGES = list(_exchanges())
_STAND_INS = {id(exchange.real): exchange for exchange in _EXCHANGES}


class _Imports(NamedTuple):
    """The names under which a module contained real functions, when it had `names` names in all."""

    module: types.ModuleType
    names: int
    found: list[tuple[str, Any]]


_imports: dict[str, _Imports] = {}


def _imported() -> Iterator[tuple[dict[str, Any], str, Any]]:
    """The places where modules under test contain real functions, because of `from time import time`."""
    for name, module in list(sys.modules.items()):
        if not isinstance(module, types.ModuleType):
            continue
        known = _imports.get(name)
        if known is None or known.module is not module or known.names != len(vars(module)):
            known = _imports[name] = _look_into(name, module)
        for held, real in known.found:
            if vars(module).get(held) is real:
                yield vars(module), held, real


def _look_into(name: str, module: types.ModuleType) -> _Imports:
    names = vars(module)
    held = names.items() if _is_under_test(name) else ()
    return _Imports(module, len(names), [(name, value) for name, value in held if id(value) in _STAND_INS])


def _is_under_test(module: str) -> bool:
    package = module.partition(".")[0]
    own = module.startswith(__package__)
    return not own and package not in sys.stdlib_module_names and package not in _WITH_CLOCKS


def package_of(frame: types.FrameType) -> str:
    """The top-level package of a frame's code."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0].removeprefix("_frozen_")
