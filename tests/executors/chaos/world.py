"""A server and its executors as processes. Each ends with the block in which it was started."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from .proxy import Proxy

REPOSITORY = Path(__file__).parents[3]


class Program:
    """One process; what it logs is in a file."""

    def __init__(self, log: Path, *command: str, **variables: str) -> None:
        self.log = log
        with log.open("ab") as file:
            self._before = os.fstat(file.fileno()).st_size
            self.process = subprocess.Popen(
                [sys.executable, "-m", "greenroom", *command],
                cwd=REPOSITORY,
                env=os.environ | variables,
                stdout=file,
                stderr=file,
            )
        self.pid = self.process.pid
        self.stopped_at: float | None = None

    @property
    def logged(self) -> bytes:
        """What it has logged."""
        return self.log.read_bytes()[self._before :]

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self, within: float = 60) -> int:
        """Wait for the end; the exit code."""
        await until(lambda: not self.runs, f"process {self.pid} ends", within)
        return self.process.returncode

    async def kill(self) -> None:
        """End the process with SIGKILL."""
        self.signal(signal.SIGKILL)
        await self.ended()


class Place:
    """A machine on which an executor is started, behind its own proxy."""

    def __init__(self, number: int, proxy: Proxy, data: Path) -> None:
        self.number = number
        self.proxy = proxy
        self.data = data
        self.program: Program
        self.name = ""
        self.version = "jobs"


class World:
    """A server at a port, and its executors. `pauses` lists when processes were stopped and continued."""

    def __init__(self, folder: Path, *, ttl: float, max_concurrent: int = 12, executors: int = 0) -> None:
        self.folder = folder
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.ttl = ttl
        self.port = free_port()
        self.url = f"ws://127.0.0.1:{self.port}"
        self.places: list[Place] = []
        self.pauses: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
        self.deaths: dict[int, float] = {}
        self.server: Program | None = None
        self._options = ("--max-concurrent", str(max_concurrent), "--executors", str(executors))
        self._count = itertools.count(1)
        self._programs: list[Program] = []

    def start_server(
        self, jobs: str = "tests.executors.chaos.jobs:jobs", shutdown_timeout: float = 1
    ) -> None:
        """Start the server."""
        self.server = self._start(
            self.folder / "server.log",
            *("serve", jobs, "--port", str(self.port), *self._options),
            *("--store", f"sqlite:///{self.folder}/greenroom.db", "--data-dir", str(self.folder / "data")),
            *("--shutdown-timeout", str(shutdown_timeout)),
            GREENROOM_EXECUTOR_TTL=str(self.ttl),
        )

    async def ready(self) -> None:
        """Wait until the server accepts commands."""
        await until(partial(trio.to_thread.run_sync, self._is_ready), "the server is ready")

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    async def kill_server(self) -> None:
        """End the server with SIGKILL."""
        assert self.server is not None
        await self.server.kill()

    async def stop_server(self, within: float = 30) -> int:
        """End the server with SIGTERM; the exit code."""
        assert self.server is not None
        self.server.signal(signal.SIGTERM)
        return await self.server.ended(within)

    def start_executor(
        self, place: Place, *, name: str | None = None, version: str | None = None, slots: int = 6
    ) -> None:
        """Start an executor at a place: with a new name, or with this one."""
        place.name = name or f"e{place.number}-{next(self._count)}"
        place.version = version or "jobs"
        place.program = self._start(
            self.folder / f"e{place.number}.log",
            *("executor", f"tests.executors.chaos.jobs:{place.version}", "--node", place.name),
            *("--url", f"ws://127.0.0.1:{place.proxy.port}", "--slots", str(slots)),
            *("--data-dir", str(place.data), "--shutdown-timeout", "1"),
        )

    async def drain(self, place: Place) -> int:
        """Send SIGTERM to an executor, and wait for its end; the exit code. It handles signals only when it
        has started, which takes long on a busy machine."""
        program = place.program
        begun = f"executor {place.name} has".encode()
        await until(lambda: begun in program.logged or not program.runs, "the executor starts")
        program.signal(signal.SIGTERM)
        return await program.ended()

    async def stop(self, place: Place, seconds: float) -> None:
        """Stop an executor with SIGSTOP for some time."""
        program, began = place.program, time.monotonic()
        program.signal(signal.SIGSTOP)
        await trio.sleep(seconds)
        self.pauses[program.pid].append((began, time.monotonic()))
        program.signal(signal.SIGCONT)

    def _start(self, log: Path, *command: str, **variables: str) -> Program:
        program = Program(log, *command, MARKS=str(self.marks), **variables)
        self._programs.append(program)
        return program

    def end(self) -> None:
        """Kill all processes that were started here."""
        for program in self._programs:
            if program.runs:
                program.signal(signal.SIGKILL)
                program.signal(signal.SIGCONT)
            program.process.wait()


@asynccontextmanager
async def world(folder: Path, *, places: int = 3, **options: Any) -> AsyncIterator[World]:
    """A running server, and places for executors, which are not started yet."""
    made = World(folder, **options)
    async with trio.open_nursery() as nursery:
        try:
            for number in range(places):
                proxy = Proxy(made.port)
                await nursery.start(proxy.serve)
                made.places.append(Place(number, proxy, folder / f"files-{number}"))
            made.start_server()
            await made.ready()
            yield made
        finally:
            made.end()
            nursery.cancel_scope.cancel()


def free_port() -> int:
    """A port that no process listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def until(
    is_met: Callable[[], bool | Awaitable[bool]], what: str, within: float = 60, every: float = 0.02
) -> None:
    """Check a condition many times per second until it is met."""
    with trio.move_on_after(within) as scope:
        for _ in itertools.count():
            met = is_met()
            if met if isinstance(met, bool) else await met:
                break
            await trio.sleep(every)
    assert not scope.cancelled_caught, f"timed out after {within:g} s: {what}"
