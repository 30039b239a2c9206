"""Durations as text: a number of seconds, or a number with a unit."""

from __future__ import annotations

import re

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def duration(value: str) -> float | None:
    """Return the seconds of a duration such as `90`, `90m` or `12h`; `None` if it is not a duration."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", value.strip(), re.ASCII)
    return float(match[1]) * _UNITS[match[2] or "s"] if match else None
