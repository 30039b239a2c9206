"""Delayed runs over restarts, in every kind of store."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.abc import Clock

from greenroom import Engine
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


async def test_handles_are_the_same_after_a_restart_when_their_ended_runs_have_left_the_snapshot(
    lives: Lives, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("protocol.fold", "persistence.reading", "persistence.memory"):
        monkeypatch.setattr(f"greenroom.{module}.KEPT_ENDED_RUNS", 3)
    bodies = Bodies()

    async def ends(engine: Engine, handle: str) -> None:
        ticket = await engine.submit("wait", handle=handle)
        bodies.end(ticket)
        await ended(engine, ticket)

    async with lives.crash(bodies.jobs) as engine:
        for handle in ("later", "waits", "stays"):
            await ends(engine, handle)
        await engine.submit("wait", handle="later", delay=3600)
        holder = await engine.submit("wait", handle="waits")
        await engine.submit("wait", handle="waits", on_conflict="queue", delay=3600, reserve=True)
        await ends(engine, "other")
        state = await engine.snapshot()
        shown = [state.handles[name].status for name in ("later", "waits", "stays")]
        assert shown == ["Idle", "Running", "Done"]
        withdrawn = await engine.submit("wait", handle="waits", on_conflict="queue")
        await engine.cancel(withdrawn.id)  # it had no place, and changes no status
        bodies.end(holder)
        await ended(engine, holder)
        for number in range(2):
            await ends(engine, f"another {number}")
    async with lives.clean(bodies.jobs) as engine:
        assert (await engine.snapshot()).handles["later"].status == "Idle"
        await ends(engine, "later")
