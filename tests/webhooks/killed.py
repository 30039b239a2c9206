"""The programs of `test_processes.py`: an engine that submits runs until it is killed, and a receiver.

Both have a folder: the engine's store is there, and the receiver writes what it gets to the file `got`.
"""

from __future__ import annotations

import itertools
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import trio

from greenroom import Jobs, Run, open_engine
from greenroom.actors.webhooks import deliveries
from greenroom.protocol import webhooks

jobs = Jobs()
MOST_PENDING = 20
"""Webhooks that are not delivered, after which the engine submits no other run for a while."""


@jobs.job("quick", resumable=True)
async def quick(run: Run, params: dict[str, Any]) -> None:
    for number in range(params["logs"]):
        await run.log(f"line {number}")


def engine(folder: Path, urls: list[str], life: int, to_the_end: bool) -> None:
    """Submit runs until killed. `to_the_end`: deliver what an earlier process left."""
    deliveries._TIMEOUT = 1.0
    webhooks._FIRST_PAUSE = 0.05  # type: ignore[misc]
    trio.run(_deliver if to_the_end else _submit, folder, urls, life)


async def _submit(folder: Path, urls: list[str], life: int) -> None:
    async with _opened(folder) as engine:
        for number in itertools.count():
            notify = {"url": urls[number % len(urls)], "types": ["run_state_changed", "run_log"]}
            params = {"logs": number % 20}
            await engine.submit("quick", handle=f"{life}-{number}", params=params, notify=notify)
            if number % MOST_PENDING == 0:
                await trio.sleep(0.05)


async def _deliver(folder: Path, urls: list[str], life: int) -> None:
    async with _opened(folder) as engine:
        while await engine._store.due_webhooks(1, [], []):  # noqa: ASYNC110 - nothing tells of deliveries
            await trio.sleep(0.02)


def _opened(folder: Path) -> Any:
    return open_engine(
        jobs,
        f"sqlite:///{folder}/store.db?synchronous=normal",
        data_dir=folder / "data",
        webhook_secret="a secret of the tests",
        webhook_networks=["127.0.0.0/8"],
    )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fails = event["seq"] % 13 == 0 and event["seq"] not in self.server.failed  # type: ignore[attr-defined]
        if fails:
            self.server.failed.add(event["seq"])  # type: ignore[attr-defined]
        else:
            with Path(self.server.file).open("a") as got:  # type: ignore[attr-defined]
                got.write(json.dumps([event["run"], event["seq"]]) + "\n")
        self.send_response(503 if fails else 204)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(HTTPServer):
    failed: set[int]
    file: Path

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The engine was killed while it read the response."""


def receiver(file: Path, ready: Connection) -> None:
    """Serve until killed. Refuses each 13th event once, and writes the accepted ones to the file."""
    from socketserver import ThreadingMixIn

    class Threaded(ThreadingMixIn, _Server):
        daemon_threads = True

    with Threaded(("127.0.0.1", 0), _Handler) as server:
        server.failed, server.file = set(), file
        ready.send(server.server_port)
        server.serve_forever()
