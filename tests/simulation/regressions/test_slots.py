"""Slots of ending runs are granted to others before the ends are committed: what can happen in between."""

from contextlib import suppress
from random import Random

import trio

from greenroom import Jobs, Run
from greenroom.errors import GreenroomError
from greenroom.simulation import World, simulate
from greenroom.simulation.scenarios.by_name import find

jobs = Jobs()


@jobs.job("short", max_attempts=2, backoff=0.0, grace=1.0)
async def short(run: Run, params: dict[str, int]) -> None:
    if params["writes"]:
        async with run.open_file("page", overwrite=True) as file:
            await file.write(b"text")
    for _ in range(params["turns"]):
        await trio.lowlevel.checkpoint()
    if params["fails"] >= run.attempt:
        raise ValueError("as asked")
    if params["clings"]:
        with trio.CancelScope(shield=True):
            await trio.sleep(3)


async def hurried(world: World) -> None:
    """Many short runs with few slots, while commits fail, lanes are reset, and the engine drains."""
    server, calls = await world.serve(jobs, max_concurrent=2), 0
    disk = server.disk

    async def call(random: Random) -> None:
        nonlocal calls
        calls += 1
        ann, what = world.client(f"ann {calls}"), random.random()
        with suppress(GreenroomError):
            if what < 0.6:
                params = {
                    "writes": random.random() < 0.3,
                    "turns": random.choice((0, 1, 4)),
                    "fails": random.choice((0, 0, 1)),
                    "clings": random.random() < 0.1,
                }
                handle, lane = random.choice("abcd"), random.choice(("main", "side"))
                ticket = await ann.submit(
                    "short", handle=handle, lane=lane, params=params, on_conflict="queue"
                )
                if random.random() < 0.3:
                    await ticket.cancel(files=random.choice(("keep", "delete")))
            elif what < 0.7:
                trouble = random.choice(
                    ("lost_request", "lost_reply", "refused", "crash_before", "crash_after")
                )
                disk.fail_commit(trouble, after=random.randint(0, 3))
            elif what < 0.8:
                await ann.reset_lanes()
            elif what < 0.9:
                await ann.set_max_concurrent(random.choice((1, 2, 3)))
            else:
                await ann.drain()
                before = {run.id for run in server.rules.model.holders()}
                if await ann.wait_for_active(5):
                    left = before & {run.id for run in server.rules.model.holders()}
                    world.check(not left, f"waited for the executing runs, but these still execute: {left}")
                await ann.resume()

    async with trio.open_nursery() as nursery:
        async for step in world.steps(40):
            with suppress(GreenroomError):  # the commit of a start can fail, too
                if not (server.running or server.starting):
                    await server.start()
            nursery.start_soon(call, step.random)
            for _ in range(step.random.choice((0, 1, 2, 5))):
                await trio.lowlevel.checkpoint()
            if step.random.random() < 0.1:
                await trio.sleep(step.random.choice((0.1, 1.0)))
    disk.repair()
    if not server.running:
        await server.start()
    await world.client("the end").resume()
    await trio.sleep(30)
    left = list(server.rules.model.pending.values())
    world.check(not left, f"not ended: {left}")


def test_a_start_may_pass_over_a_lane_whose_slot_was_released_before_that_of_an_ended_run():
    """The rules assumed that slots are released in the order of their events."""
    for seed in (15, 57, 99, 123, 177):
        simulate(seed, find("commands"))


def test_slots_that_are_granted_early_break_no_rule_for_any_outcome_of_the_commits():
    for seed in range(60):
        simulate(seed, hurried)
