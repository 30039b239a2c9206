"""The reason of a failure decides whether it is retried, and when.

`retry_on` and `never_on` name types of exceptions, and `backoff` can depend on the error. A body that knows
more raises `Retry(after=…)` for another attempt, or `Fail(…)` to fail without one.
"""

import trio

from greenroom import Fail, Jobs, Retry, Run, open_engine
from greenroom.errors import RunFailed

jobs = Jobs()


class Busy(OSError):
    pass


class Refused(OSError):
    pass


def backoff(attempt: int, error: Exception) -> float:
    return 0.02 if isinstance(error, Busy) else 0.01 * attempt


@jobs.job("fetch", max_attempts=4, backoff=backoff, retry_on=OSError, never_on=Refused)
async def fetch(run: Run, params: dict) -> str:
    match params["answers"][run.attempt - 1]:
        case "busy":
            raise Busy("the server is busy")
        case "come back later":
            raise Retry(after=0.05)
        case "refused":
            raise Refused("the server refuses this client")
        case "gone":
            raise Fail("the page was deleted")
        case "not a page":
            raise ValueError("not a page")
        case page:
            return page


async def main() -> None:
    async with open_engine(jobs, store="memory:") as engine:

        async def show(*answers: str) -> None:
            ticket = await engine.submit("fetch", handle="site", params={"answers": answers})
            try:
                result = await ticket.result()
            except RunFailed as failed:
                result = f"failed: {failed.run.error}"
            history = await engine.history(ticket.id)
            retries = [event for event in history if getattr(event, "reason", None) == "retry"]
            for event in retries:
                print(f"  attempt {event.attempt}: {event.error}, again after {event.retry_after} s")
            print(result)

        await show("busy", "come back later", "a page")
        await show("refused", "never requested")
        await show("gone", "never requested")
        await show("not a page", "never requested")


if __name__ == "__main__":
    trio.run(main)

# Output:
#   attempt 1: Busy: the server is busy, again after 0.02 s
#   attempt 2: Retry: another attempt after 0.05 s, again after 0.05 s
# a page
# failed: Refused: the server refuses this client
# failed: the page was deleted
# failed: ValueError: not a page
