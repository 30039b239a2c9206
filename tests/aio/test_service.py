"""An engine in a FastAPI service, served by uvicorn on each of its loops."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import greenroom.aio
from greenroom import Jobs

from .support import in_asyncio

ROOT = Path(__file__).parents[2]
RUNS = 1_000
AT_ONCE = 50
UVICORN = (sys.executable, "-m", "uvicorn", "tests.aio.service:app", "--log-level=warning")

both_loops = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


@contextmanager
def served(loop: str, store: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The service in its own process, on a socket that it inherits."""
    with socket.create_server(("127.0.0.1", 0), backlog=AT_ONCE) as listener:
        process = subprocess.Popen(
            [*UVICORN, f"--loop={loop}", f"--fd={listener.fileno()}"],
            cwd=ROOT,
            env=os.environ | {"SERVICE_STORE": str(store)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[listener.fileno()],
            text=True,
        )
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with process:
        try:
            yield url, process
        finally:
            process.kill()


class Caller:
    """One connection for sequential requests. A client library would be slower than the service."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)

    async def __aenter__(self) -> Caller:
        self._reader, self._writer = await asyncio.open_connection(self._url.hostname, self._url.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def call(self, method: str, path: str) -> tuple[int, Any]:
        """The status and the content of the response."""
        self._writer.write(f"{method} {path} HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n".encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        [length] = re.findall(r"content-length: (\d+)", head)
        return int(head.split()[1]), json.loads(await self._reader.readexactly(int(length)))


@both_loops
@in_asyncio
async def test_a_thousand_submits_and_a_thousand_cancels(loop: str, tmp_path: Path):
    async def some(url: str, first: int) -> set[Any]:
        answers = set()
        async with Caller(url) as caller:
            for number in range(first, RUNS, AT_ONCE):
                _, run = await caller.call("POST", f"/handle-{number}")
                answers.add(await caller.call("DELETE", f"/{run}"))
        return answers

    with served(loop, tmp_path / "greenroom.db") as (url, process):
        answers = await asyncio.gather(*(some(url, first) for first in range(AT_ONCE)))
        assert set().union(*answers) == {(200, "cancelled")}
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.read() == "the engine has been left\n"


@both_loops
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@in_asyncio
async def test_a_service_that_is_stopped_during_work_leaves_its_engine_in_order(
    loop: str, how: signal.Signals, tmp_path: Path
):
    store = tmp_path / "greenroom.db"
    with served(loop, store) as (url, process):
        async with Caller(url) as caller:
            runs = [(await caller.call("POST", f"/handle-{number}"))[1] for number in range(3)]
            assert await caller.call("POST", "/handle-0") == (409, {"code": "conflict"})
        process.send_signal(how)
        assert process.stdout is not None
        assert process.stdout.read() == "the engine has been left\n"
    async with greenroom.aio.open_engine(Jobs(), f"sqlite:///{store}") as engine:
        ended = [await engine.get_run(run) for run in runs]
    assert [(run.status, run.reason) for run in ended] == [("cancelled", "shutdown")] * 3
