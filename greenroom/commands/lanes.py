"""`greenroom lanes`: the limits, and what to do when something queues or hangs."""

from __future__ import annotations

import click

from .connection import Server, for_server
from .output import cancelled, say, say_json, table


def _limit(ctx: click.Context, param: click.Parameter, value: str) -> int | None:
    """A whole number, or `none`. It is no type, because those may not return `None` before Click 8.3."""
    if value == "none":
        return None
    if not value.isdecimal():
        raise click.BadParameter(f"{value!r} is no limit: write a whole number, or none")
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
    state = server.ask(lambda client: client.snapshot())
    if server.as_json:
        for name, lane in state.lanes.items():
            counts = {"executing": len(lane.executing), "queued": len(lane.queued)}
            say_json({"lane": name, "limit": lane.limit, "generation": lane.generation} | counts)
        return
    engine = state.engine
    shown = [("all", str(engine.max_concurrent), str(engine.executing), str(engine.queued))]
    for name, lane in state.lanes.items():
        limit = "none" if lane.limit is None else str(lane.limit)
        shown.append((name, limit, str(len(lane.executing)), str(len(lane.queued))))
    table(("lane", "limit", "executing", "queued"), shown)


@lanes.command("set")
@click.argument("lane")
@click.argument("limit", callback=_limit, metavar="N")
@for_server
def set_(server: Server, lane: str, limit: int | None) -> None:
    """Set the limit of a lane, at once: 0 pauses it, `none` leaves it only the global limit.

    Raising it starts queued runs; lowering it interrupts nobody.

    \b
    Examples:
      greenroom lanes set images 4
      greenroom lanes set images none
    """
    server.ask(lambda client: client.set_concurrency(lane, limit))
    shown = "no limit of its own" if limit is None else limit
    say(server.as_json, {"lane": lane, "limit": limit}, f"{lane}: {shown}.")


@lanes.command("max-concurrent")
@click.argument("limit", type=click.IntRange(0), metavar="N")
@for_server
def max_concurrent(server: Server, limit: int) -> None:
    """Set the global limit, at once: how many runs execute in all lanes together.

    \b
    Example:
      greenroom lanes max-concurrent 10
    """
    server.ask(lambda client: client.set_max_concurrent(limit))
    say(server.as_json, {"max_concurrent": limit}, f"All lanes together: {limit}.")


@lanes.command()
@click.argument("lane")
@for_server
def clear(server: Server, lane: str) -> None:
    """Cancel what is queued in a lane, and what waits in handles for it; leave what executes.

    \b
    Example:
      greenroom lanes clear images
    """
    count = server.ask(lambda client: client.clear_lane(lane))
    say(server.as_json, {"count": count}, cancelled(count))


@lanes.command()
@for_server
def reset(server: Server) -> None:
    """For when bodies are stuck: free the slots of all that execute, and go on with the queues.

    A body that ends later still has its outcome recorded, and keeps its handle until then.

    \b
    Example:
      greenroom lanes reset
    """
    server.ask(lambda client: client.reset_lanes())
    say(server.as_json, {}, "The lanes have been reset.")
