"""An engine that restarts adopts the bodies that its executors still have: no body begins twice, no attempt
is lost, and each end is reported once."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom import Engine, Jobs, Run
from greenroom.protocol.events import RunStateChanged
from greenroom.protocol.states import ENDED, Status
from tests.support import until, until_status

from .lives import TTL, Lives, lives

Stage = Callable[[Engine, str], Awaitable[object]]

Clock = trio.testing.MockClock
AWAY = 5.0
"""Seconds without an engine."""


class Site(Lives):
    """With one executor, and the bodies that have begun."""

    begun: Counter[str]
    killed: bool

    @asynccontextmanager
    async def restarted(self, ticket: Any, *, times: int = 1) -> AsyncIterator[Engine]:
        """The engine after a restart, and what must be true of its run when the block ends."""
        for _ in range(times - 1):
            async with self.engine_opened():
                await trio.sleep(0.2)
                await self.ends()
        async with self.engine_opened() as engine:
            yield engine
            with trio.fail_after(1000):
                record = await engine.wait(ticket.id, timeout=None)
            history = [
                event for event in await engine.history(ticket.id) if isinstance(event, RunStateChanged)
            ]
            assert sum(event.to in ENDED for event in history) == 1
            assert {event.attempt for event in history[1:]} <= {1}
            assert record.attempt == 1
            assert set(self.begun.values()) == {1}
            assert all(run.ended for run in (await engine.snapshot()).runs.values())
            assert (await engine.snapshot()).engine.executing == 0
            assert [executor.bodies for executor in await engine.executors.list()] == [0]

    async def ends(self) -> None:
        """The engine ends in order, or is killed; leave its block next."""
        if self.killed:
            await self.kill()


@pytest.fixture(params=["killed", "stopped"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    jobs = Jobs()
    async with lives(jobs, tmp_path, Site) as made:
        made.killed = request.param == "killed"
        made.begun = Counter()
        yield made


def job(site: Site, **options: Any) -> Callable[[Any], Any]:
    """Register a job of the site, whose bodies are counted."""

    def register(function: Callable[[Run], Awaitable[Any]]) -> Any:
        @site.jobs.job(function.__name__, **options)
        async def counted(run: Run) -> Any:
            site.begun[run.id] += 1
            return await function(run)

        return counted

    return register


RESUMABLE = pytest.mark.parametrize("resumable", [True, False], ids=["resumable", "once"])
RELEASES = pytest.mark.parametrize("release_slot", [True, False], ids=["without slot", "with slot"])
TIMES = pytest.mark.parametrize("times", [1, 2], ids=["one restart", "two restarts"])


@RESUMABLE
@RELEASES
@TIMES
@pytest.mark.parametrize("seconds", [AWAY - 1, AWAY + 1], ids=["ends while away", "ends later"])
async def test_a_sleep_ends(
    autojump_clock: Clock, site: Site, resumable: bool, release_slot: bool, times: int, seconds: float
):
    @job(site, resumable=resumable)
    async def sleeps(run: Run) -> list[int]:
        await run.sleep(seconds, release_slot=release_slot)
        await run.save_checkpoint(run.fence)
        await run.log("saved")
        return [run.attempt, run.fence]

    site.start_executor()
    async with site.engine_opened() as engine:
        ticket = await engine.submit("sleeps", handle="h")
        status = Status.SUSPENDED if release_slot else Status.RUNNING
        fence = (await until_status(engine, ticket, status)).runs[ticket.id].fence
        await trio.sleep(0.5)
        await site.ends()
    await trio.sleep(AWAY)
    async with site.restarted(ticket, times=times) as engine:
        run = await engine.wait(ticket.id, timeout=60)
        assert (run.status, run.result) == (Status.SUCCEEDED, [1, fence])


@RELEASES
@TIMES
async def test_a_message_is_delivered(autojump_clock: Clock, site: Site, release_slot: bool, times: int):
    @job(site)
    async def talks(run: Run) -> list[Any]:
        first = await run.next_message(release_slot=release_slot)
        return [first, await run.next_message(release_slot=release_slot)]

    site.start_executor()
    async with site.engine_opened() as engine:
        ticket = await engine.submit("talks", handle="h")
        await until_status(engine, ticket, Status.SUSPENDED if release_slot else Status.RUNNING)
        await trio.sleep(0.5)
        await engine.inject("h", 1)
        await trio.sleep(0.5)
        await site.ends()
    await trio.sleep(AWAY)
    async with site.restarted(ticket, times=times) as engine:
        await engine.inject("h", 2)
        assert (await engine.wait(ticket.id, timeout=60)).result == [1, 2]


@TIMES
async def test_a_message_that_was_not_delivered_before_is_delivered_once(
    autojump_clock: Clock, site: Site, times: int
):
    @job(site)
    async def talks(run: Run) -> list[Any]:
        return [await run.next_message(), await run.next_message()]

    site.start_executor()
    async with site.engine_opened() as engine:
        ticket = await engine.submit("talks", handle="h")
        await until_status(engine, ticket, Status.RUNNING)
        await trio.sleep(0.5)
        site.reachable = False
        await site.cut()
        await engine.inject("h", 1)
        await site.ends()
    site.reachable = True
    async with site.restarted(ticket, times=times) as engine:
        await engine.inject("h", 2)
        assert (await engine.wait(ticket.id, timeout=60)).result == [1, 2]


@RESUMABLE
@RELEASES
@TIMES
async def test_an_interrupt_is_answered(
    autojump_clock: Clock, site: Site, resumable: bool, release_slot: bool, times: int
):
    @job(site, resumable=resumable)
    async def asks(run: Run) -> list[Any]:
        first = await run.interrupt({"n": 1}, release_slot=release_slot)
        return [first, await run.interrupt({"n": 2}, release_slot=release_slot)]

    site.start_executor()
    async with site.engine_opened() as engine:
        ticket = await engine.submit("asks", handle="h")
        [id] = (await until(engine, lambda snapshot: snapshot.interrupts)).interrupts
        await trio.sleep(0.5)
        await site.ends()
    await trio.sleep(AWAY)
    async with site.restarted(ticket, times=times) as engine:
        await engine.answer(id, "one")
        snapshot = await until(engine, lambda snapshot: snapshot.interrupts and id not in snapshot.interrupts)
        await engine.answer(next(iter(snapshot.interrupts)), "two")
        assert (await engine.wait(ticket.id, timeout=60)).result == ["one", "two"]


@RESUMABLE
@TIMES
@pytest.mark.parametrize("seconds", [AWAY - 1, AWAY + 10], ids=["ended while away", "pending"])
async def test_a_child_run_ends(
    autojump_clock: Clock, site: Site, resumable: bool, times: int, seconds: float
):
    @job(site)
    async def child(run: Run) -> int:
        await trio.sleep(seconds)
        return 7

    @job(site, resumable=resumable)
    async def parent(run: Run) -> list[int]:
        return [await run.call("child", handle="c"), await run.call("child", handle="c")]

    site.start_executor()
    async with site.engine_opened() as engine:
        ticket = await engine.submit("parent", handle="h")
        await until(engine, lambda snapshot: len(snapshot.runs) == 2)
        await trio.sleep(0.5)
        await site.ends()
    await trio.sleep(AWAY)
    async with site.restarted(ticket, times=times) as engine:
        assert (await engine.wait(ticket.id, timeout=60)).result == [7, 7]
        assert len((await engine.snapshot()).runs) == 3


@RESUMABLE
@TIMES
@pytest.mark.parametrize("call", ["checkpoint", "log", "progress", "interrupt", "child", "sleep", "end"])
async def test_what_a_body_does_while_the_engine_is_away_happens_once(
    autojump_clock: Clock, site: Site, resumable: bool, times: int, call: str
):
    leave = trio.Event()

    @job(site)
    async def child(run: Run) -> int:
        return 7

    @job(site, resumable=resumable)
    async def acts(run: Run) -> Any:
        await leave.wait()
        match call:
            case "checkpoint":
                await run.save_checkpoint(3)
                await run.save_checkpoint(4)
            case "log":
                await run.log("one")
                await run.log("two")
            case "progress":
                await run.progress(5)
            case "interrupt":
                return await run.interrupt({})
            case "child":
                return await run.call("child", handle="c")
            case "sleep":
                await run.sleep(1)
        return "done"

    site.start_executor()
    async with site.engine_opened() as engine:
        ticket = await engine.submit("acts", handle="h")
        await until_status(engine, ticket, Status.RUNNING)
        await trio.sleep(0.5)
        await site.ends()
    leave.set()
    await trio.sleep(AWAY)
    async with site.restarted(ticket, times=times) as engine:
        if call == "interrupt":
            snapshot = await until(engine, lambda snapshot: snapshot.interrupts)
            assert len(snapshot.interrupts) == 1
            await engine.answer(next(iter(snapshot.interrupts)), "done")
        run = await engine.wait(ticket.id, timeout=60)
        assert run.result == (7 if call == "child" else "done")
        texts = [event.text for event in await engine.history(ticket.id) if event.type == "run_log"]
        assert texts == (["one", "two"] if call == "log" else [])
        assert (run.progress or {}).get("done") == (5 if call == "progress" else None)


@TIMES
@pytest.mark.parametrize("cooperative", [True, False])
async def test_a_cancel_that_was_requested_before(
    autojump_clock: Clock, site: Site, times: int, cooperative: bool
):
    @job(site, cancel="cooperative" if cooperative else "immediate", grace=60)
    async def shields(run: Run) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(AWAY + 20)
        await trio.sleep(1)
        return "cancelled too late"

    site.start_executor()
    async with site.engine_opened() as engine:
        ticket = await engine.submit("shields", handle="h")
        await until_status(engine, ticket, Status.RUNNING)
        await trio.sleep(0.5)
        await engine.cancel(ticket.id)
        await site.ends()
    await trio.sleep(AWAY)
    async with site.restarted(ticket, times=times) as engine:
        run = await engine.wait(ticket.id, timeout=60)
        assert run.status is (Status.SUCCEEDED if cooperative else Status.CANCELLED)


@TIMES
@pytest.mark.parametrize(
    ("limit", "release_slot"),
    [("deadline", False), ("deadline", True), ("run_timeout", False)],  # which only runs with a slot use
)
async def test_a_deadline_that_passed_meanwhile(
    autojump_clock: Clock, site: Site, times: int, limit: str, release_slot: bool
):
    @job(site, resumable=True, **{limit: AWAY - 1})
    async def sleeps(run: Run) -> None:
        await run.sleep(3600, release_slot=release_slot)

    site.start_executor()
    async with site.engine_opened() as engine:
        ticket = await engine.submit("sleeps", handle="h")
        await until_status(engine, ticket, Status.SUSPENDED if release_slot else Status.RUNNING)
        await trio.sleep(0.5)
        await site.ends()
    await trio.sleep(AWAY)
    async with site.restarted(ticket, times=times) as engine:
        run = await engine.wait(ticket.id, timeout=60)
        assert (run.status, run.reason) == (Status.TIMED_OUT, limit)


@RESUMABLE
@RELEASES
async def test_a_body_whose_executor_does_not_attach_is_lost_after_the_ttl(
    autojump_clock: Clock, site: Site, resumable: bool, release_slot: bool
):
    @site.jobs.job(resumable=resumable)
    async def sleeps(run: Run) -> int:
        await run.sleep(5, release_slot=release_slot)
        return run.attempt

    executor = site.start_executor()
    async with site.engine_opened() as engine:
        ticket = await engine.submit("sleeps", handle="h")
        await until_status(engine, ticket, Status.SUSPENDED if release_slot else Status.RUNNING)
        executor.cancel()
        await site.ends()
    site.start_executor("e2")
    async with site.engine_opened() as engine:
        began = trio.current_time()
        run = await engine.wait(ticket.id, timeout=100)
        assert trio.current_time() - began >= TTL
        if resumable:
            assert (run.status, run.result) == (Status.SUCCEEDED, 1)
        else:
            assert (run.status, run.reason) == (Status.FAILED, "crashed")
