"""Marks of bodies: each is a line in the file of its handle, with the fence, the process and the time."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from greenroom import BlockingRun, Run


class Mark(msgspec.Struct, frozen=True):
    """One mark. `at` is a time of `time.monotonic()`, which all processes of a machine share."""

    what: str
    run: str
    fence: int
    pid: int
    at: float
    attempt: int
    value: Any = None


def mark(run: Run | BlockingRun, what: str, value: Any = None) -> None:
    """Write a mark, in one `write`."""
    fields = (what, run.id, run.fence, os.getpid(), time.monotonic(), run.attempt, value)
    line = json.dumps(dict(zip(Mark.__struct_fields__, fields, strict=True))).encode() + b"\n"
    path = Path(os.environ["MARKS"]) / run.handle
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line)
    finally:
        os.close(file)


@asynccontextmanager
async def marked(run: Run) -> AsyncIterator[None]:
    """Mark the begin and the end of a body."""
    mark(run, "begin", run.checkpoint)
    how = "cancelled"
    try:
        yield
        how = "returned"
    except Exception as error:
        how = f"{type(error).__name__}: {error}"
        raise
    finally:
        mark(run, "end", how)


def read(folder: Path) -> Iterator[list[Mark]]:
    """The marks of each handle, in the order in which they were written."""
    for path in sorted(folder.iterdir()):
        yield [msgspec.json.decode(line, type=Mark) for line in path.read_bytes().splitlines()]
