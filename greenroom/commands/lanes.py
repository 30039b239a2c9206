"""`greenroom lanes`: limits and rules of lanes, pause, clear and reset."""

from __future__ import annotations

from typing import Any

import click

from ..config.durations import duration
from ..protocol.lanes import LaneRules
from .connection import Server, for_server
from .lane_rules import described
from .notify import notify_given, notify_type
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
    """Manage lanes: their limits and rules.

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
            settings = {"limit": lane.limit, "generation": lane.generation, "paused": lane.paused}
            echo_json({"lane": name} | settings | counts | {"rules": lane.rules})
        return
    engine = state.engine
    shown = [("all", str(engine.max_concurrent), str(engine.executing), str(engine.queued), "")]
    for name, lane in state.lanes.items():
        limit = "none" if lane.limit is None else str(lane.limit)
        rules = described(lane.rules, paused=lane.paused)
        shown.append((name, limit, str(len(lane.executing)), str(len(lane.queued)), rules))
    table(("lane", "limit", "executing", "queued", "rules"), shown)


@lanes.command()
@click.argument("lane")
@for_server
def pause(server: Server, lane: str) -> None:
    """Start no more runs in a lane. Its limit stays as it is, and executing runs continue.

    \b
    Example:
      greenroom lanes pause images
    """
    server.ask(lambda client: client.pause_lane(lane))
    echo(server.as_json, {"lane": lane, "paused": True}, f"{lane}: paused.")


@lanes.command()
@click.argument("lane")
@for_server
def resume(server: Server, lane: str) -> None:
    """Start runs again in a paused lane.

    \b
    Example:
      greenroom lanes resume images
    """
    server.ask(lambda client: client.resume_lane(lane))
    echo(server.as_json, {"lane": lane, "paused": False}, f"{lane}: resumed.")


@lanes.command()
@click.argument("lane")
@click.option("--fair-by", metavar="PATH", help="Runs take turns by this parameter; `none` for no turns.")
@click.option(
    "--weight",
    "weights",
    multiple=True,
    metavar="KEY=N",
    help="Runs that a key starts in its turn; repeatable. `none` for 1 each.",
)
@click.option("--limit-per-key", metavar="N", help="The executing runs of one key; `none` for no limit.")
@click.option("--rate", metavar="N/TIME", help="Runs per period, such as 100/min or 5/s; `none` for no rate.")
@click.option("--burst", metavar="N", help="Runs that can start at once within the rate; `none` for 1.")
@click.option(
    "--rate-per",
    type=click.Choice(["lane", "key", "none"]),
    help="What the rate applies to; `none` is the lane.",
)
@click.option(
    "--age", metavar="TIME", help="The wait that raises a run's priority by 1, such as 10m; `none` for never."
)
@click.option("--priority", metavar="N", help="The priority of runs without one of their own; `none` for 0.")
@click.option("--notify", metavar="URL", help="Deliver events of later runs here; `none` for nowhere.")
@notify_type
@for_server
def rules(server: Server, lane: str, weights: tuple[str, ...], **options: Any) -> None:
    """Show or change the rules by which a lane chooses its next run. Rules that are not given stay.

    \b
    Examples:
      greenroom lanes rules images --fair-by tenant --weight gold=3
      greenroom lanes rules images --rate 100/min --burst 10
      greenroom lanes rules images --rate none
      greenroom lanes rules images --notify https://example.org/hooks --notify-type run_log
    """
    given = notify_given(options)
    changes = {name: _rule(name, value) for name, value in given.items() if value is not None}
    if weights:
        changes["weights"] = None if weights == ("none",) else dict(_weight(pair) for pair in weights)
    if changes:
        changed = server.ask(lambda client: client.set_lane(lane, **changes))
    else:
        known = server.ask(lambda client: client.snapshot()).lanes.get(lane)
        changed = LaneRules() if known is None else known.rules
    text = described(changed) or "no rules"
    echo(server.as_json, {"lane": lane, "rules": changed}, f"{lane}: {text}.")


def _rule(name: str, value: Any) -> Any:
    if value == "none":
        return None
    if name == "age":
        seconds = duration(value)
        if seconds is None:
            raise click.BadParameter(f"{value!r} is not a duration: use seconds, 10m, 1h, or none")
        return seconds
    if name in ("limit_per_key", "burst", "priority"):
        try:
            return int(value)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not an integer: use an integer, or none") from None
    return value


def _weight(pair: str) -> tuple[str, int]:
    key, _, weight = pair.rpartition("=")
    if not key or not weight.isdecimal():
        raise click.BadParameter(f"{pair!r} is not a weight: use KEY=N, such as gold=3")
    return key, int(weight)


@lanes.command("set")
@click.argument("lane")
@click.argument("limit", callback=_limit, metavar="N")
@for_server
def set_(server: Server, lane: str, limit: int | None) -> None:
    """Set the limit of a lane: with 0, no run starts; `none` leaves only the global limit.

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
