"""Durations on the command line."""

from __future__ import annotations

import math
from typing import Any

import click

from ..config.durations import duration
from .param_type import ParamType


class Duration(ParamType[float]):
    """A duration in seconds, or with a unit."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = duration(str(value))
        if seconds is None:
            self.fail(f"{value!r} is not a duration: use seconds, or 90m, 12h, 30d, 4w", param, ctx)
        return seconds


class Timeout(ParamType[float]):
    """A duration in seconds or with a unit, or `none` for no limit."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = math.inf if value == "none" else duration(str(value))
        if seconds is None:
            self.fail(f"{value!r} is not a duration: use seconds, or 90m, 12h, 30d, or none", param, ctx)
        return seconds
