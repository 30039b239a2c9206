"""Queries of runs: one, many, their histories; rerun; and the answers of a ticket."""

import pytest
import trio
import trio.testing

from greenroom import Jobs, Run
from greenroom.errors import Conflict, Invalid, NoActiveRun, NotFound, RunCancelled, RunFailed
from tests.support import open_engine

settled = trio.testing.wait_all_tasks_blocked


def some_jobs():
    """`quick` returns its parameters, `slow` takes ten seconds, `failing` fails, `idle` lasts."""
    jobs = Jobs()

    @jobs.job("quick")
    async def quick(run: Run, params: dict):
        return params

    @jobs.job("slow")
    async def slow(run: Run):
        await trio.sleep(10)
        return "slow"

    @jobs.job("failing")
    async def failing(run: Run):
        raise ConnectionError("no route")

    @jobs.job("idle")
    async def idle(run: Run):
        await trio.sleep_forever()

    return jobs


# One run.


async def test_get_run_shows_a_run_in_every_status(autojump_clock):
    async with open_engine(some_jobs(), store="memory:", clock=lambda: 5000 + trio.current_time()) as engine:
        begun = 5000 + trio.current_time()
        await engine.set_max_concurrent(0)
        ticket = await engine.submit("slow", handle="alice", lane="side", by="bob")
        run = await engine.get_run(ticket.id)
        assert (run.id, run.handle, run.lane, run.job, run.kind) == (
            ticket.id,
            "alice",
            "side",
            "slow",
            "start",
        )
        assert (run.status, run.attempt, run.created_at, run.started_at) == ("queued", 0, begun, None)
        await trio.sleep(5)
        await engine.set_max_concurrent(3)
        await trio.sleep(1)
        run = await engine.get_run(ticket.id)
        assert (run.status, run.attempt, run.started_at, run.ended_at) == ("running", 1, begun + 5, None)
        await ticket.result()
        run = await engine.get_run(ticket.id)
        assert (run.status, run.result, run.error, run.ended_at) == ("succeeded", "slow", None, begun + 15)
        assert (run.created_at, run.started_at, run.updated_at) == (begun, begun + 5, begun + 15)


async def test_get_run_returns_what_the_snapshot_contains(autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        tickets = [await engine.submit(job, handle=job) for job in ("slow", "failing", "idle")]
        await trio.sleep(5)
        snapshot = await engine.snapshot()
        for ticket in tickets:
            assert await engine.get_run(ticket.id) == snapshot.runs[ticket.id]
        await tickets[2].cancel()


@pytest.mark.parametrize("call", ["get_run", "history", "rerun", "cancel"])
async def test_an_unknown_run_is_not_found(call, autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        with pytest.raises(NotFound):
            await getattr(engine, call)("0" * 32)


@pytest.mark.parametrize("call", ["get_run", "history", "rerun", "cancel"])
@pytest.mark.parametrize("id", [None, 7, {"id": 1}, ["id"], "a\0b", "\ud800"], ids=ascii)
async def test_an_id_that_is_no_text_is_invalid_and_the_engine_continues(call, id, autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        with pytest.raises(Invalid):
            await getattr(engine, call)(id)
        await (await engine.submit("quick", handle="alice", params={})).result()


# Many runs.


async def submitted(engine):
    """Runs in several handles, lanes and statuses; their ids by name."""
    made = {
        "a done": await engine.submit("quick", handle="alice", params={}),
        "b failed": await engine.submit("failing", handle="bob", lane="side"),
    }
    for ticket in made.values():
        await ticket.wait()
    made["a idle"] = await engine.submit("idle", handle="alice", lane="side")
    made["c idle"] = await engine.submit("idle", handle="carol")
    made["a waiting"] = await engine.submit("quick", handle="alice", params={}, on_conflict="queue")
    await settled()
    return {ticket.id: name for name, ticket in made.items()}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ["a waiting", "c idle", "a idle", "b failed", "a done"]),
        ({"handle": "alice"}, ["a waiting", "a idle", "a done"]),
        ({"lane": "side"}, ["a idle", "b failed"]),
        ({"status": "running"}, ["c idle", "a idle"]),
        ({"status": ["succeeded", "failed"]}, ["b failed", "a done"]),
        ({"handle": "alice", "lane": "main", "status": "succeeded"}, ["a done"]),
        ({"handle": "nobody"}, []),
        ({"status": "rejected"}, []),
        ({"status": []}, []),
        ({"limit": 2}, ["a waiting", "c idle"]),
        ({"handle": "alice", "limit": 1}, ["a waiting"]),
    ],
    ids=str,
)
async def test_list_runs_returns_runs_that_match_all_filters_newest_first(filters, expected, autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        names = await submitted(engine)
        assert [names[run.id] for run in await engine.list_runs(**filters)] == expected


@pytest.mark.parametrize("filters", [{}, {"handle": "alice"}])
async def test_pages_of_list_runs_give_each_run_once(filters, autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        for n in range(25):
            handle = "alice" if n % 3 else "bob"
            await (await engine.submit("quick", handle=handle, params={})).result()
        whole = [run.id for run in await engine.list_runs(**filters)]
        paged, before = [], None
        while len(paged) < len(whole):
            page = await engine.list_runs(**filters, limit=4, before=before)
            assert 1 <= len(page) <= 4
            paged += [run.id for run in page]
            before = page[-1].id
            await engine.submit("quick", handle="new", params={}, on_conflict="queue")  # disturbs no page
        assert await engine.list_runs(**filters, limit=4, before=before) == []
        assert paged == whole


async def test_list_runs_returns_a_hundred_runs_by_default(autojump_clock):
    async with open_engine(some_jobs(), store="memory:", max_concurrent=0) as engine:
        for n in range(150):
            await engine.submit("quick", handle=f"h{n}", params={})
        assert len(await engine.list_runs()) == 100
        assert len(await engine.list_runs(limit=150)) == 150


async def test_list_runs_shows_each_run_as_it_is_now(autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        ticket = await engine.submit("slow", handle="alice")
        await trio.sleep(5)
        [run] = await engine.list_runs()
        assert run == await engine.get_run(ticket.id)
        await ticket.result()
        [run] = await engine.list_runs()
        assert run == await engine.get_run(ticket.id)


@pytest.mark.parametrize(
    "wrong",
    [
        {"handle": "a\0b"},
        {"lane": 7},
        {"status": "sleeping"},
        {"limit": 0},
        {"limit": -1},
        {"limit": "ten"},
        {"status": 7},
    ],
    ids=str,
)
async def test_filters_that_mean_nothing_are_invalid(wrong, autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        with pytest.raises(Invalid):
            await engine.list_runs(**wrong)


# Histories.


async def test_history_contains_the_events_in_order_with_actor_and_reason(autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        ticket = await engine.submit("idle", handle="alice", by="bob")
        await settled()
        await engine.inject("alice", "hello", by="carol")
        await ticket.cancel(by="dave")
        await ticket.wait()
        history = await engine.history(ticket.id)
    assert [(e.type, getattr(e, "to", None), getattr(e, "reason", None), e.by) for e in history] == [
        ("run_state_changed", "queued", None, "bob"),
        ("run_state_changed", "running", None, "engine"),
        ("run_message", None, None, "carol"),
        ("run_state_changed", "cancelling", "cancelled", "dave"),
        ("run_state_changed", "cancelled", "cancelled", "dave"),
    ]
    assert [event.seq for event in history] == sorted({event.seq for event in history})
    assert {event.run for event in history} == {ticket.id}


async def test_history_names_who_replaced_cleared_or_ran_out_of_time(autojump_clock):
    ends = []
    async with open_engine(some_jobs(), store="memory:", lanes={"paused": 0}) as engine:
        replaced = await engine.submit("idle", handle="alice")
        await engine.submit("slow", handle="alice", on_conflict="replace", by="bob")
        cleared = await engine.submit("slow", handle="carol", lane="paused")
        await engine.clear_lane("paused", by="dave")
        late = await engine.submit("slow", handle="erin", lane="paused", queue_timeout=5)
        for ticket in (replaced, cleared, late):
            await ticket.wait()
            event = (await engine.history(ticket.id))[-1]
            ends.append((event.to, event.reason, event.by))
    assert ends == [
        ("cancelled", "replaced", "bob"),
        ("cancelled", "lane_cleared", "dave"),
        ("timed_out", "queue_timeout", "engine"),
    ]


async def test_history_is_the_events_that_subscribers_saw(autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        events = engine.events()
        ticket = await engine.submit("failing", handle="alice")
        other = await engine.submit("slow", handle="bob")
        await other.result()
        history = await engine.history(ticket.id)
    assert history == [event async for event in events if getattr(event, "run", None) == ticket.id]


# Rerun.


async def test_rerun_submits_the_same_run_again(autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        first = await engine.submit(
            "quick", handle="alice", params={"n": 1}, lane="side", kind="continue", by="bob"
        )
        await first.result()
        second = await engine.rerun(first.id, by="carol")
        assert second.id != first.id
        assert not second.joined
        assert await second.result() == {"n": 1}
        old, new = await engine.get_run(first.id), await engine.get_run(second.id)
        for name in ("handle", "lane", "job", "kind", "params"):
            assert getattr(new, name) == getattr(old, name)
        assert (await engine.history(second.id))[0].by == "carol"


async def test_rerun_uses_the_original_parameters_and_not_the_current_draft(autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        await engine.set_params("alice", {"draft": "of then"})
        first = await engine.submit("quick", handle="alice")
        await first.result()
        await engine.set_params("alice", {"draft": "of now"})
        assert await (await engine.rerun(first.id)).result() == {"draft": "of then"}


@pytest.mark.parametrize("job", ["failing", "idle"])
async def test_what_failed_or_was_cancelled_can_be_run_again(job, autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        first = await engine.submit(job, handle="alice")
        await settled()
        if job == "idle":
            await first.cancel()
        await first.wait()
        second = await engine.rerun(first.id)
        await settled()
        assert (await engine.get_run(second.id)).attempt == 1
        if job == "idle":
            await second.cancel()


async def test_rerun_of_a_pending_run_is_a_conflict(autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        ticket = await engine.submit("idle", handle="alice")
        with pytest.raises(Conflict) as refused:
            await engine.rerun(ticket.id)
        assert refused.value.details["active_run"] == ticket.id
        await ticket.cancel()


# Tickets.


async def test_wait_returns_whether_the_run_ended_in_time(autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        ticket = await engine.submit("slow", handle="alice")
        assert await ticket.wait(5) is False
        assert await ticket.wait(6) is True
        assert await ticket.wait(0.1) is True


@pytest.mark.parametrize("timeout", [(), (None,)])
async def test_wait_waits_for_fifteen_seconds_by_default(timeout, autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        ticket = await engine.submit("idle", handle="alice")
        begun = trio.current_time()
        assert await ticket.wait(*timeout) is False
        assert trio.current_time() == begun + 15
        await ticket.cancel()


async def test_wait_raises_nothing_for_a_run_that_did_not_succeed(autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        ticket = await engine.submit("failing", handle="alice")
        assert await ticket.wait() is True


async def test_a_result_can_be_awaited_by_many_callers_and_again(autojump_clock):
    results = []

    async with open_engine(some_jobs(), store="memory:") as engine:
        ticket = await engine.submit("slow", handle="alice")

        async def ask():
            results.append(await ticket.result())

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(ask)
        await ask()
    assert results == ["slow"] * 11


async def test_giving_up_a_result_does_nothing_to_the_run(autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        ticket = await engine.submit("slow", handle="alice")
        with trio.move_on_after(5):
            await ticket.result()
        assert await ticket.result() == "slow"


async def test_a_joined_ticket_is_for_the_existing_run(autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        first = await engine.submit("slow", handle="alice")
        second = await engine.submit("slow", handle="alice", on_conflict="join")
        assert (first.joined, second.joined, second.id) == (False, True, first.id)
        assert await second.wait(5) is False
        assert await second.result() == await first.result() == "slow"


async def test_a_joined_ticket_cancels_the_existing_run(autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        first = await engine.submit("idle", handle="alice")
        second = await engine.submit("idle", handle="alice", on_conflict="join")
        await settled()
        await second.cancel()
        for ticket in (first, second):
            with pytest.raises(RunCancelled):
                await ticket.result()


@pytest.mark.parametrize("job", ["slow", "failing"])
async def test_a_caller_that_waits_after_the_run_has_ended_gets_its_end(job, autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        first = await engine.submit(job, handle="alice", request_id="once")
        await first.wait()
        late = await engine.submit(job, handle="alice", request_id="once")
        assert (late.id, late.joined) == (first.id, True)
        assert await late.wait(0.1) is True
        if job == "slow":
            assert await late.result() == "slow"
        else:
            with pytest.raises(RunFailed, match="no route"):
                await late.result()


# Runs that are no longer in the snapshot.


async def thousand_after(engine):
    """End more runs than a snapshot contains."""
    for n in range(1000):
        ticket = await engine.submit("quick", handle=f"h{n % 10}", params={})
        await ticket.wait()


async def test_a_run_beyond_the_last_thousand_is_still_found(autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        ticket = await engine.submit("quick", handle="alice", params={"n": 1}, request_id="once")
        await ticket.wait()
        run, history = await engine.get_run(ticket.id), await engine.history(ticket.id)
        await thousand_after(engine)
        snapshot = await engine.snapshot()
        assert len(snapshot.runs) == 1000
        assert ticket.id not in snapshot.runs
        assert "alice" not in snapshot.handles

        assert await engine.get_run(ticket.id) == run
        assert await engine.history(ticket.id) == history
        assert await engine.list_runs(handle="alice") == [run]
        assert await ticket.result() == {"n": 1}
        with pytest.raises(Conflict) as refused:
            await engine.cancel(ticket.id)
        assert refused.value.details["run"] == run
        with pytest.raises(NoActiveRun):
            await engine.inject(ticket.id, "hello")
        late = await engine.submit("quick", handle="alice", params={"n": 1}, request_id="once")
        assert (late.id, await late.result()) == (ticket.id, {"n": 1})
        again = await engine.rerun(ticket.id)
        assert await again.result() == {"n": 1}


async def test_a_pending_run_is_never_removed_from_the_snapshot(autojump_clock):
    async with open_engine(some_jobs(), store="memory:") as engine:
        ticket = await engine.submit("idle", handle="alice")
        await thousand_after(engine)
        await (await engine.submit("quick", handle="bob", params={})).wait()
        snapshot = await engine.snapshot()
        assert len(snapshot.runs) == 1001
        assert snapshot.runs[ticket.id].status == "running"
        assert snapshot.handles["alice"].active_run == ticket.id
        await ticket.cancel()
