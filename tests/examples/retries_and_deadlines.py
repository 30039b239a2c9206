"""A job with `max_attempts` is retried after a failure, and three limits bound the time of a run.

`queue_timeout` bounds the wait for a slot, `run_timeout` the execution of each attempt, and `deadline` the
time from submission to end. A job declares them, and a submission can override them.
"""

import trio

from greenroom import Jobs, Run, open_engine
from greenroom.errors import RunFailed, RunTimedOut

jobs = Jobs()


@jobs.job("flaky", max_attempts=3, backoff=lambda attempt: 0.01 * 2**attempt)
async def flaky(run: Run, params: dict) -> str:
    if run.attempt < params["works_at"]:
        raise ConnectionError(f"attempt {run.attempt} found nobody")
    return f"worked at attempt {run.attempt}"


@jobs.job("endless", run_timeout=0.05)
async def endless(run: Run) -> None:
    await trio.sleep_forever()


async def main() -> None:
    async with open_engine(jobs, store="memory:", max_concurrent=1) as engine:
        ticket = await engine.submit("flaky", handle="a", params={"works_at": 3})
        print(await ticket.result())
        ticket = await engine.submit("flaky", handle="a", params={"works_at": 9})
        try:
            await ticket.result()
        except RunFailed as error:
            print("failed:", error.run.error)

        executes = await engine.submit("endless", handle="b")
        queued = await engine.submit("endless", handle="c", queue_timeout=0.02)
        late = await engine.submit("endless", handle="d", run_timeout=9, deadline=0.1)
        for ticket in (executes, queued, late):
            try:
                await ticket.result()
            except RunTimedOut as error:
                print("timed out:", error.run.reason)


if __name__ == "__main__":
    trio.run(main)

# Output:
# worked at attempt 3
# failed: ConnectionError: attempt 3 found nobody
# timed out: run_timeout
# timed out: queue_timeout
# timed out: deadline
