"""How a flow handles errors: retries, actions for errors and timeouts, and a flow that fails.

Each attempt of a node is recorded as a node run, with its input and output.
"""

import trio

from greenroom import Jobs, open_engine
from greenroom.errors import RunFailed

jobs = Jobs()

FETCH = """
start: fetch
nodes:
  fetch:
    kind: local
    func: fetch
    params: {url: 'https://example.org'}
    max_retries: 2
    wait_ms: 500
    timeout_ms: 1000
    on_timeout: slow
  cached: {kind: choice, prep: {input_map: {text: an old copy}}, post: {output_key: page}}
edges:
  - {from: fetch, action: slow, to: cached}
"""


@jobs.function("fetch")
async def fetch(input: None, params: dict) -> str:
    if params.get("hangs"):
        await trio.sleep_forever()
    raise OSError("the host is unknown")


async def main() -> None:
    async with open_engine(jobs, store="memory:") as engine:
        await engine.flows.publish("fetch", FETCH)

        slow = await engine.flows.start("fetch", params={"hangs": True})
        print("slow:", await slow.result())

        broken = await engine.flows.start("fetch")
        try:
            await broken.result()
        except RunFailed as error:
            print("broken:", error.run.error)
        for ticket in (slow, broken):
            print([(row.node, row.attempt, row.status) for row in await engine.flows.node_runs(ticket.id)])


if __name__ == "__main__":
    trio.run(main)

# Output:
# slow: {'page': {'text': 'an old copy'}}
# broken: node "fetch": service_error: OSError: the host is unknown
# [('fetch', 1, 'timeout'), ('fetch', 2, 'timeout'), ('fetch', 3, 'timeout'), ('cached', 1, 'ok')]
# [('fetch', 1, 'error'), ('fetch', 2, 'error'), ('fetch', 3, 'error')]
