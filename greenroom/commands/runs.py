"""Commands about runs: submit, watch, runs, show, cancel, inject, answer."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click
import msgspec

from ..config.kinds import duration
from ..gateway.client import Client
from ..protocol.errors import RunEnded
from ..protocol.events import Event, Filter
from ..protocol.records import RunRecord
from ..protocol.states import Status
from .board import Board
from .exits import Exit, Stopped
from .showing import age, brief, console, fields, moment, parsed, say_json, span, status, table
from .talking import Server, find_last_run, find_question, find_run, for_server
from .watching import line, show_json, show_lines, show_live


class Timeout(click.ParamType[float]):
    """A time in seconds or with a unit, or `none` for no limit."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = float("inf") if value == "none" else duration(str(value))
        if seconds is None:
            self.fail(f"{value!r} is no time: write seconds, or 90m, 12h, 30d, or none", param, ctx)
        return seconds


@click.command()
@click.argument("job")
@click.option(
    "--handle", "-H", required=True, metavar="NAME", help="Whose run it is: one at a time for each."
)
@click.option("--params", metavar="JSON", help="Its parameters; - reads them from standard input.")
@click.option("--param", "-p", "pairs", multiple=True, metavar="NAME=VALUE", help="One of its parameters.")
@click.option("--kind", default="start", metavar="KIND", help="`continue` begins at the last checkpoint.")
@click.option("--lane", metavar="NAME", help="Instead of the job's own.")
@click.option(
    "--on-conflict",
    type=click.Choice(["reject", "queue", "replace", "join"]),
    default="reject",
    show_default=True,
    help="What to do if the handle is busy.",
)
@click.option("--request-id", metavar="ID", help="The same id twice is one run.")
@click.option("--queue-timeout", type=Timeout(), metavar="TIME", help="How long it may wait for a slot.")
@click.option("--run-timeout", type=Timeout(), metavar="TIME", help="How long an attempt may execute.")
@click.option("--deadline", type=Timeout(), metavar="TIME", help="How long it may take in all.")
@click.option("--wait", is_flag=True, help="Wait for its end, and print its result.")
@for_server
def submit(
    server: Server, job: str, params: str | None, pairs: tuple[str, ...], wait: bool, **options: Any
) -> None:
    """Submit a run of JOB, and print its id.

    Without parameters, the handle's own are taken (`greenroom handles params`). With --wait it prints the
    result instead, and exits with 5 if the run didn't succeed.

    \b
    Examples:
      greenroom submit mirror --handle alice --param url=https://example.org --param pages=3
      greenroom submit mirror --handle alice --params '{"url": "https://example.org"}' --wait
      greenroom submit mirror --handle alice --on-conflict queue --request-id nightly-2026-11-18
    """
    given = _params(params, pairs)

    async def talk(client: Client) -> None:
        ticket = await client.submit(job, params=given, **options)
        if not wait:
            if server.as_json:
                say_json({"run_id": ticket.id, "joined": ticket.joined})
            else:
                click.echo(ticket.id)
            if ticket.joined:
                click.echo("This run was there already.", err=True)
            return
        if not server.as_json:
            click.echo(brief(await ticket.result()))
            return
        run = await client.ended(ticket.id)
        say_json(run)
        _end_with(run)

    server.ask(talk)


def _params(params: str | None, pairs: tuple[str, ...]) -> Any:
    if params is not None and pairs:
        raise click.UsageError("give the parameters with --params or with --param, not with both")
    if params is not None:
        text = sys.stdin.read() if params == "-" else params
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise click.UsageError(f"--params is no JSON: {error}") from error
    if not pairs:
        return None
    named = [pair.partition("=") for pair in pairs]
    for name, separator, _ in named:
        if not separator or not name:
            raise click.UsageError(f"--param {name!r} must be NAME=VALUE")
    return {name: parsed(value) for name, _, value in named}


def _end_with(run: RunRecord) -> None:
    if run.status != Status.SUCCEEDED:
        raise Stopped(str(RunEnded(run)), Exit.RUN_NOT_SUCCEEDED)


@click.command()
@click.argument("run", metavar="[RUN]", required=False)
@click.option("--handle", "-H", "handles", multiple=True, metavar="NAME", help="Only runs of this handle.")
@click.option("--lane", "lanes", multiple=True, metavar="NAME", help="Only runs in this lane.")
@for_server
def watch(server: Server, run: str | None, handles: tuple[str, ...], lanes: tuple[str, ...]) -> None:
    """Watch everything, or one run until it ends.

    RUN is the id of a run, or a handle for its active or last one. On a terminal it is a live table,
    elsewhere a line per event, and with --json the events themselves. Ctrl-C ends it. With RUN it exits
    with 0 if the run succeeded, else with 5.

    \b
    Examples:
      greenroom watch
      greenroom watch alice
      greenroom watch --lane images
      greenroom watch --json | jq 'select(.type == "run_state_changed") | {handle, to}'
    """
    if run is not None and (handles or lanes):
        raise click.UsageError("give a run, or handles and lanes, not both")

    async def talk(client: Client) -> RunRecord | None:
        found = None if run is None else await find_last_run(client, run)
        wanted = Filter(
            handles=frozenset(handles) or None,
            lanes=frozenset(lanes) or None,
            runs=None if found is None else frozenset([found]),
        )

        def passes(event: Event) -> bool:
            return wanted.passes(event) and (found is None or getattr(event, "run", None) == found)

        def passes_run(run: RunRecord) -> bool:
            return (
                (not handles or run.handle in handles)
                and (not lanes or run.lane in lanes)
                and found in (None, run.id)
            )

        if server.as_json:
            return await show_json(client, passes, found)
        if console().is_terminal:
            return await show_live(client, Board(passes_run), found)
        return await show_lines(client, passes, found)

    ended = server.ask(talk, follow=True)
    if ended is not None:
        if server.as_json:
            say_json(ended)
        elif ended.status == Status.SUCCEEDED:
            click.echo(brief(ended.result))
        _end_with(ended)


@click.command()
@click.option("--handle", "-H", metavar="NAME", help="Only those of this handle.")
@click.option("--lane", metavar="NAME", help="Only those in this lane.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([one.value for one in Status]),
    help="Only those with this status; may be given repeatedly.",
)
@click.option("--limit", "-n", type=click.IntRange(1, 1000), default=20, show_default=True, metavar="N")
@click.option("--before", metavar="RUN", help="Only those older than this one, for the next page.")
@for_server
def runs(server: Server, statuses: tuple[str, ...], **options: Any) -> None:
    """List runs, the newest first, also those that ended long ago.

    \b
    Examples:
      greenroom runs
      greenroom runs --handle alice --status failed --status timed_out
      greenroom runs --json --limit 1000 | jq -r .id
    """

    async def talk(client: Client) -> list[RunRecord]:
        return await client.list_runs(status=statuses or None, **options)

    found = server.ask(talk)
    if server.as_json:
        for run in found:
            say_json(run)
        return
    table(
        ("run", "handle", "job", "lane", "status", "age", "error"),
        (
            (run.id, run.handle, run.job, run.lane, status(run), age(run.created_at), run.error or "")
            for run in found
        ),
    )


@click.command()
@click.argument("run")
@click.option("--history", is_flag=True, help="Its events, too.")
@for_server
def show(server: Server, run: str, history: bool) -> None:
    """Show a run: its state, its open question, and with --history all that happened to it.

    RUN is the id of a run, or a handle for its active or last one.

    \b
    Examples:
      greenroom show alice
      greenroom show 01985a3c5f9d7f0e8a6d2b4c6e8f0a1b --history
    """

    async def talk(client: Client) -> tuple[RunRecord, Mapping[str, Any], list[Event]]:
        id = await find_last_run(client, run)
        asked = (await client.snapshot()).interrupts
        events = await client.history(id) if history else []
        return await client.get_run(id), {key: q for key, q in asked.items() if q.run == id}, events

    found, asked, events = server.ask(talk)
    if server.as_json:
        say_json(found)
        for event in events:
            say_json(event)
        return
    shown: dict[str, Any] = {
        "run": found.id,
        "handle": found.handle,
        "job": found.job if found.kind == "start" else f"{found.job} ({found.kind})",
        "lane": found.lane,
        "status": status(found),
        "attempt": found.attempt,
        "params": found.params,
        "created": moment(found.created_at),
    }
    if found.started_at is not None:
        shown["started"] = moment(found.started_at)
    if found.ended_at is not None:
        shown["ended"] = f"{moment(found.ended_at)}, after {span(found.ended_at - found.created_at)}"
    if found.detached:
        shown["detached"] = "a reset took its slot"
    if found.progress is not None:
        shown["progress"] = found.progress
    if found.error is not None:
        shown["error"] = found.error
    if found.status == Status.SUCCEEDED:
        shown["result"] = found.result
    for id, question in asked.items():
        shown["asks"] = f"{brief(question.data)}  (greenroom answer {id} …)"
    fields(shown)
    for event in events:
        console().print(line(event), soft_wrap=True)


@click.command()
@click.argument("run")
@click.option(
    "--files",
    type=click.Choice(["keep", "delete"]),
    default="keep",
    show_default=True,
    help="What becomes of the files it has finished.",
)
@for_server
def cancel(server: Server, run: str, files: Any) -> None:
    """Cancel a run: a queued one ends at once, an executing one when its body has ended.

    RUN is the id of a run, or a handle for its active one.

    \b
    Examples:
      greenroom cancel alice
      greenroom cancel 01985a3c5f9d7f0e8a6d2b4c6e8f0a1b --files delete
    """

    async def talk(client: Client) -> RunRecord:
        return await client.cancel(await find_run(client, run), files)

    cancelled = server.ask(talk)
    if server.as_json:
        say_json(cancelled)
    else:
        click.echo(f"{cancelled.id} is {cancelled.status}.")


@click.command()
@click.argument("run_or_handle")
@click.argument("message")
@for_server
def inject(server: Server, run_or_handle: str, message: str) -> None:
    """Give a message to the body of a run.

    MESSAGE is JSON; what isn't, is taken as a text.

    \b
    Examples:
      greenroom inject alice "look at page 7 first"
      greenroom inject alice '{"priority": 3}'
    """

    async def talk(client: Client) -> str:
        return await client.inject(run_or_handle, parsed(message))

    _say_outcome(server, server.ask(talk))


@click.command()
@click.argument("question")
@click.argument("answer")
@for_server
def answer(server: Server, question: str, answer: str) -> None:
    """Answer the question of a body.

    QUESTION is its id, or the run or the handle that asks. ANSWER is JSON; what isn't, is taken as a text.
    Exits with 1 if there is no such question, or it is answered already.

    \b
    Examples:
      greenroom answer alice yes
      greenroom answer 01985a3c5f9d7f0e8a6d2b4c6e8f0a1b.1 '{"approved": true}'
    """

    async def talk(client: Client) -> str:
        return await client.answer(await find_question(client, question), parsed(answer))

    outcome = server.ask(talk)
    _say_outcome(server, outcome)
    if outcome != "resolved":
        why = "no question has this id" if outcome == "not_found" else "it is not open any more"
        raise Stopped(f"{question}: {why}", Exit.FAILED)


def _say_outcome(server: Server, outcome: str) -> None:
    if server.as_json:
        say_json({"outcome": outcome})
    else:
        click.echo(outcome)
