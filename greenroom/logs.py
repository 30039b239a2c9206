"""The server's logs: one line per record on standard error, as text or as JSON."""

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
    """One JSON object per record; values of `extra` are fields next to the message."""

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
    """Time, level, logger and message; a traceback is on the following lines."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def begin_logs(config: LogsConfig) -> None:
    """Configure logging. It can be called again with another configuration."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if config.format == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(config.level.upper())


def end_process(code: int) -> NoReturn:
    """Exit immediately although tasks and threads still run. All committed data is on disk."""
    logging.shutdown()
    os._exit(code)
