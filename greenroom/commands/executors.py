"""`greenroom executors`: list and drain the executors."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.text import Text

from ..protocol.records import ExecutorInfo
from .connection import Server, for_server
from .output import echo, echo_json, table

_STYLES = {"attached": "green", "disconnected": "red", "draining": "yellow", "gone": "bright_black"}


@click.group(invoke_without_command=True)
@click.pass_context
@for_server
def executors(server: Server, ctx: click.Context) -> None:
    """List the executors, the processes that execute bodies, or drain one.

    A disconnected executor continues its bodies and can attach again; after executor_ttl (30 seconds) it is
    lost, and its runs are treated as after a crash. `bodies` is the number of bodies that it executes.

    \b
    Examples:
      greenroom executors
      greenroom executors --json | jq -r 'select(.status == "disconnected").id'
      greenroom executors drain gpu-1
    """
    if ctx.invoked_subcommand is not None:
        return
    found = server.ask(lambda client: client.executors.list())
    if server.as_json:
        for executor in found:
            echo_json(executor)
        return
    executor_table(found)


def executor_table(found: Sequence[ExecutorInfo]) -> None:
    """Print executors as a table; nothing if there are none."""
    table(
        ("executor", "status", "slots", "bodies", "labels", "jobs"),
        (
            (
                executor.id,
                Text(executor.status, _STYLES.get(executor.status, "")),
                "no limit" if executor.slots is None else str(executor.slots),
                str(executor.bodies),
                ", ".join(executor.labels),
                ", ".join(executor.jobs),
            )
            for executor in found
        ),
    )


@executors.command()
@click.argument("node")
@for_server
def drain(server: Server, node: str) -> None:
    """Drain an executor: it finishes its bodies, receives no new ones, and exits with code 0.

    NODE is the id of the executor. The command returns immediately; `greenroom executors` shows the remaining
    bodies. Requires the role admin.

    \b
    Example:
      greenroom executors drain gpu-1
    """
    server.ask(lambda client: client.executors.drain(node))
    echo(server.as_json, {"executor": node, "status": "draining"}, f"{node} is draining.")
