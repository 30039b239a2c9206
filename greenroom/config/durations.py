"""Times as people write them: a number of seconds, or one with a unit."""

from __future__ import annotations

import re

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def duration(value: str) -> float | None:
    """Seconds, from a number of them or from one with a unit; `None` for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", value.strip())
    return float(match[1]) * _UNITS[match[2] or "s"] if match else None
