"""Durations on the command line."""

from __future__ import annotations

import math
import time
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


class Moment(ParamType[float]):
    """A time: Unix seconds, or a duration with a unit for a time ago."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        seconds = duration(text)
        if seconds is None:
            self.fail(
                f"{value!r} is not a time: use 90m, 12h or 2d for a time ago, or Unix seconds", param, ctx
            )
        return time.time() - seconds if text[-1].isalpha() else seconds


class Timeout(ParamType[float]):
    """A duration in seconds or with a unit, or `none` for no limit."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = math.inf if value == "none" else duration(str(value))
        if seconds is None:
            self.fail(f"{value!r} is not a duration: use seconds, or 90m, 12h, 30d, or none", param, ctx)
        return seconds
