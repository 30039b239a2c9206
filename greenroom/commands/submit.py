"""`greenroom submit`: submit a run, and optionally wait for its end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, get_args

import click

from ..gateway.client import Client, ClientTicket
from ..protocol.submission import OnConflict, OnConflictOfMany
from .connection import Server, for_server
from .durations import Duration, Timeout
from .moments import Moment
from .notify import notify_given, notify_type
from .output import decoded, echo, end_with, parsed
from .selecting import tags_given


def submission(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a submission to a command."""
    return _with(command, [_LANE, _ON_CONFLICT, *_OPTIONS, _REQUEST_ID, *_LIMITS, *_DELAY, *_TRACE])


def flow_submission(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the submission of a flow, which does not coalesce."""
    on_conflict = _on_conflict(OnConflictOfMany)
    return _with(command, [_LANE, on_conflict, *_OPTIONS, _REQUEST_ID, *_LIMITS, *_DELAY, *_TRACE])


def repeated_submission(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a submission that is repeated, at times that something else decides."""
    return _with(command, [_LANE, _ON_CONFLICT, *_OPTIONS, *_LIMITS])


def parameters(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for what a run executes, and where; see `params_given`."""
    return _with(command, _PARAMETERS)


def _with(command: Callable[..., None], options: list[_Option]) -> Callable[..., None]:
    for option in reversed(options):
        command = option(command)
    return command


_Option = Callable[[Callable[..., None]], Callable[..., None]]

_PARAMETERS: list[_Option] = [
    click.option("--params", metavar="JSON", help="The parameters; - reads them from standard input."),
    click.option(
        "--param",
        "-p",
        "pairs",
        multiple=True,
        metavar="NAME=VALUE",
        help="One parameter; repeatable. The value is JSON, or else a text.",
    ),
    click.option(
        "--kind",
        default="start",
        metavar="KIND",
        help="`start`, or `continue` to start at the last checkpoint.",
    ),
    click.option(
        "--need",
        "needs",
        multiple=True,
        metavar="LABEL",
        help="Execute it only on executors with this label; repeatable.",
    ),
]
_LANE: _Option = click.option("--lane", metavar="NAME", help="The lane. [default: the lane of the job]")


def _on_conflict(choices: Any) -> _Option:
    return click.option(
        "--on-conflict",
        type=click.Choice(get_args(choices)),
        default="reject",
        show_default=True,
        help="What to do if the handle has an active run.",
    )


_ON_CONFLICT = _on_conflict(OnConflict)
_OPTIONS: list[_Option] = [
    click.option("--priority", type=int, metavar="N", help="From -100 to 100; higher ones are first."),
    click.option("--key", metavar="KEY", help="The key for the lane's fairness, limits per key and rates."),
    click.option(
        "--tag",
        "tags",
        multiple=True,
        metavar="NAME=VALUE",
        callback=tags_given,
        help="A tag, by which the run can be found; repeatable.",
    ),
    click.option("--notify", metavar="URL", help="Deliver events of the run to this URL."),
    notify_type,
]
_REQUEST_ID: _Option = click.option(
    "--request-id", metavar="ID", help="Two submissions with the same id create one run."
)
_TRACE: list[_Option] = [
    click.option(
        "--traceparent",
        envvar="TRACEPARENT",
        show_envvar=True,
        metavar="TEXT",
        help="The trace that the run belongs to, as W3C Trace Context has it.",
    ),
    click.option(
        "--tracestate",
        envvar="TRACESTATE",
        show_envvar=True,
        metavar="TEXT",
        help="The state of that trace.",
    ),
]
_LIMITS: list[_Option] = [
    click.option("--queue-timeout", type=Timeout(), metavar="TIME", help="The longest wait for a slot."),
    click.option(
        "--run-timeout", type=Timeout(), metavar="TIME", help="The longest execution of an attempt."
    ),
    click.option(
        "--deadline", type=Timeout(), metavar="TIME", help="The longest time from submission to end."
    ),
    click.option(
        "--warn-after",
        type=Timeout(),
        metavar="TIME",
        help="Report the run when it has waited this long for a slot. [default: 2 s]",
    ),
]
_DELAY: list[_Option] = [
    click.option("--delay", type=Duration(), metavar="TIME", help="Start the run after this time."),
    click.option(
        "--start-at",
        type=Moment(),
        metavar="TIME",
        help="Start the run at this time, such as 2026-12-01T08:00; local time, unless it has an offset.",
    ),
    click.option("--reserve", is_flag=True, help="Let the delayed run hold its handle from now on."),
]


@click.command()
@click.argument("job")
@click.option("--handle", "-H", required=True, metavar="NAME", help="The handle; its runs never overlap.")
@parameters
@submission
@click.option("--wait", is_flag=True, help="Wait for the run's end, and print its result.")
@for_server
def submit(
    server: Server, job: str, params: str | None, pairs: tuple[str, ...], wait: bool, **options: Any
) -> None:
    """Submit a run of JOB, and print its id.

    Without parameters, the handle's draft parameters are used (`greenroom handles params`). With --wait it
    prints the result instead, and exits with code 5 if the run did not succeed.

    \b
    Examples:
      greenroom submit mirror --handle alice --param url=https://example.org --param pages=3
      greenroom submit mirror --handle alice --params '{"url": "https://example.org"}' --wait
      greenroom submit mirror --handle alice --on-conflict queue --request-id nightly-2026-11-18
      greenroom submit train --handle alice --need gpu
      greenroom submit mirror --handle alice --delay 10m
      greenroom submit mirror --handle alice --start-at 2026-12-01T08:00
      greenroom submit mirror --handle alice --tag customer=42 --tag env=test
      greenroom submit mirror --handle alice --notify https://example.org/hooks
      greenroom submit mirror --handle alice --notify https://example.org/hooks --notify-type run_log
    """
    given = params_given(params, pairs)
    chosen = notify_given(options)

    async def talk(client: Client) -> None:
        ticket = await client.submit(job, params=given, **chosen)
        if wait:
            end_with(await client.ended(ticket.id), server.as_json)
        else:
            echo_accepted(ticket, server.as_json)

    server.ask(talk)


def echo_accepted(ticket: ClientTicket, as_json: bool) -> None:
    """Print the run's id, and whether the run existed before."""
    echo(as_json, {"run_id": ticket.id, "joined": ticket.joined}, ticket.id)
    if ticket.joined:
        click.echo("This run already existed.", err=True)


def params_given(params: str | None, pairs: tuple[str, ...]) -> Any:
    """The parameters from `--params` or `--param`; `None` without either."""
    if params is not None and pairs:
        raise click.UsageError("--params cannot be combined with --param")
    if params is not None:
        return json_given(params, "--params")
    if not pairs:
        return None
    named = [pair.partition("=") for pair in pairs]
    for name, separator, _ in named:
        if not separator or not name:
            raise click.UsageError(f"--param must be NAME=VALUE (got {name!r})")
    return {name: parsed(value) for name, _, value in named}


def json_given(text: str, option: str) -> Any:
    """The JSON value of an option; `-` reads it from standard input."""
    return decoded(sys.stdin.buffer.read() if text == "-" else text, option)
