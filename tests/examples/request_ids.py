"""A submission that may be sent twice makes one run if it has a `request_id`.

A client that lost its connection does not know whether its submission arrived. It sends it again under the
same id and gets the same run, until a day after the run's end. A different submission under that id is
refused.
"""

import trio

from greenroom import Jobs, Run, open_engine
from greenroom.errors import Conflict

jobs = Jobs()


@jobs.job("pay")
async def pay(run: Run, params: dict) -> str:
    print("paying", params["amount"])
    return "paid"


async def main() -> None:
    async with open_engine(jobs, store="memory:") as engine:
        for _ in range(2):
            ticket = await engine.submit("pay", handle="alice", params={"amount": 5}, request_id="order 7")
            print(await ticket.result(), "by an earlier submission:", ticket.joined)
        try:
            await engine.submit("pay", handle="alice", params={"amount": 6}, request_id="order 7")
        except Conflict as error:
            print("refused:", error.details["run"].id == ticket.id)


if __name__ == "__main__":
    trio.run(main)

# Output:
# paying 5
# paid by an earlier submission: False
# paid by an earlier submission: True
# refused: True
