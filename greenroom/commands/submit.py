"""`greenroom submit`: begin a run, and wait for its end if wanted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click
import msgspec

from ..gateway.client import Client, ClientTicket
from .connection import Server, for_server
from .durations import Timeout
from .output import end_with, parsed, say


def submission(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say how a run is submitted."""
    for option in reversed(_SUBMISSION):
        command = option(command)
    return command


_SUBMISSION = [
    click.option("--lane", metavar="NAME", help="Instead of the one that it has by itself."),
    click.option(
        "--on-conflict",
        type=click.Choice(["reject", "queue", "replace", "join"]),
        default="reject",
        show_default=True,
        help="What to do if the handle is busy.",
    ),
    click.option("--request-id", metavar="ID", help="The same id twice is one run."),
    click.option("--queue-timeout", type=Timeout(), metavar="TIME", help="How long it may wait for a slot."),
    click.option("--run-timeout", type=Timeout(), metavar="TIME", help="How long an attempt may execute."),
    click.option("--deadline", type=Timeout(), metavar="TIME", help="How long it may take in all."),
]


@click.command()
@click.argument("job")
@click.option(
    "--handle", "-H", required=True, metavar="NAME", help="Whose run it is: one at a time for each."
)
@click.option("--params", metavar="JSON", help="Its parameters; - reads them from standard input.")
@click.option("--param", "-p", "pairs", multiple=True, metavar="NAME=VALUE", help="One of its parameters.")
@click.option("--kind", default="start", metavar="KIND", help="`continue` begins at the last checkpoint.")
@submission
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
        if wait:
            end_with(await client.ended(ticket.id), server.as_json)
        else:
            say_accepted(ticket, server.as_json)

    server.ask(talk)


def say_accepted(ticket: ClientTicket, as_json: bool) -> None:
    """Which run it is, and whether it was there before."""
    say(as_json, {"run_id": ticket.id, "joined": ticket.joined}, ticket.id)
    if ticket.joined:
        click.echo("This run was there already.", err=True)


def _params(params: str | None, pairs: tuple[str, ...]) -> Any:
    if params is not None and pairs:
        raise click.UsageError("give the parameters with --params or with --param, not with both")
    if params is not None:
        return json_given(params, "--params")
    if not pairs:
        return None
    named = [pair.partition("=") for pair in pairs]
    for name, separator, _ in named:
        if not separator or not name:
            raise click.UsageError(f"--param {name!r} must be NAME=VALUE")
    return {name: parsed(value) for name, _, value in named}


def json_given(text: str, option: str) -> Any:
    """The JSON that an option was given; `-` reads it from standard input."""
    try:
        return msgspec.json.decode(sys.stdin.read() if text == "-" else text)
    except msgspec.DecodeError as error:
        raise click.UsageError(f"{option} is no JSON: {error}") from error
