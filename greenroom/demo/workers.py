"""The worker processes of the flow demo: one that the server calls, and one that polls for its work."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from ..gateway.background import background
from ..gateway.client import Client
from ..protocol.errors import Unavailable
from ..protocol.events import NodeWorkerChanged

WORKERS: Mapping[str, Sequence[str]] = {"push-worker": (), "pull-worker": ("--queue",)}
"""The workers' ids, and their options."""

_STARTING = 60.0
"""Seconds for a process to start and register, on a slow machine."""


@asynccontextmanager
async def run_workers(url: str, folder: Path) -> AsyncIterator[None]:
    """Run the workers of a server until the block ends. Their logs are files in the folder."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GREENROOM_")}
    async with background() as nursery:  # its cancellation terminates the processes
        for id, how in WORKERS.items():
            async with await trio.open_file(folder / f"{id}.log", "wb") as log:
                # Without -P, a file `types.py` in the current folder would replace Python's own module.
                greenroom = [sys.executable, "-P", "-m", "greenroom"]
                command = [*greenroom, "worker", "--server", url, "--id", id, *how]
                start = partial(
                    trio.run_process,
                    command,
                    env=environ | {"GREENROOM_WORKER_URL": "http://127.0.0.1:0"},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    check=False,
                )
                await nursery.start(start)
        yield


async def wait_registered(client: Client) -> None:
    """Wait until all workers have registered. Raises `Unavailable` after a timeout."""
    begin = client.state.seq
    missing = set(WORKERS) - {worker.id for worker in await client.workers.list()}
    with trio.move_on_after(_STARTING):
        events = client.events(after=begin)
        while missing:
            event = await anext(events)
            if isinstance(event, NodeWorkerChanged):
                missing.discard(event.worker)
        return
    raise Unavailable(
        f"timed out: {', '.join(sorted(missing))} did not register within {_STARTING:g} seconds"
    )
