"""Workers do the work of a flow's nodes. One that takes its work from the queue needs three calls.

Here the worker lives in the same program; elsewhere it makes the same calls over HTTP, or is `greenroom
worker`. An item is completed once: a second or late completion is refused.
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
    while item is None:  # a poll returns None after 25 seconds without work
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
