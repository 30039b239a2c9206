"""The options of commands that select runs by a filter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ..protocol.errors import Invalid
from ..protocol.run_filter import named_values
from ..protocol.states import UNSUCCESSFUL, Status
from .durations import Moment

Command = Callable[..., None]


def tags_given(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """The tags of a repeated option NAME=VALUE."""
    try:
        return named_values("--tag", texts)
    except Invalid as error:
        raise click.UsageError(error.message, ctx) from error


_FILTERS = [
    click.option("--handle", "-H", metavar="NAME", help="Only runs of this handle."),
    click.option("--lane", metavar="NAME", help="Only runs in this lane."),
    click.option("--job", metavar="NAME", help="Only runs of this job."),
    click.option("--flow", metavar="NAME", help="Only runs of the flow of this name."),
    click.option(
        "--tag",
        "tags",
        multiple=True,
        metavar="NAME=VALUE",
        callback=tags_given,
        help="Only runs with this tag; repeatable.",
    ),
    click.option(
        "--status",
        "statuses",
        multiple=True,
        type=click.Choice([one.value for one in Status]),
        help="Only runs with this status; repeatable.",
    ),
    click.option("--failed", is_flag=True, help="Only runs that failed, timed out or were rejected."),
    click.option(
        "--since", type=Moment(), metavar="TIME", help="Only runs created since: 2h ago, or Unix seconds."
    ),
    click.option("--until", type=Moment(), metavar="TIME", help="Only runs created before."),
    click.option("--error", metavar="TEXT", help="Only runs whose error contains this text; case matters."),
    click.option("--parent", metavar="RUN", help="Only runs that this run has called."),
]


def selecting(command: Command) -> Command:
    """Add the options that select runs to a command."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


def selection(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options of `selecting` out of those of a command: the filter for `list_runs`."""
    statuses = {*options.pop("statuses"), *(UNSUCCESSFUL if options.pop("failed") else ())}
    names = ("handle", "lane", "job", "flow", "tags", "since", "until", "error", "parent")
    found = {name: options.pop(name) for name in names}
    return {name: value for name, value in found.items() if value not in (None, {})} | (
        {"status": sorted(statuses)} if statuses else {}
    )
