"""A plain function can be a job: it runs in a thread and gets a `BlockingRun`, whose calls block.

Cancelling cannot interrupt a thread. The next call on its `run` raises inside it; a function that makes no
calls checks `cancel_requested`.
"""

import time

import trio

from greenroom import BlockingRun, Jobs, open_engine

jobs = Jobs()


@jobs.job("hash")
def hash_password(run: BlockingRun, params: dict) -> str:
    for done in range(3):
        time.sleep(0.01)  # in place of a computation
        run.progress(done=done + 1, total=3)
    return params["password"][::-1]


@jobs.job("crack")
def crack(run: BlockingRun) -> None:
    run.log("it may take years")
    while not run.cancel_requested:
        time.sleep(0.01)


async def main() -> None:
    async with open_engine(jobs, store="memory:") as engine:
        ticket = await engine.submit("hash", handle="alice", params={"password": "sesame"})
        print(await ticket.result())

        logs = engine.events(filter={"types": ["run_log"]})
        ticket = await engine.submit("crack", handle="mallory")
        print((await anext(logs)).text)
        await ticket.cancel()
        await ticket.wait()
        print((await engine.get_run(ticket.id)).status)


if __name__ == "__main__":
    trio.run(main)

# Output:
# emases
# it may take years
# cancelled
