"""Loaded by the interpreter of each node: it makes the node believe what the test wants.

`CHAOS_MACHINE` is the name of its own machine, so that nodes cannot see whether another one's process is
alive. `CHAOS_CLOCK` is a file with the seconds by which its wall clock differs from the real one.
"""

import os
import time

_read_link, _time = os.readlink, time.time
_machine, _clock = os.environ.get("CHAOS_MACHINE"), os.environ.get("CHAOS_CLOCK")


def _readlink(path, **options):
    found = _read_link(path, **options)
    return f"{found}{_machine}" if path == "/proc/self/ns/pid" else found


def _shifted_time():
    with open(_clock, encoding="ascii") as file:
        return _time() + float(file.read() or 0)


if _machine:
    os.readlink = _readlink
if _clock:
    time.time = _shifted_time
    time.time_ns = lambda: int(_shifted_time() * 1e9)
