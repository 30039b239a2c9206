"""Settings of Python's garbage collector for the server process.

An engine can have very many long-lived tasks and records, and a collector with its default settings scans
them again and again. A library must not change these settings, but the server owns its process.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_THRESHOLD = 10_000
"""New objects between two collections of the youngest generation; Python's default is 700."""


@contextmanager
def tuned_collector() -> Iterator[Callable[[], None]]:
    """Disable collections while the server starts, because the objects of the start are long-lived.

    The server calls the yielded function when it has started: then the existing objects are excluded from
    collections, and collections are rarer than usual.
    """
    before, collects = gc.get_threshold(), gc.isenabled()

    def started() -> None:
        gc.freeze()
        gc.set_threshold(_THRESHOLD, *before[1:])
        if collects:
            gc.enable()

    gc.disable()
    try:
        yield started
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
        if collects:
            gc.enable()
        else:
            gc.disable()
