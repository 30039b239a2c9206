"""Commands for runs of flows: run, list, show, signal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec

from ...gateway.client import Client
from ...protocol.events import Event, Filter, RunStateChanged
from ...protocol.flow.records import FlowRow, FlowTask, NodeRun
from ...protocol.records import RunRecord, Snapshot
from ...protocol.states import ENDED
from ..connection import Server, find_last_run, for_server
from ..notify import notify_given
from ..output import (
    age,
    brief,
    console,
    echo,
    echo_json,
    end_with,
    fields,
    moment,
    parsed,
    span,
    status,
    table,
)
from ..submit import echo_accepted, flow_submission, json_given
from ..watch import (
    WithConnection,
    echo_connection,
    echo_connection_json,
    line,
    live,
    reporting_connection,
)
from .node_runs import all_node_runs, show_node_runs
from .tree import FlowTree


@click.command()
@click.argument("flow", metavar="NAME")
@click.option(
    "--params", "-p", metavar="JSON", help="The value of `$params` in nodes; - reads standard input."
)
@click.option("--version", type=click.IntRange(0), default=0, metavar="N", help="[default: the latest]")
@click.option("--handle", "-H", metavar="NAME", help="The handle. [default: `task:` and the run's id]")
@flow_submission
@click.option("--watch", is_flag=True, help="Follow the nodes until the run ends, then print its result.")
@for_server
def run(server: Server, flow: str, params: str | None, watch: bool, **options: Any) -> None:
    """Run a flow, and print the id of its run.

    NAME is the name or the id of a flow. With --watch a terminal shows the tree of nodes until the run has
    ended, then its result and a table of its node runs; without a terminal the command prints one line per
    event. It then exits with code 5 if the run did not succeed. With --json it prints the events, the node
    runs and the run. Ctrl-C ends the command, not the run.

    \b
    Examples:
      greenroom flow run order -p '{"amount": 120}'
      greenroom flow run order -p '{"amount": 120}' --watch
      greenroom flow run order --handle customer-17 --on-conflict queue --version 3
    """
    given = {} if params is None else json_given(params, "--params")
    chosen = notify_given(options)

    async def talk(client: Client) -> tuple[RunRecord, Sequence[NodeRun]] | None:
        begin = client.state.seq if watch else 0
        ticket = await client.flows.start(flow, params=given, **chosen)
        if watch:
            ended = await _watch(client, ticket.id, begin, server.as_json)
            return ended, await all_node_runs(client.flows, ticket.id)
        echo_accepted(ticket, server.as_json)
        return None

    done = server.ask(talk, follow=watch)
    if done is None:
        return
    ended, rows = done
    if server.as_json:
        for row in rows:
            echo_json(row)
    else:
        show_node_runs(rows)
    end_with(ended, server.as_json)


async def _watch(client: Client, run_id: str, begin: int, as_json: bool) -> RunRecord:
    """Show the events after `begin` until the run has ended. Returns its last state."""
    if as_json:
        async with reporting_connection(client, echo_connection_json):
            return await follow_flow(client, run_id, begin, echo_json)
    if not console().is_terminal:

        def on_event(event: Event) -> None:
            console().print(line(event), soft_wrap=True)

        async with reporting_connection(client, echo_connection):
            return await follow_flow(client, run_id, begin, on_event)
    tree = await tree_of(client, run_id)
    display = WithConnection(lambda height: tree.draw(client.state.runs.get(run_id), height))
    async with live(display.draw) as redraw, reporting_connection(client, display.report, redraw):

        def handle_event(event: Event) -> None:
            tree.handle_event(event)
            redraw()

        return await follow_flow(client, run_id, begin, handle_event)


async def tree_of(client: Client, run_id: str) -> FlowTree:
    """The tree of a run, without any event yet."""
    task = await client.flows.task(run_id)
    version = await client.flows.version(task.version.id)
    title = f"{task.flow.name}, version {version.version}"
    return FlowTree(run_id, title, msgspec.json.decode(version.definition), task.run.params["params"])


async def follow_flow(
    client: Client, run_id: str, after: int, on_event: Callable[[Event], None]
) -> RunRecord:
    """Call `on_event` with every event of a run, once, until it has ended. Returns its last state.

    Events that were missed while the connection was lost are read from the run's history.
    """
    wanted = Filter(runs=frozenset({run_id}))

    def handle(event: Event) -> bool:
        """Call `on_event`. Returns whether the event is the end of the run."""
        nonlocal after
        if getattr(event, "run", None) == run_id and event.seq > after:
            after = event.seq
            on_event(event)
        return isinstance(event, RunStateChanged) and event.run == run_id and event.to in ENDED

    async for item in client.events(after=after, filter=wanted):
        events = await client.history(run_id) if isinstance(item, Snapshot) else [item]
        if any(handle(event) for event in events):
            break
    return await client.get_run(run_id)


@click.command("list")
@click.option("--limit", "-n", type=click.IntRange(1, 1000), default=20, show_default=True, metavar="N")
@click.option("--offset", type=click.IntRange(0), default=0, metavar="N", help="Skip the first N.")
@for_server
def list_(server: Server, limit: int, offset: int) -> None:
    """List the flows, with the latest version of each.

    \b
    Examples:
      greenroom flow list
      greenroom flow list --json | jq -r .name
    """

    async def talk(client: Client) -> list[tuple[FlowRow, int | None]]:
        flows, _ = await client.flows.list(limit, offset)
        found = []
        for flow in flows:
            versions = await client.flows.versions(flow.id)
            published = [version.version for version in versions if version.status == "published"]
            found.append((flow, max(published, default=None)))
        return found

    found = server.ask(talk)
    if server.as_json:
        for flow, version in found:
            echo_json({**msgspec.to_builtins(flow), "version": version})
        return
    table(
        ("flow", "version", "age", "description"),
        (
            (flow.name, "–" if version is None else str(version), age(flow.created_at), flow.description)
            for flow, version in found
        ),
    )


@click.command()
@click.argument("run")
@for_server
def show(server: Server, run: str) -> None:
    """Show a run of a flow: its current node, its shared data and its node runs.

    RUN is the id of a run, or a handle for its active or last run. With --json the first line is the run
    with its shared data, and each other line is a node run.

    \b
    Examples:
      greenroom flow show 01985a3c5f9d7f0e8a6d2b4c6e8f0a1b
      greenroom flow show customer-17 --json | jq -c 'select(.error != null)'
    """

    async def talk(client: Client) -> tuple[FlowTask, Sequence[NodeRun], dict[str, Any]]:
        id = await find_last_run(client, run)
        task, rows = await client.flows.task(id), await all_node_runs(client.flows, id)
        interrupts = (await client.snapshot()).interrupts
        return (
            task,
            rows,
            {key: interrupt.data for key, interrupt in interrupts.items() if interrupt.run == id},
        )

    task, rows, interrupts = server.ask(talk)
    if server.as_json:
        echo_json(task)
        for row in rows:
            echo_json(row)
        return
    found = task.run
    shown: dict[str, Any] = {
        "run": found.id,
        "handle": found.handle,
        "flow": f"{task.flow.name}, version {task.version.version}",
        "status": status(found),
        "params": found.params["params"],
        "created": moment(found.created_at),
    }
    if found.ended_at is not None:
        shown["ended"] = f"{moment(found.ended_at)}, after {span(found.ended_at - found.created_at)}"
    elif task.node is not None:
        shown["node"] = task.node
    if found.error is not None:
        shown["error"] = found.error
    shown["steps"] = task.steps
    shown["shared"] = task.shared
    for id, interrupt in interrupts.items():
        shown["interrupt"] = f"{brief(interrupt)}  (greenroom answer {id} …)"
    fields(shown)
    show_node_runs(rows)


@click.command()
@click.argument("run")
@click.argument("key")
@click.argument("value")
@for_server
def signal(server: Server, run: str, key: str, value: str) -> None:
    """Set a value in a run's shared data; a node that waits for it continues.

    RUN is the id of a run, or a handle for its active run. KEY is a path in the shared data, with or without
    `$shared.` before it. VALUE is a JSON value; text that is not valid JSON is sent as a string.

    \b
    Examples:
      greenroom flow signal customer-17 paid true
      greenroom flow signal 01985a3c5f9d7f0e8a6d2b4c6e8f0a1b '$shared.delivery.at' '"2026-11-20"'
    """

    async def talk(client: Client) -> str:
        id = (await client.get_run(run)).id
        await client.signal(id, key, parsed(value))
        return id

    id = server.ask(talk)
    echo(server.as_json, {"run_id": id, "key": key}, f"Signal sent to {id}.")
