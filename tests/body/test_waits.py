"""Waits of a body: `run.sleep` with and without its slot, and `run.call`, which waits for a child run."""

import math

import pytest
import trio
import trio.testing

from greenroom import Jobs, Run
from greenroom.errors import Conflict, Invalid, RunCancelled, RunFailed, RunTimedOut
from greenroom.persistence.memory import MemoryStore
from tests.support import open_engine

settled = trio.testing.wait_all_tasks_blocked


class SlowStore(MemoryStore):
    """A store whose commits take a second."""

    async def commit(self, batch):
        await trio.sleep(1)
        await super().commit(batch)


def with_body(body, **options):
    """A registry with the job `work`, and the jobs `idle`, which lasts, and `minute`, which takes one."""
    jobs = Jobs()
    jobs.job("work", **options)(body)

    @jobs.job("idle")
    async def idle(run: Run):
        await trio.sleep_forever()

    @jobs.job("minute")
    async def minute(run: Run):
        await trio.sleep(60)
        return f"a minute on {run.handle}"

    return jobs


async def status_of(engine, ticket):
    return (await engine.get_run(ticket.id)).status


async def children_of(engine, ticket):
    """All other runs, oldest first."""
    return [run for run in reversed(await engine.list_runs()) if run.id != ticket.id]


# Sleeping.


async def test_a_sleep_lasts_for_the_given_time(autojump_clock):
    async def body(run: Run):
        begun = trio.current_time()
        await run.sleep(90)
        await run.sleep(30, release_slot=False)
        return trio.current_time() - begun

    async with open_engine(with_body(body), store="memory:") as engine:
        assert await (await engine.submit("work", handle="alice")).result() == 120


async def test_a_sleep_releases_the_slot(autojump_clock):
    async def body(run: Run):
        await run.sleep(100)

    async with open_engine(with_body(body), store="memory:", max_concurrent=1) as engine:
        ticket = await engine.submit("work", handle="alice")
        other = await engine.submit("minute", handle="bob")
        await trio.sleep(1)
        run = await engine.get_run(ticket.id)
        assert (run.status, run.waiting_for) == ("suspended", "time")
        assert (await engine.snapshot()).lanes["main"].executing == [other.id]
        await ticket.result()
        assert await status_of(engine, other) == "succeeded"


async def test_a_sleep_that_keeps_the_slot_keeps_it(autojump_clock):
    async def body(run: Run):
        await run.sleep(100, release_slot=False)

    async with open_engine(with_body(body), store="memory:", max_concurrent=1) as engine:
        ticket = await engine.submit("work", handle="alice")
        other = await engine.submit("minute", handle="bob")
        await trio.sleep(99)
        assert await status_of(engine, ticket) == "running"
        assert await status_of(engine, other) == "queued"
        await ticket.result()
        await other.result()


async def test_a_sleep_holds_the_handle(autojump_clock):
    async def body(run: Run):
        await run.sleep(100)

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(1)
        with pytest.raises(Conflict) as refused:
            await engine.submit("minute", handle="alice")
        assert refused.value.details["active_run"] == ticket.id
        await ticket.result()


async def test_a_run_that_wakes_precedes_runs_that_were_queued_after_it(autojump_clock):
    order = []

    async def body(run: Run):
        await run.sleep(30)
        order.append("woke")

    jobs = with_body(body)

    @jobs.job("note")
    async def note(run: Run):
        order.append(run.handle)

    async with open_engine(jobs, store="memory:", max_concurrent=1) as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        place = (await engine.get_run(ticket.id)).place
        await engine.submit("minute", handle="bob")  # it has the slot until second 60
        later = [await engine.submit("note", handle=f"later {n}") for n in range(3)]
        await later[-1].result()
        assert (await engine.get_run(ticket.id)).place == place
    assert order == ["woke", "later 0", "later 1", "later 2"]


async def test_a_run_that_wakes_waits_for_its_lane_too(autojump_clock):
    async def body(run: Run):
        await run.sleep(30)
        return trio.current_time() - begun

    begun = trio.current_time()
    async with open_engine(with_body(body), store="memory:", max_concurrent=10) as engine:
        ticket = await engine.submit("work", handle="alice", lane="narrow")
        await engine.submit("minute", handle="bob", lane="narrow")
        assert await ticket.result() == 60


async def test_a_sleep_that_is_given_up_gets_the_slot_back_before_the_body_continues(autojump_clock):
    async def body(run: Run):
        with trio.move_on_after(10):
            await run.sleep(1000)
        return trio.current_time() - begun

    begun = trio.current_time()
    async with open_engine(with_body(body), store="memory:", max_concurrent=1) as engine:
        ticket = await engine.submit("work", handle="alice")
        await engine.submit("minute", handle="bob")
        assert await ticket.result() == 60


async def test_an_error_next_to_a_sleep_is_raised_after_the_run_has_a_slot_again(autojump_clock):
    async def body(run: Run):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run.sleep, 1000)
            await trio.sleep(10)
            raise ConnectionError("beside it")

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        with pytest.raises(RunFailed, match="ConnectionError: beside it"):
            await ticket.result()


async def test_a_thousand_sleepers_need_no_slot(autojump_clock):
    async def body(run: Run):
        await run.sleep(3600)
        return trio.current_time() - begun

    begun = trio.current_time()
    async with open_engine(with_body(body), store="memory:", max_concurrent=3) as engine:
        tickets = [await engine.submit("work", handle=f"h{n}") for n in range(300)]
        assert {await ticket.result() for ticket in tickets} == {3600}


async def test_a_sleeping_run_can_be_cancelled_immediately(autojump_clock):
    async def body(run: Run):
        await run.sleep(1000)

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(10)
        begun = trio.current_time()
        await ticket.cancel()
        with pytest.raises(RunCancelled):
            await ticket.result()
        assert trio.current_time() == begun


async def test_a_run_that_waits_for_its_slot_can_be_cancelled_and_leaves_the_queue(autojump_clock):
    async def body(run: Run):
        await run.sleep(10)
        await trio.sleep_forever()

    async with open_engine(with_body(body), store="memory:", max_concurrent=1) as engine:
        ticket = await engine.submit("work", handle="alice")
        other = await engine.submit("minute", handle="bob")
        await trio.sleep(30)
        await ticket.cancel()
        with pytest.raises(RunCancelled):
            await ticket.result()
        await other.result()
        after = await engine.submit("minute", handle="carol")
        await after.result()
        assert (await engine.snapshot()).engine.executing == 0


@pytest.mark.parametrize("seconds", [-1, float("nan"), "10", None, True])
async def test_a_sleep_of_no_duration_is_refused_and_costs_no_transition(seconds, autojump_clock):
    async def body(run: Run):
        with pytest.raises(Invalid):
            await run.sleep(seconds)

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await ticket.result()
        states = [event.to for event in await engine.history(ticket.id)]
    assert states == ["queued", "running", "succeeded"]


# Calling a child.


async def test_a_call_returns_the_result_of_the_child(autojump_clock):
    async def body(run: Run):
        return await run.call("minute", handle="of the child")

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        assert await ticket.result() == "a minute on of the child"


async def test_a_call_passes_its_parameters_and_lane(autojump_clock):
    async def body(run: Run):
        return await run.call("echo", handle="of the child", params={"n": 1}, lane="side")

    jobs = with_body(body)

    @jobs.job("echo")
    async def echo(run: Run, params: dict):
        return [params, run.lane, run.handle]

    async with open_engine(jobs, store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        assert await ticket.result() == [{"n": 1}, "side", "of the child"]


async def test_on_wait_is_called_once_if_the_child_waits_for_long(autojump_clock):
    waits = []

    async def body(run: Run):
        async def on_wait(waited, ahead, blockers):
            waits.append((round(waited), ahead, blockers, trio.current_time() - begun))

        return await run.call("echo", handle="of the child", warn_after=5, on_wait=on_wait)

    jobs = with_body(body)

    @jobs.job("echo", lane="side")
    async def echo(run: Run):
        return "echo"

    async with open_engine(jobs, store="memory:", lanes={"side": 1}) as engine:
        other = await engine.submit("minute", handle="other", lane="side")
        begun = trio.current_time()
        assert await (await engine.submit("work", handle="alice")).result() == "echo"
    assert waits == [(5, 0, [other.id], pytest.approx(5, abs=0.1))]


async def test_an_on_wait_that_raises_is_logged_and_changes_nothing(autojump_clock, caplog):
    async def body(run: Run):
        def on_wait(waited, ahead, blockers):
            raise ValueError("as requested")

        return await run.call("minute", handle="of the child", lane="side", warn_after=5, on_wait=on_wait)

    async with open_engine(with_body(body), store="memory:", lanes={"side": 1}) as engine:
        await engine.submit("minute", handle="other", lane="side")
        assert await (await engine.submit("work", handle="alice")).result() == "a minute on of the child"
        [child] = await engine.list_runs(handle="of the child")
    assert f"on_wait of run {child.id} failed" in caplog.messages


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"handle": 5}, "handle must be a string (got 5)"),
        ({"lane": 5}, "lane must be a string (got 5)"),
        ({"kind": "x"}, 'kind must be "start" or "continue" (got "x")'),
        ({"params": {"x": math.nan}}, "params.x: the number NaN is not a JSON value; use null or a string"),
        ({"on_conflict": 1}, "on_conflict must be one of reject, queue, replace, join, coalesce (got 1)"),
        ({"run_timeout": "x"}, 'run_timeout must be a number of seconds, 0 or more (got "x")'),
        ({"needs": "gpu"}, 'needs must be a list of labels (got "gpu"): write ["gpu"] for a single one'),
        ({"on_wait": 5}, "on_wait must be callable (got 5)"),
    ],
)
async def test_an_invalid_option_of_a_child_raises_in_the_body(option, text, autojump_clock):
    async def body(run: Run):
        with pytest.raises(Invalid) as raised:
            await run.call("minute", **{"handle": "of the child", **option})
        return raised.value.message

    async with open_engine(with_body(body), store="memory:") as engine:
        assert await (await engine.submit("work", handle="alice")).result() == text


async def test_the_parent_is_suspended_while_the_child_executes(autojump_clock):
    async def body(run: Run):
        await run.call("minute", handle="of the child")

    async with open_engine(with_body(body), store="memory:", max_concurrent=1) as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(30)
        run = await engine.get_run(ticket.id)
        [child] = await children_of(engine, ticket)
        assert (run.status, run.waiting_for, child.status) == ("suspended", "child", "running")
        assert (await engine.snapshot()).handles["alice"].active_run == ticket.id
        await ticket.result()


async def test_the_child_names_its_parent_as_the_one_who_caused_it(autojump_clock):
    async def body(run: Run):
        await run.call("minute", handle="of the child")

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await ticket.result()
        [child] = await children_of(engine, ticket)
        created = (await engine.history(child.id))[0]
    assert ticket.id in created.by


async def test_a_child_that_fails_raises_in_the_parent_and_the_parent_can_continue(autojump_clock):
    async def body(run: Run):
        try:
            await run.call("failing", handle="of the child")
        except RunFailed as error:
            return [error.run.status, error.run.error]

    jobs = with_body(body)

    @jobs.job("failing")
    async def failing(run: Run):
        raise ConnectionError("no route")

    async with open_engine(jobs, store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        assert await ticket.result() == ["failed", "ConnectionError: no route"]


async def test_a_child_that_fails_fails_a_parent_that_does_not_catch_it(autojump_clock):
    async def body(run: Run):
        await run.call("failing", handle="of the child")

    jobs = with_body(body)

    @jobs.job("failing")
    async def failing(run: Run):
        raise ConnectionError("no route")

    async with open_engine(jobs, store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        with pytest.raises(RunFailed, match="no route"):
            await ticket.result()


async def test_a_child_that_is_cancelled_or_times_out_raises_accordingly(autojump_clock):
    raised = []

    async def body(run: Run):
        for options in ({}, {"run_timeout": 5}):
            try:
                await run.call("idle", handle="of the child", **options)
            except (RunCancelled, RunTimedOut) as error:
                raised.append((type(error), error.run.status))

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        [child] = await children_of(engine, ticket)
        await engine.cancel(child.id)
        await ticket.result()
    assert raised == [(RunCancelled, "cancelled"), (RunTimedOut, "timed_out")]


@pytest.mark.parametrize(
    ("job", "params", "error"), [("missing", None, Invalid), ("minute", {"unknown": {1}}, Invalid)]
)
async def test_a_call_that_is_refused_raises_in_the_parent(job, params, error, autojump_clock):
    async def body(run: Run):
        with pytest.raises(error):
            await run.call(job, handle="of the child", params=params)
        return "went on"

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        assert await ticket.result() == "went on"
        assert await children_of(engine, ticket) == []


async def test_a_child_on_the_handle_of_its_parent_is_a_conflict(autojump_clock):
    async def body(run: Run):
        with pytest.raises(Conflict) as refused:
            await run.call("minute", handle="alice")
        return refused.value.details["active_run"] == run.id

    async with open_engine(with_body(body), store="memory:") as engine:
        assert await (await engine.submit("work", handle="alice")).result() is True


@pytest.mark.parametrize("on_conflict", ["reject", "queue", "replace", "join"])
async def test_a_child_on_the_handle_of_a_grandparent_is_a_conflict(on_conflict, autojump_clock):
    async def body(run: Run):
        return await run.call("middle", handle="bob")

    jobs = with_body(body)

    @jobs.job("middle")
    async def middle(run: Run):
        try:
            await run.call("minute", handle="alice", on_conflict=on_conflict)
        except Conflict as error:
            return error.code

    async with open_engine(jobs, store="memory:") as engine:
        assert await (await engine.submit("work", handle="alice")).result() == "conflict"


async def test_a_child_can_use_the_handle_of_an_ended_child(autojump_clock):
    async def body(run: Run):
        return [await run.call("minute", handle="shared") for _ in range(3)]

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        assert await ticket.result() == ["a minute on shared"] * 3


async def test_a_child_waits_for_a_handle_that_a_stranger_holds(autojump_clock):
    async def body(run: Run):
        await run.call("minute", handle="shared")
        return trio.current_time() - begun

    begun = trio.current_time()
    async with open_engine(with_body(body), store="memory:") as engine:
        await engine.submit("minute", handle="shared")
        assert await (await engine.submit("work", handle="alice")).result() == 120


# A child ends with its parent.


@pytest.mark.parametrize("max_concurrent", [1, 10], ids=["queued child", "executing child"])
async def test_a_child_is_cancelled_with_its_parent(max_concurrent, autojump_clock):
    async def body(run: Run):
        await run.call("idle", handle="of the child")

    async with open_engine(with_body(body), store="memory:", max_concurrent=max_concurrent) as engine:
        ticket = await engine.submit("work", handle="alice")
        if max_concurrent == 1:
            blocker = await engine.submit("idle", handle="bob")
        await settled()
        await ticket.cancel()
        with pytest.raises(RunCancelled):
            await ticket.result()
        await settled()
        children = [run for run in await engine.list_runs() if run.handle == "of the child"]
        assert [run.status for run in children] == ["cancelled"]
        if max_concurrent == 1:
            await blocker.cancel()


async def test_grandchildren_are_cancelled_too(autojump_clock):
    async def body(run: Run):
        await run.call("middle", handle="bob")

    jobs = with_body(body)

    @jobs.job("middle")
    async def middle(run: Run):
        await run.call("idle", handle="carol")

    async with open_engine(jobs, store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await ticket.cancel()
        await settled()
        assert [run.status for run in await engine.list_runs()] == ["cancelled"] * 3


async def test_a_child_is_cancelled_when_its_parent_times_out(autojump_clock):
    async def body(run: Run):
        await run.call("idle", handle="of the child")

    async with open_engine(with_body(body, deadline=60), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        with pytest.raises(RunTimedOut):
            await ticket.result()
        await settled()
        assert [run.status for run in await children_of(engine, ticket)] == ["cancelled"]


async def test_a_child_that_the_parent_no_longer_awaits_is_cancelled_and_the_parent_continues(autojump_clock):
    async def body(run: Run):
        with trio.move_on_after(10):
            await run.call("idle", handle="of the child")
        return await run.call("minute", handle="of the child")

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        assert await ticket.result() == "a minute on of the child"
        assert [run.status for run in await children_of(engine, ticket)] == ["cancelled", "succeeded"]


@pytest.mark.parametrize("after", [0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4])
async def test_a_child_that_is_given_up_at_any_moment_does_not_continue_alone(after, autojump_clock):
    async def body(run: Run):
        with trio.move_on_after(after):
            await run.call("idle", handle="of the child")

    async with open_engine(with_body(body), store=SlowStore()) as engine:
        ticket = await engine.submit("work", handle="alice")
        await ticket.wait(60)
        await trio.sleep(60)
        statuses = {run.status for run in await children_of(engine, ticket)}
    assert statuses <= {"cancelled"}


@pytest.mark.parametrize("cancel", ["immediate", "cooperative"])
async def test_a_child_is_cancelled_immediately_with_a_parent_that_shields_itself(cancel, autojump_clock):
    async def body(run: Run):
        with trio.CancelScope(shield=True):
            await run.call("idle", handle="of the child", run_timeout=1000)

    async with open_engine(with_body(body, cancel=cancel), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await ticket.cancel()
        await trio.sleep(5)  # its grace lasts longer
        assert [run.status for run in await children_of(engine, ticket)] == ["cancelled"]
        await ticket.wait()
        assert (await engine.get_run(ticket.id)).ended


async def test_a_child_of_a_failed_attempt_is_cancelled(autojump_clock):
    async def body(run: Run):
        if run.attempt == 2:
            return await run.call("minute", handle="of the child")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: run.call("idle", handle="of the child"))
            await trio.sleep(10)
            raise ConnectionError

    async with open_engine(with_body(body, max_attempts=2), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        assert await ticket.result() == "a minute on of the child"
        assert [run.status for run in await children_of(engine, ticket)] == ["cancelled", "succeeded"]


async def test_a_child_that_others_had_started_is_joined_and_not_cancelled(autojump_clock):
    async def body(run: Run):
        await run.call("idle", handle="shared", on_conflict="join")

    async with open_engine(with_body(body), store="memory:") as engine:
        theirs = await engine.submit("idle", handle="shared")
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await ticket.cancel()
        await settled()
        assert await status_of(engine, theirs) == "running"
        await theirs.cancel()


# Many runs.


async def test_a_hundred_parents_that_each_wait_for_a_child_all_finish_with_three_slots(autojump_clock):
    async def body(run: Run):
        return await run.call("short", handle=f"child of {run.handle}")

    jobs = with_body(body)
    executing, most = 0, 0

    @jobs.job("short")
    async def short(run: Run):
        nonlocal executing, most
        executing += 1
        most = max(most, executing)
        await trio.sleep(1)
        executing -= 1
        return run.handle

    async with open_engine(jobs, store="memory:", max_concurrent=3) as engine:
        tickets = [await engine.submit("work", handle=f"h{n}") for n in range(100)]
        results = [await ticket.result() for ticket in tickets]
        snapshot = await engine.snapshot()
    assert results == [f"child of h{n}" for n in range(100)]
    assert most == 3
    assert (snapshot.engine.executing, snapshot.engine.queued) == (0, 0)


async def test_a_chain_of_calls_deeper_than_the_limit_finishes_with_one_slot(autojump_clock):
    async def body(run: Run, params: dict):
        depth = params["depth"]
        if depth == 10:
            return 0
        return 1 + await run.call("work", handle=f"depth {depth + 1}", params={"depth": depth + 1})

    async with open_engine(with_body(body), store="memory:", max_concurrent=1) as engine:
        ticket = await engine.submit("work", handle="depth 0", params={"depth": 0})
        assert await ticket.result() == 10
