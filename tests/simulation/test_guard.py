"""The guard: code that uses the real world in a simulation gets an error, and the simulation fails."""

import datetime
import glob
import logging
import os
import pathlib
import random
import secrets
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from random import choice
from time import monotonic

import pytest
import trio

from greenroom import Jobs, Run
from greenroom.simulation import SimulationFailed, World, simulate
from greenroom.simulation.determinism.guard import RealWorldTouched

with tempfile.TemporaryDirectory():
    pass  # initializes the random numbers of `tempfile`, which it keeps

TOUCHES: dict[str, Callable[[], object]] = {
    "time.time": lambda: time.time(),
    "time.monotonic": lambda: time.monotonic(),
    "time.perf_counter": lambda: time.perf_counter(),
    "time.sleep": lambda: time.sleep(0),
    "time.localtime": lambda: time.localtime(),
    "time.strftime": lambda: time.strftime("%Y"),
    "time.monotonic, imported by name": lambda: monotonic(),
    "datetime.now": lambda: datetime.datetime.now(),
    "datetime.now, with a zone": lambda: datetime.datetime.now(UTC),
    "datetime.utcnow": lambda: datetime.datetime.utcnow(),
    "time.time, for today": lambda: datetime.date.today(),
    "random.random": lambda: random.random(),
    "random.shuffle": lambda: random.shuffle([1, 2]),
    "random.choice, imported by name": lambda: choice("ab"),
    "random.Random()": lambda: random.Random(),
    "os.urandom": lambda: os.urandom(8),
    "os.urandom, for a secret": lambda: secrets.token_hex(8),
    "uuid.uuid4": lambda: uuid.uuid4(),
    "uuid.uuid1": lambda: uuid.uuid1(),
    "open": lambda: Path(__file__).read_text(),
    "open, to write": lambda: Path("never-written.txt").write_text("never"),
    "os.listdir": lambda: os.listdir("."),
    "os.mkdir": lambda: pathlib.Path("never-made").mkdir(),
    "os.remove": lambda: os.remove("never-there.txt"),
    "os.scandir": lambda: list(os.scandir(".")),
    "glob.glob": lambda: glob.glob("*.py"),
    "shutil.copyfile": lambda: shutil.copyfile(__file__, "never-copied.py"),
    "tempfile.mkdtemp": lambda: tempfile.mkdtemp(),
    "threads": lambda: threading.Thread(target=print).start(),
    "socket.__new__": lambda: socket.socket(),
    "socket.getaddrinfo": lambda: socket.getaddrinfo("localhost", 80),
    "subprocess.Popen": lambda: subprocess.run(["true"]),
    "os.system": lambda: os.system("true"),
    "sqlite3.connect": lambda: sqlite3.connect("never-there.db"),
}


@pytest.mark.parametrize("touched", TOUCHES)
def test_a_use_of_the_real_world_is_reported_with_its_place(touched):
    async def scenario(world: World) -> None:
        TOUCHES[touched]()

    with pytest.raises(SimulationFailed) as failed:
        simulate(1, scenario)

    assert failed.value.invariant.startswith("the real world was touched: ")
    assert f"touches {touched.partition(',')[0]}" in failed.value.invariant
    assert f"{__file__}:" in failed.value.invariant


async def test_outside_of_a_simulation_the_real_world_can_be_used():
    time.time(), random.random(), datetime.datetime.now(), os.urandom(1), uuid.uuid4(), choice("ab")
    random.Random()
    assert await trio.to_thread.run_sync(threading.get_ident) != threading.get_ident()


def test_a_body_that_touches_the_real_world_fails_the_simulation_even_if_it_hides_that():
    jobs = Jobs()

    @jobs.job("hides")
    async def hides(run: Run) -> None:
        try:
            time.time()
        except RealWorldTouched:
            await run.log("it is nothing")

    async def scenario(world: World) -> None:
        await world.serve(jobs)
        ticket = await world.client("ann").submit("hides", handle="a")
        await ticket.result()

    with pytest.raises(SimulationFailed, match=r"in hides, touches time\.time"):
        simulate(1, scenario)


def test_a_call_in_a_thread_is_reported_although_trio_has_an_idle_thread():
    trio.run(trio.to_thread.run_sync, threading.get_ident)

    async def scenario(world: World) -> None:
        await trio.to_thread.run_sync(threading.get_ident)

    with pytest.raises(SimulationFailed, match="touches threads"):
        simulate(1, scenario)


def test_a_job_that_needs_a_thread_is_refused_by_name():
    jobs = Jobs()

    @jobs.job("blocks")
    def blocks(run) -> None: ...

    async def scenario(world: World) -> None:
        await world.serve(jobs)
        await world.client("ann").submit("blocks", handle="a")

    with pytest.raises(SimulationFailed, match="job 'blocks' is a plain def"):
        simulate(1, scenario)


def test_a_job_for_asyncio_is_refused_by_name():
    jobs = Jobs()

    @jobs.job("fetches", loop="asyncio")
    async def fetches(run) -> None: ...

    async def scenario(world: World) -> None:
        await world.serve(jobs)
        await world.client("ann").submit("fetches", handle="a")

    with pytest.raises(SimulationFailed, match="job 'fetches' executes in an asyncio loop"):
        simulate(1, scenario)


def test_imports_tracebacks_logs_and_seeded_randomness_are_allowed(tmp_path, monkeypatch, caplog):
    (tmp_path / "imported_late.py").write_text("import random\nNUMBER = random.Random(3).random()\n")
    monkeypatch.syspath_prepend(tmp_path)

    async def scenario(world: World) -> None:
        import imported_late

        try:
            1 / imported_late.NUMBER.is_integer()
        except ZeroDivisionError:
            logging.getLogger("greenroom").exception("as expected")
            assert "is_integer" in traceback.format_exc()
        assert datetime.datetime(2000, 1, 2) == datetime.datetime.fromtimestamp(0) + (
            datetime.datetime(2000, 1, 2) - datetime.datetime.fromtimestamp(0)
        )
        assert time.gmtime(0).tm_year == 1970
        assert time.strftime("%Y", time.gmtime(0)) == "1970"
        assert random.Random("seed").random() == random.Random("seed").random()
        sqlite3.connect(":memory:").close()

    simulate(1, scenario)

    [record] = caplog.records
    assert record.created == 1_000_000_000, "a log record has the world's time"


def test_other_threads_can_use_the_real_world():
    done = threading.Event()
    times: list[float] = []

    def other() -> None:
        while not done.wait(0.001):
            times.append(time.time())
            random.random()
            Path(__file__).read_bytes()

    thread = threading.Thread(target=other)
    thread.start()

    async def scenario(world: World) -> None:
        seen = len(times)
        while len(times) < seen + 3:
            await trio.lowlevel.checkpoint()

    try:
        simulate(1, scenario)
    finally:
        done.set()
        thread.join()


def test_afterwards_everything_is_real_again():
    before = [
        time.time,
        time.sleep,
        random.random,
        os.urandom,
        uuid.uuid4,
        random.Random.seed,
        choice,
        monotonic,
    ]
    now = vars(datetime.datetime)["now"]

    async def scenario(world: World) -> None: ...

    async def hangs(world: World) -> None:
        await trio.sleep_forever()

    simulate(1, scenario)
    with pytest.raises(SimulationFailed):
        simulate(1, hangs)

    assert before == [
        *(time.time, time.sleep, random.random, os.urandom, uuid.uuid4, random.Random.seed, choice, monotonic)
    ]
    assert vars(datetime.datetime)["now"] is now
    assert datetime.datetime.now().year > 2001
    assert threading.Thread.start.__module__ == "threading"


def test_there_is_one_simulation_at_a_time():
    async def within(world: World) -> None: ...

    async def scenario(world: World) -> None:
        simulate(2, within)

    with pytest.raises(SimulationFailed, match="another simulation is running in this process"):
        simulate(1, scenario)
    simulate(2, within)


def test_a_module_imported_within_a_simulation_gets_the_real_functions_afterwards(tmp_path, monkeypatch):
    (tmp_path / "imported_within.py").write_text("from time import time\nfrom random import random\n")
    monkeypatch.syspath_prepend(tmp_path)

    async def first(world: World) -> None:
        import imported_within

        assert imported_within

    async def second(world: World) -> None:
        import imported_within

        imported_within.random()

    simulate(1, first)
    import imported_within

    assert imported_within.time() > 1_000_000_001
    with pytest.raises(SimulationFailed, match=r"touches random\.random"):
        simulate(1, second)
    assert 0 <= imported_within.random() < 1
