"""When bodies hang, an operator takes their slots away, and the queues continue.

A reset frees the slots of all executing runs. Their bodies are detached, and their outcome is recorded when
they end. A body that ignores its cancel past its grace is abandoned; its handle stays taken until the body
ends or the operator releases the handle.
"""

import logging

import trio
import trio.testing

from greenroom import Jobs, Run, open_engine
from greenroom.errors import Conflict, RunCancelled

jobs = Jobs()
network = trio.Event()


@jobs.job("hang")
async def hang(run: Run) -> str:
    await network.wait()
    return "ended after all"


@jobs.job("deaf", grace=0.05)
async def deaf(run: Run) -> None:
    with trio.CancelScope(shield=True):  # a mistake of its author
        await network.wait()


@jobs.job("quick")
async def quick(run: Run) -> str:
    return "quick"


async def main() -> None:
    logging.getLogger("greenroom").setLevel(logging.CRITICAL)  # an abandoned body is logged as an error
    async with open_engine(jobs, store="memory:", max_concurrent=1) as engine:
        stuck = await engine.submit("hang", handle="a")
        queued = await engine.submit("quick", handle="b")
        await trio.testing.wait_all_tasks_blocked()
        await engine.reset_lanes()
        print("queued:", await queued.result())
        run = await engine.get_run(stuck.id)
        print("stuck:", run.status, "detached" if run.detached else "")

        deaf = await engine.submit("deaf", handle="c")
        await trio.testing.wait_all_tasks_blocked()
        await deaf.cancel()
        try:
            await deaf.result()
        except RunCancelled as error:
            print("deaf:", error.run.status, error.run.reason)
        try:
            await engine.submit("quick", handle="c")
        except Conflict:
            print("its handle is still taken")
        print("released:", await engine.release_handle("c"))
        print("then:", await (await engine.submit("quick", handle="c")).result())

        network.set()
        print("stuck:", await stuck.result())


if __name__ == "__main__":
    trio.run(main)

# Output:
# queued: quick
# stuck: running detached
# deaf: cancelled abandoned
# its handle is still taken
# released: True
# then: quick
# stuck: ended after all
