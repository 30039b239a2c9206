"""A body that blocks the event loop is reported: in the log, in the metrics, and in the events of its run.

These tests run in real time, which the watchdog measures; it is off with any other clock.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom import Engine, Jobs, Run, Ticket
from greenroom.gateway import GatewayConfig, open_gateway
from tests.support import open_engine

pytestmark = pytest.mark.parametrize("place", ["memory", "link"], indirect=True)

BLOCKED = 1.6

COUNTED = {"memory": 1, "link": 2}
"""How often an engine counts a blockage: by itself, and as reported by an executor, which has the same loop
here."""


def block(seconds: float) -> None:
    """Block the event loop, in a function that a body calls."""
    time.sleep(seconds)


@pytest.fixture
def jobs() -> Jobs:
    jobs = Jobs()

    @jobs.job("block")
    async def and_return(run: Run) -> None:
        block(BLOCKED)

    @jobs.job("go on")
    async def and_go_on(run: Run) -> None:
        block(BLOCKED)
        await trio.sleep(0.5)

    @jobs.job("child task")
    async def in_a_task(run: Run) -> None:
        async def child() -> None:
            block(BLOCKED)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)

    @jobs.job("thread")
    def in_a_thread(run: Any) -> None:
        time.sleep(BLOCKED)

    return jobs


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "greenroom watchdog"]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "event loop" in r.getMessage()]


async def told(engine: Engine, ticket: Ticket) -> list[tuple[str, str, str]]:
    events = await engine.history(ticket.id)
    return [(event.by, event.level, event.text) for event in events if event.type == "run_log"]


@pytest.mark.parametrize("job", ["block", "go on", "child task"])
async def test_a_body_that_blocks_the_loop_is_named_once_with_its_line(jobs, caplog, job, place):
    async with open_engine(jobs, "memory:") as engine:
        ticket = await engine.submit(job, handle="alice")
        await ticket.result()
        [began, ended] = lines(caplog)
        assert f"run {ticket.id} (job {job}, handle alice) has blocked the event loop for 1 s" in began
        line = block.__code__.co_firstlineno + 2
        assert f"{__file__}:{line} in block;" in began
        seconds = re.fullmatch(
            rf"the event loop continues; it was blocked for ([\d.]+) s by run {ticket.id}", ended
        )
        assert seconds is not None
        assert 1 <= float(seconds[1]) < 60
        [(by, level, text)] = await told(engine, ticket)
        assert (by, level) == ("engine", "warning")
        assert text == f"blocked the event loop for {seconds[1]} s, at {__file__}:{line} in block"
        count = COUNTED[place]
        assert engine.blocked[0] == count
        assert engine.blocked[1] == pytest.approx(count * float(seconds[1]), abs=0.06 * count)


async def test_a_library_that_a_body_calls_is_named_beside_its_line(caplog):
    jobs = Jobs()

    @jobs.job("wait")
    async def wait(run: Run) -> None:
        threading.Event().wait(BLOCKED)  # its code is in the standard library

    async with open_engine(jobs, "memory:") as engine:
        await (await engine.submit("wait", handle="a")).result()
    line = wait.__code__.co_firstlineno + 2
    assert f"{__file__}:{line} in {wait.__qualname__} (in {threading.__file__}:" in lines(caplog)[0]


@pytest.mark.parametrize("layer", ["actors", "protocol"])
async def test_what_the_engine_does_for_a_body_is_named_beside_its_line(caplog, layer):
    folder = Path(import_module(f"greenroom.{layer}").__file__ or "").parent
    engines: dict[str, Any] = {"time": time}
    exec(compile(f"def block(): time.sleep({BLOCKED})", str(folder / "some_module.py"), "exec"), engines)
    jobs = Jobs()

    @jobs.job("ask")
    async def ask(run: Run) -> None:
        engines["block"]()

    async with open_engine(jobs, "memory:") as engine:
        ticket = await engine.submit("ask", handle="alice")
        await ticket.result()
    began, _ = lines(caplog)
    line = ask.__code__.co_firstlineno + 2
    assert f"{__file__}:{line} in " in began
    assert f"(in {folder / 'some_module.py'}:1 in block)" in began


async def test_a_block_outside_a_body_is_named_by_its_line_only(jobs, caplog):
    async with open_engine(jobs, "memory:") as engine:
        await trio.sleep(0.3)
        block(BLOCKED)
        await trio.sleep(0.1)
        assert engine.blocked[0] == 1
    assert lines(caplog)[0].startswith(f"the event loop has been blocked for 1 s, at {__file__}:")
    assert "by run" not in lines(caplog)[1]


async def test_a_plain_function_blocks_nothing(jobs, caplog):
    async with open_engine(jobs, "memory:") as engine:
        await (await engine.submit("thread", handle="a")).result()
        assert engine.blocked == (0, 0.0)
    assert lines(caplog) == []


async def test_one_thread_watches_for_all_engines_of_a_loop_until_the_last_has_ended(jobs, caplog, place):
    assert threads() == []
    async with open_engine(jobs, "memory:") as outer:
        async with open_engine(jobs, "memory:") as engine:
            assert len(threads()) == 1
            ticket = await engine.submit("block", handle="a")
            await ticket.result()
            assert len(await told(engine, ticket)) == 1
            assert len(lines(caplog)) == 2
            assert (engine.blocked[0], outer.blocked[0]) == (COUNTED[place], 1)
        assert len(threads()) == 1
    assert threads() == []
    async with open_engine(jobs, "memory:"):
        assert len(threads()) == 1
    assert threads() == []


@pytest.mark.parametrize("clock", [None, lambda: 1000 + trio.current_time()])
async def test_there_is_no_thread_on_another_clock(jobs, autojump_clock, clock: Callable[[], float] | None):
    async with open_engine(jobs, "memory:", clock=clock):
        assert threads() == []


@pytest.mark.in_process  # an executor has the system's clock, whatever that of its engine is
async def test_there_is_no_thread_if_the_engine_is_opened_with_a_clock(jobs):
    async with open_engine(jobs, "memory:", clock=time.time):
        assert threads() == []


async def test_each_block_is_counted_in_the_metrics(jobs, place):
    async with (
        open_engine(jobs, "memory:") as engine,
        open_gateway(engine, GatewayConfig(port=0)) as gateway,
    ):
        await (await engine.submit("block", handle="a")).result()
        stream = await trio.open_tcp_stream("127.0.0.1", gateway.port)
        async with stream:
            await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            text = b"".join([data async for data in stream]).decode()
    assert f"\ngreenroom_loop_blocked_total {COUNTED[place]}.0\n" in text
    assert float(re.search(r"\ngreenroom_loop_blocked_seconds_total ([\d.]+)\n", text)[1]) > 1
