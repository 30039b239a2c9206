"""The command line: `greenroom`, or `python -m greenroom`. The commands stand in `greenroom/commands/`."""

from __future__ import annotations

import click

from .commands.config import config
from .commands.db import db
from .commands.serve import serve
from .commands.simulate import simulate
from .commands.tokens import token


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="greenroom")
def main() -> None:
    """Greenroom: an actor-model run engine on trio."""


for command in (serve, token, config, db, simulate):
    main.add_command(command)
