"""A body asks people a question and waits for the answer; whoever follows the events sees it and answers.

`run.confirm` is for a yes or no, `run.interrupt` gives the answer as it is. With `release_slot=True` the run
waits without its slot, so others execute meanwhile. No answer in time is a no, as is the one of a cancel.
"""

import trio

from greenroom import Jobs, Run, open_engine

jobs = Jobs()


@jobs.job("order")
async def order(run: Run, params: dict) -> str:
    question = {"question": f"Buy {params['item']}?"}
    if await run.confirm(question, timeout=0.5, release_slot=True):
        return "bought"
    return "not bought"


@jobs.job("paint")
async def paint(run: Run) -> str:
    colour = await run.interrupt({"question": "Which colour?"})
    return f"painted {colour}" if colour else "not painted"  # whatever denies is false


@jobs.job("other work")
async def other_work(run: Run) -> str:
    return "done meanwhile, on the only slot"


async def main() -> None:
    async with open_engine(jobs, store="memory:", max_concurrent=1) as engine:
        questions = engine.events(filter={"types": ["interrupt_opened"]})

        coffee = await engine.submit("order", handle="kitchen", params={"item": "coffee"})
        question = await anext(questions)
        print("asked:", question.data["question"])
        print("run:", (await engine.get_run(coffee.id)).status)
        print("other work:", await (await engine.submit("other work", handle="desk")).result())
        print("answer:", await engine.answer(question.interrupt, {"approved": True}))
        print("coffee:", await coffee.result())
        print("answer again:", await engine.answer(question.interrupt, {"approved": False}))

        yacht = await engine.submit("order", handle="harbour", params={"item": "a yacht"})
        await anext(questions)
        print("yacht:", await yacht.result())

        fence = await engine.submit("paint", handle="garden")
        question = await anext(questions)
        await engine.answer(question.interrupt, "green")
        print("fence:", await fence.result())

        entry = await engine.submit("paint", handle="house")
        question = await anext(questions)
        await engine.answer(question.interrupt, {"approved": False, "reason": "no money left"})
        print("door:", await entry.result())


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
