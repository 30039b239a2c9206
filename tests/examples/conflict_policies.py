"""The caller decides what a second submission for a busy handle does.

`reject` refuses it and names the active run, `queue` waits behind that run, `replace` cancels it and runs
next, and `join` returns a ticket for it if job and parameters are equal.
"""

import trio

from greenroom import Jobs, Run, open_engine
from greenroom.errors import Conflict

jobs = Jobs()


@jobs.job("answer")
async def answer(run: Run, params: dict) -> str:
    await trio.sleep(0.05)
    return f"answer to {params['question']}"


async def main() -> None:
    async with open_engine(jobs, store="memory:") as engine:

        async def ask(question: str, on_conflict: str = "reject"):
            return await engine.submit(
                "answer", handle="chat", params={"question": question}, on_conflict=on_conflict
            )

        first = await ask("one")
        try:
            await ask("two")
        except Conflict as error:
            print("reject:", "taken by the first:", error.details["active_run"] == first.id)

        joined = await ask("one", "join")
        print("join:", joined.joined, joined.id == first.id, await joined.result())

        first, second = await ask("three"), await ask("four", "queue")
        print("queue:", await first.result(), "and then", await second.result())

        first = await ask("five")
        replacement = await ask("six", "replace")
        print("replace:", await replacement.result())
        replaced = await engine.get_run(first.id)
        print("the run before it:", replaced.status, replaced.reason)


if __name__ == "__main__":
    trio.run(main)

# Output:
# reject: taken by the first: True
# join: True True answer to one
# queue: answer to three and then answer to four
# replace: answer to six
# the run before it: cancelled replaced
