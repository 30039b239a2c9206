"""Handles: one run at a time, locked drafts, what a user interface shows, and which actors stay awake."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from greenroom import Engine, Run, Ticket
from greenroom.errors import (
    Conflict,
    GreenroomError,
    HandleLocked,
    Invalid,
    RunCancelled,
    RunFailed,
    TooLarge,
)
from greenroom.protocol.events import HandleChanged
from tests.support import open_engine

from ..support import Bodies, until, until_status

GRACE = 5.0


@pytest.fixture
def bodies() -> Bodies:
    """The jobs of these tests; `wait` lasts until the test ends it."""
    bodies = Bodies()
    bodies.jobs.job("abandoned", grace=GRACE)(bodies.ignore_cancel)

    @bodies.jobs.job("fail")
    async def fail(run: Run) -> None:
        raise OSError("it fails")

    @bodies.jobs.job("nap")
    async def nap(run: Run) -> None:
        await run.sleep(30)

    @bodies.jobs.job("post-process")
    async def post_process(run: Run, params: dict[str, Any]) -> str:
        await run.end_interactive()
        return await bodies.wait(run, params)

    return bodies


async def start(engine: Engine, handle: str = "alice", job: str = "wait", **options: Any) -> Ticket:
    """A run whose body has begun."""
    ticket = await engine.submit(job, handle=handle, **options)
    await until_status(engine, ticket, "running")
    await wait_all_tasks_blocked()
    return ticket


async def abandon(engine: Engine) -> Ticket:
    """A run that ended without its body, which still executes and keeps the handle."""
    ticket = await start(engine, job="abandoned")
    await ticket.cancel()
    await until_status(engine, ticket, "cancelled")
    return ticket


# Drafts.


async def test_a_handle_keeps_a_draft(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await engine.set_params("alice", {"n": 1})
        handle = (await engine.snapshot()).handles["alice"]
        assert (handle.params, handle.status, handle.locked) == ({"n": 1}, "Idle", False)
        assert (handle.active_run, handle.waiting) == (None, [])


async def test_a_new_draft_takes_the_place_of_the_old_one(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await engine.set_params("alice", {"n": 1, "m": 1})
        await engine.set_params("alice", {"n": 2})
        assert (await engine.snapshot()).handles["alice"].params == {"n": 2}


async def test_a_draft_can_be_removed(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await engine.set_params("alice", {"n": 1})
        await engine.set_params("alice", None)
        assert "alice" not in (await engine.snapshot()).handles
        ticket = await engine.submit("wait", handle="alice")
        assert (await engine.get_run(ticket.id)).params == {}


async def test_a_change_of_a_draft_is_an_event(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        events = engine.events()
        await engine.set_params("alice", {"n": 1}, by="test")
        event = await anext(events)
        assert isinstance(event, HandleChanged)
        assert (event.type, event.handle, event.params, event.by) == (
            "handle_changed",
            "alice",
            {"n": 1},
            "test",
        )


async def test_a_submission_without_parameters_takes_the_draft(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await engine.set_params("alice", {"n": 1})
        ticket = await engine.submit("wait", handle="alice")
        assert (await engine.get_run(ticket.id)).params == {"n": 1}


async def test_a_body_gets_the_draft_as_its_parameters(autojump_clock, bodies):
    @bodies.jobs.job("echo")
    async def echo(run: Run, params: dict[str, Any]) -> dict[str, Any]:
        return params

    async with open_engine(bodies.jobs) as engine:
        await engine.set_params("alice", {"n": 1})
        ticket = await engine.submit("echo", handle="alice")
        assert await ticket.result() == {"n": 1}


@pytest.mark.parametrize("params", [{}, {"m": 2}])
async def test_given_parameters_override_the_draft(autojump_clock, bodies, params):
    async with open_engine(bodies.jobs) as engine:
        await engine.set_params("alice", {"n": 1})
        ticket = await engine.submit("wait", handle="alice", params=params)
        snapshot = await engine.snapshot()
        assert snapshot.runs[ticket.id].params == params
        assert snapshot.handles["alice"].params == {"n": 1}


async def test_a_draft_belongs_to_its_handle_only(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await engine.set_params("alice", {"n": 1})
        ticket = await engine.submit("wait", handle="bob")
        assert (await engine.get_run(ticket.id)).params == {}


async def test_a_draft_outlives_the_runs_that_take_it(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await engine.set_params("alice", {"n": 1})
        for _ in range(2):
            ticket = await engine.submit("wait", handle="alice")
            assert (await engine.get_run(ticket.id)).params == {"n": 1}
            bodies.end(ticket)
            await ticket.result()


async def test_a_run_keeps_its_parameters_when_the_draft_changes_after_it(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await engine.set_params("alice", {"n": 1})
        ticket = await engine.submit("wait", handle="alice")
        bodies.end(ticket)
        await ticket.result()
        await engine.set_params("alice", {"n": 2})
        assert (await engine.get_run(ticket.id)).params == {"n": 1}


async def test_a_draft_that_the_caller_changes_afterwards_stays_as_it_was_set(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        params = {"pages": [1]}
        await engine.set_params("alice", params)
        params["pages"].append(2)
        assert (await engine.snapshot()).handles["alice"].params == {"pages": [1]}


@pytest.mark.parametrize(
    ("handle", "params", "error"),
    [
        ("", {}, Invalid),
        ("a" * 257, {}, Invalid),
        (None, {}, Invalid),
        ("alice", {"set": {1}}, Invalid),
        ("alice", {"text": "x" * 200}, TooLarge),
    ],
)
async def test_a_draft_that_cannot_be_stored_is_refused(
    autojump_clock, bodies, handle: Any, params: Any, error: type[GreenroomError]
):
    async with open_engine(bodies.jobs, max_value_bytes=100) as engine:
        before = await engine.snapshot()
        with pytest.raises(error):
            await engine.set_params(handle, params)
        assert await engine.snapshot() == before


# Locks: from admission to the end, the draft cannot change.


@asynccontextmanager
async def admitted(bodies: Bodies, state: str) -> AsyncIterator[tuple[Engine, Ticket]]:
    """An engine in which a run in this state holds "alice", whose draft is `{"n": 1}`."""
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        await engine.set_params("alice", {"n": 1})
        if state == "queued":
            ticket = await engine.submit("wait", handle="alice", lane="paused")
        elif state == "running":
            ticket = await start(engine)
        elif state == "suspended":
            ticket = await engine.submit("nap", handle="alice", params={})
            await until_status(engine, ticket, "suspended")
        elif state == "cancelling":
            ticket = await start(engine, job="stubborn")
            await ticket.cancel()
        elif state == "post-processing":
            ticket = await start(engine, job="post-process")
        else:
            ticket = await abandon(engine)
        yield engine, ticket
        bodies.end(ticket)


STATES = ("queued", "running", "suspended", "cancelling", "post-processing", "abandoned")


@pytest.mark.parametrize("state", STATES)
async def test_the_draft_of_a_taken_handle_is_locked(autojump_clock, bodies, state):
    async with admitted(bodies, state) as (engine, ticket):
        before = await engine.snapshot()
        assert before.handles["alice"].locked
        with pytest.raises(HandleLocked) as refused:
            await engine.set_params("alice", {"n": 2})
        assert refused.value.details["active_run"] == ticket.id
        assert '"alice"' in str(refused.value)
        with pytest.raises(HandleLocked):
            await engine.set_params("alice", None)
        assert await engine.snapshot() == before


@pytest.mark.parametrize("state", STATES)
async def test_a_taken_handle_locks_no_other(autojump_clock, bodies, state):
    async with admitted(bodies, state) as (engine, _):
        await engine.set_params("bob", {"n": 2})


@pytest.mark.parametrize("ending", ["succeeded", "failed", "cancelled", "cancelled while queued"])
async def test_the_end_of_its_run_unlocks_a_handle(autojump_clock, bodies, ending):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        if ending == "failed":
            ticket = await engine.submit("fail", handle="alice")
        elif ending == "cancelled while queued":
            ticket = await engine.submit("wait", handle="alice", lane="paused")
            await ticket.cancel()
        else:
            ticket = await start(engine)
            bodies.end(ticket) if ending == "succeeded" else await ticket.cancel()
        await until_status(engine, ticket, ending.split()[0])
        await engine.set_params("alice", {"n": 2})
        handle = (await engine.snapshot()).handles["alice"]
        assert (handle.locked, handle.active_run, handle.params) == (False, None, {"n": 2})


async def test_the_next_of_the_waiting_runs_locks_the_handle_again(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        first = await start(engine)
        second = await engine.submit("wait", handle="alice", on_conflict="queue")
        bodies.end(first)
        await until_status(engine, second, "running")
        with pytest.raises(HandleLocked) as refused:
            await engine.set_params("alice", {})
        assert refused.value.details["active_run"] == second.id


async def test_a_concurrent_draft_and_submission_never_mix(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        for attempt in range(20):
            handle = f"handle {attempt}"
            outcomes: list[str] = []
            tickets: list[Ticket] = []

            async def draft(handle: str = handle, outcomes: list[str] = outcomes) -> None:
                try:
                    await engine.set_params(handle, {"n": 1})
                    outcomes.append("set")
                except HandleLocked:
                    outcomes.append("locked")

            async def submit(handle: str = handle, tickets: list[Ticket] = tickets) -> None:
                tickets.append(await engine.submit("wait", handle=handle))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(draft)
                nursery.start_soon(submit)
            run = await engine.get_run(tickets[0].id)
            assert run.params == ({"n": 1} if outcomes == ["set"] else {})


# What a user interface shows.


async def shown(engine: Engine, handle: str = "alice") -> str:
    return str((await engine.snapshot()).handles[handle].status)


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("queued", "Queued"),
        ("running", "Running"),
        ("suspended", "Running"),
        ("cancelling", "Running"),
        ("post-processing", "Running"),
    ],
)
async def test_a_handle_shows_what_its_admitted_run_does(autojump_clock, bodies, state, status):
    async with admitted(bodies, state) as (engine, _):
        assert await shown(engine) == status


async def test_a_handle_whose_run_succeeded_shows_done(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        ticket = await start(engine)
        bodies.end(ticket)
        await ticket.result()
        assert await shown(engine) == "Done"


async def test_a_handle_whose_run_failed_shows_failed(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        ticket = await engine.submit("fail", handle="alice")
        with pytest.raises(RunFailed):
            await ticket.result()
        assert await shown(engine) == "Failed"


@pytest.mark.parametrize("limit", ["run_timeout", "queue_timeout", "deadline"])
async def test_a_handle_whose_run_timed_out_shows_failed(autojump_clock, bodies, limit):
    lane = "paused" if limit == "queue_timeout" else "main"
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        ticket = await engine.submit("wait", handle="alice", lane=lane, **{limit: 5})
        await until_status(engine, ticket, "timed_out")
        assert await shown(engine) == "Failed"


async def test_a_handle_whose_executing_run_was_cancelled_shows_cancelled(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        ticket = await start(engine)
        await ticket.cancel()
        await until_status(engine, ticket, "cancelled")
        assert await shown(engine) == "Cancelled"


async def test_a_handle_whose_queued_run_was_cancelled_is_idle_again(autojump_clock, bodies):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        ticket = await engine.submit("wait", handle="alice", lane="paused")
        run = await ticket.cancel()
        assert (run.status, run.started_at) == ("cancelled", None)
        assert await shown(engine) == "Idle"
        assert bodies.begun == []


async def test_a_cancelled_run_that_only_waited_changes_nothing_of_what_is_shown(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await start(engine)
        waiting = await engine.submit("wait", handle="alice", on_conflict="queue")
        await waiting.cancel()
        assert await shown(engine) == "Running"


async def test_a_handle_shows_each_new_run(autojump_clock, bodies):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        ticket = await engine.submit("fail", handle="alice")
        await until_status(engine, ticket, "failed")
        ticket = await engine.submit("wait", handle="alice", lane="paused")
        assert await shown(engine) == "Queued"
        await engine.set_concurrency("paused", 1)
        await until_status(engine, ticket, "running")
        assert await shown(engine) == "Running"
        bodies.end(ticket)
        await ticket.result()
        assert await shown(engine) == "Done"


# release_handle.


async def test_an_abandoned_body_keeps_its_handle_until_it_ends(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        abandoned = await abandon(engine)
        waiting = await engine.submit("wait", handle="alice", on_conflict="queue")
        await trio.sleep(100)
        snapshot = await engine.snapshot()
        assert snapshot.handles["alice"].active_run == abandoned.id
        assert (snapshot.engine.executing, snapshot.engine.queued) == (0, 1)

        bodies.end(abandoned)
        await until_status(engine, waiting, "running")


async def test_an_operator_can_release_a_handle_from_an_abandoned_body(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        abandoned = await abandon(engine)
        waiting = await engine.submit("wait", handle="alice", on_conflict="queue")
        assert await engine.release_handle("alice", by="operator") is True
        await until_status(engine, waiting, "running")
        bodies.end(abandoned)


async def test_a_released_handle_is_unlocked_and_takes_new_runs(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        abandoned = await abandon(engine)
        await engine.release_handle("alice")
        handle = (await engine.snapshot()).handles["alice"]
        assert (handle.locked, handle.active_run) == (False, None)
        await engine.set_params("alice", {"n": 1})
        await start(engine)
        bodies.end(abandoned)


async def test_a_body_that_ends_after_the_release_frees_no_other_handle(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        abandoned = await abandon(engine)
        await engine.release_handle("alice")
        ticket = await start(engine)
        waiting = await engine.submit("wait", handle="alice", on_conflict="queue")
        bodies.end(abandoned)
        await wait_all_tasks_blocked()
        snapshot = await engine.snapshot()
        assert snapshot.handles["alice"].active_run == ticket.id
        assert snapshot.handles["alice"].waiting == [waiting.id]
        assert waiting.id not in bodies.begun


async def test_the_release_of_a_handle_names_its_caller(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        abandoned = await abandon(engine)
        events = engine.events()
        await engine.release_handle("alice", by="operator")
        event = await anext(events)
        assert isinstance(event, HandleChanged)
        assert (event.handle, event.freed, event.by) == ("alice", abandoned.id, "operator")
        bodies.end(abandoned)


@pytest.mark.parametrize("state", STATES[:-1])
async def test_a_handle_is_not_released_from_a_run_that_has_not_ended(autojump_clock, bodies, state):
    async with admitted(bodies, state) as (engine, ticket):
        before = await engine.snapshot()
        assert await engine.release_handle("alice") is False
        assert await engine.snapshot() == before
        with pytest.raises(Conflict) as refused:
            await engine.submit("wait", handle="alice")
        assert refused.value.details["active_run"] == ticket.id


async def test_there_is_nothing_to_release_for_a_handle_that_is_free(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        before = await engine.snapshot()
        assert await engine.release_handle("nobody") is False
        assert await engine.snapshot() == before


# One at a time, in order, and independent of other handles.


async def test_ten_waiting_runs_of_a_handle_finish_in_order(autojump_clock, bodies):
    finished: list[int] = []

    @bodies.jobs.job("count")
    async def count(run: Run, params: dict[str, Any]) -> None:
        await trio.sleep(10 - params["n"])
        finished.append(params["n"])

    async with open_engine(bodies.jobs, max_concurrent=5) as engine:
        tickets = [
            await engine.submit("count", handle="alice", params={"n": n}, on_conflict="queue")
            for n in range(10)
        ]
        handle = (await engine.snapshot()).handles["alice"]
        assert [handle.active_run, *handle.waiting] == [ticket.id for ticket in tickets]
        for ticket in tickets:
            await ticket.result()
        assert finished == list(range(10))


async def test_after_a_cancelled_waiting_run_the_next_one_is_admitted(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        first = await start(engine)
        waiting = [await engine.submit("wait", handle="alice", on_conflict="queue") for _ in range(3)]
        await waiting[0].cancel()
        await waiting[2].cancel()
        bodies.end(first)
        await until_status(engine, waiting[1], "running")
        with pytest.raises(RunCancelled):
            await waiting[0].result()


@pytest.mark.parametrize("steps", range(12))
async def test_a_queued_run_is_cancelled_once_by_any_number_of_cancels(autojump_clock, bodies, steps):
    cancelled: list[str] = []
    conflicts: list[Conflict] = []

    async def cancel(ticket: Ticket, steps: int) -> None:
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        try:
            cancelled.append((await ticket.cancel()).id)
        except Conflict as error:
            conflicts.append(error)

    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        tickets = [await engine.submit("wait", handle=f"h{n}", lane="paused") for n in range(10)]
        await wait_all_tasks_blocked()
        for ticket in tickets:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel, ticket, 0)
                nursery.start_soon(cancel, ticket, steps)
        assert sorted(cancelled) == sorted(ticket.id for ticket in tickets)
        assert {error.details["run"].status for error in conflicts} == {"cancelled"}


async def test_after_a_failed_run_the_next_one_of_its_handle_is_admitted(autojump_clock, bodies):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        failing = [await engine.submit("fail", handle="alice", on_conflict="queue") for _ in range(5)]
        last = await engine.submit("wait", handle="alice", on_conflict="queue")
        bodies.end(last)
        assert await last.result() == "done for alice"
        runs = (await engine.snapshot()).runs
        assert {str(runs[ticket.id].status) for ticket in failing} == {"failed"}


async def test_handles_never_wait_for_each_other(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        alice = await start(engine, "alice")
        for _ in range(10):
            await engine.submit("wait", handle="alice", on_conflict="queue")
        bob = await engine.submit("wait", handle="bob")
        await until_status(engine, bob, "running")
        for _ in range(10):
            await engine.submit("wait", handle="bob", on_conflict="queue")
        bodies.end(bob)
        snapshot = await until(engine, lambda s: s.handles["bob"].active_run not in (bob.id, None))
        assert snapshot.handles["alice"].active_run == alice.id
        assert (len(snapshot.handles["alice"].waiting), len(snapshot.handles["bob"].waiting)) == (10, 9)


@pytest.mark.parametrize("seed", range(5))
async def test_a_handle_never_has_two_bodies_under_any_commands(autojump_clock, bodies, seed):
    lots = random.Random(seed)
    executing: Counter[str] = Counter()
    together: list[str] = []

    @bodies.jobs.job("short", max_attempts=2, backoff=0.2)
    async def short(run: Run, params: dict[str, Any]) -> None:
        executing[run.handle] += 1
        if executing[run.handle] > 1:
            together.append(run.id)
        try:
            await run.sleep(params["seconds"])
            await trio.sleep(params["seconds"])
            if params["fails"] and run.attempt == 1:
                raise OSError("try again")
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(params["lingers"])
            executing[run.handle] -= 1

    async def act(delay: float, action: str, handle: str, options: dict[str, Any], params: Any) -> None:
        await trio.sleep(delay)
        try:
            if action == "submit":
                ticket = await engine.submit("short", handle=handle, params=params, **options)
                await ticket.wait(timeout=1000)
            elif action == "cancel":
                active = (await engine.snapshot()).handles[handle].active_run
                await engine.cancel(active or "nobody")
            elif action == "reset":
                await engine.reset_lanes()
            elif action == "clear":
                await engine.clear_handle(handle)
        except (GreenroomError, KeyError):
            pass  # refused, or the handle is not known yet: a valid outcome

    def tenths(most: int) -> float:
        return lots.randrange(most) / 10  # few different times, so that much happens at the same time

    async with open_engine(bodies.jobs, max_concurrent=4, lanes={"x": 1, "y": 2}) as engine:
        async with trio.open_nursery() as nursery:
            for _ in range(120):
                action = lots.choice(["submit"] * 6 + ["cancel", "cancel", "reset", "clear"])
                options = {
                    "on_conflict": lots.choice(["reject", "queue", "replace", "join"]),
                    "lane": lots.choice(["main", "x", "y"]),
                }
                params = {"seconds": tenths(5), "lingers": tenths(3), "fails": lots.random() < 0.3}
                handle = lots.choice(["alice", "bob", "carol"])
                nursery.start_soon(act, tenths(60), action, handle, options, params)
        await until(engine, lambda snapshot: all(run.ended for run in snapshot.runs.values()))
        await wait_all_tasks_blocked()
        assert together == []
        snapshot = await engine.snapshot()
        assert (snapshot.engine.executing, snapshot.engine.queued) == (0, 0)
        assert not any(handle.locked for handle in snapshot.handles.values())
        assert awake(engine) == []


# Passivation: actors without work end.


def awake(engine: Engine) -> list[str]:
    """The handles, lanes and runs that are awake, with their names."""
    reports = [(report["kind"], report["name"]) for report in engine.report()]
    return sorted(f"{kind} {name}" for kind, name in reports if kind in ("handle", "lane", "run"))


async def test_an_idle_engine_has_only_its_permanent_actors_awake(autojump_clock, bodies):
    async with open_engine(bodies.jobs, lanes={"x": 3}) as engine:
        await wait_all_tasks_blocked()
        kinds = sorted(report["kind"] for report in engine.report())
        assert kinds == ["catalog", "journal", "registry", "supervisor", "workqueue"]


async def test_an_executing_run_keeps_itself_its_handle_and_its_lane_awake(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        ticket = await start(engine, lane="slow")
        assert awake(engine) == ["handle alice", "lane slow", f"run {ticket.id}"]


async def test_a_queued_run_has_no_actor(autojump_clock, bodies):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        await engine.submit("wait", handle="alice", lane="paused")
        await engine.submit("wait", handle="alice", on_conflict="queue")
        await wait_all_tasks_blocked()
        assert awake(engine) == ["handle alice", "lane paused"]


@pytest.mark.parametrize(
    "ending", ["succeeded", "failed", "cancelled", "cancelled while queued", "timed out", "cleared"]
)
async def test_when_all_runs_have_ended_no_actor_of_theirs_is_awake(autojump_clock, bodies, ending):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        lane = "paused" if ending in ("cancelled while queued", "cleared") else "slow"
        job = "fail" if ending == "failed" else "wait"
        tickets = [
            await engine.submit(job, handle=handle, lane=lane, on_conflict="queue", run_timeout=5)
            for handle in ("alice", "bob", "alice")
        ]
        for ticket in tickets:
            if ending == "succeeded":
                bodies.end(ticket)
            elif ending == "cancelled while queued":
                await ticket.cancel()
            elif ending == "cancelled":
                await until_status(engine, ticket, "running")
                await ticket.cancel()
        if ending == "cleared":
            assert await engine.clear_lane("paused") == 3
        for ticket in tickets:
            assert await ticket.wait(timeout=100)
        await wait_all_tasks_blocked()
        assert awake(engine) == []


async def test_a_command_wakes_an_actor_only_for_as_long_as_it_takes(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await engine.set_params("alice", {"n": 1})
        await engine.release_handle("alice")
        await engine.clear_handle("alice")
        await engine.set_concurrency("slow", 5)
        await engine.clear_lane("slow")
        await engine.reset_lanes()
        await wait_all_tasks_blocked()
        assert awake(engine) == []


async def test_the_state_of_an_actor_is_the_same_when_it_wakes_again(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_concurrent=9) as engine:
        await engine.set_params("alice", {"n": 1})
        await engine.set_concurrency("slow", 2)
        await wait_all_tasks_blocked()
        assert awake(engine) == []
        first = await start(engine, "alice", lane="slow")
        await start(engine, "bob", lane="slow")
        assert (await engine.get_run(first.id)).params == {"n": 1}


async def test_a_thousand_handles_that_had_their_run_cost_no_actor(autojump_clock, bodies):
    @bodies.jobs.job("at once")
    async def at_once(run: Run) -> None:
        pass

    async with open_engine(bodies.jobs, max_concurrent=50) as engine:
        tickets = [await engine.submit("at once", handle=f"handle {n}") for n in range(1000)]
        for ticket in tickets:
            await ticket.result()
        await wait_all_tasks_blocked()
        assert awake(engine) == []


async def test_an_abandoned_body_keeps_only_its_handle_and_its_run_awake(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        ticket = await abandon(engine)
        await wait_all_tasks_blocked()
        assert awake(engine) == ["handle alice", f"run {ticket.id}"]
        bodies.end(ticket)
        await wait_all_tasks_blocked()
        assert awake(engine) == []
