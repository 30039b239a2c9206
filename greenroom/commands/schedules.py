"""`greenroom schedules`: put, list, pause, resume, trigger and delete schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from rich.text import Text

from ..gateway.client import Client
from ..protocol.schedules import ScheduleRecord
from .again import request_id_option
from .connection import Server, for_server
from .durations import Duration
from .notify import notify_given
from .output import STYLES, brief, due, echo, echo_json, fields, in_zone, table
from .submit import echo_accepted, parameters, params_given, repeated_submission

_TIMES = [
    click.option("--cron", metavar="EXPRESSION", help="Minute, hour, day of month, month and day of week."),
    click.option("--every", type=Duration(), metavar="TIME", help="An interval, instead of --cron."),
    click.option(
        "--timezone", default="UTC", show_default=True, metavar="ZONE", help="The time zone of --cron."
    ),
]


def timed(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the due times of a schedule to a command."""
    for option in reversed(_TIMES):
        command = option(command)
    return command


@click.group()
def schedules() -> None:
    """Manage schedules: runs that the engine submits at due times.

    \b
    Examples:
      greenroom schedules put nightly --job mirror --cron "0 3 * * *" --timezone Europe/Berlin
      greenroom schedules list
      greenroom schedules trigger nightly
    """


@schedules.command("list")
@for_server
def list_(server: Server) -> None:
    """List the schedules with their times, their next due time and their last run.

    A last run that was `refused` has a reason, which `greenroom schedules show` prints.

    \b
    Examples:
      greenroom schedules list
      greenroom schedules list --json | jq -r 'select(.paused).name'
    """
    found = server.ask(lambda client: client.schedules.list())
    if server.as_json:
        for schedule in found:
            echo_json(schedule)
        return
    table(
        ("schedule", "times", "job", "handle", "next", "last run"),
        (
            (
                schedule.name,
                _times(schedule),
                schedule.job,
                schedule.handle,
                _next(schedule),
                _last(schedule),
            )
            for schedule in found
        ),
    )


@schedules.command()
@click.argument("name")
@for_server
def show(server: Server, name: str) -> None:
    """Show a schedule.

    \b
    Example:
      greenroom schedules show nightly
    """
    schedule = server.ask(lambda client: client.schedules.get(name))
    if server.as_json:
        echo_json(schedule)
    else:
        _show(schedule)


@schedules.command()
@click.argument("name")
@click.option("--job", required=True, metavar="JOB", help="The job to submit.")
@click.option("--handle", "-H", metavar="NAME", help="The handle of the runs. [default: schedule:NAME]")
@parameters
@timed
@click.option(
    "--jitter", type=Duration(), default="0", metavar="TIME", help="Delay each firing by up to this time."
)
@click.option(
    "--missed",
    type=click.Choice(["skip", "latest", "all"]),
    default="latest",
    show_default=True,
    help="Which of the due times fire that were missed, for example while the server was stopped.",
)
@click.option(
    "--missed-limit",
    type=int,
    default=100,
    show_default=True,
    metavar="N",
    help="At most how many, with --missed all.",
)
@click.option("--paused/--active", default=None, help="Pause or resume it. [default: active, or as it is]")
@repeated_submission
@for_server
def put(server: Server, name: str, params: str | None, pairs: tuple[str, ...], **options: Any) -> None:
    """Create a schedule, or change the one of this name.

    If the times stay the same, the schedule continues; otherwise it begins anew.

    \b
    Examples:
      greenroom schedules put nightly --job mirror --cron "0 3 * * *" --timezone Europe/Berlin
      greenroom schedules put refresh --job refresh --every 15m --jitter 1m --missed skip
      greenroom schedules put report --job report --cron "0 8 * * MON" -p team=sales --on-conflict queue
    """
    given = params_given(params, pairs)
    chosen = notify_given(options)
    schedule = server.ask(lambda client: client.schedules.put(name, params=given, **chosen))
    if server.as_json:
        echo_json(schedule)
    else:
        click.echo(f"{name}: next at {_next(schedule)}." if schedule.next else f"{name}: paused.")


@schedules.command()
@timed
@for_server
def preview(server: Server, cron: str | None, every: float | None, timezone: str) -> None:
    """Print the next due times of such a schedule, if it were put now. Nothing is stored.

    \b
    Examples:
      greenroom schedules preview --cron "0 3 * * *" --timezone Europe/Berlin
    """
    times = server.ask(lambda client: client.schedules.preview(cron=cron, every=every, timezone=timezone))
    if server.as_json:
        echo_json(times)
        return
    for at in times:
        click.echo(in_zone(None if cron is None else timezone, at))


@schedules.command()
@click.argument("name")
@for_server
def pause(server: Server, name: str) -> None:
    """Let a schedule fire no more until `greenroom schedules resume`; what is due meanwhile never fires.

    \b
    Example:
      greenroom schedules pause nightly
    """
    schedule = server.ask(lambda client: client.schedules.pause(name))
    echo(server.as_json, schedule, f"{name} is paused.")


@schedules.command()
@click.argument("name")
@for_server
def resume(server: Server, name: str) -> None:
    """Let a paused schedule continue with its next due time.

    \b
    Example:
      greenroom schedules resume nightly
    """
    schedule = server.ask(lambda client: client.schedules.resume(name))
    echo(server.as_json, schedule, f"{name}: next at {_next(schedule)}.")


@schedules.command()
@click.argument("name")
@request_id_option
@for_server
def trigger(server: Server, name: str, request_id: str | None) -> None:
    """Submit the run of a schedule now, and print its id; the due times stay the same.

    \b
    Example:
      greenroom schedules trigger nightly
    """

    async def talk(client: Client) -> None:
        echo_accepted(await client.schedules.trigger(name, request_id=request_id), server.as_json)

    server.ask(talk)


@schedules.command()
@click.argument("name")
@for_server
def delete(server: Server, name: str) -> None:
    """Delete a schedule; its runs stay.

    \b
    Example:
      greenroom schedules delete nightly
    """
    server.ask(lambda client: client.schedules.delete(name))
    echo(server.as_json, {"schedule": name}, f"{name} is deleted.")


def _times(schedule: ScheduleRecord) -> str:
    if schedule.cron is None:
        return f"every {schedule.every:g} s"
    return f"{schedule.cron} {schedule.timezone}"


def _next(schedule: ScheduleRecord) -> str:
    if schedule.paused:
        return "paused"
    return due(schedule, schedule.next[0]) if schedule.next else "never"


def _last(schedule: ScheduleRecord) -> str:
    """The run of the last firing."""
    if schedule.last_fired is None:
        return ""
    return schedule.last_run or "refused"


def _show(schedule: ScheduleRecord) -> None:
    shown: dict[str, Any] = {
        "schedule": schedule.name,
        "times": _times(schedule),
        "job": schedule.job,
        "handle": schedule.handle,
        "params": brief(schedule.params),
        **{name: brief(value) for name, value in schedule.options.items()},
        "missed": schedule.missed if schedule.missed != "all" else f"all, at most {schedule.missed_limit}",
    }
    if schedule.jitter:
        shown["jitter"] = f"{schedule.jitter:g} s"
    if schedule.source != "api":
        shown["declared in"] = "code" if schedule.source == "code" else "the configuration"
    if schedule.paused:
        shown["next"] = Text("paused", STYLES["queued"])
    else:
        shown["next"] = ", ".join(due(schedule, at) for at in schedule.next) or "never"
    if schedule.last_fired is not None:
        shown["last"] = f"{due(schedule, schedule.last_fired)}, {_last(schedule)}"
    if schedule.last_error is not None:
        shown["last error"] = schedule.last_error
    fields(shown)
