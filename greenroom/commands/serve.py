"""`greenroom serve`: the server of a project's jobs."""

from __future__ import annotations

import logging
import sys
from functools import partial
from typing import Any

import click
import trio

from ..actors.jobs import Jobs
from ..config.reading import Flag, check_together, read_config
from ..logs import begin_logs
from ..serving import Server
from .config import file_option
from .exits import told

logger = logging.getLogger("greenroom")

_FLAGS = {
    "jobs": ("MODULE:JOBS", "engine.jobs"),
    "store": ("--store", "engine.store"),
    "max_concurrent": ("--max-concurrent", "engine.max_concurrent"),
    "lane": ("--lane", "engine.lanes"),
    "data_dir": ("--data-dir", "engine.data_dir"),
    "runs_dir": ("--runs-dir", "engine.runs_dir"),
    "shutdown_timeout": ("--shutdown-timeout", "engine.shutdown_timeout"),
    "allow_scripts": ("--allow-scripts", "engine.allow_scripts"),
    "host": ("--host", "gateway.host"),
    "port": ("--port", "gateway.port"),
    "tokens": ("--tokens", "gateway.token_file"),
    "tls_certificate": ("--tls-certificate", "gateway.tls_certificate"),
    "tls_key": ("--tls-key", "gateway.tls_key"),
    "log_format": ("--log-format", "logs.format"),
    "log_level": ("--log-level", "logs.level"),
}
"""Which setting each of the parameters below is."""


@click.command()
@click.argument("jobs", metavar="[MODULE:JOBS]", required=False)
@file_option
@click.option("--store", metavar="URL", help="Where everything is kept.")
@click.option("--max-concurrent", type=int, metavar="N", help="How many runs execute at once.")
@click.option("--lane", multiple=True, metavar="NAME=N", help="The limit of a lane; may be given repeatedly.")
@click.option("--data-dir", metavar="DIR", help="Where runs write their files.")
@click.option("--runs-dir", metavar="DIR", help="Where each run's latest state is shown as a file.")
@click.option("--shutdown-timeout", metavar="TIME", help="How long executing runs get at the end.")
@click.option(
    "--allow-scripts",
    is_flag=True,
    default=None,
    help="Let nodes of flows start programs here. Whoever may publish flows can then run anything.",
)
@click.option("--host", metavar="ADDRESS", help="Where to listen.")
@click.option("--port", type=int, metavar="N", help="0 takes any free one.")
@click.option("--tokens", metavar="FILE", help="The file of hashed tokens; see `greenroom token`.")
@click.option("--tls-certificate", metavar="FILE", help="Serve https and wss with this certificate.")
@click.option("--tls-key", metavar="FILE", help="Its key, where it is not in the same file.")
@click.option("--log-format", metavar="FORMAT", help="`text` for people, or `json` for programs.")
@click.option("--log-level", metavar="LEVEL", help="`debug`, `info`, `warning` or `error`.")
@click.option(
    "--accept-store",
    is_flag=True,
    help="Take the store as it is, though it is emptier or older than what lies beside it knows of.",
)
@told
def serve(file: str | None, accept_store: bool, **given: Any) -> None:
    """Run an engine with these jobs, and the gateway to it.

    MODULE:JOBS names a `greenroom.Jobs`, as in `app.jobs:jobs`: its jobs are what can be submitted, its
    functions what `local` nodes of flows can call. Without it, or `jobs` under [engine] in greenroom.toml,
    only flows can be run. Flags win over the GREENROOM_… variables, and those over greenroom.toml. Logs go to
    standard error.

    SIGTERM or Ctrl-C drains and ends with 0, also if a body can't be ended; a second one stops at once and
    ends with 128 and the signal's number. SIGHUP reloads the configuration: limits, tokens, origins and logs.
    SIGUSR1 resets the lanes.

    \b
    Examples:
      greenroom serve app.jobs:jobs
      greenroom serve app.jobs:jobs --port 8441 --max-concurrent 10 --lane images=2
      greenroom serve --config /etc/greenroom.toml --log-format json
    """
    flags = [
        Flag(*_FLAGS[name], ",".join(value) if name == "lane" else value)
        for name, value in given.items()
        if value not in (None, ())
    ]
    reread = partial(read_config, file, flags)
    read = reread()
    jobs = check_together(read)
    begin_logs(read.config.logs)
    if jobs is None:
        logger.warning("no jobs were named: only flows can be run, and without functions of this process")
    sys.exit(trio.run(Server(jobs or Jobs(), read, reread, accept_store=accept_store).run))
