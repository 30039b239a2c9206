"""`greenroom workers`: who does the work of flows' nodes."""

from __future__ import annotations

import click
from rich.text import Text

from .connection import Server, for_server
from .output import age, number, say_json, table

_STYLES = {"online": "green", "offline": "bright_black"}


@click.command()
@click.option("--service", metavar="NAME", help="Only those that serve this.")
@for_server
def workers(server: Server, service: str | None) -> None:
    """List the workers, which do the work of flows' nodes.

    Those of the kind `http` are called at their URL; those of the kind `queue` fetch their work. Who has not
    been heard for 15 seconds is offline, and gets none.

    \b
    Examples:
      greenroom workers
      greenroom workers --service transform
      greenroom workers --json | jq -r 'select(.status == "offline").id'
    """
    found = server.ask(lambda client: client.workers.list(service))
    if server.as_json:
        for worker in found:
            say_json(worker)
        return
    table(
        ("worker", "url", "kind", "services", "status", "load", "heard"),
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
