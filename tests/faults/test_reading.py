"""A temporary failure of reads: bodies that need stored data wait, and the engine continues."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from greenroom import Jobs, Run, open_engine
from greenroom.persistence.failures import StoreDown
from greenroom.persistence.memory import MemoryStore

GRAPH = {
    "start": "wait",
    "nodes": {"wait": {"kind": "wait_event", "params": {"signal_key": "go"}, "post": {"output_key": "went"}}},
    "edges": [],
}


class Unreadable(MemoryStore):
    """A store whose next reads of some kind fail."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = {"checkpoint": 0, "flow": 0}

    async def checkpoint(self, handle: str, job: str) -> Any:
        return await self._read("checkpoint", partial(super().checkpoint, handle, job))

    async def flow(self, run: str) -> Any:
        return await self._read("flow", partial(super().flow, run))

    async def _read(self, kind: str, read: Callable[[], Awaitable[Any]]) -> Any:
        if self.failures[kind]:
            self.failures[kind] -= 1
            raise StoreDown("the store is unavailable: the line is dead")
        return await read()


async def test_a_body_waits_until_its_checkpoint_can_be_read(autojump_clock):
    jobs, store = Jobs(), Unreadable()

    @jobs.job("save")
    async def save(run: Run) -> Any:
        before = run.checkpoint
        await run.save_checkpoint("here")
        return before

    async with open_engine(jobs, store=store) as engine:
        assert await (await engine.submit("save", handle="alice")).result() is None
        store.failures["checkpoint"] = 3
        again = await engine.submit("save", handle="alice", kind="continue")
        assert await again.result() == "here"


async def test_a_flow_waits_until_its_state_can_be_read(autojump_clock):
    store = Unreadable()
    async with open_engine(Jobs(), store=store) as engine:
        await engine.flows.publish("waits", GRAPH)
        ticket = await engine.flows.start("waits")
        await ticket.wait(1)
        store.failures["flow"] = 3
        await engine.signal(ticket.id, "go", "now")
        assert await ticket.result() == {"go": "now", "went": "now"}
