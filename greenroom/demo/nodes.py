"""The processes of the nodes in the demo of a cluster, which can be killed and started again."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from ..gateway.background import background
from ..gateway.client import Client, connect
from ..protocol.errors import Unavailable

_STARTING = 60.0
_PATIENCE = 5.0
"""Seconds for which a client waits for its node, before the demo uses another one."""


class Node:
    """A node, its process, and a client that is connected to it whenever it runs."""

    def __init__(self, name: str, folder: Path, environ: dict[str, str], nursery: trio.Nursery) -> None:
        self.name = name
        self.url = f"http://127.0.0.1:{free_port()}"
        self.client: Client
        self._folder = folder
        self._environ = environ
        self._nursery = nursery
        self._process: trio.Process | None = None

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        """Start its process. Its log is a file in its folder."""
        self._folder.mkdir(exist_ok=True)
        # Without -P, a file `types.py` in the current folder would replace Python's own module.
        greenroom = [sys.executable, "-P", "-m", "greenroom", "serve", "greenroom.demo.node_jobs:jobs"]
        async with await trio.open_file(self._folder / "log", "ab") as log:
            start = partial(
                trio.run_process,
                [*greenroom, "--cluster", "--port", self.url.rpartition(":")[2]],
                env=self._environ | {"GREENROOM_CLUSTER_NODE": self.name},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
            )
            self._process = await self._nursery.start(start)

    async def kill(self) -> None:
        """Kill its process, as when its machine loses power."""
        assert self._process is not None, "it runs"
        self._process.kill()
        await self._process.wait()

    async def listens(self) -> None:
        """Wait until it listens. Raises `Unavailable` with the end of its log if it does not."""
        port = int(self.url.rpartition(":")[2])
        with trio.move_on_after(_STARTING):
            while self.is_running:
                try:
                    stream = await trio.open_tcp_stream("127.0.0.1", port)
                except OSError:
                    await trio.sleep(0.05)
                else:
                    await stream.aclose()
                    return
        log = (self._folder / "log").read_text(errors="replace")
        raise Unavailable(f"node {self.name} has not started: {log[-1000:]}")


@asynccontextmanager
async def run_nodes(count: int, store: str, folder: Path) -> AsyncIterator[list[Node]]:
    """Run this number of nodes, each with a connected client, until the block ends."""
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(32))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GREENROOM_")} | {
        "GREENROOM_STORE": store,
        "GREENROOM_CLUSTER_SECRET_FILE": str(secret),
        "GREENROOM_EXECUTOR_TTL": "4",
        "GREENROOM_MAX_CONCURRENT": "12",
    }
    async with background() as processes:  # its cancellation terminates the processes
        nodes = [
            Node(f"n{number}", folder / f"n{number}", environ, processes) for number in range(1, count + 1)
        ]
        for node in nodes:
            await node.start()
            await node.listens()
        async with background() as clients:
            for node in nodes:
                node.client = await clients.start(_connected, node.url)
            yield nodes


async def _connected(url: str, task_status: trio.TaskStatus[Client] = trio.TASK_STATUS_IGNORED) -> None:
    async with connect(url, patience=_PATIENCE) as client:
        task_status.started(client)
        await trio.sleep_forever()


def free_port() -> int:
    """A port of the loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
