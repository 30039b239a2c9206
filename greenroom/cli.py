"""The command line: `greenroom`, or `python -m greenroom`. The commands stand in `greenroom/commands/`."""

from __future__ import annotations

import click

from .commands.config import config
from .commands.db import db
from .commands.demo import demo
from .commands.engine import drain, resume, state
from .commands.handles import handles
from .commands.lanes import lanes
from .commands.runs import answer, cancel, inject, runs, show, submit, watch
from .commands.serve import serve
from .commands.simulate import simulate
from .commands.tokens import token


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="greenroom")
def main() -> None:
    """Greenroom: an actor-model run engine on trio."""


for command in (
    *(demo, serve, config, token, db, simulate),
    *(submit, watch, runs, show, cancel, inject, answer),
    *(lanes, handles, state, drain, resume),
):
    main.add_command(command)
