"""`greenroom demo`: all of it at work, on one machine and without preparations."""

from __future__ import annotations

import logging
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import trio

from ..demo.story import play
from .exits import Exit, told


@click.command()
@click.option("--once", is_flag=True, help="End by itself after one round, of some ten seconds.")
@told
def demo(once: bool) -> None:
    """Watch an engine at work: accounts are mirrored from a small site, and people interfere.

    Everything is real: downloads, files, a store in a temporary folder, and a gateway, which other terminals
    can use meanwhile. There is a second start that is refused, a cancel that keeps files and one that
    deletes them, and an interrupt that waits for an answer: press y or n. Press q or Ctrl-C to end it.

    \b
    Examples:
      greenroom demo
      greenroom demo --once
    """
    logging.getLogger("greenroom").addHandler(logging.NullHandler())  # the screen is taken
    with TemporaryDirectory(prefix="greenroom-demo-") as folder:
        if not trio.run(partial(play, Path(folder), once=once)) and once:
            sys.exit(Exit.FAILED)
