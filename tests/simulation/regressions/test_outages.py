"""Runs that were refused because the store was down: no trace of them may remain."""

import trio

from greenroom import Jobs, Run
from greenroom.errors import Conflict, GreenroomError, Unavailable
from greenroom.simulation import World, simulate

jobs = Jobs()


@jobs.job("brief", deadline=8.0)
async def brief(run: Run) -> str:
    return "done"


@jobs.job("writes", resumable=True)
async def writes(run: Run) -> None:
    async with run.open_file("a.txt", overwrite=True) as file:
        await trio.sleep(5)
        await file.write(b"all of it")


@jobs.job("drafted")
async def drafted(run: Run, params: dict[str, int]) -> str:
    return "done"


async def refusal(call) -> str:
    try:
        await call
    except GreenroomError as error:
        return error.code
    return "accepted"


def test_a_run_that_was_refused_in_an_outage_does_not_end_when_its_deadline_passes():
    """It had a slot when the commit failed; its timers continued, and its end crashed the engine."""

    async def scenario(world: World) -> None:
        server, ann = await world.serve(jobs), world.client("ann")
        server.disk.down = True
        world.check(await refusal(ann.submit("brief", handle="h")) == "unavailable", "it was not refused")
        await trio.sleep(12)
        server.disk.down = False
        await trio.sleep(12)
        ticket = await ann.submit("brief", handle="h")
        world.check(await ticket.result() == "done", "the engine does not continue")

    simulate(58, scenario)


def test_a_run_that_was_refused_in_an_outage_is_not_cancelled_by_its_replacement():
    """The cancel of a run that was never stored crashed the engine."""

    async def scenario(world: World) -> None:
        server, ann = await world.serve(jobs), world.client("ann")
        server.disk.down = True

        async def submit(on_conflict: str) -> None:
            await refusal(ann.submit("brief", handle="h", on_conflict=on_conflict))

        async with trio.open_nursery() as nursery:
            for on_conflict in ("reject", "replace"):
                nursery.start_soon(submit, on_conflict)
            await trio.sleep(3)
            server.disk.down = False
        await trio.sleep(12)
        ticket = await ann.submit("brief", handle="h")
        world.check(await ticket.result() == "done", "the engine does not continue")

    for seed in range(174, 184):
        simulate(seed, scenario)


def test_no_reply_names_a_run_that_was_refused_in_an_outage():
    """The second received a conflict with the first, which was never stored."""

    async def scenario(world: World) -> None:
        server, ann = await world.serve(jobs), world.client("ann")
        server.disk.down = True
        known: set[str] = set()

        async def submit(on_conflict: str) -> None:
            try:
                ticket = await ann.submit("brief", handle="h", on_conflict=on_conflict)
            except Conflict as error:
                known.add(error.details["active_run"])
            except Unavailable:
                pass
            else:
                known.add(ticket.id)

        async with trio.open_nursery() as nursery:
            for on_conflict in ("reject", "reject", "join"):
                nursery.start_soon(submit, on_conflict)
            await trio.sleep(3)
            server.disk.down = False
        stored = {run.id for run in await ann.list_runs()}
        world.check(known <= stored, f"{known - stored} are named, but were never stored")

    for seed in range(82, 92):
        simulate(seed, scenario)


def test_a_submission_is_answered_in_an_outage_although_it_conflicts_with_a_refused_run():
    """It was answered only when the store was available again, which can be never."""

    async def scenario(world: World) -> None:
        server, ann = await world.serve(jobs), world.client("ann")
        server.disk.down = True
        codes: list[str] = []

        async def submit(on_conflict: str) -> None:
            codes.append(await refusal(ann.submit("brief", handle="h", on_conflict=on_conflict)))

        async with trio.open_nursery() as nursery:
            for on_conflict in ("reject", "replace"):
                nursery.start_soon(submit, on_conflict)
            await trio.sleep(0.5)
            world.check(codes == ["unavailable", "unavailable"], f"the answers are {codes}")
            server.disk.down = False

    for seed in range(174, 184):
        simulate(seed, scenario)


def test_a_disk_that_fails_during_recovery_does_not_stop_the_engine():
    """The search for unfinished files failed, and the error crashed the run's actor."""

    async def scenario(world: World) -> None:
        server, ann = await world.serve(jobs), world.client("ann")
        await ann.submit("writes", handle="h")
        await trio.sleep(1)
        await server.crash()
        server.disk.delay = (1.0, 1.0)

        async def fail_for_a_while() -> None:
            await trio.sleep(1.5)
            server.disk.down = True
            await trio.sleep(1)
            server.disk.repair()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_for_a_while)
            await server.start()
        await trio.sleep(30)
        world.check(server.running, f"the engine has stopped with {server.failure!r}")
        [run] = await ann.list_runs()
        world.check(run.ended, f"it has not ended: {run}")

    simulate(1308, scenario)


def test_a_replacement_that_is_refused_in_an_outage_cancels_nothing():
    """The previous run was cancelled when the store was available again, and nothing replaced it."""

    async def scenario(world: World) -> None:
        server, ann = await world.serve(jobs, max_concurrent=0), world.client("ann")
        before = await ann.submit("writes", handle="h")
        server.disk.fail_commit("refused")

        async def set_limit() -> None:
            await ann.set_concurrency("side", 2)  # the commit that is refused

        async with trio.open_nursery() as nursery:
            nursery.start_soon(set_limit)
            code = await refusal(ann.submit("writes", handle="h", on_conflict="replace"))
        await trio.sleep(10)
        run = await ann.get_run(before.id)
        world.check(code != "unavailable" or run.status == "queued", f"it is {run}")

    for seed in range(201466, 201486):
        simulate(seed, scenario)


def test_a_message_does_not_reach_a_run_before_it_is_created():
    """Its deadline, which had passed while its handle waited for the journal, then crashed the engine."""

    async def scenario(world: World) -> None:
        server, ann = await world.serve(jobs), world.client("ann")
        server.disk.delay = (2.0, 2.0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ann.set_concurrency, "side", 2)
            await trio.sleep(0.1)
            nursery.start_soon(
                refusal, ann.submit("drafted", handle="h", deadline=0.5)
            )  # waits for the draft
            await trio.sleep(0.1)
            nursery.start_soon(refusal, ann.inject("h", "hello"))
        await trio.sleep(10)
        world.check(server.running, f"the engine has stopped with {server.failure!r}")

    for seed in range(300423, 300443):
        simulate(seed, scenario)
