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
from ..output import age, brief, console, end_with, fields, moment, parsed, say, say_json, span, status, table
from ..submit import json_given, say_accepted, submission
from ..watch import (
    WithConnection,
    line,
    live,
    say_connection,
    say_connection_as_json,
    told_of_connection,
)
from .node_runs import all_node_runs, show_node_runs
from .tree import FlowTree


@click.command()
@click.argument("flow", metavar="NAME")
@click.option(
    "--params", "-p", metavar="JSON", help="What its nodes see as `$params`; - reads standard input."
)
@click.option("--version", type=click.IntRange(0), default=0, metavar="N", help="[default: the latest]")
@click.option(
    "--handle", "-H", metavar="NAME", help="Whose run it is. [default: its own, `task:` and its id]"
)
@submission
@click.option("--watch", is_flag=True, help="Watch its nodes until it ends, then print what it gave.")
@for_server
def run(server: Server, flow: str, params: str | None, watch: bool, **options: Any) -> None:
    """Run a flow, and print the id of its run.

    NAME is the flow's name, or its id. With --watch a terminal shows the tree of its nodes until the run has
    ended, then its result and a table of all that the nodes did; elsewhere there is a line per event. It then
    exits with 5 if the run didn't succeed. With --json there are the events, the node runs, and at last the
    run. Ctrl-C ends the watching, not the run.

    \b
    Examples:
      greenroom flow run order -p '{"amount": 120}'
      greenroom flow run order -p '{"amount": 120}' --watch
      greenroom flow run order --handle customer-17 --on-conflict queue --version 3
    """
    given = {} if params is None else json_given(params, "--params")

    async def talk(client: Client) -> tuple[RunRecord, Sequence[NodeRun]] | None:
        begin = client.state.seq if watch else 0
        ticket = await client.flows.start(flow, params=given, **options)
        if watch:
            ended = await _watch(client, ticket.id, begin, server.as_json)
            return ended, await all_node_runs(client.flows, ticket.id)
        say_accepted(ticket, server.as_json)
        return None

    done = server.ask(talk, follow=watch)
    if done is None:
        return
    ended, rows = done
    if server.as_json:
        for row in rows:
            say_json(row)
    else:
        show_node_runs(rows)
    end_with(ended, server.as_json)


async def _watch(client: Client, run_id: str, begin: int, as_json: bool) -> RunRecord:
    """Show what happens after `begin` until the run has ended; its last state."""
    if as_json:
        async with told_of_connection(client, say_connection_as_json):
            return await follow_flow(client, run_id, begin, say_json)
    if not console().is_terminal:

        def tell(event: Event) -> None:
            console().print(line(event), soft_wrap=True)

        async with told_of_connection(client, say_connection):
            return await follow_flow(client, run_id, begin, tell)
    tree = await tree_of(client, run_id)
    picture = WithConnection(lambda height: tree.draw(client.state.runs.get(run_id), height))
    async with live(picture.draw) as news, told_of_connection(client, picture.tell, news):

        def hear(event: Event) -> None:
            tree.hear(event)
            news()

        return await follow_flow(client, run_id, begin, hear)


async def tree_of(client: Client, run_id: str) -> FlowTree:
    """The tree of a run, which has heard nothing yet."""
    task = await client.flows.task(run_id)
    version = await client.flows.version(task.version.id)
    title = f"{task.flow.name}, version {version.version}"
    return FlowTree(run_id, title, msgspec.json.decode(version.definition), task.run.params["params"])


async def follow_flow(client: Client, run_id: str, after: int, tell: Callable[[Event], None]) -> RunRecord:
    """Tell of every event of a run, each once, until it has ended; its last state.

    Those that were missed while there was no connection are looked up in the run's history.
    """
    wanted = Filter(runs=frozenset({run_id}))

    def told(event: Event) -> bool:
        """Tell of an event; whether it is the end."""
        nonlocal after
        if getattr(event, "run", None) == run_id and event.seq > after:
            after = event.seq
            tell(event)
        return isinstance(event, RunStateChanged) and event.run == run_id and event.to in ENDED

    async for item in client.events(after=after, filter=wanted):
        events = await client.history(run_id) if isinstance(item, Snapshot) else [item]
        if any(told(event) for event in events):
            break
    return await client.get_run(run_id)


@click.command("list")
@click.option("--limit", "-n", type=click.IntRange(1, 1000), default=20, show_default=True, metavar="N")
@click.option("--offset", type=click.IntRange(0), default=0, metavar="N", help="Leave out the first N.")
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
            say_json({**msgspec.to_builtins(flow), "version": version})
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
    """Show a run of a flow: where it is, what its nodes share, and what each of them did.

    RUN is the id of a run, or a handle for its active or last one. With --json, the first line is the run
    with what is shared, and each other line a node run.

    \b
    Examples:
      greenroom flow show 01985a3c5f9d7f0e8a6d2b4c6e8f0a1b
      greenroom flow show customer-17 --json | jq -c 'select(.error != null)'
    """

    async def talk(client: Client) -> tuple[FlowTask, Sequence[NodeRun], dict[str, Any]]:
        id = await find_last_run(client, run)
        task, rows = await client.flows.task(id), await all_node_runs(client.flows, id)
        asked = (await client.snapshot()).interrupts
        return task, rows, {key: interrupt.data for key, interrupt in asked.items() if interrupt.run == id}

    task, rows, asked = server.ask(talk)
    if server.as_json:
        say_json(task)
        for row in rows:
            say_json(row)
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
    for id, interrupt in asked.items():
        shown["asks"] = f"{brief(interrupt)}  (greenroom answer {id} …)"
    fields(shown)
    show_node_runs(rows)


@click.command()
@click.argument("run")
@click.argument("key")
@click.argument("value")
@for_server
def signal(server: Server, run: str, key: str, value: str) -> None:
    """Put a value into what a run's nodes share; whoever waits for it goes on.

    RUN is the id of a run, or the handle whose active run it is. KEY is a path in what they share, with or
    without `$shared.` before it. VALUE is JSON, or else a text.

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
    say(server.as_json, {"run_id": id, "key": key}, f"{id} is told.")
