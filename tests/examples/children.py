"""A run calls other runs for parts of its work, each on its own handle and lane.

It waits for each child without a slot, and when it is cancelled, so is the child. A child on a handle that
one of its ancestors holds could never start, and is refused.
"""

import trio

from greenroom import Jobs, Run, open_engine
from greenroom.errors import Conflict, RunFailed

jobs = Jobs()


@jobs.job("report")
async def report(run: Run, params: dict) -> dict:
    counts = {}
    for source in params["sources"]:
        try:
            counts[source] = await run.call("count", handle=f"source {source}", params={"source": source})
        except RunFailed as error:
            counts[source] = error.run.error
    try:
        await run.call("count", handle=run.handle, params={"source": "itself"})
    except Conflict:
        counts["itself"] = "refused: this run holds the handle"
    return counts


@jobs.job("count", lane="sources")
async def count(run: Run, params: dict) -> int:
    if params["source"] == "void":
        raise LookupError("nothing there")
    return len(params["source"])


async def main() -> None:
    async with open_engine(jobs, store="memory:", max_concurrent=1) as engine:
        ticket = await engine.submit("report", handle="boss", params={"sources": ["web", "mail", "void"]})
        for name, value in (await ticket.result()).items():
            print(name, value)
        statuses = [
            event.to for event in await engine.history(ticket.id) if event.type == "run_state_changed"
        ]
        print(*statuses)


if __name__ == "__main__":
    trio.run(main)

# Output:
# web 3
# mail 4
# void LookupError: nothing there
# itself refused: this run holds the handle
# queued running suspended running suspended running suspended running succeeded
