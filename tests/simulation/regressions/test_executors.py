"""Defects of executors that the simulation has found."""

import trio

from greenroom.simulation import World, simulate
from tests.simulation.test_executors import ends_of, jobs


def test_a_body_that_waits_without_a_slot_keeps_its_attempt_when_the_engine_restarts():
    async def scenario(world: World) -> None:
        server = await world.serve(jobs, executors=0)
        world.executor("e1")
        run = (await world.client("ann").submit("waits", handle="h")).id
        await trio.sleep(5)
        await server.crash()
        await server.start()
        await trio.sleep(30)
        record = await world.client("ann").get_run(run)
        world.check((record.status, record.result) == ("succeeded", 1), f"its attempt was lost: {record}")

    simulate(1, scenario)


def test_the_handle_of_an_abandoned_body_is_kept_while_the_engine_restarts():
    async def scenario(world: World) -> None:
        server = await world.serve(jobs, executors=0)
        world.executor("e1")
        ann = world.client("ann")
        clinging = await ann.submit("clings", handle="h", params={"seconds": 20})
        await trio.sleep(1)
        await clinging.cancel()
        next_one = await ann.submit("works", handle="h", params={"parts": 0}, on_conflict="queue")
        await trio.sleep(5)
        await server.crash()
        await server.start()
        await trio.sleep(5)
        record = await ann.get_run(next_one.id)
        world.check(record.status == "queued", f"it did not wait: {record}")
        await trio.sleep(20)
        record = await ann.get_run(next_one.id)
        world.check(record.status == "succeeded", f"it still waits: {record}")

    simulate(1, scenario)


def test_an_executor_ends_when_it_was_lost_and_a_body_ignores_its_cancellation():
    async def scenario(world: World) -> None:
        await world.serve(jobs, executors=0)
        executor = world.executor("e1")
        await world.client("ann").submit("clings", handle="h", params={"seconds": 300})
        await trio.sleep(1)
        executor.pause()
        await trio.sleep(31)
        executor.go_on()
        await trio.sleep(10)
        world.check(executor.life is None, "its process still executes the body that it has lost")

    for seed in range(3):
        simulate(seed, scenario)


def test_a_run_continues_elsewhere_when_its_body_ends_after_the_grace_of_a_drained_executor():
    async def scenario(world: World) -> None:
        await world.serve(jobs, executors=0)
        first = world.executor("e1", shutdown_timeout=1)
        ticket = await world.client("ann").submit("lingers", handle="h", params={"seconds": 15})
        await trio.sleep(1)
        world.executor("e2")
        await trio.sleep(1)
        first.drain()
        with trio.fail_after(60):
            await ticket.result()
        world.check("at e2" in ends_of(world)[-1], f"it did not continue: {ends_of(world)}")

    simulate(1, scenario)


def test_a_run_that_continues_elsewhere_keeps_its_deadline():
    async def scenario(world: World) -> None:
        await world.serve(jobs, executors=0)
        first = world.executor("e1", shutdown_timeout=1)
        ticket = await world.client("ann").submit("works", handle="h", params={"parts": 9}, deadline=40)
        await trio.sleep(1)
        world.executor("e2")
        await trio.sleep(1)
        first.drain()
        await trio.sleep(45)
        record = await world.client("ann").get_run(ticket.id)
        world.check(record.status == "timed_out", f"its deadline was lost: {record}")

    simulate(1, scenario)
