"""Commands for pending runs: cancel, inject, answer."""

from __future__ import annotations

from typing import Any

import click

from ..gateway.client import Client
from ..protocol.records import RunRecord
from .bulk import Bulk, for_one_or_many, one_or_many
from .connection import Server, find_interrupt, for_server
from .exits import Exit, Stopped
from .output import echo, parsed


@click.command()
@for_one_or_many
@click.option(
    "--files",
    type=click.Choice(["keep", "delete"]),
    default="keep",
    show_default=True,
    help="Keep or delete the files that the run has finished.",
)
@for_server
def cancel(server: Server, run: str | None, files: Any, **options: Any) -> None:
    """Cancel a run, or all pending runs that match.

    A queued run ends immediately; an executing run ends when its body has ended. RUN is the id of a run, or
    a handle for its active run. With filters instead of RUN, the command shows how many runs match and asks.

    \b
    Examples:
      greenroom cancel alice
      greenroom cancel 01985a3c5f9d7f0e8a6d2b4c6e8f0a1b --files delete
      greenroom cancel --lane images --tag customer=42 --dry-run
    """
    many = one_or_many(run, options)
    if many is not None:
        arguments = {**many, "files": files}
        asks, dry_run = not options["yes"], options["dry_run"]
        Bulk(Client.cancel_many, "Cancel", "cancelled", arguments, asks, dry_run).carry_out(server)
        return

    async def talk(client: Client) -> RunRecord:
        return await client.cancel(str(run), files)

    cancelled = server.ask(talk)
    echo(server.as_json, cancelled, f"{cancelled.id} is {cancelled.status}.")


@click.command()
@click.argument("run")
@click.argument("priority", type=int, metavar="N")
@for_server
def priority(server: Server, run: str, priority: int) -> None:
    """Change the priority of a run that has not started: higher ones are first.

    Priorities are from -100 to 100; 0 is normal.

    \b
    Example:
      greenroom priority 01985a3c5f9d7f0e8a6d2b4c6e8f0a1b 10
    """
    changed = server.ask(lambda client: client.set_priority(run, priority))
    echo(server.as_json, changed, f"{changed.id} has priority {changed.priority}.")


@click.command()
@click.argument("run_or_handle")
@click.argument("message")
@for_server
def inject(server: Server, run_or_handle: str, message: str) -> None:
    """Send a message to the body of a run.

    MESSAGE is a JSON value; text that is not valid JSON is sent as a string.

    \b
    Examples:
      greenroom inject alice "look at page 7 first"
      greenroom inject alice '{"priority": 3}'
    """
    outcome = server.ask(lambda client: client.inject(run_or_handle, parsed(message)))
    echo(server.as_json, {"outcome": outcome}, outcome)


@click.command()
@click.argument("interrupt")
@click.argument("answer")
@click.option("--key", metavar="KEY", help="The key of the interrupt, if the run or the handle has several.")
@for_server
def answer(server: Server, interrupt: str, answer: str, key: str | None) -> None:
    """Answer an open interrupt.

    INTERRUPT is the id of an interrupt, a run or a handle; with several open interrupts, --key selects one.
    ANSWER is a JSON value; text that is not valid JSON is sent as a string. Exits with code 1 if there is
    no such interrupt, or it was answered already.

    \b
    Examples:
      greenroom answer alice true
      greenroom answer alice true --key deploy
      greenroom answer 01985a3c5f9d7f0e8a6d2b4c6e8f0a1b.1 '{"approved": true}'
    """

    async def talk(client: Client) -> str:
        found = interrupt if key is not None else await find_interrupt(client, interrupt)
        return await client.answer(found, parsed(answer), key=key)

    outcome = server.ask(talk)
    echo(server.as_json, {"outcome": outcome}, outcome)
    if outcome != "resolved":
        unknown = "not found: it is neither an interrupt nor a run or handle with an open one"
        why = unknown if outcome == "not_found" else "already closed"
        raise Stopped(f"interrupt {interrupt} {why}", Exit.FAILED)
