"""A delayed run starts at a given time. Until then it is stored, but holds no handle and needs no task.

At its time it behaves like a new run, but is not refused: if its handle is taken then, it waits there. With
`reserve=True` it holds its handle from the submission on.
"""

import time

import trio

from greenroom import Jobs, Run, open_engine
from greenroom.errors import Conflict

jobs = Jobs()


@jobs.job("remind")
async def remind(run: Run, params: dict) -> None:
    print("reminder:", params["text"])


async def main() -> None:
    async with open_engine(jobs, store="memory:") as engine:
        later = await engine.submit("remind", handle="alice", params={"text": "call back"}, delay=0.3)
        run = await engine.get_run(later.id)
        print(run.status, run.waiting_for, run.not_before > time.time())

        now = await engine.submit("remind", handle="alice", params={"text": "have a break"})
        await now.result()  # the delayed run does not hold the handle
        await later.result()

        cancelled = await engine.submit("remind", handle="alice", params={"text": "never"}, delay=3600)
        await cancelled.cancel()

        start_at = time.time() + 0.3  # or an aware datetime
        reserved = await engine.submit(
            "remind", handle="alice", params={"text": "go home"}, start_at=start_at, reserve=True
        )
        try:
            await engine.submit("remind", handle="alice", params={"text": "too early"})
        except Conflict as error:
            print("refused:", error.details["active_run"] == reserved.id)
        await reserved.result()


if __name__ == "__main__":
    trio.run(main)

# Output:
# queued time True
# reminder: have a break
# reminder: call back
# refused: True
# reminder: go home
