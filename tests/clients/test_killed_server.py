"""The server is killed under load and started again: every client converges, and every submit with a request
id creates exactly one run. And cutting connections anywhere, also within frames, changes nothing.

`GREENROOM_KILLS` is the number of kills, by default 4.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from greenroom import Client, connect
from greenroom.protocol.records import RunRecord, Snapshot

from . import served
from .javascript import needs_node, run_node
from .proxy import proxy

KILLS = int(os.environ.get("GREENROOM_KILLS", "4"))
CUTS = 5 * KILLS
WORKERS, STEPS = 9, 9
PATIENCE = 120


class Server:
    """The program, on the same file and port after each start."""

    def __init__(self, folder: Path, module: str) -> None:
        self.folder = folder
        self._module = module
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._program: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", self._module, str(self.folder / "runs.db"), str(self.port)]
        root = Path(__file__).resolve().parent.parent.parent
        self._program = subprocess.Popen(
            command, cwd=self.folder, env={**os.environ, "PYTHONPATH": str(root)}
        )

    def kill(self) -> None:
        assert self._program is not None
        self._program.send_signal(signal.SIGKILL)
        assert self._program.wait() == -signal.SIGKILL, "it had ended by itself"

    async def listens(self) -> None:
        """Wait until it accepts connections."""
        while True:
            try:
                stream = await trio.open_tcp_stream("127.0.0.1", self.port)
            except OSError:
                await trio.sleep(0.05)
            else:
                await stream.aclose()
                return


@contextmanager
def server(folder: Path, module: str = served.__name__) -> Iterator[Server]:
    it = Server(folder, module)
    it.start()
    try:
        yield it
    finally:
        it.kill()


async def work(client: Client, name: str, ids: dict[str, str], over: trio.Event) -> None:
    """Submit run after run, each with its own request id, and wait for its result, until the end."""
    for step in itertools.count():
        if over.is_set():
            return
        to = step % STEPS
        request_id = f"{name} {step}"
        ticket = await client.submit("count", handle=name, params={"to": to}, request_id=request_id)
        ids[request_id] = ticket.id
        assert await ticket.result() == to


async def test_every_client_converges_when_the_server_is_killed(tmp_path: Path):
    lots = random.Random("kill")
    ids: dict[str, str] = {}
    over = trio.Event()
    with server(tmp_path) as it, trio.fail_after(PATIENCE):
        await it.listens()
        async with connect(it.url) as one, connect(it.url) as other, connect(it.url, follow=False) as third:
            async with trio.open_nursery() as nursery:
                for number in range(WORKERS):
                    client = (one, other, third)[number % 3]
                    nursery.start_soon(work, client, f"worker {number}", ids, over)
                for _ in range(KILLS):
                    await trio.sleep(lots.uniform(0.2, 0.6))
                    it.kill()
                    await trio.sleep(lots.uniform(0, 0.3))
                    it.start()
                    await it.listens()
                over.set()
            await exactly_once(one, ids)
            truth = await other.snapshot()
            await one.get_run(truth_run(truth))
            assert one.state.snapshot() == other.state.snapshot() == truth


async def test_connections_that_are_cut_anywhere_change_nothing(tmp_path: Path):
    lots = random.Random("cut")
    ids: dict[str, str] = {}
    over = trio.Event()
    with server(tmp_path) as it, trio.fail_after(PATIENCE):
        await it.listens()
        async with (
            proxy(it.port) as between,
            connect(f"ws://127.0.0.1:{between.port}") as one,
            connect(it.url) as other,
        ):
            async with trio.open_nursery() as nursery:
                for number in range(WORKERS):
                    nursery.start_soon(work, one, f"worker {number}", ids, over)
                for _ in range(CUTS):
                    await trio.sleep(lots.uniform(0.02, 0.2))
                    between.cut()
                over.set()
            assert between.opened > 3  # fewer than cuts: the pauses grow
            await exactly_once(other, ids)
            truth = await one.snapshot()
            await other.get_run(truth_run(truth))
            assert one.state.snapshot() == other.state.snapshot() == truth


JAVASCRIPT = """
    const client = await connect(argument.url);
    const ids = {};
    let seen = client.state.seq, snapshots = 0, gaps = 0;
    client.onEvent((item) => {
        if (item.type === "snapshot") { snapshots += 1; seen = item.snapshot.seq; }
        else { if (item.seq !== seen + 1) gaps += 1; seen = item.seq; }
    });
    const until = Date.now() + argument.seconds * 1000;
    const work = async (name) => {
        for (let step = 0; Date.now() < until; step++) {
            const to = step % argument.steps;
            const options = { handle: name, params: { to }, requestId: `${name} ${step}` };
            const ticket = await client.submit("count", options);
            ids[options.requestId] = ticket.id;
            if (await ticket.result() !== to) throw new Error("another result");
        }
    };
    const names = Array.from({ length: argument.workers }, (_, number) => `node ${number}`);
    await Promise.all(names.map(work));
    const truth = await client.snapshot();
    const state = client.state.snapshot();
    client.close();
    answer({ ids, truth, state, gaps, snapshots });
"""


@needs_node
async def test_a_client_in_javascript_converges_when_the_server_is_killed(tmp_path: Path):
    lots = random.Random("kill node")
    found: dict[str, Any] = {}
    with server(tmp_path) as it, trio.fail_after(PATIENCE):
        await it.listens()
        async with proxy(it.port) as between, trio.open_nursery() as nursery:

            async def run() -> None:
                url = f"ws://127.0.0.1:{between.port}"
                arguments = {"url": url, "workers": WORKERS, "steps": STEPS, "seconds": KILLS}
                found.update(await run_node(JAVASCRIPT, arguments))
                nursery.cancel_scope.cancel()

            nursery.start_soon(run)
            for _ in range(KILLS):
                await trio.sleep(lots.uniform(0.3, 0.6))
                between.cut()
                await trio.sleep(lots.uniform(0.1, 0.3))
                it.kill()
                it.start()
                await it.listens()
            await trio.sleep_forever()
        async with connect(it.url) as client:
            await exactly_once(client, found["ids"])
    assert found["gaps"] == 0
    assert found["state"] == found["truth"]


async def exactly_once(client: Client, ids: dict[str, str]) -> None:
    """Every request created one run, and there is no other run."""
    runs: list[RunRecord] = []
    while page := await client.list_runs(limit=1000, before=runs[-1].id if runs else None):
        runs += page
    assert len(runs) == len(ids) >= WORKERS
    assert {run.id for run in runs} == set(ids.values())
    assert {run.status for run in runs} == {"succeeded"}


def truth_run(snapshot: Snapshot) -> str:
    """A run to request, so that everything before the reply is folded."""
    return next(iter(snapshot.runs))
