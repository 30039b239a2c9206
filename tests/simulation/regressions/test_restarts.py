"""State that was lost in a restart."""

from contextlib import suppress

import trio

from greenroom import Jobs, Run
from greenroom.errors import Conflict, Unavailable
from greenroom.simulation import World, simulate

jobs = Jobs()


@jobs.job("again", resumable=True)
async def again(run: Run) -> int:
    return run.attempt


@jobs.job("long", resumable=True)
async def long(run: Run) -> None:
    await run.sleep(100, release_slot=False)


@jobs.job("brief", resumable=True)
async def brief(run: Run) -> None:
    await run.sleep(5, release_slot=False)


@jobs.job("lingering", resumable=True)
async def lingering(run: Run) -> None:
    try:
        await trio.sleep(2)
        await run.sleep(5)
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)


@jobs.job("writing", resumable=True)
async def writing(run: Run) -> None:
    if run.checkpoint is None:
        async with run.open_file("page") as file:
            await file.write(b"text")
        await run.save_checkpoint("written")
    await trio.sleep(5)


@jobs.job("stubborn")
async def stubborn(run: Run) -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(5)


def test_a_run_that_was_queued_when_the_engine_stopped_starts_with_its_first_attempt():
    """A resumable run started with attempt 0."""

    async def scenario(world: World) -> None:
        server, ann = await world.serve(jobs, max_concurrent=0), world.client("ann")
        ticket = await ann.submit("again", handle="h")
        await server.stop()
        await server.start(max_concurrent=1)
        await trio.sleep(1)
        run = await ann.get_run(ticket.id)
        world.check((run.attempt, run.result) == (1, 1), f"it is {run}")

    simulate(2, scenario)


def test_after_a_crash_between_a_replacement_and_its_cancel_the_replaced_run_still_ends():
    """After the restart the replaced run continued, and the replacement waited for its end."""

    async def scenario(world: World) -> None:
        server, ann = await world.serve(jobs), world.client("ann")
        await ann.submit("long", handle="h")
        await trio.sleep(1)
        server.disk.fail_commit("crash_after")
        with suppress(Unavailable):
            await ann.submit("again", handle="h", on_conflict="replace")
        await server.ended()
        await server.start()
        await trio.sleep(10)
        after, before = [(run.status, run.reason) for run in await ann.list_runs()]
        world.check(before == ("cancelled", "replaced"), f"the run before is {before}")
        world.check(after == ("succeeded", None), f"the replacement is {after}")

    for seed in (52, 116, 185, 353, 365):
        simulate(seed, scenario)


def test_a_replacement_that_was_superseded_just_before_a_crash_stays_superseded():
    """After the restart it waited again, and started when the newer one had ended."""

    async def scenario(world: World) -> None:
        server, ann = await world.serve(jobs), world.client("ann")
        await ann.submit("stubborn", handle="h")
        await trio.sleep(1)
        older = await ann.submit("again", handle="h", on_conflict="replace")
        server.disk.fail_commit("crash_after")
        with suppress(Unavailable):
            await ann.submit("again", handle="h", on_conflict="replace")
        await server.ended()
        await server.start()
        await trio.sleep(100)
        superseded = len(await ann.list_runs()) == 3
        run = await ann.get_run(older.id)
        ended = ("cancelled", 0) if superseded else ("succeeded", 1)
        world.check((run.status, run.attempt) == ended, f"it is {run}")

    for seed in (201, 212, 535, 571, 573):
        simulate(seed, scenario)


def test_a_run_that_was_being_cancelled_when_the_engine_crashed_is_not_joined():
    """A restored handle did not know that it was being cancelled."""

    async def scenario(world: World) -> None:
        server, ann = await world.serve(jobs), world.client("ann")
        ticket = await ann.submit("stubborn", handle="h")
        await trio.sleep(1)
        await ticket.cancel()
        await server.crash()
        await server.start()
        with suppress(Conflict):
            joined = await ann.submit("stubborn", handle="h", on_conflict="join")
            world.check(not joined.joined, "it has joined a run that is being cancelled")

    for seed in range(244, 264):
        simulate(seed, scenario)


def test_after_a_restart_a_run_that_was_submitted_later_but_has_a_lower_place_is_not_overtaken():
    """It entered its lane after one with a higher place; a lane that had reported earlier got the slot."""

    async def scenario(world: World) -> None:
        server, ann = await world.serve(jobs, max_concurrent=0), world.client("ann")
        first = await ann.submit("brief", handle="a", lane="side")
        await ann.submit("brief", handle="a", lane="side", on_conflict="queue")
        await ann.submit("brief", handle="b", lane="side")
        await ann.submit("brief", handle="c")
        await first.cancel()  # now the second run draws its place, after all others
        await server.crash()
        await server.start(max_concurrent=1)
        await trio.sleep(1)

    for seed in range(10):
        simulate(seed, scenario)


def test_a_suspect_that_is_cancelled_as_its_wait_ends_is_tried_alone_until_its_body_has_ended():
    """Its start was decided, but lost against the cancel; then the next suspect started before its body
    ended."""

    async def scenario(world: World) -> None:
        server, ann = await world.serve(jobs, max_concurrent=2), world.client("ann")
        ticket = await ann.submit("lingering", handle="a")
        await ann.submit("lingering", handle="b")
        for _ in range(2):
            await trio.sleep(1)
            await server.crash()
            await server.start()
        await trio.sleep(7)
        await ticket.cancel()
        await trio.sleep(20)

    for seed in range(20):
        simulate(seed, scenario)


def test_a_suspect_that_is_cancelled_as_it_starts_is_on_trial_until_its_files_are_deleted():
    """It withdrew its request after a slot had been granted, and the next suspect started at the same
    time."""

    async def scenario(world: World) -> None:
        server, ann = await world.serve(jobs, max_concurrent=2), world.client("ann")
        ticket = await ann.submit("writing", handle="a")
        await ann.submit("writing", handle="b")
        await trio.sleep(1)
        await server.crash()
        server.disk.delete_delay = (5.0, 5.0)
        await server.start()
        await ticket.cancel(files="delete")
        await trio.sleep(20)

    for seed in range(10):
        simulate(seed, scenario)
