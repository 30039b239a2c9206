"""`greenroom demo`: a demo of an engine and its gateway, without setup."""

from __future__ import annotations

import logging
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import trio

from ..demo.scenario import play
from .exits import Exit, report_errors


@click.command()
@click.option("--once", is_flag=True, help="Exit after one round of about ten seconds.")
@report_errors
def demo(once: bool) -> None:
    """Run a demo: mirror accounts from a small site, with conflicts and cancels.

    The demo uses a real engine with a store and files in a temporary folder, and a gateway that other
    terminals can use at the same time. It shows a second start that is refused, a cancel that keeps files,
    a cancel that deletes them, and an interrupt: press y or n to answer. Press q or Ctrl-C to exit.

    \b
    Examples:
      greenroom demo
      greenroom demo --once
    """
    logging.getLogger("greenroom").addHandler(logging.NullHandler())  # logs would disturb the live table
    with TemporaryDirectory(prefix="greenroom-demo-") as folder:
        if not trio.run(partial(play, Path(folder), once=once)) and once:
            sys.exit(Exit.FAILED)
