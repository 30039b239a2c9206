"""`greenroom cluster`: show the nodes of a cluster, and let its leader step down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click
from rich.text import Text

from ..gateway.client import Client
from ..protocol.errors import Unavailable
from ..protocol.records import ClusterInfo, ExecutorInfo
from .connection import Server, for_server
from .executors import executor_table
from .output import echo, echo_json, table

_STYLES = {"leader": "bold green", "follower": "green", "looking": "yellow", "unknown": "bright_black"}


@click.group()
def cluster() -> None:
    """Show the nodes of a cluster, or let its leader step down.

    A cluster is several servers, its nodes, with one store. One node leads, and the others follow.

    \b
    Examples:
      greenroom cluster status
      greenroom cluster step-down
    """


@cluster.command()
@for_server
def status(server: Server) -> None:
    """Show the nodes of the cluster, their versions, which of them leads, and the executors.

    `term` is the number of the leadership: each new leader has a higher one. `seq` is the last event that a
    node has, and `lag` the age of its state. While no leader is known, the node shows the nodes that it
    last knew. With --json, the output is one object with `node` and `role` (of the node at the URL), `leader`
    (null while none is known), `nodes`, and `executors` (null while no leader answers).

    \b
    Examples:
      greenroom cluster status --url http://10.0.0.1:8440
      greenroom cluster status --json | jq -r .leader.address
    """
    found, executors = server.ask(_status)
    if server.as_json:
        echo_json(
            {
                "node": found.node,
                "role": found.role,
                "leader": found.leader,
                "nodes": found.nodes,
                "executors": executors,
            }
        )
        return
    table(("node", "address", "version", "role", "term", "seq", "lag"), _rows(found))
    if found.leader is None:
        click.echo(f"\nNode {found.node} knows no leader.")
    if executors:
        click.echo()
        executor_table(executors)


async def _status(client: Client) -> tuple[ClusterInfo, Sequence[ExecutorInfo] | None]:
    found = await client.cluster.status()
    if found.leader is None:
        return found, None
    try:
        return found, await client.executors.list()
    except Unavailable:  # the leader was lost in the meantime
        return found, None


def _rows(found: ClusterInfo) -> Iterator[tuple[str | Text, ...]]:
    for node in found.nodes:
        leads = found.leader is not None and node.id == found.leader.id
        known = node.role in ("leader", "follower")
        yield (
            node.id,
            node.address,
            node.version,
            Text(node.role, _STYLES.get(node.role, "")),
            str(found.leader.term) if leads and found.leader is not None else "",
            str(node.seq) if known else "",
            f"{node.lag:.1f} s" if known and not leads else "",
        )


@cluster.command("step-down")
@for_server
def step_down(server: Server) -> None:
    """Let the leader hand the leadership to the follower that has the most events.

    The URL can be that of any node. The command returns when the node no longer leads. It fails if no other
    node can lead. Requires the role admin.

    \b
    Example:
      greenroom cluster step-down
    """
    server.ask(lambda client: client.cluster.step_down())
    echo(server.as_json, {"stepped_down": True}, "The leader has stepped down.")
