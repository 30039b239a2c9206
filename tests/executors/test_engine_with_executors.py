"""What an engine does while executors have bodies: it shuts down, its store fails, its lanes are reset."""

from typing import Any

import pytest
import trio

from greenroom import Keep
from greenroom.persistence.failures import StoreDown
from greenroom.persistence.memory import MemoryStore
from greenroom.protocol.states import Status

from .scripted import ended, live
from .worlds import TTL, Lives, world


@pytest.mark.usefixtures("store_kind")
async def test_a_shutdown_does_not_wait_for_the_bodies_of_attached_executors(autojump_clock):
    began = trio.current_time()
    async with world(shutdown_timeout=100) as home:
        executor = await home.executor()
        _ticket, _body = await home.begin(executor, "once")
    assert trio.current_time() - began < 5
    assert executor.has("cancel") == executor.has("close") == 0


async def test_a_run_whose_body_continues_stays_running_while_the_engine_is_stopped(autojump_clock, tmp_path):
    lives = Lives(tmp_path)
    async with lives.clean() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, "once")
        seq = (await home.engine.snapshot()).seq
    async with lives.clean() as home:
        assert (await home.run(ticket)).status is Status.RUNNING
        changes = [event.type for event in await home.engine.history(ticket.id) if event.seq > seq]
        assert changes == []
        await home.attach(executor, bodies=[live(body)])
        await executor.end(body, value=1)
        assert (await home.run(ticket)).result == 1


@pytest.mark.usefixtures("store_kind")
async def test_active_runs_in_executors_are_waited_for(autojump_clock):
    async with world() as home:
        executor = await home.executor()
        _ticket, body = await home.begin(executor)
        assert not await home.engine.wait_for_active(5)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(executor.end, body)
            assert await home.engine.wait_for_active(100)


@pytest.mark.usefixtures("store_kind")
async def test_reset_lanes_frees_the_slots_of_an_executor_and_keeps_its_bodies(autojump_clock):
    async with world() as home:
        executor = await home.executor(slots=1)
        first, body = await home.begin(executor, handle="a")
        second = await home.engine.submit("work", handle="b", params={})
        await trio.sleep(1)
        assert executor.has("execute") == 0
        await home.engine.reset_lanes()
        other = await executor.receive("execute")
        assert other["run"] == second.id
        await executor.end(body, value="first")
        await executor.end(other, value="second")
        assert [await first.result(), await second.result()] == ["first", "second"]


class Unwritable(MemoryStore):
    """A store that is down while `down`."""

    down = False

    async def commit(self, batch: Any) -> None:
        if self.down:
            raise StoreDown("no connection")
        await super().commit(batch)


async def test_reports_during_an_outage_of_the_store_are_committed_after_it(autojump_clock):
    store = Unwritable()
    async with world(store=store) as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor)
        store.down = True
        log = await executor.call(body, "log", text="during the outage", level="info")
        saved = await executor.call(body, "checkpoint", value=1, interrupts=0, calls=0)
        await trio.sleep(2 * TTL)
        assert executor.has("answered") == executor.has("settled") == 0
        assert home.executors() == {"e1": "attached"}
        store.down = False
        await executor.answer(log)
        await executor.answer(saved)
        store.down = True
        await executor.send(ended(body, value=1))
        await trio.sleep(2 * TTL)
        assert executor.has("settled") == 0
        store.down = False
        await executor.receive("settled")
        assert await ticket.result() == 1


async def test_pruned_runs_leave_nothing_at_the_registry(autojump_clock):
    async with world(store=MemoryStore(), keep_runs=Keep(count=5)) as home:
        executor = await home.executor()
        for number in range(50):
            ticket, body = await home.begin(executor, handle=f"h{number}")
            await executor.end(body)
            await ticket.result()
        await trio.sleep(1000)
        [peer] = home.engine.executors._registry.peers.values()
        assert peer.bodies == {}
        assert len(peer.outgoing) < 100
