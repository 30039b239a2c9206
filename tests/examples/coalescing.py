"""With `on_conflict="coalesce"`, one run executes while exactly one waits, with the newest parameters.

An index is rebuilt after each change. The changes that arrive while it is being rebuilt need only one more
run, however many they are.
"""

import trio

from greenroom import Jobs, Run, open_engine

jobs = Jobs()


@jobs.job("rebuild")
async def rebuild(run: Run, params: dict) -> str:
    await trio.sleep(0.05)
    return f"the index has revision {params['revision']}"


async def main() -> None:
    async with open_engine(jobs, store="memory:") as engine:
        tickets = []
        for revision in range(1, 6):
            ticket = await engine.submit(
                "rebuild", handle="index", params={"revision": revision}, on_conflict="coalesce"
            )
            tickets.append(ticket)
        print("runs:", len({ticket.id for ticket in tickets}))
        print("joined:", [ticket.joined for ticket in tickets])
        print(await tickets[0].result())
        print(await tickets[-1].result())
        for event in await engine.history(tickets[-1].id):
            if event.type == "run_changed" and event.place is None:
                print("the waiting run takes revision", event.params["revision"])


if __name__ == "__main__":
    trio.run(main)

# Output:
# runs: 2
# joined: [False, False, True, True, True]
# the index has revision 1
# the index has revision 5
# the waiting run takes revision 3
# the waiting run takes revision 4
# the waiting run takes revision 5
