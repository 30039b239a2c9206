"""The settings of the log. A module of its own, so that child processes need no other settings."""

from __future__ import annotations

from typing import Literal

import attrs


@attrs.frozen
class LogsConfig:
    """The log, on standard error."""

    format: Literal["text", "json"] = "text"
    """Plain text, or one JSON object per line."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is written."""
