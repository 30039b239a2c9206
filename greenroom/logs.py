"""The server's logs: one line per record on standard error, as text or as JSON."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any, NoReturn

import attrs

from .actors.executors import child_logs
from .config.logs import LogsConfig

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """One JSON object per record; values of `extra` are fields next to the message. In the process of an
    executor, each has its id as `executor`."""

    def __init__(self, executor: str | None = None) -> None:
        super().__init__()
        self._executor = {} if executor is None else {"executor": executor}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._executor,
        }
        line.update((name, value) for name, value in vars(record).items() if name not in _STANDARD)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        elif record.exc_text:  # the traceback of a body in an executor
            line["error"] = record.exc_text
        return json.dumps(line, ensure_ascii=False, default=repr)


class TextLines(logging.Formatter):
    """Time, level, logger and message; a traceback is on the following lines. In the process of an executor,
    each message starts with its id."""

    def __init__(self, executor: str | None = None) -> None:
        prefix = "" if executor is None else f"{executor.replace('%', '%%')}: "
        super().__init__(f"%(asctime)s %(levelname)-7s %(name)s: {prefix}%(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def begin_logs(config: LogsConfig, *, executor: str | None = None) -> None:
    """Configure logging, for the process of an executor with its id. It can be called again with another
    configuration. Processes that an engine starts use the same one."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(executor) if config.format == "json" else TextLines(executor))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(config.level.upper())
    child_logs.settings = attrs.asdict(config)


def end_process(code: int) -> NoReturn:
    """Exit immediately although tasks and threads still run. All committed data is on disk."""
    logging.shutdown()
    os._exit(code)
