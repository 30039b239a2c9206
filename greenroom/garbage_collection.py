"""Python's garbage collector in a process that is the server's own.

An engine may hold very many tasks and records that live long, and a collector with its usual settings looks
through them again and again. A library must leave it as it is, but the server is the whole process.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_THRESHOLD = 10_000
"""New objects from one collection of the youngest to the next; Python's own number is 700."""


@contextmanager
def tuned_collector() -> Iterator[Callable[[], None]]:
    """No collections while the server starts, as all that is made then stays. When it has started, it calls
    what is yielded: what exists then is not looked through again, and collections are rarer than usual."""
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
