"""A body receives messages while it executes, for example what a user adds while a model still answers.

`inject` never waits for the body: it returns `accepted` once the message is stored, or raises an error with
the reason. A job can limit messages to the time when it streams, and receives none while it compacts.
"""

import trio

from greenroom import Jobs, Run, open_engine
from greenroom.errors import Compacting, NoActiveRun, NotStreaming

jobs = Jobs()


@jobs.job("chat", accepts="streaming")
async def chat(run: Run) -> list[str]:
    await run.log("thinking")
    await run.sleep(0.1)
    async with run.streaming():
        heard = [await run.next_message()]  # waits for one
        await run.sleep(0.1)
        heard += await run.messages()  # takes all that wait
        async with run.compacting(timeout=1):
            await run.sleep(0.1)
    return heard


async def main() -> None:
    async with open_engine(jobs, store="memory:") as engine:

        async def say(message: str) -> None:
            try:
                print(f"{message}:", await engine.inject("room", message))
            except (NotStreaming, Compacting, NoActiveRun) as refusal:
                print(f"{message}:", refusal.code)

        await say("anyone there?")
        phases = engine.events(filter={"types": ["run_log", "run_changed"]})
        ticket = await engine.submit("chat", handle="room")
        await anext(phases)  # it thinks
        await say("hello")
        await anext(phases)  # it streams
        for message in ("one", "two", "three"):
            await say(message)
        await anext(phases)  # it compacts
        await say("four")
        print("heard:", await ticket.result())


if __name__ == "__main__":
    trio.run(main)

# Output:
# anyone there?: no_active_run
# hello: not_streaming
# one: accepted
# two: accepted
# three: accepted
# four: compacting
# heard: ['one', 'two', 'three']
