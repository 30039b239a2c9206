"""A checkpoint is a value from which a later attempt, or the next run, continues.

A handle keeps the last checkpoint of each job. A run of kind `continue` begins with it, one of kind `start`
begins without.
"""

import trio

from greenroom import Jobs, Run, open_engine

jobs = Jobs()


@jobs.job("read", max_attempts=2, backoff=0.01)
async def read(run: Run, params: dict) -> str:
    first = (run.checkpoint or 0) + 1
    for page in range(first, params["to"] + 1):
        if page == 3 and run.kind == "start" and run.attempt == 1:
            raise OSError("the light went out")
        await run.save_checkpoint(page)
    return f"attempt {run.attempt} read pages {first} to {params['to']}"


async def main() -> None:
    async with open_engine(jobs, store="memory:") as engine:
        for kind, to in (("start", 5), ("continue", 8), ("start", 2)):
            ticket = await engine.submit("read", handle="reader", params={"to": to}, kind=kind)
            print(f"{kind}: {await ticket.result()}")


if __name__ == "__main__":
    trio.run(main)

# Output:
# start: attempt 2 read pages 3 to 5
# continue: attempt 1 read pages 6 to 8
# start: attempt 1 read pages 1 to 2
