"""The output of commands: JSON lines, or text and tables as wide as the terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..protocol.codec import json_fault
from ..protocol.errors import RunEnded
from ..protocol.records import RunRecord
from ..protocol.schedules import ScheduleRecord
from ..protocol.states import Status
from .exits import Exit, Stopped

_TOO_DEEP = "{} is nested too deeply: reduce the nesting"
_UNCUT = 10_000
"""The width without a terminal, so that nothing is cut."""

STYLES = {
    "queued": "yellow",
    "running": "cyan",
    "suspended": "magenta",
    "cancelling": "dark_orange",
    "succeeded": "green",
    "failed": "bold red",
    "timed_out": "bold red",
    "rejected": "bold red",
    "cancelled": "bright_black",
}
"""The colours of statuses."""


def console() -> Console:
    """A console on standard output."""
    found = Console(highlight=False, markup=False, emoji=False)
    return found if found.is_terminal else Console(width=_UNCUT, highlight=False, markup=False, emoji=False)


def echo_json(value: Any) -> None:
    """Print a value as a line of JSON."""
    click.echo(msgspec.json.encode(value))


def echo(as_json: bool, value: Any, text: str) -> None:
    """Print the value as JSON, or the text."""
    if as_json:
        echo_json(value)
    else:
        click.echo(text)


def end_with(run: RunRecord, as_json: bool) -> None:
    """Print the run, or its result. Raises `Stopped` unless it succeeded."""
    if run.status != Status.SUCCEEDED:
        if as_json:
            echo_json(run)
        raise Stopped(str(RunEnded(run)), Exit.RUN_NOT_SUCCEEDED)
    echo(as_json, run, brief(run.result))


def table(columns: Iterable[str], rows: Iterable[Iterable[str | Text]]) -> None:
    """Print a table without borders; without rows, print nothing."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        shown.add_column(name, no_wrap=name in ("run", "status", "age", "interrupt"))
    for row in rows:
        shown.add_row(*[cell if isinstance(cell, Text) else Text(clean(cell)) for cell in row])
    if shown.row_count:
        console().print(shown)


def fields(values: Mapping[str, Any]) -> None:
    """Print names and values, one per line."""
    width = max(map(len, values), default=0)
    out = console()
    for name, value in values.items():
        text = value if isinstance(value, str | Text) else brief(value)
        shown = text if isinstance(text, Text) else Text(clean(text))
        out.print(Text(f"{name:<{width}}  ", style="bold").append_text(shown), soft_wrap=True)


def status(run: RunRecord) -> Text:
    """A run's status in its colour, with its reason."""
    why = run.reason or waits_for(run)
    return Text(f"{run.status} ({why})" if why and why != run.status else run.status, STYLES[run.status])


def waits_for(run: RunRecord) -> str | None:
    """What a run waits for; of a delayed run its time."""
    if run.delayed and run.not_before is not None:
        return f"not before {moment(run.not_before)}"
    return run.waiting_for


def brief(value: Any) -> str:
    """A JSON value on one line."""
    return json.dumps(value, ensure_ascii=False)


def clean(text: str) -> str:
    """An untrusted text on one line, without control characters for the terminal."""
    return "".join(
        char if char.isprintable() else " " if char in "\n\t" else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )


def cancelled(count: int) -> str:
    """A message with the number of cancelled runs."""
    return "1 run cancelled." if count == 1 else f"{count} runs cancelled."


def number(value: float) -> str:
    """A number in short form, such as 1.5M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (size if unit != 'k' else 1e3):.1f}{unit}"
    return f"{value:g}"


def span(seconds: float) -> str:
    """A duration as text."""
    seconds = max(0.0, seconds)
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} m" if hours < 48 else f"{hours // 24} d"


def took(seconds: float) -> str:
    """A duration as text, in milliseconds below one second."""
    return f"{max(0.0, seconds) * 1000:.0f} ms" if seconds < 1 else span(seconds)


def moment(at: float, zone: tzinfo | None = None) -> str:
    """A time as text, in the local time zone; or in another one, then with its offset."""
    try:
        return datetime.fromtimestamp(at, zone).isoformat(" ", "seconds")
    except (ValueError, OverflowError):  # beyond the year 9999, in some time zones
        return f"{at:.0f}"


def due(schedule: ScheduleRecord, at: float) -> str:
    """A due time as text, in the time zone of the schedule if it has one."""
    return in_zone(None if schedule.cron is None else schedule.timezone, at)


def in_zone(timezone: str | None, at: float) -> str:
    """A time as text, in this time zone if there is one and this machine knows it."""
    zone = None
    if timezone is not None:
        with suppress(ZoneInfoNotFoundError, ValueError, OSError):
            zone = ZoneInfo(timezone)
    return moment(at, zone)


def age(at: float) -> str:
    """The time since `at` as text."""
    return span(time.time() - at)


def parsed(text: str) -> Any:
    """A value from the command line: the JSON value, or the text if it is not valid JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text
    except RecursionError:
        raise click.UsageError(_TOO_DEEP.format("the value")) from None


def decoded(text: str | bytes, what: str) -> Any:
    """The value of a JSON text from the command line or a file; `what` names the text in errors."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise click.UsageError(f"{what} is not valid JSON: {json_fault(error)}") from None
    except RecursionError:
        raise click.UsageError(_TOO_DEEP.format(what)) from None
