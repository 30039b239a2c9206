"""A request id is free again if its run could not be stored."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing

from greenroom import Engine, Jobs, Run, Ticket, open_engine
from greenroom.errors import Unavailable
from greenroom.persistence.failures import StoreDown
from greenroom.persistence.memory import MemoryStore

jobs = Jobs()


@jobs.job("nothing")
async def nothing(run: Run, params: dict[str, Any]) -> str:
    return run.id


class Fragile(MemoryStore):
    """A store that can be down; the first failing commit takes a second."""

    down = False

    async def commit(self, batch: Any) -> None:
        if self.down:
            await trio.sleep(1)
            raise StoreDown("the store is down")
        await super().commit(batch)


async def join(engine: Engine) -> Ticket:
    return await engine.submit("nothing", handle="a", params={}, on_conflict="join", request_id="second")


async def refused_together(engine: Engine, store: Fragile) -> None:
    """Submit a run, and another one that joins it during its commit; an outage refuses both."""
    refused = []

    async def submit_first() -> None:
        try:
            await engine.submit("nothing", handle="a", params={})
        except Unavailable:
            refused.append("first")

    async def submit_second() -> None:
        try:
            await join(engine)
        except Unavailable:
            refused.append("second")

    store.down = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(submit_first)
        await trio.sleep(0.5)
        nursery.start_soon(submit_second)
    store.down = False
    assert sorted(refused) == ["first", "second"]


async def accepted_again(engine: Engine) -> Ticket:
    """Repeat a submission until the store works again."""
    with trio.fail_after(100):
        while True:
            try:
                return await join(engine)
            except Unavailable:
                await trio.sleep(1)


async def test_the_request_id_of_a_join_to_a_run_that_was_not_stored_is_free(
    autojump_clock: trio.testing.MockClock,
):
    store = Fragile()
    async with open_engine(jobs, store) as engine:
        await refused_together(engine, store)
        ticket = await accepted_again(engine)
        assert (await engine.get_run(ticket.id)).id == ticket.id
        assert await ticket.result() == ticket.id
