"""Runs that are to be replaced."""

import trio

from greenroom import Jobs, Run
from greenroom.simulation import World, simulate

jobs = Jobs()


@jobs.job("finishes", max_attempts=3, backoff=1.0)
async def finishes(run: Run) -> None:
    await run.end_interactive()
    await trio.sleep(2)
    raise ValueError("as asked")


@jobs.job("next")
async def next_(run: Run) -> str:
    return "done"


def test_a_run_that_fails_in_post_processing_is_not_retried_before_its_replacement():
    """Post-processing refuses the cancel, and is awaited; then the replacement starts."""

    async def scenario(world: World) -> None:
        await world.serve(jobs)
        ann = world.client("ann")
        before = await ann.submit("finishes", handle="h")
        await trio.sleep(1)
        after = await ann.submit("next", handle="h", on_conflict="replace")
        world.check(await after.result() == "done", "the replacement has not run")
        run = await ann.get_run(before.id)
        world.check(run.attempt == 1, f"it was retried: {run}")

    simulate(200756, scenario)
