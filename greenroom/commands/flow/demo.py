"""`greenroom flow demo`: flows and workers at work, on one machine and without preparations."""

from __future__ import annotations

import logging
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import trio

from ...demo.ordering import play
from ..exits import Exit, told


@click.command()
@click.option("--once", is_flag=True, help="End by itself, also on a terminal.")
@told
def demo(once: bool) -> None:
    """Watch flows at work: two tasks take the two branches of a choice.

    Everything is real: an engine with a store in a temporary folder, a gateway at a free port of this
    machine, and two workers, which are processes of their own. A flow is published, two tasks run it, and
    the tree of their nodes is shown meanwhile; then their results, and a table of all that the nodes did.
    On a terminal the server then stays for you to try commands, until Ctrl-C.

    \b
    Examples:
      greenroom flow demo
      greenroom flow demo --once
    """
    logging.getLogger("greenroom").addHandler(logging.NullHandler())  # the screen is taken
    logging.getLogger("httpx").setLevel(logging.WARNING)
    stays = not once and sys.stdin.isatty() and sys.stdout.isatty()
    with TemporaryDirectory(prefix="greenroom-flows-") as folder:
        fine = trio.run(partial(play, Path(folder), stays=stays))
    if not fine:
        sys.exit(Exit.INTERRUPTED if fine is None else Exit.FAILED)
