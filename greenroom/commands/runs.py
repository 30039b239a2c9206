"""Commands that show runs: watch, runs, show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from msgspec.structs import replace
from rich.text import Text

from ..gateway.client import Client
from ..protocol.events import Event, Filter
from ..protocol.records import RunFile, RunRecord
from ..protocol.states import Status
from .connection import Server, find_last_run, for_server
from .live_table import Board
from .output import age, brief, console, echo_json, end_with, fields, moment, span, status, table
from .selecting import selecting, selection
from .watch import line, show_json, show_lines, show_live


@click.command()
@click.argument("run", metavar="[RUN]", required=False)
@click.option("--handle", "-H", "handles", multiple=True, metavar="NAME", help="Only runs of this handle.")
@click.option("--lane", "lanes", multiple=True, metavar="NAME", help="Only runs in this lane.")
@for_server
def watch(server: Server, run: str | None, handles: tuple[str, ...], lanes: tuple[str, ...]) -> None:
    """Follow all runs, or one run until it ends.

    RUN is the id of a run, or a handle for its active or last run. A terminal shows a live table; otherwise
    the command prints one line per event, or with --json the events as JSON. Press Ctrl-C to exit. With RUN
    it exits with code 0 if the run succeeded, otherwise with code 5.

    If the connection is lost, the command reconnects, and reports both: above the table, otherwise on
    standard error, and with --json as `connection_lost` and `connection_restored`.

    \b
    Examples:
      greenroom watch
      greenroom watch alice
      greenroom watch --lane images
      greenroom watch --json | jq 'select(.type == "run_state_changed") | {handle, to}'
    """
    if run is not None and (handles or lanes):
        raise click.UsageError("RUN cannot be combined with --handle or --lane")
    given = Filter(handles=frozenset(handles) or None, lanes=frozenset(lanes) or None)

    async def talk(client: Client) -> RunRecord | None:
        found = None if run is None else await find_last_run(client, run)
        filter = replace(given, runs=None if found is None else frozenset([found]))

        def passes(event: Event) -> bool:
            return filter.passes(event) and (found is None or getattr(event, "run", None) == found)

        if server.as_json:
            return await show_json(client, passes, found)
        if console().is_terminal:
            return await show_live(client, Board(filter.sees), found)
        return await show_lines(client, passes, found)

    ended = server.ask(talk, follow=True, filter=given if handles or lanes else None)
    if ended is not None:
        end_with(ended, server.as_json)


@click.command()
@selecting
@click.option("--limit", "-n", type=click.IntRange(1, 1000), default=20, show_default=True, metavar="N")
@click.option("--before", metavar="RUN", help="Only runs older than this run, for the next page.")
@for_server
def runs(server: Server, limit: int, before: str | None, **options: Any) -> None:
    """List the runs that match all filters, newest first.

    \b
    Examples:
      greenroom runs
      greenroom runs --handle alice --status failed --status timed_out
      greenroom runs --failed --since 1h --tag customer=42 --job mirror
      greenroom runs --json --limit 1000 | jq -r .id
    """
    filter = selection(options)
    found = server.ask(lambda client: client.list_runs(limit=limit, before=before, **filter))
    if server.as_json:
        for run in found:
            echo_json(run)
        return
    columns = ["run", "handle", "job", "lane", "status", "age", "error"]
    rows: list[list[str | Text]] = [
        [run.id, run.handle, run.job, run.lane, status(run), age(run.created_at), run.error or ""]
        for run in found
    ]
    # Columns for what few runs have.
    for name, values in (
        ("tags", [tags_shown(run) for run in found]),
        ("key", [run.key or "" for run in found]),
        ("priority", [str(run.priority or "") for run in found]),
    ):
        if any(values):
            columns.insert(4, name)
            for row, value in zip(rows, values, strict=True):
                row.insert(4, value)
    table(columns, rows)


@click.command()
@click.argument("run")
@click.option("--history", is_flag=True, help="Show the run's events, too.")
@click.option("--limit", "-n", type=click.IntRange(1, 1000), metavar="N", help="At most N events.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="SEQ", help="Only events after this one.")
@for_server
def show(server: Server, run: str, history: bool, limit: int | None, after: int) -> None:
    """Show a run: its state, its open interrupts, and with --history its events.

    RUN is the id of a run, or a handle for its active or last run.

    \b
    Examples:
      greenroom show alice
      greenroom show 01985a3c5f9d7f0e8a6d2b4c6e8f0a1b --history
    """

    async def talk(
        client: Client,
    ) -> tuple[RunRecord, Mapping[str, Any], list[RunFile], list[Event]]:
        id = await find_last_run(client, run)
        interrupts = (await client.snapshot()).interrupts
        events = await client.history(id, after=after, limit=limit) if history else []
        files = [] if server.as_json else await client.list_files(id)
        own = {key: interrupt for key, interrupt in interrupts.items() if interrupt.run == id}
        return await client.get_run(id), own, files, events

    found, interrupts, files, events = server.ask(talk)
    if server.as_json:
        echo_json(found)
        for event in events:
            echo_json(event)
        return
    shown = described(found)
    for id, interrupt in interrupts.items():
        shown["interrupt"] = f"{brief(interrupt.data)}  (greenroom answer {id} …)"
    if files:
        shown["files"] = ", ".join(file.path for file in files)
    fields(shown)
    for event in events:
        console().print(line(event), soft_wrap=True)


def tags_shown(run: RunRecord) -> str:
    """The tags of a run as text."""
    return ", ".join(f"{name}={value}" for name, value in run.tags.items())


def described(run: RunRecord) -> dict[str, Any]:
    """The fields of a run that `show` prints."""
    shown: dict[str, Any] = {
        "run": run.id,
        "handle": run.handle,
        "job": run.job if run.kind == "start" else f"{run.job} ({run.kind})",
        "lane": run.lane,
        "status": status(run),
        "attempt": run.attempt,
        "params": run.params,
        "created": moment(run.created_at),
    }
    if run.parent is not None:
        shown["parent"] = run.parent
    if run.not_before is not None:
        shown["not before"] = moment(run.not_before)
    if run.started_at is not None:
        shown["started"] = moment(run.started_at)
    if run.needs:
        shown["needs"] = ", ".join(run.needs)
    if run.priority:
        shown["priority"] = run.priority
    if run.key is not None:
        shown["key"] = run.key
    if run.tags:
        shown["tags"] = tags_shown(run)
    if run.executor is not None:
        shown["executor"] = run.executor
    if run.waiting_for is not None:
        shown["waits for"] = run.waiting_for
    if run.ended_at is not None:
        shown["ended"] = f"{moment(run.ended_at)}, after {span(run.ended_at - run.created_at)}"
    if run.detached:
        shown["detached"] = "its slot was freed by a reset"
    if run.progress is not None:
        shown["progress"] = run.progress
    if run.error is not None:
        shown["error"] = run.error
    if run.status == Status.SUCCEEDED:
        shown["result"] = run.result
    return shown
