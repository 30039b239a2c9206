"""`greenroom lanes`: the limits, and what to do when something queues or hangs."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from ..gateway.client import Client
from ..protocol.records import Snapshot
from .connection import Server, for_server
from .output import cancelled, say_json, table
from .param_type import ParamType


class Limit(ParamType[int | None]):
    """A whole number, or `none`."""

    name = "limit"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        if value == "none":
            return None
        if not str(value).isdecimal():
            self.fail(f"{value!r} is no limit: write a whole number, or none", param, ctx)
        return int(value)


@click.group()
def lanes() -> None:
    """Lanes: how many runs of a class of work execute at once.

    \b
    Examples:
      greenroom lanes list
      greenroom lanes set images 4
      greenroom lanes clear images
    """


@lanes.command("list")
@for_server
def list_(server: Server) -> None:
    """Show every lane with its limit, and how many runs execute and wait in it.

    \b
    Examples:
      greenroom lanes list
      greenroom lanes list --json | jq 'select(.queued > 100)'
    """

    async def talk(client: Client) -> Snapshot:
        return await client.snapshot()

    state = server.ask(talk)
    if server.as_json:
        for name, lane in state.lanes.items():
            counts = {"executing": len(lane.executing), "queued": len(lane.queued)}
            say_json({"lane": name, "limit": lane.limit, "generation": lane.generation} | counts)
        return
    rows = [("all", state.engine.max_concurrent, state.engine.executing, state.engine.queued)]
    shown = [(str(name), str(limit), str(executing), str(queued)) for name, limit, executing, queued in rows]
    for name, lane in state.lanes.items():
        limit = "none" if lane.limit is None else str(lane.limit)
        shown.append((name, limit, str(len(lane.executing)), str(len(lane.queued))))
    table(("lane", "limit", "executing", "queued"), shown)


@lanes.command("set")
@click.argument("lane")
@click.argument("limit", type=Limit(), metavar="N")
@for_server
def set_(server: Server, lane: str, limit: int | None) -> None:
    """Set the limit of a lane, at once: 0 pauses it, `none` leaves it only the global limit.

    Raising it starts queued runs; lowering it interrupts nobody.

    \b
    Examples:
      greenroom lanes set images 4
      greenroom lanes set images none
    """

    async def talk(client: Client) -> None:
        await client.set_concurrency(lane, limit)

    server.ask(talk)
    _say(
        server,
        {"lane": lane, "limit": limit},
        f"{lane}: {'no limit of its own' if limit is None else limit}.",
    )


@lanes.command("max-concurrent")
@click.argument("limit", type=click.IntRange(0), metavar="N")
@for_server
def max_concurrent(server: Server, limit: int) -> None:
    """Set the global limit, at once: how many runs execute in all lanes together.

    \b
    Example:
      greenroom lanes max-concurrent 10
    """

    async def talk(client: Client) -> None:
        await client.set_max_concurrent(limit)

    server.ask(talk)
    _say(server, {"max_concurrent": limit}, f"All lanes together: {limit}.")


@lanes.command()
@click.argument("lane")
@for_server
def clear(server: Server, lane: str) -> None:
    """Cancel what is queued in a lane, and what waits in handles for it; leave what executes.

    \b
    Example:
      greenroom lanes clear images
    """

    async def talk(client: Client) -> int:
        return await client.clear_lane(lane)

    count = server.ask(talk)
    _say(server, {"count": count}, cancelled(count))


@lanes.command()
@for_server
def reset(server: Server) -> None:
    """For when bodies are stuck: free the slots of all that execute, and go on with the queues.

    A body that ends later still has its outcome recorded, and keeps its handle until then.

    \b
    Example:
      greenroom lanes reset
    """

    async def talk(client: Client) -> None:
        await client.reset_lanes()

    server.ask(talk)
    _say(server, {}, "The lanes have been reset.")


def _say(server: Server, value: dict[str, Any], text: str) -> None:
    if server.as_json:
        say_json(msgspec.to_builtins(value))
    else:
        click.echo(text)
