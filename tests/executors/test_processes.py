"""Executors as processes: their beats, their lease, signals and exit codes. In real time.

The duration of a lease is not measured here, because a machine can be busy: see `test_pulse.py`.
"""

import signal

import pytest
import trio

from greenroom.commands.exits import Exit

from .processes import ended, logged, serving

TTL = 3.0


async def test_an_executor_executes_bodies_and_exits_with_code_0_after_a_signal(tmp_path):
    async with serving(tmp_path) as server:
        process = server.start("--node", "e1")
        ticket = await server.engine.submit("adds", handle="h", params={"a": 1, "b": 2})
        assert await server.result(ticket) == 3
        process.send_signal(signal.SIGTERM)
        code, log = await ended(process)
        assert code == 0, log
        assert "the executor has ended" in log


async def test_a_blocked_event_loop_neither_stops_the_beats_nor_loses_the_body(tmp_path):
    async with serving(tmp_path, ttl=TTL) as server:
        process = server.start()
        ticket = await server.engine.submit("blocks", handle="h", params={"seconds": 2.5 * TTL})
        assert await server.result(ticket) == "done"
        assert server.read() == ["begin"]
        process.send_signal(signal.SIGTERM)
        code, log = await ended(process)
        assert code == 0
        assert "has blocked the event loop for 1 s" in log
        assert "job blocks" in log


async def test_bodies_are_cancelled_if_the_engine_is_unreachable_and_begin_again_after_the_ttl(
    tmp_path,
):
    async with serving(tmp_path, ttl=TTL) as server:
        server.start()
        ticket = await server.engine.submit("waits", handle="h")
        await server.marked("begin")
        await server.cut()
        await server.marked("end")
        server.reachable = True
        assert await server.result(ticket) == "done"
        assert server.read() == ["begin", "end", "begin", "end"]


@pytest.mark.parametrize("job", ["blocks", "stubborn"])
async def test_a_process_whose_body_ignores_its_cancellation_ends_itself_when_its_lease_expires(
    tmp_path, job
):
    async with serving(tmp_path, ttl=TTL) as server:
        process = server.start()
        params = {"seconds": 60} if job == "blocks" else None
        await server.engine.submit(job, handle="h", params=params)
        await server.marked("begin")
        await server.cut()
        code, log = await ended(process)
        assert code == Exit.LEASE_LOST, log
        assert "the executor's lease has expired" in log


async def test_a_process_that_was_stopped_for_longer_than_the_ttl_cancels_its_bodies_at_once(tmp_path):
    async with serving(tmp_path, ttl=TTL) as server:
        process = server.start()
        ticket = await server.engine.submit("waits", handle="h")
        await server.marked("begin")
        process.send_signal(signal.SIGSTOP)
        await trio.sleep(1.5 * TTL)
        assert server.read() == ["begin"]
        process.send_signal(signal.SIGCONT)
        await server.marked("end")
        assert await server.result(ticket) == "done"


async def test_a_refused_executor_exits_with_the_error(tmp_path):
    async with serving(tmp_path) as server:
        process = server.start("--node", "local-1")
        code, log = await ended(process)
        assert code == Exit.FAILED
        assert "local-1" in log


async def test_the_second_signal_stops_immediately(tmp_path):
    async with serving(tmp_path) as server:
        process = server.start()
        await server.engine.submit("stubborn", handle="h")
        await server.marked("begin")
        process.send_signal(signal.SIGTERM)
        await logged(process, "draining")
        process.send_signal(signal.SIGTERM)
        code, log = await ended(process)
        assert code == 128 + signal.SIGTERM
        assert "has not ended; exiting without it" in log


@pytest.mark.parametrize(
    ("job", "raised"),
    [
        ("exits", "SystemExit: 3"),
        ("exits_in_thread", "SystemExit: bye"),
        ("exits_in_asyncio", "KeyboardInterrupt"),
    ],
)
async def test_a_body_that_ends_its_process_is_named_in_the_log(tmp_path, job, raised):
    async with serving(tmp_path) as server:
        process = server.start()
        ticket = await server.engine.submit(job, handle="h")
        code, log = await ended(process)
        assert code == Exit.FAILED
        named = f"body of run {ticket.id} of job '{job}' raised {raised}, which ends this process"
        assert f"{named} like a crash: raise an Exception to fail only the run" in log
        assert "Exception Group" not in log


async def test_a_body_that_ends_its_process_does_not_wait_for_bodies_that_ignore_their_end(tmp_path):
    async with serving(tmp_path) as server:
        process = server.start()
        ignores = await server.engine.submit("stubborn", handle="a")
        await server.marked("begin")
        await server.engine.submit("exits", handle="b")
        code, log = await ended(process)
        assert code == Exit.FAILED
        assert "raised SystemExit: 3, which ends this process" in log
        assert f"body of run {ignores.id} has not ended; exiting without it" in log
