"""One process of a hunt: `python -m greenroom.simulation.search.hunter` with its orders as JSON.

It says on its standard output what it does, a line of JSON when a seed begins and one when it has ended; what
the scenario itself prints goes to standard error.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from itertools import count

import attrs
import msgspec

from ...modulepath import search_also
from ..scenarios.by_name import find
from ..simulate import SimulationFailed, simulate
from .hunting import Failed, Orders, Played, quiet


def main() -> None:
    """Do as ordered."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever hunts is interrupted, and ends this process
    orders = msgspec.json.decode(sys.argv[1], type=Orders)
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    sys.stdout = sys.stderr
    with quiet():
        _hunt(orders, lambda played: channel.write(msgspec.json.encode(played) + b"\n"))


def _hunt(orders: Orders, say: Callable[[Played], object]) -> None:
    search_also(orders.folders)
    scenario, began = find(orders.scenario), time.monotonic()
    for seed in count(orders.first, orders.stride):
        if time.monotonic() - began >= orders.seconds:
            return
        say(Played(seed))
        try:
            played = simulate(seed, scenario, steps=orders.steps, store=orders.store)
        except SimulationFailed as failed:
            say(Played(seed, attrs.asdict(failed.figures), Failed(seed, failed.invariant)))
            return
        say(Played(seed, attrs.asdict(played.figures)))


if __name__ == "__main__":
    main()
