"""The block of an engine in asyncio: how it starts, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import trio

import greenroom.aio
from greenroom import Jobs, Run
from greenroom.errors import Invalid, RunCancelled, Unavailable

from .support import in_asyncio, open_engine, ours, until


def make_jobs() -> Jobs:
    jobs = Jobs()

    @jobs.job("wait")
    async def wait(run: Run) -> None:
        await trio.sleep_forever()

    @jobs.job("nap")
    async def nap(run: Run) -> str:
        await trio.sleep(0.05)
        return "slept"

    @jobs.job("exit")
    async def exit(run: Run) -> None:
        await run.next_message()
        raise SystemExit(3)

    return jobs


@in_asyncio
async def test_leaving_the_block_lets_executing_runs_finish():
    async with open_engine(make_jobs()) as engine:
        ticket = await engine.submit("nap", handle="a")
        await until(engine, ticket.id, "running")
        result = asyncio.create_task(ticket.result())
        await asyncio.sleep(0)
    assert await result == "slept"


@in_asyncio
async def test_an_exception_of_the_block_is_raised_unchanged():
    with pytest.raises(KeyError, match="mine"):
        async with open_engine(make_jobs()):
            raise KeyError("mine")


@in_asyncio
async def test_an_exception_while_opening_is_raised_unchanged():
    with pytest.raises(Invalid, match="max_concurrent"):
        async with open_engine(make_jobs(), max_concurrent=-1):
            pytest.fail("it must not open")
    with pytest.raises(Unavailable):
        async with greenroom.aio.connect("ws://127.0.0.1:9"):
            pytest.fail("nobody listens")


@in_asyncio
async def test_a_cancel_of_the_block_does_not_wait_for_executing_runs():
    executes = asyncio.Event()

    async def program() -> None:
        async with open_engine(make_jobs(), shutdown_timeout=1000) as engine:
            ticket = await engine.submit("wait", handle="a")
            await until(engine, ticket.id, "running")
            executes.set()
            await asyncio.sleep(1000)

    task = asyncio.create_task(program())
    await executes.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@in_asyncio
async def test_a_cancel_while_the_block_is_left_ends_the_wait():
    left = asyncio.Event()

    async def program() -> None:
        async with open_engine(make_jobs(), shutdown_timeout=1000) as engine:
            ticket = await engine.submit("wait", handle="a")
            await until(engine, ticket.id, "running")
            left.set()

    task = asyncio.create_task(program())
    await left.wait()
    await asyncio.sleep(0.01)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@in_asyncio
async def test_a_cancel_while_the_block_is_entered_leaves_nothing_open(tmp_path: Path):
    store = f"sqlite:///{tmp_path}/greenroom.db"
    for delay in (0, 0.001, 0.01, 0.03):

        async def program() -> None:
            async with greenroom.aio.open_engine(make_jobs(), store):
                await asyncio.sleep(1000)

        task = asyncio.create_task(program())
        await asyncio.sleep(delay)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not [thread for thread in threading.enumerate() if thread.name == "greenroom engine"]


@in_asyncio
async def test_a_time_limit_around_the_block_is_a_timeout():
    async def program() -> None:
        async with asyncio.timeout(0.05), open_engine(make_jobs()) as engine:
            ticket = await engine.submit("wait", handle="a")
            await ticket.result()

    with pytest.raises(TimeoutError):
        await program()


@in_asyncio
async def test_an_engine_that_fails_cancels_the_block_and_its_failure_is_raised():
    cancelled = False

    async def program() -> None:
        nonlocal cancelled
        async with open_engine(make_jobs()) as engine:
            await engine.submit("exit", handle="a")
            try:
                await engine.inject("a", "now")
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                cancelled = True
                with pytest.raises(Unavailable):
                    await engine.submit("nap", handle="b")
                raise

    with pytest.raises(SystemExit):
        await program()
    assert cancelled
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)  # the cancel has ended


@in_asyncio
async def test_the_block_may_be_entered_in_one_task_and_left_in_another():
    opened = open_engine(make_jobs())
    engine = await asyncio.create_task(opened.__aenter__())
    ticket = await asyncio.create_task(engine.submit("nap", handle="a"))
    assert await ticket.result() == "slept"
    assert await asyncio.create_task(opened.__aexit__(None, None, None)) is False
    with pytest.raises(Unavailable, match="the engine is closed"):
        await engine.submit("nap", handle="b")


@in_asyncio
async def test_an_engine_may_be_used_from_another_loop():
    async with open_engine(make_jobs()) as engine:

        async def elsewhere() -> str:
            ticket = await engine.submit("nap", handle="a")
            result: str = await ticket.result()
            return result

        assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) == "slept"


@in_asyncio
async def test_the_engine_continues_while_the_loop_is_blocked():
    async with open_engine(make_jobs()) as engine:
        ticket = await engine.submit("nap", handle="a")
        await until(engine, ticket.id, "running")
        time.sleep(0.5)  # noqa: ASYNC251  # a handler of a request should not do this
        unblocked = time.time()
        await ticket.result()
        ended_at = (await engine.get_run(ticket.id)).ended_at
        assert ended_at is not None
        assert ended_at < unblocked


@in_asyncio
async def test_runs_end_when_the_block_is_cancelled():
    executes: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def program() -> None:
        async with open_engine(make_jobs()) as engine:
            ticket = await engine.submit("wait", handle="a")
            await until(engine, ticket.id, "running")
            executes.set_result(ticket)
            await asyncio.sleep(1000)

    task = asyncio.create_task(program())
    result = asyncio.create_task((await executes).result())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(RunCancelled):
        await result


def test_closing_the_loop_inside_the_block_shuts_the_engine_down_immediately():
    before = set(threading.enumerate())  # some end only after a while without work
    loop = asyncio.new_event_loop()
    opened: list[Any] = []

    async def program() -> None:
        async with open_engine(make_jobs(), shutdown_timeout=1000) as engine:
            ticket = await engine.submit("wait", handle="a")
            opened.append(ticket)
            loop.stop()
            await ticket.result()

    task = loop.create_task(program())
    loop.run_forever()
    assert opened
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # the test destroys the task on purpose
    coroutine = task.get_coro()
    assert coroutine is not None
    coroutine.close()  # as the garbage collector does
    loop.close()
    del task, coroutine
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        if ours(thread):
            thread.join(20)
            assert not thread.is_alive()


PROGRAM = """
import asyncio, sys
import trio
import greenroom.aio
from greenroom import Jobs, Run

jobs = Jobs()

@jobs.job("wait")
async def wait(run: Run) -> None:
    try:
        print("executing", flush=True)
        await run.log("executing")
        await trio.sleep_forever()
    finally:
        print("body ended", flush=True)

async def program():
    async with greenroom.aio.open_engine(jobs, "memory:", shutdown_timeout=1000) as engine:
        logs = engine.events(filter={{"types": ["run_log"]}})
        ticket = await engine.submit("wait", handle="a")
        await anext(logs)
        await {then}
"""


def carry_out(then: str, rest: str, *, interrupt: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a program with an engine whose block does `then`; with a Ctrl-C when its body executes."""
    program = textwrap.dedent(PROGRAM).format(then=then) + textwrap.dedent(rest)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        out = process.stdout.readline()
        if interrupt:
            process.send_signal(signal.SIGINT)
        out += process.stdout.read()
        err = process.stderr.read()
    return subprocess.CompletedProcess(program, process.returncode, out, err)


def test_ctrl_c_ends_the_program_in_order():
    ended = carry_out("ticket.result()", "asyncio.run(program())", interrupt=True)
    assert ended.stdout == "executing\nbody ended\n"
    assert ended.stderr.rstrip().endswith("KeyboardInterrupt")
    assert ended.returncode in (130, -signal.SIGINT)


@pytest.mark.parametrize(
    "rest",
    [
        """
        loop = asyncio.new_event_loop()
        task = loop.create_task(program())
        loop.run_forever()
        print("stopped", flush=True)
        """,
        """
        loop = asyncio.new_event_loop()
        task = loop.create_task(program())
        loop.run_forever()
        loop.close()
        print("stopped", flush=True)
        """,
    ],
    ids=["stopped", "stopped and closed"],
)
def test_a_program_that_ends_without_leaving_the_block_still_ends_its_bodies(rest: str):
    ended = carry_out("(loop.stop() or ticket.result())", rest)
    assert ended.stdout == "executing\nstopped\nbody ended\n", ended.stderr
    assert ended.returncode == 0, ended.stderr


def test_a_task_that_is_in_the_block_when_the_program_returns_leaves_it():
    ended = carry_out(
        "(executes.set() or asyncio.Event().wait())",
        """
        executes = asyncio.Event()

        async def main():
            task = asyncio.create_task(program())
            await executes.wait()

        asyncio.run(main())
        print("returned", flush=True)
        """,
    )
    assert ended.stdout == "executing\nbody ended\nreturned\n", ended.stderr
    assert ended.returncode == 0, ended.stderr


FORKING = """
import asyncio, os, signal, sys, warnings
from greenroom import Jobs, aio

warnings.simplefilter("ignore")
loop = asyncio.new_event_loop()
block = aio.open_engine(Jobs(), "memory:")
engine = loop.run_until_complete(block.__aenter__())
child = os.fork()
if child == 0:
    signal.alarm(30)
    try:
        asyncio.run(engine.snapshot())
    except Exception as error:
        print(type(error).__name__, str(error).replace(str(os.getppid()), "P"), flush=True)
    sys.exit(3)
_, status = os.waitpid(child, 0)
snapshot = loop.run_until_complete(engine.snapshot())
print("child:", os.waitstatus_to_exitcode(status), "engine:", snapshot.seq)
loop.run_until_complete(block.__aexit__(None, None, None))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_in_a_forked_child_a_call_is_refused_and_the_exit_does_not_wait():
    ended = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.stdout.splitlines() == [
        "Unavailable this call belongs to process P, which has forked: "
        "open an engine or a client in each process",
        "child: 3 engine: 0",
    ], ended.stderr
    assert ended.returncode == 0, ended.stderr
