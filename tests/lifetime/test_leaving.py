"""Leaving the block: executing runs get time to finish, waiting runs stay, and nothing remains."""

import logging
import math
from typing import Any

import pytest
import trio
import trio.testing

from greenroom import Engine, Jobs, Run, Ticket, open_engine
from greenroom.errors import Draining, RunCancelled, Unavailable
from greenroom.persistence.memory import MemoryStore
from greenroom.protocol.records import RunRecord

from ..support import Bodies

PATIENCE = 1000.0


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def jobs() -> Jobs:
    """`nap` lasts as long as its parameters say; `resumable` is the same and may be executed again."""
    jobs = Jobs()

    @jobs.job("nap")
    async def nap(run: Run, params: dict[str, Any]) -> str:
        await trio.sleep(params["seconds"])
        return "slept well"

    jobs.job("resumable", resumable=True)(nap)
    return jobs


async def stored(store: MemoryStore, ticket: Ticket) -> RunRecord:
    run = await store.run(ticket.id)
    assert run is not None
    return run


async def test_leaving_waits_for_executing_runs(autojump_clock, store, jobs):
    async with open_engine(jobs, store) as engine:
        ticket = await engine.submit("nap", handle="ann", params={"seconds": 20})
        await trio.sleep(1)

    assert trio.current_time() == pytest.approx(20)
    assert (await stored(store, ticket)).status == "succeeded"


async def test_leaving_an_idle_engine_takes_no_time(autojump_clock, store, jobs):
    async with open_engine(jobs, store) as engine:
        ticket = await engine.submit("nap", handle="ann", params={"seconds": 5})
        await ticket.result()

    assert trio.current_time() == pytest.approx(5)


@pytest.mark.parametrize(
    ("given", "seconds"), [({}, 30), ({"shutdown_timeout": 7}, 7), ({"shutdown_timeout": 0}, 0)]
)
async def test_a_body_that_takes_longer_is_cancelled_after_the_timeout(
    autojump_clock, store, jobs, given, seconds
):
    async with open_engine(jobs, store, **given) as engine:
        ticket = await engine.submit("nap", handle="ann", params={"seconds": PATIENCE})
        await trio.testing.wait_all_tasks_blocked()

    run = await stored(store, ticket)
    assert (run.status, run.reason) == ("cancelled", "shutdown")
    assert trio.current_time() == pytest.approx(seconds)


async def test_without_a_limit_leaving_waits_as_long_as_it_takes(autojump_clock, store, jobs):
    async with open_engine(jobs, store, shutdown_timeout=math.inf) as engine:
        ticket = await engine.submit("nap", handle="ann", params={"seconds": PATIENCE})
        await trio.testing.wait_all_tasks_blocked()

    assert (await stored(store, ticket)).status == "succeeded"


async def test_a_resumable_run_is_suspended_instead(autojump_clock, store, jobs):
    async with open_engine(jobs, store) as engine:
        ticket = await engine.submit("resumable", handle="ann", params={"seconds": PATIENCE})
        await trio.testing.wait_all_tasks_blocked()

    run = await stored(store, ticket)
    assert (run.status, run.reason, run.attempt) == ("suspended", "shutdown", 1)
    assert trio.current_time() == pytest.approx(30)


async def test_queued_runs_stay_queued(autojump_clock, store, jobs):
    async with open_engine(jobs, store, max_concurrent=1) as engine:
        await engine.submit("nap", handle="ann", params={"seconds": 20})
        in_lane = await engine.submit("nap", handle="bob", params={"seconds": 20})
        in_handle = await engine.submit("nap", handle="ann", params={"seconds": 20}, on_conflict="queue")
        await trio.sleep(1)

    assert (await stored(store, in_lane)).status == "queued"
    assert (await stored(store, in_handle)).status == "queued"
    assert trio.current_time() == pytest.approx(20)


async def test_a_run_that_waits_for_its_next_attempt_stays_suspended(autojump_clock, store, jobs):
    @jobs.job("fails", max_attempts=2, backoff=500)
    async def fails(run: Run) -> None:
        raise ValueError("as asked")

    async with open_engine(jobs, store) as engine:
        ticket = await engine.submit("fails", handle="ann")
        await trio.sleep(1)

    run = await stored(store, ticket)
    assert (run.status, run.attempt) == ("suspended", 1)
    assert trio.current_time() == pytest.approx(1)


@pytest.mark.parametrize("release_slot", [True, False])
async def test_a_resumable_run_that_waits_stays_suspended(autojump_clock, store, jobs, release_slot):
    @jobs.job("waits", resumable=True)
    async def waits(run: Run) -> None:
        await run.sleep(PATIENCE, release_slot=release_slot)

    async with open_engine(jobs, store, shutdown_timeout=3) as engine:
        ticket = await engine.submit("waits", handle="ann")
        await trio.sleep(1)

    assert (await stored(store, ticket)).status == "suspended"


async def test_an_open_interrupt_is_answered_with_shutdown_and_the_body_may_finish(
    autojump_clock, store, jobs
):
    @jobs.job("asks")
    async def asks(run: Run) -> Any:
        first = await run.interrupt("may I?", timeout=PATIENCE)
        return [first, await run.interrupt("and now?", timeout=PATIENCE)]

    async with open_engine(jobs, store) as engine:
        ticket = await engine.submit("asks", handle="ann")
        await trio.sleep(1)

    refusal = {"approved": False, "reason": "shutdown"}
    run = await stored(store, ticket)
    assert (run.status, run.result) == ("succeeded", [refusal, refusal])
    assert trio.current_time() == pytest.approx(1)


async def test_an_interrupt_that_is_open_without_a_slot_is_closed_by_the_shutdown_too(
    autojump_clock, store, jobs
):
    @jobs.job("asks")
    async def asks(run: Run) -> Any:
        return await run.interrupt("may I?", timeout=PATIENCE, release_slot=True)

    async with open_engine(jobs, store) as engine:
        ticket = await engine.submit("asks", handle="ann")
        await trio.sleep(1)

    closed = [event for event in await store.history(ticket.id) if event.type == "interrupt_closed"]
    assert [event.outcome for event in closed] == ["shutdown"]
    assert (await stored(store, ticket)).ended


async def test_no_submission_is_accepted_during_shutdown(autojump_clock, store, jobs):
    async def submit_later(engine: Engine) -> None:
        await trio.sleep(5)
        with pytest.raises((Draining, Unavailable)):
            await engine.submit("nap", handle="bob", params={"seconds": 1})

    async with trio.open_nursery() as outside, open_engine(jobs, store) as engine:
        await engine.submit("nap", handle="ann", params={"seconds": 20})
        await trio.testing.wait_all_tasks_blocked()
        outside.start_soon(submit_later, engine)

    assert trio.current_time() == pytest.approx(20)


async def test_other_commands_are_still_accepted_during_shutdown(autojump_clock, store, jobs):
    tickets = []

    async def cancel_later(engine: Engine) -> None:
        await trio.sleep(5)
        await engine.cancel(tickets[0].id)

    async with trio.open_nursery() as outside, open_engine(jobs, store) as engine:
        tickets.append(await engine.submit("nap", handle="ann", params={"seconds": 20}))
        await trio.testing.wait_all_tasks_blocked()
        outside.start_soon(cancel_later, engine)

    run = await stored(store, tickets[0])
    assert (run.status, run.reason) == ("cancelled", "cancelled")
    assert trio.current_time() == pytest.approx(5)


async def test_callers_outside_the_block_receive_the_end_of_a_run_during_shutdown(
    autojump_clock, store, jobs
):
    heard = []

    async def hear(ticket: Ticket) -> None:
        with pytest.raises(RunCancelled) as raised:
            await ticket.result()
        heard.append(raised.value.run.reason)

    async with trio.open_nursery() as outside, open_engine(jobs, store, shutdown_timeout=1) as engine:
        outside.start_soon(hear, await engine.submit("nap", handle="ann", params={"seconds": PATIENCE}))
        await trio.sleep(1)

    assert heard == ["shutdown"]


# Bodies that do not end.


async def test_a_body_that_cannot_be_ended_is_named_and_awaited(autojump_clock, store, jobs, caplog):
    caplog.set_level(logging.ERROR, "greenroom")
    obstinacy = trio.Event()

    @jobs.job("obstinate", grace=4)
    async def obstinate(run: Run) -> None:
        with trio.CancelScope(shield=True):
            await obstinacy.wait()

    async def relent() -> None:
        await trio.sleep(100)
        named = [line for line in caplog.messages if "has not ended after its cancellation" in line]
        assert any(ticket.id in line for line in named)
        obstinacy.set()

    async with trio.open_nursery() as outside:
        outside.start_soon(relent)
        async with open_engine(jobs, store, shutdown_timeout=2) as engine:
            ticket = await engine.submit("obstinate", handle="ann")
            await trio.testing.wait_all_tasks_blocked()
        assert trio.current_time() == pytest.approx(100)

    run = await stored(store, ticket)
    assert (run.status, run.reason) == ("cancelled", "abandoned")
    assert run.ended_at is not None


async def test_waiting_for_a_body_within_its_grace_logs_nothing(autojump_clock, store, jobs, caplog):
    caplog.set_level(logging.ERROR, "greenroom")

    @jobs.job("slow", grace=10)
    async def slow(run: Run) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(8)

    async with open_engine(jobs, store, shutdown_timeout=2) as engine:
        ticket = await engine.submit("slow", handle="ann")
        await trio.testing.wait_all_tasks_blocked()

    assert trio.current_time() == pytest.approx(10)
    assert (await stored(store, ticket)).reason == "shutdown"
    assert not caplog.messages


# Cancelling the engine.


async def test_cancelling_from_outside_does_the_same_without_waiting(autojump_clock, store, jobs):
    with trio.CancelScope() as scope:
        async with open_engine(jobs, store, max_concurrent=2) as engine:
            cancelled = await engine.submit("nap", handle="ann", params={"seconds": 20})
            suspended = await engine.submit("resumable", handle="bob", params={"seconds": 20})
            queued = await engine.submit("nap", handle="cleo", params={"seconds": 20})
            await trio.sleep(1)
            scope.cancel()
            await trio.sleep(PATIENCE)

    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(1)
    states = [
        (run.status, run.reason) for ticket in (cancelled, suspended) if (run := await stored(store, ticket))
    ]
    assert states == [("cancelled", "shutdown"), ("suspended", "shutdown")]
    assert (await stored(store, queued)).status == "queued"


async def test_cancelling_during_shutdown_ends_the_wait(autojump_clock, store, jobs):
    with trio.move_on_after(5) as scope:
        async with open_engine(jobs, store) as engine:
            ticket = await engine.submit("nap", handle="ann", params={"seconds": 20})
            await trio.testing.wait_all_tasks_blocked()

    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(5)
    assert (await stored(store, ticket)).reason == "shutdown"


async def test_a_cancel_inside_the_block_is_no_cancel_of_the_engine(autojump_clock, store, jobs):
    async with open_engine(jobs, store) as engine:
        ticket = await engine.submit("nap", handle="ann", params={"seconds": 20})
        with trio.move_on_after(1):
            await ticket.result()

    assert trio.current_time() == pytest.approx(20)
    assert (await stored(store, ticket)).status == "succeeded"


async def test_a_body_may_clean_up_when_the_engine_is_cancelled(autojump_clock, store, jobs):
    cleaned = []

    @jobs.job("careful")
    async def careful(run: Run) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)
                cleaned.append(run.id)

    with trio.CancelScope() as scope:
        async with open_engine(jobs, store) as engine:
            ticket = await engine.submit("careful", handle="ann")
            await trio.sleep(1)
            scope.cancel()
            await trio.sleep(PATIENCE)

    assert cleaned == [ticket.id]
    assert trio.current_time() == pytest.approx(4)


async def test_nothing_that_the_engine_started_remains(autojump_clock, store):
    bodies = Bodies()
    before = trio.lowlevel.current_statistics().tasks_living

    async with open_engine(bodies.jobs, store, shutdown_timeout=1) as engine:
        for handle in "abcdef":
            await engine.submit("wait", handle=handle, params={}, queue_timeout=100)
        await trio.sleep(1)
        assert trio.lowlevel.current_statistics().tasks_living > before
    await trio.testing.wait_all_tasks_blocked()

    assert trio.lowlevel.current_statistics().tasks_living == before
