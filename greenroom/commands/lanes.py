"""`greenroom lanes`: limits of lanes, clear and reset."""

from __future__ import annotations

import click

from .connection import Server, for_server
from .output import cancelled, echo, echo_json, table


def _limit(ctx: click.Context, param: click.Parameter, value: str) -> int | None:
    """Parse an integer or `none`. It is a callback, because types cannot return `None` before Click 8.3."""
    if value == "none":
        return None
    if not value.isdecimal():
        raise click.BadParameter(f"{value!r} is not a limit: use an integer, or none")
    return int(value)


@click.group()
def lanes() -> None:
    """Manage lanes and their concurrency limits.

    \b
    Examples:
      greenroom lanes list
      greenroom lanes set images 4
      greenroom lanes clear images
    """


@lanes.command("list")
@for_server
def list_(server: Server) -> None:
    """List the lanes with their limits, and the numbers of executing and queued runs.

    \b
    Examples:
      greenroom lanes list
      greenroom lanes list --json | jq 'select(.queued > 100)'
    """
    state = server.ask(lambda client: client.snapshot())
    if server.as_json:
        for name, lane in state.lanes.items():
            counts = {"executing": len(lane.executing), "queued": len(lane.queued)}
            echo_json({"lane": name, "limit": lane.limit, "generation": lane.generation} | counts)
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
    """Set the limit of a lane: 0 pauses the lane, `none` leaves only the global limit.

    The limit is effective immediately. Raising it starts queued runs; lowering it interrupts no run.

    \b
    Examples:
      greenroom lanes set images 4
      greenroom lanes set images none
    """
    server.ask(lambda client: client.set_concurrency(lane, limit))
    shown = "no limit" if limit is None else limit
    echo(server.as_json, {"lane": lane, "limit": limit}, f"{lane}: {shown}.")


@lanes.command("max-concurrent")
@click.argument("limit", type=click.IntRange(0), metavar="N")
@for_server
def max_concurrent(server: Server, limit: int) -> None:
    """Set the global limit of executing runs, effective immediately.

    \b
    Example:
      greenroom lanes max-concurrent 10
    """
    server.ask(lambda client: client.set_max_concurrent(limit))
    echo(server.as_json, {"max_concurrent": limit}, f"Global limit: {limit}.")


@lanes.command()
@click.argument("lane")
@for_server
def clear(server: Server, lane: str) -> None:
    """Cancel the queued runs of a lane, also those that wait in handles; executing runs continue.

    \b
    Example:
      greenroom lanes clear images
    """
    count = server.ask(lambda client: client.clear_lane(lane))
    echo(server.as_json, {"count": count}, cancelled(count))


@lanes.command()
@for_server
def reset(server: Server) -> None:
    """Free the slots of all executing runs, for stuck bodies, and start queued runs.

    A body that ends later still records its outcome, and locks its handle until then.

    \b
    Example:
      greenroom lanes reset
    """
    server.ask(lambda client: client.reset_lanes())
    echo(server.as_json, {}, "Lanes reset.")
