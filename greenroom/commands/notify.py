"""The options `--notify` and `--notify-type`: where events are delivered, and of which types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ..protocol.notify import TYPES, USUAL_TYPES

_TYPE = click.option(
    "--notify-type",
    "notify_types",
    multiple=True,
    type=click.Choice(TYPES),
    metavar="TYPE",
    help=f"A type of the events to deliver; repeatable. [default: {USUAL_TYPES[0]}]",
)


def notify_type(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--notify-type` to a command; see `notify_given`."""
    return _TYPE(command)


def notify_given(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a command with the `notify` that they mean."""
    given = dict(options)
    types = given.pop("notify_types")
    if not types:
        return given
    if given["notify"] in (None, "none"):
        raise click.UsageError("--notify-type requires --notify with a URL")
    return given | {"notify": {"url": given["notify"], "types": list(types)}}
