"""An engine that loses its lease: its bodies always end before those of the next engine start."""

import json
import math
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom import Engine, Jobs, Run, open_engine
from greenroom.commands.exits import Exit
from greenroom.errors import Conflict, Invalid
from greenroom.persistence import migrating
from greenroom.persistence.failures import StoreBroken
from greenroom.persistence.leasethread import EXIT_CODE
from greenroom.persistence.sqlstore import SqlStore
from tests.persistence.proxy import Proxy
from tests.servers import Server

TTL = 3.0
SHORT = 3.0
"""Seconds of the lease of a store that a test locks for longer."""
PATIENCE = 60.0


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Server:
    """Each server in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


class Bodies:
    """Jobs that record when their bodies start and end."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, str, str, int]] = []

    def jobs(self, engine: str) -> Jobs:
        jobs = Jobs()

        async def hold(run: Run) -> None:
            self.marks.append((trio.current_time(), "begin", engine, run.attempt))
            try:
                await trio.sleep_forever()
            finally:
                self.marks.append((trio.current_time(), "end", engine, run.attempt))

        jobs.job("resumable", resumable=True)(hold)
        jobs.job("again", max_attempts=2, backoff=0)(hold)
        jobs.job("once")(hold)

        @jobs.job("sleeps", resumable=True)
        async def sleeps(run: Run) -> float:
            began = trio.current_time()
            if run.checkpoint is None:
                await run.save_checkpoint(1)
                await run.sleep(3600)
            return trio.current_time() - began

        @jobs.job("asks", resumable=True)
        async def asks(run: Run) -> Any:
            return await run.interrupt("?", timeout=math.inf, release_slot=True)

        @jobs.job("calls", resumable=True)
        async def calls(run: Run) -> Any:
            return await run.call("asks", handle="child")

        return jobs

    def begun(self, engine: str) -> int:
        return sum(what == "begin" and who == engine for _, what, who, _ in self.marks)


async def until(condition: Any) -> None:
    with trio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.01)


@contextmanager
def proxied(server: Server, url: str) -> Iterator[tuple[str, Proxy]]:
    proxy = Proxy(server.port)
    yield url.replace(f":{server.port}/", f":{proxy.port}/"), proxy
    proxy.close()


@asynccontextmanager
async def insistent(jobs: Jobs, url: str, data: Path) -> AsyncIterator[Engine]:
    """Retry to open an engine until it gets the store."""
    while True:
        try:
            store = SqlStore(url, lease_ttl=TTL)
            async with open_engine(jobs, store, data_dir=data, shutdown_timeout=0) as engine:
                yield engine
                return
        except Conflict:
            await trio.sleep(0.02)


async def test_an_engine_that_is_cut_off_ends_its_bodies_before_the_next_engine_starts_any(
    server: Server, data: Path, caplog: pytest.LogCaptureFixture
):
    url = server.fresh_database()
    await migrating.upgrade(url)
    bodies = Bodies()

    async def lose(far: str, proxy: Proxy) -> None:
        async with open_engine(bodies.jobs("first"), SqlStore(far, lease_ttl=TTL), data_dir=data) as first:
            for number in range(3):
                await first.submit("resumable", handle=f"handle {number}")
            await until(lambda: bodies.begun("first") == 3)
            proxy.cut = "unnoticed"
            server.end_sessions()  # the server forgets the engine's lock
            with trio.fail_after(PATIENCE):
                async with insistent(bodies.jobs("second"), url, data):
                    await until(lambda: bodies.begun("second"))  # they start one after the other
            proxy.cut = None
            await trio.sleep(PATIENCE)  # it detects the loss with the next renewal

    with proxied(server, url) as (far, proxy), pytest.raises(StoreBroken) as caught:
        await lose(far, proxy)
    ends = [at for at, what, who, _ in bodies.marks if (what, who) == ("end", "first")]
    begins = [at for at, what, who, _ in bodies.marks if (what, who) == ("begin", "second")]
    assert len(ends) == 3
    assert max(ends) < min(begins)
    assert re.search("the lease on the store is about to expire, because it could", caplog.text)
    assert "has taken the store" in caught.value.message


async def test_a_server_releases_the_lock_of_an_engine_whose_connection_was_lost_unnoticed(
    server: Server, data: Path
):
    url = server.fresh_database()
    await migrating.upgrade(url)
    with proxied(server, url) as (far, proxy):
        async with open_engine(Jobs(), SqlStore(far, lease_ttl=1.5), data_dir=data, shutdown_timeout=0):
            await trio.sleep(1)  # it has renewed its lease
            proxy.swallow()
            with trio.fail_after(PATIENCE):
                async with insistent(Jobs(), url, data):
                    pass
            proxy.pass_on()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock the database, so that no other connection can write."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


async def lapse(path: Path) -> None:
    with locked(path):
        await trio.sleep(1.3 * SHORT)


def short(path: Path) -> SqlStore:
    return SqlStore(f"sqlite:///{path}", lease_ttl=SHORT)


async def test_runs_recover_after_a_lapse_as_after_a_crash(tmp_path: Path, data: Path):
    bodies, path = Bodies(), tmp_path / "x.db"
    async with open_engine(bodies.jobs("x"), short(path), max_concurrent=5, data_dir=data) as engine:
        ids = [(await engine.submit(job, handle=job)).id for job in ("resumable", "again", "once")]
        await until(lambda: len(bodies.marks) == 3)
        await lapse(path)
        await until(lambda: bodies.begun("x") == 5)
        resumable, again, once = [await engine.get_run(id) for id in ids]
        assert (resumable.status, resumable.attempt) == ("running", 1)
        assert (again.status, again.attempt) == ("running", 2)
        assert (once.status, once.reason) == ("failed", "lease_lost")
        assert once.error == "the engine lost its lease on the store while the run executed"
        reasons = [getattr(event, "reason", None) for event in await engine.history(ids[0])]
        assert reasons[-2:] == ["lease_lost", None]
        for id in ids[:2]:
            await engine.cancel(id)


async def test_runs_that_wait_without_a_slot_continue_to_wait_after_a_lapse(tmp_path: Path, data: Path):
    path = tmp_path / "x.db"
    async with open_engine(Bodies().jobs("x"), short(path), data_dir=data) as engine:
        sleeps = await engine.submit("sleeps", handle="sleeps")
        asks = await engine.submit("asks", handle="asks")
        calls = await engine.submit("calls", handle="calls")
        while len((before := await engine.snapshot()).interrupts) < 2:  # noqa: ASYNC110
            await trio.sleep(0.01)
        await lapse(path)
        while any(body.run == asks.id for body in engine.bodies()):  # noqa: ASYNC110
            await trio.sleep(0.01)
        after = await engine.snapshot()
        assert after.interrupts == before.interrupts
        assert after.runs[sleeps.id].waiting_for == "time"
        assert after.runs[calls.id].waiting_for == "child"
        for interrupt in after.interrupts:
            assert await engine.answer(interrupt, {"approved": True}) == "resolved"
        with trio.fail_after(PATIENCE):
            assert await asks.result() == {"approved": True}
            assert await calls.result() == {"approved": True}
        assert len([run for run in (await engine.snapshot()).runs.values() if run.job == "asks"]) == 2
        await engine.cancel(sleeps.id)


async def test_no_body_starts_while_the_lease_has_lapsed(tmp_path: Path, data: Path):
    bodies, path = Bodies(), tmp_path / "x.db"
    async with open_engine(bodies.jobs("x"), store := short(path), data_dir=data) as engine:
        assert store.lease is not None
        good = store.lease.is_good
        store.lease.is_good = lambda: False  # type: ignore[method-assign]  # as if it had just expired
        ticket = await engine.submit("once", handle="a")
        await trio.sleep(0.3)
        assert (await engine.get_run(ticket.id)).status == "running"
        assert bodies.marks == []
        store.lease.is_good = good  # type: ignore[method-assign]
        await lapse(path)
        await until(lambda: bodies.begun("x") == 1)
        assert (await engine.get_run(ticket.id)).attempt == 1, "what never began was not broken off"
        await engine.cancel(ticket.id)


async def test_a_body_that_ignores_its_cancellation_is_logged_when_the_lease_has_expired(
    tmp_path: Path, data: Path, caplog: pytest.LogCaptureFixture
):
    jobs, path, begun, released = Jobs(), tmp_path / "x.db", trio.Event(), trio.Event()

    @jobs.job("clings", resumable=True)
    async def clings(run: Run) -> int:
        begun.set()
        with trio.CancelScope(shield=True):
            await released.wait()
        return run.attempt

    async with open_engine(jobs, short(path), data_dir=data) as engine:
        ticket = await engine.submit("clings", handle="a")
        await begun.wait()
        await lapse(path)
        assert re.search(rf"bodies of these runs still execute: {ticket.id}", caplog.text)
        released.set()
        with trio.fail_after(PATIENCE):
            assert await ticket.result() == 1


def test_the_option_on_lease_lost_is_checked():
    async def main() -> None:
        with pytest.raises(Invalid, match="on_lease_lost must be"):
            async with open_engine(Jobs(), "memory:", on_lease_lost="explode"):  # type: ignore[arg-type]
                pass

    trio.run(main)


# Processes.

APP = """
import time
import trio
from greenroom import Jobs

jobs = Jobs()

@jobs.job("blocks")
async def blocks(run):
    await trio.sleep(1)  # until the submission is answered
    print("blocks", flush=True)
    time.sleep(600)

@jobs.job("clings")
def clings(run):
    print("clings", flush=True)
    time.sleep(600)
"""

SERVE = """
import sys
from greenroom.persistence import storelease
storelease.TTL = 1.5
from greenroom.cli import main
sys.argv = ["greenroom", "serve", "app:jobs", "--port", "0", "--store", "sqlite:///x.db"]
main()
"""


@pytest.mark.parametrize("job", ["blocks", "clings"])
def test_a_server_exits_if_a_body_still_executes_when_the_lease_has_expired(job: str, tmp_path: Path):
    (tmp_path / "app.py").write_text(APP)
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", SERVE], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        port = next(found[1] for line in process.stderr if (found := re.search(rb":(\d+)\s*$", line)))
        submit = [sys.executable, "-m", "greenroom", "submit", job, "--handle", "a"]
        subprocess.run([*submit, "--url", f"http://127.0.0.1:{port.decode()}"], check=True)
        assert process.stdout.readline() == f"{job}\n".encode()
        with locked(tmp_path / "x.db"):
            assert process.wait(PATIENCE) == EXIT_CODE == Exit.LEASE_LOST
        said = process.stderr.read().decode()
        assert "the bodies of these runs still execute: " in said
        assert "the process exits with code 6" in said
    finally:
        process.kill()
        process.communicate()


HOLDS = """
import json, sys, time, trio
from greenroom import Jobs, open_engine
from greenroom.persistence.sqlstore import SqlStore

jobs = Jobs()
file = open(sys.argv[2], "a", buffering=1)

@jobs.job("marks", resumable=True)
async def marks(run):
    while True:
        file.write(json.dumps([time.monotonic(), sys.argv[3]]) + "\\n")
        await trio.sleep(0.01)

async def main():
    store = SqlStore("sqlite:///" + sys.argv[1], lease_ttl=1.5)
    async with open_engine(jobs, store, data_dir=sys.argv[1] + ".data", on_lease_lost="exit") as engine:
        if sys.argv[3] == "first":
            await engine.submit("marks", handle="a")
        print("open", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


def test_a_process_that_was_stopped_for_longer_than_its_lease_has_lost_the_store(tmp_path: Path):
    path, marks = tmp_path / "x.db", tmp_path / "marks"

    def start(name: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", HOLDS, str(path), str(marks), name]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        return process

    def begun(name: str) -> bool:
        return marks.exists() and f'"{name}"' in marks.read_text()

    first = start("first")
    second = None
    try:
        while not begun("first"):
            pass
        first.send_signal(signal.SIGSTOP)
        path.with_name("x.db.lock").unlink()
        subprocess.run(["sleep", "1.6"], check=True)
        second = start("second")
        while not begun("second"):
            pass
        first.send_signal(signal.SIGCONT)
        _, said = first.communicate(timeout=PATIENCE)
        assert first.returncode != 0
        assert b"has taken the store" in said
    finally:
        for process in filter(None, (first, second)):
            process.kill()
            process.communicate()
    lines = [json.loads(line) for line in marks.read_text().splitlines()]
    late = [at for at, name in lines if name == "first" and at > next(a for a, n in lines if n == "second")]
    assert len(late) <= 3, "at most what it did before it noticed"
    assert os.path.exists(path)
