"""The nodes of a cluster as real processes, with their own PostgreSQL database.

Nothing here sleeps except to ask a server again: a test continues when a process has written what the test
waits for, or has ended.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from greenroom.persistence import migrating
from tests.servers import Server

PATIENCE = 60.0
"""Seconds for what should happen soon, with a reserve for slow machines."""

APP = """
import os
import signal
import threading

import trio

from greenroom import Jobs, Run

jobs = Jobs()


def mark(run, what):
    with open("marks", "a") as marks:
        marks.write(f"{run.handle} {what} attempt={run.attempt} pid={os.getpid()}\\n")


@jobs.job("quick")
async def quick(run: Run) -> int:
    mark(run, "quick")
    return os.getpid()


@jobs.job("waits", resumable=True)
async def waits(run: Run) -> object:
    mark(run, "begins")
    message = await run.next_message()
    mark(run, "ends")
    return message


@jobs.job("asks_again", max_attempts=2, backoff=0)
async def asks_again(run: Run) -> object:
    mark(run, "begins")
    return await run.next_message()


@jobs.job("stuck", grace=0.1)
def stuck(run: Run) -> None:
    mark(run, "begins")
    threading.Event().wait()


@jobs.job("quits")
async def quits(run: Run) -> None:
    raise SystemExit(3)
"""


class Node:
    """A `greenroom serve --cluster` process. `log` contains what it has logged."""

    def __init__(self, cluster: Cluster, port: int, arguments: tuple[str, ...], **variables: str) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.log: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self._closed = False
        command = [sys.executable, "-m", "greenroom", "serve", "app:jobs", "--cluster", "--port", str(port)]
        self.process = subprocess.Popen(
            [*command, *arguments, "--log-format", "json"],
            cwd=cluster.folder,
            env=os.environ | cluster.variables | variables,
            stderr=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                try:
                    entry = json.loads(line)
                except ValueError:
                    entry = {"level": "", "message": line.rstrip()}
                with self._news:
                    self.log.append(entry)
                    self._news.notify_all()
        with self._news:
            self._closed = True
            self._news.notify_all()

    def logged(self, pattern: str, after: int = 0) -> str:
        """Wait until a message that matches is logged, as the `after`-th or later; returns the message."""

        def find() -> str | None:
            return next(
                (str(line["message"]) for line in self.log[after:] if re.search(pattern, line["message"])),
                None,
            )

        with self._news:
            self._news.wait_for(lambda: find() is not None or self._closed, PATIENCE)
            found = find()
        assert found is not None, f"not logged: {pattern!r}; but {self.messages()}"
        return found

    def messages(self, *levels: str) -> list[str]:
        """What it has logged, at these levels."""
        with self._news:
            return [line["message"] for line in self.log if not levels or line.get("level") in levels]

    def leads(self) -> Node:
        """Wait until it leads."""
        self.logged("leads the cluster")
        self.listens()
        return self

    def follows(self, after: int = 0) -> Node:
        """Wait until it follows a leader."""
        self.logged("following node", after)
        self.listens()
        return self

    def listens(self) -> None:
        self.logged("listening on")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self) -> int:
        """Wait for its end; its exit code. Afterwards `log` is complete."""
        code = self.process.wait(PATIENCE)
        with self._news:
            assert self._news.wait_for(lambda: self._closed, PATIENCE), "a child still has its standard error"
        return code

    def children(self) -> set[int]:
        """The ids of its child processes."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Its response over HTTP; for an error, its status."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
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

    def run(self, id: str) -> dict[str, Any]:
        """The record of a run."""
        found: dict[str, Any] = self.request("GET", f"/api/runs/{id}")
        return found

    def ended(self, id: str) -> dict[str, Any]:
        """The record of a run that has ended."""
        statuses = ("queued", "running", "suspended", "cancelling")
        return until(lambda: (run := self.run(id))["status"] not in statuses and run)

    def executors(self) -> dict[str, dict[str, Any]]:
        """The executors that the leader knows."""
        return {each["id"]: each for each in self.request("GET", "/api/executors")["executors"]}

    def cluster(self) -> Any:
        """The cluster as this node shows it."""
        return self.request("GET", "/api/cluster")


class Cluster:
    """Nodes with one store and one working directory. All that were started end with the block."""

    def __init__(self, folder: Path, server: Server, *, migrated: bool = True) -> None:
        self.folder = folder
        self.store = server.fresh_database()
        self.nodes: list[Node] = []
        (folder / "app.py").write_text(APP, encoding="utf-8")
        (folder / "secret").touch(mode=0o600)
        (folder / "secret").write_text(secrets.token_hex(16), encoding="ascii")
        (folder / "greenroom.toml").touch()
        self.variables = {
            "GREENROOM_STORE": self.store,
            "GREENROOM_CLUSTER_SECRET_FILE": str(folder / "secret"),
            "GREENROOM_CLUSTER_LEASE_TTL": "3",
            "GREENROOM_EXECUTOR_TTL": "15",
        }
        if migrated:
            trio.run(migrating.upgrade, self.store)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            if node.process.poll() is None:
                node.process.send_signal(signal.SIGCONT)
                node.process.kill()
            node.process.wait()

    def start(self, *arguments: str, port: int | None = None, **variables: str) -> Node:
        """Start a node."""
        node = Node(self, free_port() if port is None else port, arguments, **variables)
        self.nodes.append(node)
        return node

    def marks(self, handle: str) -> list[str]:
        """What the bodies of a handle have marked."""
        file = self.folder / "marks"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{handle} ")]

    def marked(self, handle: str, what: str, count: int = 1) -> list[str]:
        """Wait until the bodies of a handle have made this number of marks that contain `what`."""

        def found() -> list[str]:
            marks = [mark for mark in self.marks(handle) if what in mark]
            return marks if len(marks) >= count else []

        return until(found)


def until(read: Callable[[], Any]) -> Any:
    """Ask again until the answer is true; returns it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := read()):
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.05)
    return found


def exists(pid: int) -> bool:
    """Whether a process exists, and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
