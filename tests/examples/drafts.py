"""A handle keeps draft parameters: what a user has typed before pressing the button.

A submission without parameters uses the draft, checked against the job. While the handle has a run, its
draft is locked; the run's own parameters never change.
"""

import msgspec
import trio

from greenroom import Jobs, Run, open_engine
from greenroom.errors import HandleLocked, Invalid

jobs = Jobs()


class Trip(msgspec.Struct):
    to: str
    days: int = 1


@jobs.job("book")
async def book(run: Run, params: Trip) -> str:
    await trio.sleep(0.01)
    return f"{params.days} days in {params.to}"


async def main() -> None:
    async with open_engine(jobs, store="memory:") as engine:
        await engine.set_params("alice", {"to": "Lisbon", "days": "three"})
        try:
            await engine.submit("book", handle="alice")
        except Invalid as error:
            print(error)

        await engine.set_params("alice", {"to": "Lisbon", "days": 3})
        ticket = await engine.submit("book", handle="alice")
        try:
            await engine.set_params("alice", {"to": "Oslo"})
        except HandleLocked as error:
            print("locked by that run:", error.details["active_run"] == ticket.id)
        print(await ticket.result())

        await engine.set_params("alice", {"to": "Oslo"})
        print((await engine.snapshot()).handles["alice"].params)


if __name__ == "__main__":
    trio.run(main)

# Output:
# parameters of job "book": params.days: expected integer, got string "three"
# locked by that run: True
# 3 days in Lisbon
# {'to': 'Oslo'}
