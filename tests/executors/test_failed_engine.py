"""An engine that fails, while the gateway at which its executors are connected continues."""

from __future__ import annotations

import msgspec
import pytest
import trio

from greenroom import Jobs, open_engine
from greenroom.actors.executors.connection import Connection, connection_pair
from greenroom.persistence.failures import StoreBroken
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.store import Batch
from greenroom.protocol.executors import Attach


class _TakenStore(MemoryStore):
    """A store that another engine takes."""

    taken = False

    async def commit(self, batch: Batch) -> None:
        if self.taken:
            raise StoreBroken("another engine has taken the store")
        await super().commit(batch)


async def test_an_engine_that_fails_hangs_up_on_its_executors(autojump_clock):
    store = _TakenStore()
    ours, executors = connection_pair()
    async with trio.open_nursery() as nursery:  # in a cluster, the gateway outlives the engine
        with pytest.raises(StoreBroken):
            await _fail_with_executor(store, nursery, ours, executors)
        with trio.fail_after(1), pytest.raises(trio.EndOfChannel):
            await executors.receive()


async def _fail_with_executor(
    store: _TakenStore, nursery: trio.Nursery, ours: Connection, executors: Connection
) -> None:
    async with open_engine(Jobs(), store, executors=0) as engine:
        nursery.start_soon(engine.executors.serve, ours)
        attach = Attach(executor="e1", start="s1", jobs=(), slots=1, folder="", version="", connection=1)
        await executors.send(msgspec.json.encode(attach))
        assert b"attached" in await executors.receive()
        store.taken = True
        await engine.set_max_concurrent(5)
