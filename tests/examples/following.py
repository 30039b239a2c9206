"""Every change is one event with the next number; a snapshot and the events after it give the next snapshot.

A front end follows the engine in this way: it takes a snapshot once, folds each event over it, and always
has exactly the engine's state. After a break it requests the events after the last one that it has seen.
"""

import trio

from greenroom import Jobs, Run, open_engine
from greenroom.protocol.fold import fold

jobs = Jobs()


@jobs.job("count")
async def count(run: Run, params: dict) -> int:
    for number in range(params["to"]):
        await trio.sleep(0.01)
        await run.progress(done=number + 1, total=params["to"], unit="sheep")
    await run.log("fell asleep")
    return params["to"]


async def main() -> None:
    async with open_engine(jobs, store="memory:") as engine:
        start = await engine.snapshot()
        ticket = await engine.submit("count", handle="bed", params={"to": 3})
        await ticket.result()
        end = await engine.snapshot()

        seen = []
        async for event in engine.events(after=start.seq):
            seen.append(event)
            match event.type:
                case "run_state_changed":
                    print(event.seq, event.type, event.from_, "->", event.to)
                case "run_progress":
                    print(event.seq, event.type, f"{event.done}/{event.total}", event.stats)
                case "run_log":
                    print(event.seq, event.type, event.text)
            if event.seq == end.seq:
                break

        print("the fold is the snapshot:", fold(start, seen) == end)


if __name__ == "__main__":
    trio.run(main)

# Output:
# 1 run_state_changed None -> queued
# 2 run_state_changed queued -> running
# 3 run_progress 1/3 {'unit': 'sheep'}
# 4 run_progress 2/3 {'unit': 'sheep'}
# 5 run_progress 3/3 {'unit': 'sheep'}
# 6 run_log fell asleep
# 7 run_state_changed running -> succeeded
# the fold is the snapshot: True
