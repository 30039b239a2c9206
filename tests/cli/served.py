"""A `greenroom serve` process of a test, and worker processes for it, each with its own folder.

Nothing here sleeps: a test continues when the server has written what the test waits for.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

PATIENCE = 60.0
"""Seconds for what should happen immediately, with a reserve for slow machines."""

APP = """
import time

import trio

from greenroom import Jobs, Run

jobs = Jobs()


@jobs.job("quick")
async def quick(run: Run, params: dict) -> dict:
    return params


@jobs.job("writes")
async def writes(run: Run) -> None:
    async with run.open_file("report.txt") as file:
        await file.write(b"done")


@jobs.job("fails")
async def fails(run: Run) -> None:
    raise ValueError("as it must")


@jobs.job("waits", resumable=True)
async def waits(run: Run) -> object:
    print("waits", run.handle, flush=True)
    await run.progress(1, 4, pages=7)
    return await run.next_message()


@jobs.job("asks")
async def asks(run: Run) -> object:
    return await run.interrupt({"question": "go on?"})


@jobs.job("stuck", grace=0.1)
def stuck(run: Run) -> None:
    print("stuck", run.handle, flush=True)
    time.sleep(600)


@jobs.job("quits")
async def quits(run: Run) -> None:
    raise SystemExit(0)


@jobs.job("endless", grace=600)
async def endless(run: Run) -> None:
    print("endless", run.handle, flush=True)
    with trio.CancelScope(shield=True):
        await trio.sleep(600)
"""


class Served:
    """A started server that listens. `said` returns the output of its bodies."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        jobs: str | None = "app:jobs",
        app: str = APP,
        toml: str = "",
        patience: float = PATIENCE,
        **variables: str,
    ) -> None:
        (folder / "app.py").write_text(app, encoding="utf-8")
        (folder / "greenroom.toml").write_text(toml, encoding="utf-8")
        self.folder = folder
        self.log: list[dict[str, Any]] = []
        named = () if jobs is None else (jobs,)
        command = [sys.executable, "-m", "greenroom", "serve", *named, "--port", "0", *arguments]
        self._process = subprocess.Popen(
            [*command, "--log-format", "json"],
            cwd=folder,
            env=os.environ | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._last_resort = threading.Timer(patience, self._process.kill)
        self._last_resort.start()
        self.url = self.logged("listening on").rpartition(" ")[2]

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self._last_resort.cancel()
        self._process.kill()
        self._process.communicate()

    def logged(self, pattern: str) -> str:
        """Wait until a message that matches the pattern is logged. Returns the message."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            try:
                self.log.append(json.loads(line))
            except ValueError:
                self.log.append({"message": line})
            if re.search(pattern, self.log[-1]["message"]):
                return str(self.log[-1]["message"])
        raise AssertionError(f"the server ended without logging {pattern!r}: {self.log}")

    def said(self) -> str:
        """The next line that a body prints."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ends(self) -> int:
        """Wait for the end, and return the exit code."""
        _, rest = self._process.communicate(timeout=PATIENCE)
        self.log += [json.loads(line) for line in rest.splitlines() if line.startswith("{")]
        return self._process.returncode

    def messages(self, level: str) -> list[str]:
        return [line["message"] for line in self.log if line.get("level") == level]

    def request(self, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        """The response of the server over HTTP; for an error, its status."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def submit(self, job: str, handle: str, **fields: Any) -> str:
        """Submit a run; its id."""
        return str(self.request("POST", "/api/runs", {"job": job, "handle": handle, **fields})["run_id"])


class Worker:
    """A registered `greenroom worker` with the example services; it ends with the block."""

    def __init__(self, folder: Path, server: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "greenroom", "worker", "--server", server, *arguments]
        self._process = subprocess.Popen(
            [*command, "--log-format", "json"],
            cwd=folder,
            env=os.environ | {"WORKER_URL": "http://127.0.0.1:0"},
            stderr=subprocess.PIPE,
            text=True,
        )
        last_resort = threading.Timer(PATIENCE, self._process.kill)
        last_resort.start()
        assert self._process.stderr is not None
        registered = any("is registered at" in line for line in self._process.stderr)
        last_resort.cancel()
        assert registered, "the worker ended without that"

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
