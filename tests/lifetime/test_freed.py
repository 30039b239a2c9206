"""An ended engine is garbage: the objects that it was created from keep no reference to it.

The jobs are closures over the objects of their application, including the engine, as in real programs.
"""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from greenroom import Engine, Jobs, Run, Ticket, open_engine
from greenroom.errors import Conflict, RunFailed
from greenroom.persistence.sqlstore import SqlStore


class Application:
    """The objects that a job of an application can reach."""

    engine: Engine


Story = Callable[[Engine, list[Ticket]], Awaitable[None]]


async def all_ends(engine: Engine, tickets: list[Ticket]) -> None:
    for ticket in tickets:
        await ticket.wait()


async def cancelled(engine: Engine, tickets: list[Ticket]) -> None:
    await trio.sleep(0.1)
    for ticket in tickets:
        await ticket.cancel()


async def refused(engine: Engine, tickets: list[Ticket]) -> None:
    with pytest.raises(Conflict):
        await engine.submit("work", handle="h0", params={})


async def failed(engine: Engine, tickets: list[Ticket]) -> None:
    with pytest.raises(RunFailed):
        await (await engine.submit("failing", handle="f", params={})).result()


async def followed(engine: Engine, tickets: list[Ticket]) -> None:
    async for event in engine.events(after=0):
        if event.seq > 5:
            return


async def reset(engine: Engine, tickets: list[Ticket]) -> None:
    await trio.sleep(0.1)
    await engine.reset_lanes()


async def left_with_a_queue(engine: Engine, tickets: list[Ticket]) -> None:
    await engine.set_max_concurrent(0)
    await engine.submit("work", handle="later", params={})


async def left_by_an_error(engine: Engine, tickets: list[Ticket]) -> None:
    raise KeyError("the application's own")


STORIES: list[Story] = [
    all_ends,
    cancelled,
    refused,
    failed,
    followed,
    reset,
    left_with_a_queue,
    left_by_an_error,
]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_an_engine_that_has_ended_is_garbage(story: Story, store: str, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.CRITICAL + 1, "greenroom")  # the captured log would keep references

    application = trio.run(live, story, store, clock=trio.testing.MockClock(autojump_threshold=0))

    gc.collect()
    assert application() is None


async def live(story: Story, store: str) -> weakref.ref[Application]:
    application = Application()
    try:
        async with open_engine(
            jobs_of(application),
            "memory:" if store == "memory" else SqlStore("sqlite:///:memory:", in_threads=False),
            shutdown_timeout=0.5,
        ) as application.engine:
            tickets = [
                await application.engine.submit("work", handle=f"h{number}", params={}) for number in range(5)
            ]
            await story(application.engine, tickets)
    except KeyError:
        pass
    return weakref.ref(application)


def jobs_of(application: Application) -> Jobs:
    jobs = Jobs()

    @jobs.job("work")
    async def work(run: Run, params: dict[str, Any]) -> None:
        assert application.engine
        await run.save_checkpoint([1])
        await run.interrupt({"go": "on?"}, timeout=0.5, release_slot=True)
        await run.call("part", handle=f"part of {run.handle}", params={})

    @jobs.job("part")
    async def part(run: Run, params: dict[str, Any]) -> None:
        assert application.engine
        await run.sleep(1)

    @jobs.job("failing", max_attempts=2)
    async def failing(run: Run, params: dict[str, Any]) -> None:
        raise ValueError(application.engine)

    return jobs
