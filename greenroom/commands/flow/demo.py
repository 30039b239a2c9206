"""`greenroom flow demo`: a demo of flows and workers, without setup."""

from __future__ import annotations

import logging
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import trio

from ...demo.ordering import play
from ..exits import Exit, report_errors


@click.command()
@click.option("--once", is_flag=True, help="Exit after the runs, also on a terminal.")
@report_errors
def demo(once: bool) -> None:
    """Run a demo of flows: two runs take the two branches of a choice.

    The demo uses a real engine with a store in a temporary folder, a gateway on a free port of this machine,
    and two worker processes. It publishes a flow, starts two runs, and shows the trees of their nodes, their
    results and a table of their node runs. On a terminal the server then stays open for other commands,
    until Ctrl-C.

    \b
    Examples:
      greenroom flow demo
      greenroom flow demo --once
    """
    logging.getLogger("greenroom").addHandler(logging.NullHandler())  # logs would disturb the live display
    logging.getLogger("httpx").setLevel(logging.WARNING)
    stays = not once and sys.stdin.isatty() and sys.stdout.isatty()
    with TemporaryDirectory(prefix="greenroom-flows-") as folder:
        succeeded = trio.run(partial(play, Path(folder), stays=stays))
    if not succeeded:
        sys.exit(Exit.INTERRUPTED if succeeded is None else Exit.FAILED)
