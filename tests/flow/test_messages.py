"""Messages are for bodies: a flow's run takes none."""

import pytest
import trio

from greenroom import Jobs, open_engine
from greenroom.errors import NotInteractive

GRAPH = {
    "start": "slow",
    "nodes": {
        "slow": {"kind": "local", "func": "slow", "post": {"output_key": "a", "output_map": {"b": "x"}}}
    },
    "edges": [],
}


async def test_a_message_for_a_flow_is_refused_and_the_flow_continues(autojump_clock):
    jobs = Jobs()

    @jobs.function("slow")
    async def slow(given: object) -> dict[str, object]:
        await trio.sleep(5)
        return {"x": {"y": 1}}

    async with open_engine(jobs, store="memory:") as engine:
        await engine.flows.publish("slow", GRAPH)
        ticket = await engine.flows.start("slow")
        await trio.sleep(1)
        with pytest.raises(NotInteractive):
            await engine.inject(ticket.id, "hello")
        assert await ticket.result() == {"a": {"x": {"y": 1}}, "b": {"y": 1}}
