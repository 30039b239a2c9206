"""The server's logs: one line per record on standard error, for people or as JSON for programs."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any, NoReturn

from .config.settings import LogsConfig

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """One JSON object per record; what was given as `extra` stands beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((name, value) for name, value in vars(record).items() if name not in _STANDARD)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=repr)


class TextLines(logging.Formatter):
    """Time, level, logger and message; a traceback follows on lines of its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def begin_logs(config: LogsConfig) -> None:
    """Log as configured, from now on; may be called again with another configuration."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if config.format == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(config.level.upper())


def end_process(code: int) -> NoReturn:
    """End although tasks and threads still run; everything that matters is on the disk."""
    logging.shutdown()
    os._exit(code)
