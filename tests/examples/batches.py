"""Many runs are submitted in one call, which one commit creates: all of them, or each on its own."""

import trio

from greenroom import Jobs, Run, open_engine
from greenroom.errors import Conflict

jobs = Jobs()


@jobs.job("resize")
async def resize(run: Run, params: dict) -> str:
    await trio.sleep(1)
    return f"{params['image']} is resized"


def resizing(*images: str) -> list:
    return [{"job": "resize", "handle": image, "params": {"image": image}} for image in images]


async def main() -> None:
    async with open_engine(jobs, store="memory:") as engine:
        tickets = await engine.submit_many(resizing("a.png", "b.png"))
        try:
            await engine.submit_many(resizing("c.png", "b.png"))
        except Conflict as error:
            print("refused because of run", error.details["index"], "of the batch: none was submitted")
        outcomes = await engine.submit_many(resizing("c.png", "b.png"), all_or_nothing=False)
        for outcome in (*tickets, *outcomes):
            if isinstance(outcome, Conflict):
                print("refused:", outcome.details["active_run"] == tickets[1].id)
            else:
                print(await outcome.result())


if __name__ == "__main__":
    trio.run(main)

# Output:
# refused because of run 1 of the batch: none was submitted
# a.png is resized
# b.png is resized
# c.png is resized
# refused: True
