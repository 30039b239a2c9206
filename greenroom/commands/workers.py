"""`greenroom workers`: list the workers."""

from __future__ import annotations

import click
from rich.text import Text

from .connection import Server, for_server
from .output import age, echo_json, number, table

_STYLES = {"online": "green", "offline": "bright_black"}


@click.command()
@click.option("--service", metavar="NAME", help="Only workers of this service.")
@for_server
def workers(server: Server, service: str | None) -> None:
    """List the workers, which execute nodes of flows.

    The server calls workers of kind `http` at their URL; workers of kind `queue` poll for their work. A
    worker without a heartbeat for 15 seconds is offline, and receives no work.

    \b
    Examples:
      greenroom workers
      greenroom workers --service transform
      greenroom workers --json | jq -r 'select(.status == "offline").id'
    """
    found = server.ask(lambda client: client.workers.list(service))
    if server.as_json:
        for worker in found:
            echo_json(worker)
        return
    table(
        ("worker", "url", "kind", "services", "status", "load", "heartbeat"),
        (
            (
                worker.id,
                worker.url,
                worker.kind,
                ", ".join(worker.services),
                Text(worker.status, _STYLES[worker.status]),
                number(worker.load),
                f"{age(worker.last_heartbeat)} ago",
            )
            for worker in found
        ),
    )
