"""A schedule submits a run at each due time; a job can declare its own.

A schedule that is put again with the same times continues, so a program can put its schedules at each start.
`missed` decides which due times still fire that passed while the engine was stopped or, as here, drained.

The program runs under a clock of trio's that jumps to the next time at which something happens. So its 70
minutes take less than a second.
"""

import trio
from trio.testing import MockClock

from greenroom import Jobs, Run, Schedule, open_engine

jobs = Jobs()


@jobs.job("report", schedule=Schedule(cron="0 8 * * MON-FRI", timezone="Europe/Berlin"))
async def report(run: Run) -> None:
    pass


@jobs.job("refresh")
async def refresh(run: Run, params: dict) -> str:
    return f"refreshed {params['source']}"


async def main() -> None:
    async with open_engine(jobs, store="memory:") as engine:
        prices = await engine.schedules.put(
            "prices",
            job=refresh,
            params={"source": "stock"},
            every=600,
            missed="all",
            missed_limit=2,
            on_conflict="queue",  # if the run before is not done
        )
        for schedule in await engine.schedules.list():
            print(schedule.name, schedule.cron or schedule.every, schedule.source, schedule.handle)
        events = engine.events()

        await trio.sleep(1210)  # two due times
        await engine.drain()
        await trio.sleep(3000)  # five due times
        await engine.resume()

        async for event in events:
            if getattr(event, "schedule", None) != "prices":
                continue
            if event.type == "schedule_missed":
                print("left out:", event.count)
            elif event.type == "schedule_fired":
                print("fired after", round(event.at_planned - prices.since), "s")
                if event.at_planned > prices.since + 4000:
                    break

        ticket = await engine.schedules.trigger("prices")
        print(await ticket.result())
        print("next:", (await engine.schedules.pause("prices")).next)
        await engine.schedules.delete("prices")


if __name__ == "__main__":
    trio.run(main, clock=MockClock(autojump_threshold=0))

# Output:
# prices 600.0 api schedule:prices
# report 0 8 * * MON-FRI code schedule:report
# fired after 600 s
# fired after 1200 s
# left out: 2
# fired after 3000 s
# fired after 3600 s
# fired after 4200 s
# refreshed stock
# next: ()
