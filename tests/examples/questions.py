"""A body asks people a question and waits for the answer; whoever follows the events sees it and answers.

With `release_slot=True` the run waits without its slot, so others execute meanwhile. `None` means that nobody
answered in time; that, and the answer which a cancel gives, are to be treated as a no.
"""

import trio

from greenroom import Jobs, Run, open_engine

jobs = Jobs()


@jobs.job("order")
async def order(run: Run, params: dict) -> str:
    answer = await run.interrupt({"question": f"Buy {params['item']}?"}, timeout=0.5, release_slot=True)
    if answer is None:
        return "nobody answered: not bought"
    return "bought" if answer["approved"] else f"not bought: {answer['reason']}"


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
        print("yacht:", await yacht.result())


if __name__ == "__main__":
    trio.run(main)

# Output:
# asked: Buy coffee?
# run: suspended
# other work: done meanwhile, on the only slot
# answer: resolved
# coffee: bought
# answer again: already_resolved
# yacht: nobody answered: not bought
