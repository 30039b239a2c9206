"""Commands to those who work on a run: cancel it, give its body a message, answer its interrupt."""

from __future__ import annotations

from typing import Any

import click

from ..gateway.client import Client
from ..protocol.records import RunRecord
from .connection import Server, find_interrupt, for_server
from .exits import Exit, Stopped
from .output import parsed, say


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
        return await client.cancel(run, files)

    cancelled = server.ask(talk)
    say(server.as_json, cancelled, f"{cancelled.id} is {cancelled.status}.")


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
    outcome = server.ask(lambda client: client.inject(run_or_handle, parsed(message)))
    say(server.as_json, {"outcome": outcome}, outcome)


@click.command()
@click.argument("interrupt")
@click.argument("answer")
@click.option(
    "--key", metavar="KEY", help="The key of the interrupt, where the run or the handle asks several."
)
@for_server
def answer(server: Server, interrupt: str, answer: str, key: str | None) -> None:
    """Answer the interrupt of a body.

    INTERRUPT is its id, or the run or the handle that asks: with --key where that asks several. ANSWER is
    JSON; what isn't, is taken as a text.
    Exits with 1 if there is no such interrupt, or it is answered already.

    \b
    Examples:
      greenroom answer alice true
      greenroom answer alice true --key deploy
      greenroom answer 01985a3c5f9d7f0e8a6d2b4c6e8f0a1b.1 '{"approved": true}'
    """

    async def talk(client: Client) -> str:
        asked = interrupt if key is not None else await find_interrupt(client, interrupt)
        return await client.answer(asked, parsed(answer), key=key)

    outcome = server.ask(talk)
    say(server.as_json, {"outcome": outcome}, outcome)
    if outcome != "resolved":
        unknown = "no interrupt has this id, and no run or handle of this name has one open"
        why = unknown if outcome == "not_found" else "it is not open any more"
        raise Stopped(f"{interrupt}: {why}", Exit.FAILED)
