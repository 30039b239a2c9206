"""The machine was suspended, which trio's clock does not count: waits for a time of day get shorter."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from greenroom import Jobs, Run, open_engine
from greenroom.actors.engine import suspends

TIMER = """
start: t
nodes: {t: {kind: timer, params: {delay_ms: 3600000}}}
"""

jobs = Jobs()


@jobs.job("sleeps")
async def sleeps(run: Run, params: dict[str, Any]) -> str:
    await run.sleep(3600, release_slot=params["release"])
    return "awake"


@jobs.job("fails", max_attempts=2, backoff=lambda attempt: 3600.0)
async def fails(run: Run) -> str:
    if run.attempt == 1:
        raise ValueError("as it must")
    return "tried again"


@jobs.job("asks")
async def asks(run: Run) -> Any:
    return await run.interrupt({"question": "go on?"}, timeout=1000)


@jobs.job("waits")
async def waits(run: Run) -> None:
    await trio.sleep_forever()


async def test_waits_for_a_time_of_day_end_at_that_time(monkeypatch: pytest.MonkeyPatch):
    suspended = 0.0
    monkeypatch.setattr(suspends, "suspended_seconds", lambda: suspended)
    with trio.fail_after(60):
        async with open_engine(jobs, "memory:", max_concurrent=10, shutdown_timeout=0) as engine:
            await engine.flows.publish("timer", TIMER)
            ended = [
                await engine.submit("sleeps", handle="a", params={"release": True}),
                await engine.submit("sleeps", handle="b", params={"release": False}),
                await engine.submit("fails", handle="c", params={}),
                await engine.submit("asks", handle="d", params={}),
                await engine.submit("waits", handle="e", params={}, deadline=3600),
                await engine.flows.start("timer", handle="f"),
            ]
            goes_on = await engine.submit("waits", handle="g", params={}, run_timeout=3600)
            await trio.sleep(0.5)
            assert not [run for run in (await engine.snapshot()).runs.values() if run.ended]
            suspended = 3600.0
            await engine.set_params("h", {})
            for ticket in ended:
                assert await ticket.wait(20)
            assert (await engine.get_run(ended[4].id)).status == "timed_out"
            await trio.sleep(0.5)
            assert (await engine.get_run(goes_on.id)).status == "running"


def test_the_suspended_time_is_never_negative():
    assert suspends.suspended_seconds() > -1
