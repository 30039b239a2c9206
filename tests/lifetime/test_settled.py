"""What a server uses at the end of an engine: when all is committed, and which bodies still execute."""

import math

import pytest
import trio
import trio.testing

from greenroom import Jobs, Run, open_engine
from greenroom.errors import Unavailable
from greenroom.persistence.memory import MemoryStore


async def test_an_engine_is_settled_when_only_bodies_that_cannot_be_ended_remain(autojump_clock):
    jobs = Jobs()
    release = trio.Event()
    store = MemoryStore()

    @jobs.job("stuck", grace=3)
    async def stuck(run: Run) -> None:
        with trio.CancelScope(shield=True):
            await release.wait()

    async def look() -> None:
        try:
            await engine.settled()
            assert trio.current_time() == pytest.approx(5)
            [body] = engine.bodies()
            assert (body.run, body.attempt) == (ticket.id, 1)
            run = await store.run(ticket.id)
            assert (run.status, run.reason) == ("cancelled", "abandoned")
            with pytest.raises(Unavailable):
                await engine.snapshot()
        finally:
            release.set()

    async with trio.open_nursery() as nursery:
        async with open_engine(jobs, store, shutdown_timeout=2) as engine:
            ticket = await engine.submit("stuck", handle="a")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(look)
        assert engine.bodies() == []


@pytest.mark.parametrize(
    ("options", "patience"),
    [
        ({}, 10),
        ({"grace": 3}, 3),
        ({"grace": 3, "cancel": "cooperative"}, 6),
        ({"grace": math.inf}, math.inf),
    ],
)
async def test_a_body_is_named_with_how_long_it_may_take_to_end(autojump_clock, options, patience):
    jobs = Jobs()

    @jobs.job("sleeps", **options)
    async def sleeps(run: Run) -> None:
        await trio.sleep(1)

    async with open_engine(jobs, store="memory:") as engine:
        ticket = await engine.submit("sleeps", handle="a")
        await trio.testing.wait_all_tasks_blocked()
        assert [(body.run, body.patience) for body in engine.bodies()] == [(ticket.id, patience)]
        await ticket.result()
        await trio.testing.wait_all_tasks_blocked()
        assert engine.bodies() == []
