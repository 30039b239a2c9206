"""`greenroom worker`: run a worker, which executes nodes of flows."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
from functools import partial
from typing import Literal

import attrs
import click
import trio

from ..config.logs import LogsConfig
from ..config.reading import load_named
from ..logs import begin_logs
from ..protocol.errors import Unauthorized
from ..protocol.names import check_name
from ..worker.calls import Calls
from ..worker.examples import services as examples
from ..worker.life import Front, Life
from ..worker.listening import DEFAULT_URL as DEFAULT_WORKER_URL
from ..worker.listening import listen
from ..worker.presence import Presence
from ..worker.pull import Pull
from ..worker.push import Push
from ..worker.registry import open_registry
from ..worker.services import Services
from .connection import DEFAULT_URL, read_token, token_file_option, without_token
from .exits import report_errors

logger = logging.getLogger("greenroom.worker")


@click.command()
@click.argument("services", metavar="[MODULE:SERVICES]", required=False)
@click.option(
    "--server",
    metavar="URL",
    envvar=["GREENROOM_URL", "REGISTRY_URL"],
    default=DEFAULT_URL,
    show_default=True,
    show_envvar=True,
    help="The URL of the server.",
)
@click.option("--queue", is_flag=True, help="Poll the server for work instead of listening for calls.")
@click.option("--id", "id_", metavar="ID", help="The worker's id. [default: host name and process id]")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="The limit of concurrent calls. [default: 100; with --queue 10]",
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
def worker(
    services: str | None,
    server: str,
    queue: bool,
    id_: str | None,
    concurrency: int | None,
    token_file: str | None,
    log_format: Literal["text", "json"],
    log_level: Literal["debug", "info", "warning", "error"],
) -> None:
    """Run a worker, which executes nodes of flows for a server.

    MODULE:SERVICES is a `greenroom.Services` object, as in `app.services:services`. Without it, the worker
    offers three examples: `transform`, `sum` and `route`.

    The worker registers with the server (which can start later), and the server calls it. So the server must
    be able to reach the URL in GREENROOM_WORKER_URL (default http://127.0.0.1:8080; if the port is in use,
    another port of the same host). The worker requires no token: any program that can reach it can call its
    services. With --queue the worker does not listen, and polls the server for work.

    SIGTERM or Ctrl-C accepts no further work, gives calls in progress 30 seconds, and exits with code 0; a
    second signal stops immediately and exits with code 128 plus the signal's number. Logs are written to
    standard error.

    \b
    Examples:
      greenroom worker
      greenroom worker app.services:services --server https://runs.example --token-file worker.token
      GREENROOM_WORKER_URL=http://10.0.0.7:8080 greenroom worker app.services:services
      greenroom worker app.services:services --queue --concurrency 4
    """
    if services is not None and not re.fullmatch(r"[\w.]+:[\w.]+", services):
        raise click.UsageError(f"MODULE:SERVICES must be like app.services:services (got {services!r})")
    served = examples if services is None else load_named(services, Services)
    if not served.names:
        raise click.UsageError(f"{services} has no services: register one with @services.service(…)")
    settings = _Settings(
        services=served,
        server=server,
        id=check_name("id", f"{socket.gethostname()}-{os.getpid()}" if id_ is None else id_),
        url=None if queue else _own_url(),
        concurrency=concurrency or (10 if queue else 100),
        token=read_token(token_file),
    )
    begin_logs(LogsConfig(format=log_format, level=log_level))
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs each request
    try:
        sys.exit(trio.run(_work, settings))
    except Unauthorized as error:
        raise without_token(error, settings.token) from error


def _own_url() -> str:
    """The URL at which the server calls the worker. WORKER_URL is the variable of earlier versions and of
    workers for the compatible API."""
    given = (os.environ.get(name) for name in ("GREENROOM_WORKER_URL", "WORKER_URL"))
    return next(filter(None, given), DEFAULT_WORKER_URL)


@attrs.frozen
class _Settings:
    services: Services
    server: str
    id: str
    url: str | None
    """The URL for calls; `None` for a worker that polls for its work."""
    concurrency: int
    token: str | None


async def _work(settings: _Settings) -> int:
    services, calls = settings.services, Calls(settings.concurrency)
    async with open_registry(settings.server, settings.id, settings.token) as registry:
        front: Front
        if settings.url is None:
            presence = Presence(registry, calls, services.names, "queue")
            front = Pull(registry, calls, services, presence)
            place = "polls the queue"
        else:
            listeners, url = await listen(settings.url)
            presence = Presence(registry, calls, services.names, "http", url)
            front = Push(listeners, calls, services)
            place = f"listens on {url}"
        line = f"worker {settings.id} {place} and serves {', '.join(services.names)} for {settings.server}"
        return await Life(front, presence, calls, partial(_announce, line)).run()


def _announce(line: str) -> None:
    """Print the line on a terminal, otherwise log it."""
    if sys.stderr.isatty():
        click.secho(line, bold=True, err=True)
    else:
        logger.info(line)
