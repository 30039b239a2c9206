"""Many clients and many runs: at the end each connected client has the engine's exact state, the memory of
the server is bounded, and the server has not failed.

`GREENROOM_CROWD` is the number of clients, by default 100, with ten runs each; 1000 is the long form.
"""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from greenroom import Jobs, Run
from greenroom.gateway import GatewayConfig, Limits
from tests.support import open_engine, open_gateway

from . import crowd

ROOT = Path(__file__).resolve().parents[2]

CLIENTS = int(os.environ.get("GREENROOM_CROWD", "100"))
RUNS = 10 * CLIENTS
PATIENCE = 60.0 + CLIENTS

# All clients share one process, so it may be long until each has its turn.
LIMITS = Limits(stall_timeout=3.0 + CLIENTS / 50, idle_timeout=PATIENCE, max_message_bytes=crowd.MOST_BYTES)
STALLED = sum(crowd.kind(number) == "stalls" for number in range(CLIENTS))

MOST_FOR_ALL = 60 << 20  # bytes: the ring, the engine, and a few snapshots
MOST_FOR_EACH = 100 << 10  # of a connection


class Server:
    """The engine's jobs, and the memory in use while they executed."""

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.jobs.job("work")(self._work)
        self.most = 0
        self._begun = count()

    async def _work(self, run: Run, params: dict[str, Any]) -> int:
        if next(self._begun) % 50 == 0:
            self.most = max(self.most, resident())
        number: int = params["number"]
        if number % 3 == 0:
            await run.progress(number, number + 1)
        if number % 5 == 0:
            await run.interrupt({"number": number})
        return number


@pytest.fixture
def _many_files() -> Iterator[None]:
    """Raise the limit of open files, here and in the clients' process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("_many_files")
async def test_at_the_end_all_clients_have_the_state_of_the_engine(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    server = Server()
    before = resident()
    lanes = dict.fromkeys(crowd.LANES[1:], CLIENTS // 8)
    config = GatewayConfig(port=0, limits=LIMITS)
    async with (
        open_engine(server.jobs, "memory:", max_concurrent=CLIENTS // 2, lanes=lanes) as engine,
        open_gateway(engine, config) as gateway,
        trio.open_nursery() as nursery,
    ):
        with trio.fail_after(PATIENCE):
            command = [sys.executable, "-m", crowd.__name__, *map(str, (gateway.port, CLIENTS, RUNS))]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            clients = await nursery.start(partial(trio.run_process, command, cwd=ROOT, **pipes))
            assert await line(clients) == "over"
            while gateway.connections > CLIENTS - STALLED:
                await trio.testing.wait_all_tasks_blocked(0.05)
            snapshot = await engine.snapshot()
            file = tmp_path / "snapshot"
            file.write_bytes(msgspec.msgpack.encode(snapshot))
            await clients.stdin.send_all(f"{file}\n".encode())
            seen = msgspec.json.decode(await line(clients))
            print(seen, f"{(server.most - before) / 1e6:.0f} MB")
            assert gateway.connections == CLIENTS
            assert (await engine.snapshot()) == snapshot
            await clients.stdin.send_all(b"\n")
    assert (seen["equal"], seen.get("different", 0)) == (CLIENTS, 0)
    assert all(seen[f"equal {kind}"] for kind in crowd.KINDS)
    assert seen["runs"] == RUNS
    assert snapshot.seq >= 3 * RUNS
    assert seen["dropped"] == STALLED
    assert min(seen[what] for what in ("cut off", "resumed", "garbage")) > 0
    assert server.most - before < MOST_FOR_ALL + CLIENTS * MOST_FOR_EACH
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def line(process: trio.Process) -> str:
    """The next line of its output."""
    said = b""
    while not said.endswith(b"\n"):
        more = await process.stdout.receive_some()
        assert more, "the clients' process has ended"
        said += more
    return said.decode().strip()


def resident() -> int:
    """The memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
