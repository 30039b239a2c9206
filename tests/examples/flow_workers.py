"""Workers do the work of a flow's nodes. One that fetches its work from the queue needs three calls.

Here it lives in the same program; elsewhere it does the same over HTTP, or is `greenroom worker`. What it
completes is taken once: whoever comes too late is refused.
"""

import trio

from greenroom import Engine, Jobs, open_engine
from greenroom.errors import Conflict

SHOUT = """
start: shout
nodes:
  shout:
    kind: executor
    service: upper
    exec_type: queue
    prep: {input_key: $params.text}
    post: {output_key: shouted}
"""


async def work(engine: Engine) -> None:
    await engine.workers.register("w1", "", ["upper"], kind="queue")
    item = None
    while item is None:  # a poll ends after 25 seconds if there is nothing to do
        item = await engine.workers.poll("w1", ["upper"])
    print("work:", item.service, item.input)
    await engine.workers.complete(item.id, result=item.input.upper(), worker_id="w1")
    try:
        await engine.workers.complete(item.id, result="once more", worker_id="w1")
    except Conflict:
        print("a second completion is refused")


async def main() -> None:
    async with open_engine(Jobs(), store="memory:") as engine:
        await engine.flows.publish("shout", SHOUT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work, engine)
            ticket = await engine.flows.start("shout", params={"text": "hello"})
        print("result:", await ticket.result())
        [row] = await engine.flows.node_runs(ticket.id)
        print("by:", row.worker)


if __name__ == "__main__":
    trio.run(main)

# Output:
# work: upper hello
# a second completion is refused
# result: {'shouted': 'HELLO'}
# by: w1
