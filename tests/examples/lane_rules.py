"""The rules of a lane: tenants take turns, urgent runs are first, and a rate bounds the starts."""

import trio

from greenroom import Jobs, Run, open_engine

jobs = Jobs()
started: list[str] = []


@jobs.job("render", lane="images")
async def render(run: Run, params: dict[str, str]) -> None:
    started.append(run.handle)
    await trio.sleep(0.01)


async def main() -> None:
    lanes = {"images": {"limit": 1, "fair_by": "tenant"}}
    async with open_engine(jobs, store="memory:", lanes=lanes) as engine:
        await engine.pause_lane("images")  # so that all of them are there before the first one starts
        tickets = []
        for handle in ("big-1", "big-2", "big-3", "big-4", "small-1", "small-2"):
            tenant, _, _ = handle.partition("-")
            tickets.append(await engine.submit("render", handle=handle, params={"tenant": tenant}))
        await engine.set_priority("big-4", 10)  # before the other runs of its tenant
        await engine.resume_lane("images")
        for ticket in tickets:
            await ticket.result()

        print("turns:", *started)
        await engine.set_lane("images", fair_by=None, rate="100/s", burst=2)
        await engine.set_concurrency("images", None)
        began = trio.current_time()
        again = [await engine.submit("render", handle=f"page-{n}", params={}) for n in range(5)]
        for ticket in again:
            await ticket.result()
        print("rate:", *started[6:], "took 30 ms or more:", trio.current_time() - began >= 0.03)


if __name__ == "__main__":
    trio.run(main)

# Output:
# turns: big-4 small-1 big-1 small-2 big-2 big-3
# rate: page-0 page-1 page-2 page-3 page-4 took 30 ms or more: True
