"""Times on the command line."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from .param_type import ParamType


class Moment(ParamType[datetime]):
    """A time in ISO 8601 format; without an offset, in the local time zone."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return datetime.fromisoformat(value).astimezone()
        except (ValueError, OverflowError, OSError):
            self.fail(f"{value!r} is not a time: use 2026-12-01T08:00, or 2026-12-01T08:00+01:00", param, ctx)
