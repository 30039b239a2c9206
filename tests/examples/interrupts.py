"""A body opens an interrupt and waits for the answer; a client that follows the events answers it.

`run.confirm` is for a yes or no, `run.interrupt` returns the answer as it is. With `release_slot=True` the
run waits without its slot, so other runs can execute. A timeout and a cancel both count as a no.
"""

import trio

from greenroom import Jobs, Run, open_engine

jobs = Jobs()


@jobs.job("order")
async def order(run: Run, params: dict) -> str:
    data = {"question": f"Buy {params['item']}?"}
    if await run.confirm(data, timeout=0.5, release_slot=True):
        return "bought"
    return "not bought"


@jobs.job("paint")
async def paint(run: Run) -> str:
    colour = await run.interrupt({"question": "Which colour?"})
    return f"painted {colour}" if colour else "not painted"  # every denial is false


@jobs.job("other work")
async def other_work(run: Run) -> str:
    return "done meanwhile, on the only slot"


async def main() -> None:
    async with open_engine(jobs, store="memory:", max_concurrent=1) as engine:
        interrupts = engine.events(filter={"types": ["interrupt_opened"]})

        coffee = await engine.submit("order", handle="kitchen", params={"item": "coffee"})
        interrupt = await anext(interrupts)
        print("asked:", interrupt.data["question"])
        print("run:", (await engine.get_run(coffee.id)).status)
        print("other work:", await (await engine.submit("other work", handle="desk")).result())
        print("answer:", await engine.answer(interrupt.interrupt, {"approved": True}))
        print("coffee:", await coffee.result())
        print("answer again:", await engine.answer(interrupt.interrupt, {"approved": False}))

        yacht = await engine.submit("order", handle="harbour", params={"item": "a yacht"})
        await anext(interrupts)
        print("yacht:", await yacht.result())

        fence = await engine.submit("paint", handle="garden")
        interrupt = await anext(interrupts)
        await engine.answer(interrupt.interrupt, "green")
        print("fence:", await fence.result())

        door = await engine.submit("paint", handle="house")
        interrupt = await anext(interrupts)
        await engine.answer(interrupt.interrupt, {"approved": False, "reason": "no money left"})
        print("door:", await door.result())


if __name__ == "__main__":
    trio.run(main)

# Output:
# asked: Buy coffee?
# run: suspended
# other work: done meanwhile, on the only slot
# answer: resolved
# coffee: bought
# answer again: already_resolved
# yacht: not bought
# fence: painted green
# door: not painted
