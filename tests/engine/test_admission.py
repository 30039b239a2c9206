"""The results of a submission: accepted, refused, or answered with an existing run."""

import math
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from greenroom import Engine, Run, Ticket
from greenroom.errors import Conflict, Draining, GreenroomError, Invalid, QueueFull, RunCancelled, TooLarge
from greenroom.protocol.values import shown
from tests.support import open_engine

from ..support import PATIENCE, Bodies, until, until_status

DAY = 24 * 3600.0

POLICIES = ("reject", "queue", "replace", "join", "coalesce")


class Page(msgspec.Struct):
    url: str
    pages: int = 10


@pytest.fixture
def bodies() -> Bodies:
    """The jobs of these tests; each body lasts until the test ends it."""
    bodies = Bodies()

    @bodies.jobs.job("waits without its slot")
    async def waits_without_slot(run: Run, params: dict[str, Any]) -> str:
        await run.sleep(30)
        return await bodies.wait(run, params)

    @bodies.jobs.job("fails at first", max_attempts=2, backoff=30)
    async def fails_at_first(run: Run, params: dict[str, Any]) -> str:
        if run.attempt == 1:
            raise OSError("not yet")
        return await bodies.wait(run, params)

    @bodies.jobs.job("post-processes")
    async def post_processes(run: Run, params: dict[str, Any]) -> str:
        await run.end_interactive()
        return await bodies.wait(run, params)

    @bodies.jobs.job("page")
    async def page(run: Run, params: Page) -> None:
        await trio.sleep_forever()

    @bodies.jobs.job("takes nothing")
    async def takes_nothing(run: Run) -> None:
        await trio.sleep_forever()

    return bodies


# The admitted run of "alice", in every state that it can be in when another submission arrives.


async def queued(engine: Engine) -> Ticket:
    return await engine.submit("wait", handle="alice", params={"n": 1}, lane="paused")


async def running(engine: Engine) -> Ticket:
    ticket = await engine.submit("wait", handle="alice", params={"n": 1})
    await until_status(engine, ticket, "running")
    return ticket


async def suspended(engine: Engine) -> Ticket:
    ticket = await engine.submit("waits without its slot", handle="alice", params={"n": 1})
    await until_status(engine, ticket, "suspended")
    return ticket


async def between_attempts(engine: Engine) -> Ticket:
    ticket = await engine.submit("fails at first", handle="alice", params={"n": 1})
    await until_status(engine, ticket, "suspended")
    return ticket


async def cancelling(engine: Engine) -> Ticket:
    ticket = await engine.submit("stubborn", handle="alice", params={"n": 1})
    await until_status(engine, ticket, "running")
    await wait_all_tasks_blocked()  # now the body has begun, and ignores its cancel
    await ticket.cancel()
    return ticket


async def post_processing(engine: Engine) -> Ticket:
    ticket = await engine.submit("post-processes", handle="alice", params={"n": 1})
    await until_status(engine, ticket, "running")
    await wait_all_tasks_blocked()
    assert not (await engine.get_run(ticket.id)).interactive
    return ticket


Reach = Callable[[Engine], Awaitable[Ticket]]

CANCELLABLE: tuple[Reach, ...] = (queued, running, suspended, between_attempts)
UNSTOPPABLE: tuple[Reach, ...] = (cancelling, post_processing)
JOINABLE: tuple[Reach, ...] = (*CANCELLABLE, post_processing)
EVERY: tuple[Reach, ...] = (*CANCELLABLE, *UNSTOPPABLE)

in_every_state = pytest.mark.parametrize("reach", EVERY)


# A submission that is accepted.


async def test_a_run_is_committed_when_submit_returns(autojump_clock, bodies):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        ticket = await engine.submit("wait", handle="alice", params={"n": 1}, lane="paused", by="test")
        run = (await engine.snapshot()).runs[ticket.id]
        assert (run.status, run.handle, run.lane, run.job) == ("queued", "alice", "paused", "wait")
        assert (run.kind, run.params, run.attempt) == ("start", {"n": 1}, 0)
        [event] = await engine.history(ticket.id)
        assert (event.type, event.to, event.by) == ("run_state_changed", "queued", "test")
        assert not ticket.joined


async def test_a_run_has_a_time_ordered_uuid_for_an_id(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        tickets = []
        for handle in ("alice", "bob", "carol"):
            tickets.append(await engine.submit("wait", handle=handle))
            await trio.sleep(1)
        ids = [ticket.id for ticket in tickets]
        assert ids == sorted(ids)
        assert [uuid.UUID(hex=id).version for id in ids] == [7, 7, 7]


async def test_a_ticket_returns_the_result_of_its_run(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        ticket = await engine.submit("wait", handle="alice")
        bodies.end(ticket)
        assert await ticket.result() == "done for alice"


async def test_parameters_that_the_caller_changes_afterwards_stay_as_submitted(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        params = {"pages": [1]}
        ticket = await engine.submit("wait", handle="alice", params=params)
        params["pages"].append(2)
        assert (await engine.get_run(ticket.id)).params == {"pages": [1]}


async def test_a_lane_given_with_a_submission_wins_over_that_of_its_job(autojump_clock, bodies):
    bodies.jobs.job("elsewhere", lane="of the job")(bodies.wait)
    async with open_engine(bodies.jobs) as engine:
        plain = await engine.submit("elsewhere", handle="alice")
        moved = await engine.submit("elsewhere", handle="bob", lane="of the call")
        runs = (await engine.snapshot()).runs
        assert (runs[plain.id].lane, runs[moved.id].lane) == ("of the job", "of the call")


@pytest.mark.parametrize("on_conflict", POLICIES)
async def test_under_any_policy_a_free_handle_admits_immediately(autojump_clock, bodies, on_conflict):
    async with open_engine(bodies.jobs) as engine:
        ticket = await engine.submit("wait", handle="alice", on_conflict=on_conflict)
        snapshot = await until_status(engine, ticket, "running")
        assert snapshot.handles["alice"].active_run == ticket.id
        assert not ticket.joined


@pytest.mark.parametrize("on_conflict", POLICIES)
async def test_under_any_policy_a_handle_is_free_again_when_its_run_has_ended(
    autojump_clock, bodies, on_conflict
):
    async with open_engine(bodies.jobs) as engine:
        first = await engine.submit("wait", handle="alice")
        bodies.end(first)
        await first.result()
        second = await engine.submit("wait", handle="alice", on_conflict=on_conflict)
        assert second.id != first.id
        assert not second.joined


async def test_one_of_many_concurrent_submissions_for_a_handle_is_admitted(autojump_clock, bodies):
    accepted: list[Ticket] = []
    conflicts: list[Conflict] = []

    async def submit() -> None:
        try:
            accepted.append(await engine.submit("wait", handle="alice"))
        except Conflict as error:
            conflicts.append(error)

    async with open_engine(bodies.jobs) as engine:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(submit)
        [ticket] = accepted
        assert {error.details["active_run"] for error in conflicts} == {ticket.id}
        assert len(conflicts) == 19


# reject


@in_every_state
async def test_a_second_start_for_a_busy_handle_is_refused_with_the_active_run(autojump_clock, bodies, reach):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        admitted = await reach(engine)
        before = await engine.snapshot()
        with pytest.raises(Conflict) as refused:
            await engine.submit("wait", handle="alice", params={"n": 1})
        assert refused.value.details["active_run"] == admitted.id
        assert await engine.snapshot() == before


async def test_an_abandoned_body_keeps_its_handle_busy(autojump_clock, bodies):
    bodies.jobs.job("abandoned", grace=1)(bodies.ignore_cancel)
    async with open_engine(bodies.jobs) as engine:
        abandoned = await engine.submit("abandoned", handle="alice")
        await until_status(engine, abandoned, "running")
        await wait_all_tasks_blocked()
        await abandoned.cancel()
        await until_status(engine, abandoned, "cancelled")
        with pytest.raises(Conflict) as refused:
            await engine.submit("wait", handle="alice")
        assert refused.value.details["active_run"] == abandoned.id
        bodies.end(abandoned)


# queue


@in_every_state
async def test_a_queueing_submission_waits_in_its_handle_until_the_admitted_run_has_ended(
    autojump_clock, bodies, reach
):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        admitted = await reach(engine)
        waiting = await engine.submit("wait", handle="alice", on_conflict="queue")
        snapshot = await engine.snapshot()
        assert snapshot.handles["alice"].active_run == admitted.id
        assert snapshot.handles["alice"].waiting == [waiting.id]
        run = snapshot.runs[waiting.id]
        assert (run.status, run.place) == ("queued", None)

        await engine.set_concurrency("paused", 1)
        bodies.end(admitted)
        snapshot = await until_status(engine, waiting, "running")
        assert snapshot.runs[admitted.id].ended
        assert snapshot.handles["alice"].active_run == waiting.id
        assert snapshot.handles["alice"].waiting == []


async def test_a_waiting_run_draws_its_place_when_it_is_admitted(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_concurrent=1) as engine:
        first = await engine.submit("wait", handle="alice")
        second = await engine.submit("wait", handle="alice", on_conflict="queue")
        other = await engine.submit("wait", handle="bob")
        bodies.end(first)
        await first.result()
        snapshot = await until(engine, lambda s: s.handles["alice"].active_run == second.id)
        assert snapshot.runs[second.id].place > snapshot.runs[other.id].place


# replace


@pytest.mark.parametrize("reach", CANCELLABLE)
async def test_a_replacement_cancels_the_admitted_run_and_runs_next(autojump_clock, bodies, reach):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        admitted = await reach(engine)
        replacement = await engine.submit("wait", handle="alice", on_conflict="replace", by="test")
        await until_status(engine, replacement, "running")
        with pytest.raises(RunCancelled) as cancelled:
            await admitted.result()
        assert cancelled.value.run.reason == "replaced"
        assert (await engine.history(admitted.id))[-1].by == "test"


@pytest.mark.parametrize("reach", UNSTOPPABLE)
async def test_a_replacement_waits_for_a_run_that_is_being_cancelled_or_post_processes(
    autojump_clock, bodies, reach
):
    async with open_engine(bodies.jobs) as engine:
        admitted = await reach(engine)
        replacement = await engine.submit("wait", handle="alice", on_conflict="replace")
        await trio.sleep(100)
        assert replacement.id not in bodies.begun
        bodies.end(admitted)
        assert await admitted.result() == "done for alice"
        await until_status(engine, replacement, "running")


@in_every_state
async def test_a_replacement_precedes_waiting_runs(autojump_clock, bodies, reach):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        admitted = await reach(engine)
        waiting = [await engine.submit("wait", handle="alice", on_conflict="queue") for _ in range(2)]
        replacement = await engine.submit("wait", handle="alice", on_conflict="replace")
        bodies.end(admitted, replacement, *waiting)
        await waiting[-1].result()
        expected = [replacement.id, *(ticket.id for ticket in waiting)]
        assert [id for id in bodies.begun if id != admitted.id] == expected


@pytest.mark.parametrize("reach", UNSTOPPABLE)
async def test_a_newer_replacement_supersedes_one_that_has_not_started(autojump_clock, bodies, reach):
    async with open_engine(bodies.jobs) as engine:
        admitted = await reach(engine)
        older = await engine.submit("wait", handle="alice", on_conflict="replace")
        newer = await engine.submit("wait", handle="alice", on_conflict="replace")
        snapshot = await until_status(engine, older, "cancelled")
        assert snapshot.runs[older.id].reason == "replaced"
        assert snapshot.handles["alice"].waiting == [newer.id]
        bodies.end(admitted)
        await until_status(engine, newer, "running")
        assert older.id not in bodies.begun


async def test_a_newer_replacement_supersedes_one_that_waits_for_a_slot(autojump_clock, bodies):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        await running(engine)
        older = await engine.submit("wait", handle="alice", lane="paused", on_conflict="replace")
        await until(engine, lambda snapshot: snapshot.handles["alice"].active_run == older.id)
        newer = await engine.submit("wait", handle="alice", on_conflict="replace")
        snapshot = await until_status(engine, newer, "running")
        assert snapshot.runs[older.id].status == "cancelled"


async def test_one_of_many_concurrent_replacements_runs(autojump_clock, bodies):
    tickets: list[Ticket] = []

    async def replace() -> None:
        tickets.append(await engine.submit("wait", handle="alice", on_conflict="replace"))

    async with open_engine(bodies.jobs) as engine:
        await cancelling(engine)
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(replace)
        await wait_all_tasks_blocked()
        snapshot = await engine.snapshot()
        statuses = Counter(str(snapshot.runs[ticket.id].status) for ticket in tickets)
        assert statuses == {"cancelled": 19, "queued": 1}


async def test_a_replacement_supersedes_no_run_that_only_waits(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        admitted = await cancelling(engine)
        waiting = await engine.submit("wait", handle="alice", on_conflict="queue")
        replacement = await engine.submit("wait", handle="alice", on_conflict="replace")
        newer = await engine.submit("wait", handle="alice", on_conflict="replace")
        bodies.end(admitted, newer, waiting)
        assert await waiting.result() == "done for alice"
        assert (await engine.get_run(replacement.id)).status == "cancelled"


async def test_after_a_cancelled_replacement_the_waiting_runs_are_admitted(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        admitted = await cancelling(engine)
        waiting = await engine.submit("wait", handle="alice", on_conflict="queue")
        replacement = await engine.submit("wait", handle="alice", on_conflict="replace")
        await replacement.cancel()
        bodies.end(admitted)
        await until_status(engine, waiting, "running")
        assert replacement.id not in bodies.begun


# join


@pytest.mark.parametrize("reach", JOINABLE)
async def test_an_equal_submission_joins_the_admitted_run(autojump_clock, bodies, reach):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        admitted = await reach(engine)
        job = (await engine.get_run(admitted.id)).job
        before = await engine.snapshot()
        joined = await engine.submit(job, handle="alice", params={"n": 1}, on_conflict="join")
        assert (joined.id, joined.joined) == (admitted.id, True)
        assert await engine.snapshot() == before

        await engine.set_concurrency("paused", 1)
        bodies.end(admitted)
        assert await joined.result() == await admitted.result() == "done for alice"


@pytest.mark.parametrize("reach", JOINABLE)
@pytest.mark.parametrize("difference", ["job", "parameters"])
async def test_an_unequal_submission_cannot_join(autojump_clock, bodies, reach, difference):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        admitted = await reach(engine)
        job = (await engine.get_run(admitted.id)).job
        params = {"n": 1}
        if difference == "job":
            job = "stubborn"
        else:
            params = {"n": 2}
        with pytest.raises(Conflict) as refused:
            await engine.submit(job, handle="alice", params=params, on_conflict="join")
        assert refused.value.details["active_run"] == admitted.id


async def test_a_run_that_is_being_cancelled_cannot_be_joined(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        admitted = await cancelling(engine)
        with pytest.raises(Conflict) as refused:
            await engine.submit("stubborn", handle="alice", params={"n": 1}, on_conflict="join")
        assert refused.value.details["active_run"] == admitted.id


async def test_a_submission_without_parameters_joins_by_its_handles_draft(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await engine.set_params("alice", {"n": 1})
        admitted = await running(engine)
        joined = await engine.submit("wait", handle="alice", on_conflict="join")
        assert (joined.id, joined.joined) == (admitted.id, True)


async def test_concurrent_joins_all_get_the_same_run(autojump_clock, bodies):
    tickets: list[Ticket] = []

    async def join() -> None:
        tickets.append(await engine.submit("wait", handle="alice", on_conflict="join"))

    async with open_engine(bodies.jobs) as engine:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(join)
        assert len({ticket.id for ticket in tickets}) == 1
        assert sorted(ticket.joined for ticket in tickets) == [False] + [True] * 19


# request_id


async def test_the_same_request_id_twice_is_one_run(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        first = await engine.submit("wait", handle="alice", request_id="r")
        again = await engine.submit("wait", handle="alice", request_id="r")
        assert (again.id, first.joined, again.joined) == (first.id, False, True)
        bodies.end(first)
        assert await again.result() == "done for alice"


async def test_concurrent_repeats_are_one_run(autojump_clock, bodies):
    tickets: list[Ticket] = []

    async def submit() -> None:
        tickets.append(await engine.submit("wait", handle="alice", request_id="r"))

    async with open_engine(bodies.jobs) as engine:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(submit)
        assert len({ticket.id for ticket in tickets}) == 1
        assert sorted(ticket.joined for ticket in tickets) == [False] + [True] * 19
        assert len((await engine.snapshot()).runs) == 1


@pytest.mark.parametrize("on_conflict", POLICIES)
async def test_a_repeat_is_answered_before_its_policy_is_checked(autojump_clock, bodies, on_conflict):
    async with open_engine(bodies.jobs) as engine:
        first = await engine.submit("wait", handle="alice", request_id="r", on_conflict=on_conflict)
        await wait_all_tasks_blocked()
        before = await engine.snapshot()
        again = await engine.submit("wait", handle="alice", request_id="r", on_conflict=on_conflict)
        assert again.id == first.id
        assert await engine.snapshot() == before


async def test_a_repeat_is_answered_while_draining(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        first = await engine.submit("wait", handle="alice", request_id="r")
        await engine.drain()
        assert (await engine.submit("wait", handle="alice", request_id="r")).id == first.id
        with pytest.raises(Draining):
            await engine.submit("wait", handle="bob", request_id="another")


async def test_a_repeat_is_answered_at_max_pending(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_pending=1) as engine:
        first = await engine.submit("wait", handle="alice", request_id="r")
        assert (await engine.submit("wait", handle="alice", request_id="r")).id == first.id


@pytest.mark.parametrize(
    "other",
    [
        {"job": "stubborn"},
        {"handle": "bob"},
        {"params": {"n": 2}},
        {"params": None},
        {"kind": "continue"},
        {"lane": "other"},
        {"needs": ["gpu"]},
    ],
)
async def test_a_different_payload_under_the_same_request_id_is_a_conflict(autojump_clock, bodies, other):
    payload: dict[str, Any] = {"job": "wait", "handle": "alice", "params": {"n": 1}}
    async with open_engine(bodies.jobs) as engine:
        first = await engine.submit(**payload, request_id="r")
        await wait_all_tasks_blocked()
        before = await engine.snapshot()
        with pytest.raises(Conflict) as refused:
            await engine.submit(**(payload | other), request_id="r")
        assert refused.value.details["run"].id == first.id
        assert '"r"' in str(refused.value)
        assert await engine.snapshot() == before


async def test_the_order_of_keys_makes_no_different_payload(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        first = await engine.submit("wait", handle="alice", params={"a": 1, "b": 2}, request_id="r")
        again = await engine.submit("wait", handle="alice", params={"b": 2, "a": 1}, request_id="r")
        assert again.id == first.id


async def test_the_order_of_needs_makes_no_different_payload(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await engine.set_max_concurrent(0)
        first = await engine.submit("wait", handle="alice", needs=["gpu", "big"], request_id="r")
        again = await engine.submit("wait", handle="alice", needs=("big", "gpu"), request_id="r")
        assert again.id == first.id
        with pytest.raises(Conflict):
            await engine.submit("wait", handle="alice", needs=["gpu"], request_id="r")


@pytest.mark.parametrize("ending", ["succeeded", "cancelled"])
async def test_a_repeat_within_a_day_after_the_end_gets_the_ended_run(autojump_clock, bodies, ending):
    async with open_engine(bodies.jobs) as engine:
        first = await engine.submit("wait", handle="alice", request_id="r")
        if ending == "succeeded":
            bodies.end(first)
        else:
            await first.cancel()
        await until_status(engine, first, ending)
        await trio.sleep(DAY - 1)
        again = await engine.submit("wait", handle="alice", request_id="r")
        assert (again.id, again.joined) == (first.id, True)
        assert await again.wait(timeout=0.001)
        if ending == "cancelled":
            with pytest.raises(RunCancelled):
                await again.result()
        else:
            assert await again.result() == "done for alice"


async def test_a_request_id_expires_a_day_after_the_end(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        first = await engine.submit("wait", handle="alice", request_id="r")
        bodies.end(first)
        await first.result()
        await trio.sleep(DAY + 1)
        again = await engine.submit("wait", handle="alice", request_id="r")
        assert again.id != first.id


async def test_repeats_of_a_request_id_use_no_memory_and_get_the_end(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        tickets = [
            await engine.submit("wait", handle="alice", request_id="r", on_conflict="join") for _ in range(50)
        ]
        tickets += [await engine.submit("wait", handle="alice", on_conflict="join") for _ in range(50)]
        [journal] = [report for report in engine.report() if report["kind"] == "journal"]
        assert journal["watchers"] <= 2
        bodies.end(tickets[0])
        assert {await ticket.result() for ticket in tickets} == {"done for alice"}


async def test_all_request_ids_of_a_run_expire_a_day_after_its_end(autojump_clock, bodies):
    """Also the request ids of submissions that joined it."""
    requests = ("first", "second", "third")
    async with open_engine(bodies.jobs) as engine:
        tickets = [
            await engine.submit("wait", handle="alice", request_id=request, on_conflict="join")
            for request in requests
        ]
        assert len({ticket.id for ticket in tickets}) == 1
        bodies.end(tickets[0])
        await tickets[0].result()
        await trio.sleep(DAY - 1)
        for request in requests:
            again = await engine.submit("wait", handle="alice", request_id=request, on_conflict="join")
            assert again.id == tickets[0].id
        await trio.sleep(2)
        for request in requests:
            again = await engine.submit("wait", handle=f"after {request}", request_id=request)
            assert not again.joined


async def test_a_request_id_lasts_as_long_as_its_run_is_pending(autojump_clock, bodies):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        first = await engine.submit("wait", handle="alice", lane="paused", request_id="r")
        await trio.sleep(3 * DAY)
        again = await engine.submit("wait", handle="alice", lane="paused", request_id="r")
        assert again.id == first.id


async def test_a_request_id_that_was_refused_at_first_can_be_used_again(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        busy = await engine.submit("wait", handle="alice")
        with pytest.raises(Conflict):
            await engine.submit("wait", handle="alice", request_id="r")
        bodies.end(busy)
        await busy.result()
        ticket = await engine.submit("wait", handle="alice", request_id="r")
        assert not ticket.joined
        assert ticket.id != busy.id


async def test_concurrent_repeats_of_a_refused_submission_are_all_refused(autojump_clock, bodies):
    refusals: list[str] = []

    async def submit() -> None:
        with pytest.raises(Conflict) as refused:
            await engine.submit("wait", handle="alice", request_id="r")
        refusals.append(refused.value.details["active_run"])

    async with open_engine(bodies.jobs) as engine:
        busy = await engine.submit("wait", handle="alice")
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(submit)
        assert refusals == [busy.id] * 20


async def test_a_repeat_of_a_submission_that_joined_gets_the_run_it_had_joined(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        admitted = await engine.submit("wait", handle="alice")
        joined = await engine.submit("wait", handle="alice", on_conflict="join", request_id="r")
        assert joined.id == admitted.id
        bodies.end(admitted)
        await admitted.result()
        again = await engine.submit("wait", handle="alice", on_conflict="join", request_id="r")
        assert (again.id, again.joined) == (admitted.id, True)


# max_pending


async def test_beyond_max_pending_submissions_are_refused_until_a_run_has_ended(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_pending=3) as engine:
        first = await engine.submit("wait", handle="alice")
        await engine.submit("wait", handle="alice", on_conflict="queue")
        await engine.submit("wait", handle="bob")
        await wait_all_tasks_blocked()
        before = await engine.snapshot()
        with pytest.raises(QueueFull) as refused:
            await engine.submit("wait", handle="carol")
        assert "3" in str(refused.value)
        assert (await engine.snapshot()) == before

        bodies.end(first)
        await first.result()
        await engine.submit("wait", handle="carol")


async def test_refused_submissions_do_not_count_as_pending(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_pending=2) as engine:
        await engine.submit("wait", handle="alice")
        for _ in range(5):
            with pytest.raises(Conflict):
                await engine.submit("wait", handle="alice")
        await engine.submit("wait", handle="bob")


async def test_max_pending_of_many_concurrent_submissions_are_accepted(autojump_clock, bodies):
    outcomes: Counter[str] = Counter()

    async def submit(handle: str) -> None:
        try:
            await engine.submit("wait", handle=handle)
            outcomes["accepted"] += 1
        except QueueFull:
            outcomes["refused"] += 1

    async with open_engine(bodies.jobs, max_pending=7) as engine:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(submit, f"handle {number}")
        assert outcomes == {"accepted": 7, "refused": 13}


# Invalid submissions. Each error names the cause, and nothing has changed.


async def assert_refused(
    engine: Engine, error: type[GreenroomError], *said: str, **submission: Any
) -> GreenroomError:
    before, awake = await engine.snapshot(), engine.report()
    with pytest.raises(error) as refused:
        await engine.submit(**({"job": "wait", "handle": "alice"} | submission))
    for text in said:
        assert text in str(refused.value)
    assert await engine.snapshot() == before
    assert engine.report() == awake
    return refused.value


async def test_an_unknown_job_is_refused_with_the_names_of_the_registered_jobs(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await assert_refused(engine, Invalid, '"mirorr"', "stubborn", "wait", job="mirorr")


async def test_all_errors_of_parameters_are_reported_together(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await assert_refused(
            engine,
            Invalid,
            '"page"',
            "params.url",
            "params.pages",
            "params.depth",
            job="page",
            params={"pages": "many", "depth": 2},
        )


async def test_parameters_for_a_job_that_takes_none_are_refused(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await assert_refused(engine, Invalid, "params", job="takes nothing", params={"n": 1})


async def test_parameters_that_are_left_out_are_checked_too(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await assert_refused(engine, Invalid, "params.url", job="page")


async def test_a_draft_that_does_not_fit_the_job_is_refused_when_it_is_taken(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await engine.set_params("alice", {"url": 7})
        await wait_all_tasks_blocked()
        await assert_refused(engine, Invalid, "params.url", "7", job="page")


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"at": datetime(2026, 1, 1)}, "params.at"),
        ({"ratio": math.nan}, "params.ratio"),
        ({"parts": [1, {2}]}, "params.parts[1]"),
        ({7: "seven"}, "7"),
        ("a string", "a string"),
    ],
)
async def test_parameters_that_are_no_json_values_are_refused_with_their_place(
    autojump_clock, bodies, params, said
):
    async with open_engine(bodies.jobs) as engine:
        await assert_refused(engine, Invalid, said, params=params)


@pytest.mark.parametrize("handle", ["", "   ", "a" * 257, None, 7, b"alice", "al\nice"])
async def test_a_handle_without_a_proper_name_is_refused(autojump_clock, bodies, handle):
    said = shown(handle)
    async with open_engine(bodies.jobs) as engine:
        await assert_refused(engine, Invalid, "handle", said, handle=handle)


async def test_a_name_of_256_characters_is_accepted(autojump_clock, bodies):
    name = "a" * 256
    async with open_engine(bodies.jobs) as engine:
        await engine.submit("wait", handle=name, lane=name, request_id=name)


@pytest.mark.parametrize("lane", ["a" * 257, 7, "ma\x00in"])
async def test_a_lane_without_a_proper_name_is_refused(autojump_clock, bodies, lane):
    said = shown(lane)
    async with open_engine(bodies.jobs) as engine:
        await assert_refused(engine, Invalid, "lane", said, lane=lane)


@pytest.mark.parametrize("request_id", ["schedule:nightly:1", f"{'0a' * 16}.1.1"])
async def test_request_ids_of_firings_and_child_runs_are_reserved(autojump_clock, bodies, request_id):
    async with open_engine(bodies.jobs) as engine:
        run: Any = {"job": "wait", "handle": "alice", "params": {"n": 1}, "request_id": request_id}
        with pytest.raises(Invalid, match=f'request_id "{request_id}" begins with .* use another'):
            await engine.submit(**run)
        with pytest.raises(Invalid, match=r"runs\[0\]: request_id .* is reserved for"):
            await engine.submit_many([run])
        with pytest.raises(Invalid, match="is reserved for"):
            await engine.rerun_many(handle="alice", request_id=request_id.partition(":")[0])
        assert (await engine.snapshot()).runs == {}


@pytest.mark.parametrize("request_id", ["", "  ", "a" * 257, 7])
async def test_a_request_id_without_a_proper_name_is_refused(autojump_clock, bodies, request_id):
    said = shown(request_id)
    async with open_engine(bodies.jobs) as engine:
        await assert_refused(engine, Invalid, "request_id", said, request_id=request_id)


@pytest.mark.parametrize("what", ["queue_timeout", "run_timeout", "deadline", "warn_after"])
@pytest.mark.parametrize("seconds", [-1, -0.001, math.nan, -math.inf, "5", True])
async def test_a_time_that_is_no_number_of_seconds_is_refused(autojump_clock, bodies, what, seconds):
    async with open_engine(bodies.jobs) as engine:
        await assert_refused(engine, Invalid, what, shown(seconds), **{what: seconds})


@pytest.mark.parametrize("what", ["queue_timeout", "run_timeout", "deadline", "warn_after"])
@pytest.mark.parametrize("seconds", [None, 5, 0.5, math.inf])
async def test_a_time_can_be_the_default_a_number_or_infinite(autojump_clock, bodies, what, seconds):
    async with open_engine(bodies.jobs) as engine:
        await engine.submit("wait", handle="alice", **{what: seconds})


@pytest.mark.parametrize(
    "mistake", [{"on_conflict": "rejct"}, {"kind": "restart"}, {"on_wait": "call me"}, {"on_conflict": None}]
)
async def test_an_option_that_does_not_exist_is_refused(autojump_clock, bodies, mistake):
    [(name, value)] = mistake.items()
    async with open_engine(bodies.jobs) as engine:
        await assert_refused(engine, Invalid, name, shown(value), **mistake)


async def test_parameters_beyond_max_value_bytes_are_refused_with_size_and_limit(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_value_bytes=100) as engine:
        params = {"text": "x" * 200}
        size = len(msgspec.json.encode(params))
        error = await assert_refused(engine, TooLarge, "params", str(size), "100", params=params)
        assert (error.details["size"], error.details["limit"]) == (size, 100)


async def test_parameters_of_exactly_max_value_bytes_are_accepted(autojump_clock, bodies):
    params = {"text": "x" * 89}
    assert len(msgspec.json.encode(params)) == 100
    async with open_engine(bodies.jobs, max_value_bytes=100) as engine:
        await engine.submit("wait", handle="alice", params=params)


async def test_by_default_parameters_can_have_a_mebibyte(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await engine.submit("wait", handle="alice", params={"text": "x" * 1_000_000})
        with pytest.raises(TooLarge):
            await engine.submit("wait", handle="bob", params={"text": "x" * (1 << 20)})


async def test_a_refused_submission_leaves_its_request_id_free(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await assert_refused(engine, Invalid, job="page", params={}, request_id="r")
        ticket = await engine.submit("page", handle="alice", params={"url": "u"}, request_id="r")
        assert not ticket.joined
