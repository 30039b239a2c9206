"""`greenroom serve`: run a server for the jobs of a project."""

from __future__ import annotations

import logging
import sys
from functools import partial
from typing import Any

import click
import trio

from ..actors.jobs import Jobs
from ..cluster.server import NodeServer
from ..config.clusters import cluster_risks
from ..config.reading import Flag, check_together, read_config
from ..config.secrets import webhook_risks
from ..logs import begin_logs
from ..serving import Server
from .config import file_option
from .exits import report_errors

logger = logging.getLogger("greenroom")

_FLAGS = {
    "jobs": ("MODULE:JOBS", "engine.jobs"),
    "store": ("--store", "engine.store"),
    "max_concurrent": ("--max-concurrent", "engine.max_concurrent"),
    "lane": ("--lane", "engine.lanes"),
    "data_dir": ("--data-dir", "engine.data_dir"),
    "runs_dir": ("--runs-dir", "engine.runs_dir"),
    "shutdown_timeout": ("--shutdown-timeout", "engine.shutdown_timeout"),
    "executors": ("--executors", "engine.executors"),
    "allow_scripts": ("--allow-scripts", "engine.allow_scripts"),
    "host": ("--host", "gateway.host"),
    "port": ("--port", "gateway.port"),
    "tokens": ("--tokens", "gateway.token_file"),
    "tls_certificate": ("--tls-certificate", "gateway.tls_certificate"),
    "tls_key": ("--tls-key", "gateway.tls_key"),
    "console": ("--no-console", "gateway.console"),
    "cluster": ("--cluster", "cluster.enabled"),
    "log_format": ("--log-format", "logs.format"),
    "log_level": ("--log-level", "logs.level"),
}
"""The flag and the setting of each parameter below."""


@click.command()
@click.argument("jobs", metavar="[MODULE:JOBS]", required=False)
@file_option
@click.option("--store", metavar="URL", help="The address of the store.")
@click.option("--max-concurrent", type=int, metavar="N", help="The global limit of executing runs.")
@click.option(
    "--lane",
    multiple=True,
    metavar="NAME=N",
    help="The limit of a lane; repeatable. Its rules and the other lanes stay as configured.",
)
@click.option("--data-dir", metavar="DIR", help="The folder for files of runs.")
@click.option("--runs-dir", metavar="DIR", help="The folder for a JSON file with each run's latest state.")
@click.option("--shutdown-timeout", metavar="TIME", help="The time for executing runs to finish at shutdown.")
@click.option(
    "--executors",
    type=int,
    metavar="N",
    help="Execute bodies in N child processes; 0 leaves all bodies to executors that attach.",
)
@click.option(
    "--allow-scripts",
    is_flag=True,
    default=None,
    help="Allow script nodes of flows. Anyone who can publish flows can then run any program here.",
)
@click.option("--host", metavar="ADDRESS", help="The address to listen on.")
@click.option("--port", type=int, metavar="N", help="The port to listen on; 0 selects a free port.")
@click.option("--tokens", metavar="FILE", help="The token file; see `greenroom token`.")
@click.option("--tls-certificate", metavar="FILE", help="Serve https and wss with this certificate.")
@click.option("--tls-key", metavar="FILE", help="The private key, if it is not in the certificate's file.")
@click.option("--no-console", "console", flag_value=False, default=None, help="Do not serve the web console.")
@click.option(
    "--cluster",
    is_flag=True,
    default=None,
    help="Be a node of a cluster: one of several servers with the same store.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), help="`text` or `json`.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="The lowest level that is logged.",
)
@click.option(
    "--accept-store",
    is_flag=True,
    help="Start although the store is older than the records of its last use, or empty.",
)
@report_errors
def serve(file: str | None, accept_store: bool, **given: Any) -> None:
    """Run a server: an engine with your jobs, and its gateway.

    MODULE:JOBS is a `greenroom.Jobs` object, as in `app.jobs:jobs`: its jobs can be submitted, and `local`
    nodes of flows can call its functions. Without it, and without `jobs` under [engine] in greenroom.toml,
    only flows can run. Flags override GREENROOM_… variables, and these override greenroom.toml. Logs are
    written to standard error.

    SIGTERM or Ctrl-C drains and exits with code 0, also if a body does not end; a second signal stops
    immediately and exits with code 128 plus the signal's number. SIGHUP reloads the configuration: limits,
    schedules, tokens, origins and logs. SIGUSR1 resets the lanes.

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
        logger.warning("no jobs configured: only flows and the jobs of attached executors can run")
    for risk in webhook_risks(read.config.engine):
        logger.warning("%s", risk)
    if read.config.cluster.enabled:
        for risk in cluster_risks(read.config):
            logger.warning("%s", risk)
        sys.exit(trio.run(NodeServer(jobs or Jobs(), read, reread).run))
    sys.exit(trio.run(Server(jobs or Jobs(), read, reread, accept_store=accept_store).run))
