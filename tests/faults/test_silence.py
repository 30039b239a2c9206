"""A silent store of an engine with a gateway: packets are dropped, and no connection is closed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing

from greenroom import Engine, Jobs, Run, open_engine
from greenroom.errors import Draining, Unavailable
from greenroom.persistence import drivers
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.store import Batch
from tests.persistence.proxy import Proxy
from tests.servers import Server

from .test_outages import make_tables

jobs = Jobs()


@jobs.job("wait")
async def wait(run: Run, params: dict[str, Any]) -> str:
    await run.next_message()
    return "done"


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Server:
    return request.getfixturevalue(request.param)


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    proxy = Proxy(server.port)
    yield proxy
    proxy.pass_on()
    proxy.close()


@pytest.fixture
async def url(server: Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(drivers, "CONNECT_TIMEOUT", 2)
    monkeypatch.setattr("greenroom.persistence.database.CONNECT_TIMEOUT", 1)
    monkeypatch.setattr("greenroom.persistence.advisory.CONNECT_TIMEOUT", 1)
    url = server.fresh_database()
    await make_tables(url)
    return f"{url.replace(str(server.port), str(proxy.port))}?call_timeout=1"


async def refused_within(seconds: float, call: Callable[[], Awaitable[object]]) -> None:
    with trio.fail_after(seconds), pytest.raises(Unavailable):
        await call()


def submit(engine: Engine, handle: str) -> Callable[[], Awaitable[object]]:
    return lambda: engine.submit("wait", handle=handle, params={})


async def test_submissions_are_refused_soon_and_accepted_again_afterwards(url: str, proxy: Proxy):
    async with open_engine(jobs, url, shutdown_timeout=0) as engine:
        ticket = await engine.submit("wait", handle="a", params={})
        engine.check_ready()
        proxy.swallow()
        await refused_within(15, submit(engine, "b"))
        with pytest.raises(Unavailable, match="the store is unavailable"):
            engine.check_ready()
        await refused_within(5, submit(engine, "c"))
        with trio.fail_after(5):
            assert set((await engine.snapshot()).runs) == {ticket.id}
            assert (await engine.get_run(ticket.id)).status == "running"
        proxy.pass_on()
        with trio.fail_after(60):
            while engine.store_is_down:  # noqa: ASYNC110
                await trio.sleep(0.1)
            await engine.inject("a", "go on")
            assert await ticket.result() == "done"


async def test_an_engine_can_shut_down_while_its_store_is_silent(url: str, proxy: Proxy):
    began = 0.0

    async def leave() -> None:
        nonlocal began
        async with open_engine(jobs, url, shutdown_timeout=1) as engine:
            await engine.submit("wait", handle="a", params={})
            proxy.swallow()
            began = time.monotonic()

    with pytest.raises(Unavailable):
        await leave()
    assert time.monotonic() - began < 25


class HungStore(MemoryStore):
    """A store whose commits can hang."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = trio.Event()
        self.goes_on.set()

    async def commit(self, batch: Batch) -> None:
        await self.goes_on.wait()
        await super().commit(batch)


async def test_readiness_is_known_while_a_commit_hangs(autojump_clock: trio.testing.MockClock):
    store = HungStore()
    async with open_engine(jobs, store, shutdown_timeout=0) as engine, trio.open_nursery() as nursery:
        store.goes_on = trio.Event()
        nursery.start_soon(engine.drain)
        await trio.sleep(1)
        engine.check_ready()  # draining is not committed yet
        await trio.sleep(10)
        with pytest.raises(Unavailable):
            engine.check_ready()
        assert (await engine.snapshot()).runs == {}
        store.goes_on.set()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(Draining):
            engine.check_ready()
    with pytest.raises(Unavailable, match="has stopped"):
        engine.check_ready()
