"""What stands for the engine at the gateway of a cluster's node."""

from greenroom import Jobs, Run, open_engine
from greenroom.gateway.cluster.standing import NodeEngine

jobs = Jobs()


@jobs.job("works")
async def works(run: Run) -> None:
    pass


async def test_the_snapshot_of_an_engine_that_stops_is_its_last_state():
    async with open_engine(jobs, "memory:") as engine:
        ticket = await engine.submit("works", handle="h")
        await ticket.result()
    node_engine = NodeEngine(engine.stream, lambda: engine)
    snapshot = await node_engine.snapshot()
    assert snapshot.seq == engine.stream.last_seq
    assert snapshot.runs[ticket.id].status == "succeeded"
