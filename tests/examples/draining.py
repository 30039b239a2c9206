"""Draining lets executing runs finish and starts no others, for example before a deployment.

Until then, new submissions are refused, queued runs stay queued, and `resume` starts the queues again.
Leaving the block of `open_engine` also drains; bodies that still execute after `shutdown_timeout` are
cancelled.
"""

import trio
import trio.testing

from greenroom import Jobs, Run, open_engine
from greenroom.errors import Draining

jobs = Jobs()


@jobs.job("work")
async def work(run: Run) -> str:
    await trio.sleep(0.05)
    return "done"


@jobs.job("endless")
async def endless(run: Run) -> None:
    try:
        await trio.sleep_forever()
    finally:
        print("endless: cancelled")


async def main() -> None:
    async with open_engine(jobs, store="memory:", max_concurrent=1, shutdown_timeout=0.1) as engine:
        executing = await engine.submit("work", handle="a")
        queued = await engine.submit("work", handle="b")
        await trio.testing.wait_all_tasks_blocked()
        await engine.drain()
        try:
            await engine.submit("work", handle="c")
        except Draining as error:
            print("refused:", error.code, error.http_status)
        print("drained:", await engine.wait_for_active())
        for name, ticket in (("executing", executing), ("queued", queued)):
            print(f"{name}:", (await engine.get_run(ticket.id)).status)
        await engine.resume()
        print("resumed:", await queued.result())

        await engine.submit("endless", handle="d")
        await trio.testing.wait_all_tasks_blocked()
        print("leaving")
    print("left")


if __name__ == "__main__":
    trio.run(main)

# Output:
# refused: draining 503
# drained: True
# executing: succeeded
# queued: queued
# resumed: done
# leaving
# endless: cancelled
# left
