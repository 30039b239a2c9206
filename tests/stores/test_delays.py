"""Delayed runs over restarts, in every kind of store."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.abc import Clock

from tests.support import Bodies

from .conftest import Place
from .lives import Lives, ended, wait_for, wait_until

SOON = 0.3


@pytest.fixture
def lives(place: Place, tmp_path: Path) -> Lives:
    return Lives(place, tmp_path / "data")


async def test_delayed_runs_start_at_their_times_after_a_crash(lives: Lives, clock: Clock) -> None:
    bodies = Bodies()
    async with lives.crash(bodies.jobs) as engine:
        later = await engine.submit("wait", handle="later", delay=SOON)
        holds = await engine.submit("wait", handle="holds", delay=SOON, reserve=True)
        far = await engine.submit("wait", handle="far", delay=3600)
        bodies.end(later, holds, far)
        before = await engine.snapshot()
    async with lives.clean(bodies.jobs) as engine:
        assert (await engine.snapshot()).handles["holds"].active_run == holds.id
        await ended(engine, later, holds)
        for ticket in (later, holds):
            run = await engine.get_run(ticket.id)
            assert run.started_at is not None
            assert run.started_at >= (before.runs[ticket.id].not_before or 0)
        assert (await engine.get_run(far.id)).waiting_for == "time"
        assert (await engine.cancel(far.id)).status == "cancelled"


async def test_the_order_in_a_handle_is_that_of_the_times(lives: Lives, clock: Clock) -> None:
    bodies = Bodies()
    async with lives.crash(bodies.jobs, max_concurrent=0) as engine:
        later = await engine.submit("wait", handle="h", delay=SOON)
        holder = await engine.submit("wait", handle="h")
        second = await engine.submit("wait", handle="h", on_conflict="queue")
        reserved = await engine.submit("wait", handle="h", on_conflict="queue", delay=3600, reserve=True)
        order = [second.id, reserved.id, later.id]
        await wait_until(engine, lambda now: now.handles["h"].waiting == order)
    async with lives.crash(bodies.jobs, max_concurrent=0) as engine:
        state = await engine.snapshot()
        assert state.handles["h"].waiting == order
        assert list(state.runs) == [holder.id, *order]
        first = await engine.submit("wait", handle="h", delay=SOON, on_conflict="replace")
        await wait_until(engine, lambda now: now.handles["h"].active_run == first.id)
        await wait_for(engine, holder, "cancelled")
    async with lives.clean(bodies.jobs, max_concurrent=1) as engine:
        assert (await engine.snapshot()).handles["h"].waiting == order
        bodies.end(first, second)
        await ended(engine, first, second)
        await wait_until(engine, lambda now: now.handles["h"].active_run == reserved.id)
        assert (await engine.get_run(reserved.id)).waiting_for == "time"
        await engine.cancel(reserved.id)
        bodies.end(later)
        await ended(engine, later)


async def test_a_time_during_the_downtime_is_noticed_at_the_start(lives: Lives, clock: Clock) -> None:
    bodies = Bodies()
    async with lives.crash(bodies.jobs) as engine:
        later = await engine.submit("wait", handle="h", delay=SOON, queue_timeout=SOON)
    await trio.sleep(3 * SOON)
    async with lives.clean(bodies.jobs) as engine:
        await wait_for(engine, later, "running")
        bodies.end(later)
        await ended(engine, later)
