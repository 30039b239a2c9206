"""One process of a hunt: `python -m greenroom.simulation.search.hunter ORDERS`, with `Orders` as JSON.

It writes its progress to standard output: a line of JSON when a seed starts, and one when it has ended. What
the scenario prints goes to standard error.
"""

from __future__ import annotations

import os
import signal
import sys

import msgspec

from ...modulepath import search_also
from ..scenarios.by_name import find
from ..simulate import Game
from .hunting import Orders, play_seeds, quiet


def main() -> None:
    """Play the seeds that the command line orders."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C, and ends this process
    orders = msgspec.json.decode(sys.argv[1], type=Orders)
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    sys.stdout = sys.stderr
    search_also(orders.folders)
    game = Game(find(orders.scenario), orders.steps, orders.store)
    with quiet():
        for played in play_seeds(game, orders.first, orders.stride, orders.seconds):
            channel.write(msgspec.json.encode(played) + b"\n")


if __name__ == "__main__":
    main()
