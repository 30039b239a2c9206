"""`greenroom executor`: run an executor, which executes bodies for a server."""

from __future__ import annotations

import logging
import os
import random
import socket
import sys
import uuid
from functools import partial
from typing import Literal
from urllib.parse import SplitResult

import attrs
import click
import trio

from .. import __version__
from ..actors.jobs import Jobs
from ..config.logs import LogsConfig
from ..config.reading import load_named
from ..executor.beats import DialedBeats
from ..executor.executor import Executor, Identity
from ..executor.process import Process
from ..executor.websocket import Dialer, executor_url
from ..gateway.background import background
from ..gateway.client.connecting import parse_url, tls_context
from ..logs import begin_logs
from ..persistence.files import DiskFiles
from ..persistence.folder import folder_id
from ..protocol.errors import Unauthorized
from ..protocol.names import check_name
from ..protocol.validation import check_labels
from .connection import DEFAULT_URL, read_token, token_file_option, without_token
from .exits import report_errors

logger = logging.getLogger("greenroom.executor")


@click.command()
@click.argument("jobs", metavar="MODULE:JOBS")
@click.option(
    "--url",
    metavar="URL",
    envvar="GREENROOM_URL",
    default=DEFAULT_URL,
    show_default=True,
    show_envvar=True,
    help="The URL of the server.",
)
@click.option(
    "--slots",
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    default=8,
    show_default=True,
    help="The limit of concurrent bodies.",
)
@click.option(
    "--label", "labels", metavar="LABEL", multiple=True, help="A label that jobs can need. Can be repeated."
)
@click.option("--node", metavar="ID", help="The executor's id. [default: host name and process id]")
@click.option(
    "--data-dir",
    metavar="FOLDER",
    default="data",
    show_default=True,
    help="The folder for the files that bodies write.",
)
@click.option(
    "--shutdown-timeout",
    type=click.FloatRange(0),
    metavar="SECONDS",
    default=30.0,
    show_default=True,
    help="The time for executing bodies after SIGTERM.",
)
@token_file_option
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    envvar="GREENROOM_LOGS_FORMAT",
    default="text",
    show_envvar=True,
    help="`text` or `json`.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    envvar="GREENROOM_LOGS_LEVEL",
    default="info",
    show_envvar=True,
    help="The lowest level that is logged.",
)
@report_errors
def executor(
    jobs: str,
    url: str,
    slots: int,
    labels: tuple[str, ...],
    node: str | None,
    data_dir: str,
    shutdown_timeout: float,
    token_file: str | None,
    log_format: Literal["text", "json"],
    log_level: Literal["debug", "info", "warning", "error"],
) -> None:
    """Run an executor, which executes bodies for a server.

    MODULE:JOBS is a `greenroom.Jobs` object, as in `app.jobs:jobs`. The server can start later, and can
    restart: the executor connects again, and its bodies continue. If it cannot reach the server for two
    thirds of the server's `executor_ttl`, it cancels its bodies.

    SIGTERM or Ctrl-C accepts no further bodies, gives executing bodies the shutdown timeout, and exits with
    code 0; resumable bodies that remain are suspended, and resume elsewhere. A second signal stops
    immediately and exits with code 128 plus the signal's number. Code 6: a body ignored its cancellation
    when the server was unreachable. Logs are written to standard error.

    \b
    Examples:
      greenroom executor app:jobs
      greenroom executor app:jobs --url wss://runs.example --token-file executor.token --slots 16
      greenroom executor app:jobs --label gpu --node gpu-1
    """
    settings = _Settings(
        jobs=load_named(jobs, Jobs),
        url=executor_url(parse_url(url)),
        identity=Identity(
            node=check_name("node", f"{socket.gethostname()}-{os.getpid()}" if node is None else node),
            start=uuid.uuid4().hex,
            slots=slots,
            labels=check_labels("labels", labels),
            folder=folder_id(data_dir),
            version=__version__,
        ),
        data_dir=data_dir,
        shutdown_timeout=shutdown_timeout,
        token=read_token(token_file),
    )
    begin_logs(LogsConfig(format=log_format, level=log_level))
    try:
        sys.exit(trio.run(_execute, settings))
    except Unauthorized as error:
        raise without_token(error, settings.token) from error


@attrs.frozen
class _Settings:
    jobs: Jobs
    url: SplitResult
    identity: Identity
    data_dir: str
    shutdown_timeout: float
    token: str | None


async def _execute(settings: _Settings) -> int:
    identity, url = settings.identity, settings.url
    beats = partial(
        DialedBeats,
        identity.node,
        identity.start,
        url=url,
        token=settings.token,
        context=tls_context(url, None),
    )
    async with background() as writers:
        executor = Executor(
            settings.jobs,
            Dialer(url, settings.token, writers),
            identity,
            DiskFiles(settings.data_dir, in_threads=True),
            random=random.Random(),
            shutdown_timeout=settings.shutdown_timeout,
            beats=beats,
        )
        line = f"executor {identity.node} has {identity.slots} slots, and connects to {url.geturl()}"
        return await Process(executor, partial(_announce, line)).run()


def _announce(line: str) -> None:
    """Print the line on a terminal, otherwise log it."""
    if sys.stderr.isatty():
        click.secho(line, bold=True, err=True)
    else:
        logger.info(line)
