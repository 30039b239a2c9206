"""A chat session waits for the next message without a slot, so idle sessions cost almost nothing.

With `next_message(release_slot=True)` the run is suspended until a client injects a message; then it gets a
slot at its place. Here a hundred sessions share two slots.
"""

import trio

from greenroom import Jobs, Run, open_engine

jobs = Jobs()
SESSIONS = 100


@jobs.job("session", resumable=True)
async def session(run: Run) -> int:
    heard = run.checkpoint or 0
    while True:
        message = await run.next_message(release_slot=True)
        heard += 1
        await run.save_checkpoint(heard)  # a message that was taken is not delivered again after a restart
        if message == "bye":
            return heard
        await run.log(f"{run.handle} says {message}")


async def main() -> None:
    async with open_engine(jobs, store="memory:", max_concurrent=2) as engine:
        tickets = [await engine.submit("session", handle=f"user {n}") for n in range(SESSIONS)]
        await trio.sleep(1)
        snapshot = await engine.snapshot()
        waiting = [run for run in snapshot.runs.values() if run.waiting_for == "message"]
        print("waiting:", len(waiting), "executing:", snapshot.engine.executing)

        print("hello:", await engine.inject("user 7", "hello"))
        await trio.sleep(1)
        print("user 7 is", (await engine.get_run(tickets[7].id)).status, "again")

        for n in range(SESSIONS):
            await engine.inject(f"user {n}", "bye")
        heard = [await ticket.result() for ticket in tickets]
        print("heard:", sum(heard))


if __name__ == "__main__":
    trio.run(main)

# Output:
# waiting: 100 executing: 0
# hello: accepted
# user 7 is suspended again
# heard: 101
