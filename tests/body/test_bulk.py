"""Cancel, rerun and retry all runs that match a filter; and retry of one run."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from greenroom import Engine, Jobs, Run, Ticket
from greenroom.actors.engine import bulk
from greenroom.actors.engine.bulk import Match, for_each
from greenroom.errors import Conflict, Draining, Invalid, NotFound, Unavailable
from greenroom.protocol.records import BulkResult
from tests.support import open_engine

settled = trio.testing.wait_all_tasks_blocked


class Program:
    """Jobs that succeed, fail, or last; `started` are the parameters of the bodies, in order."""

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.started: list[Any] = []
        self.fails = True
        self.jobs.job("flaky")(self.flaky)
        self.jobs.job("idle")(self.idle)
        self.jobs.job("final")(self.final)

    async def flaky(self, run: Run, params: dict[str, Any]) -> Any:
        self.started.append(params.get("n"))
        if self.fails:
            raise ConnectionError("no route")
        return params

    async def idle(self, run: Run, params: dict[str, Any]) -> None:
        self.started.append(params.get("n"))
        await trio.sleep_forever()

    async def final(self, run: Run, params: dict[str, Any]) -> None:
        await run.end_interactive()
        await trio.sleep(100)


async def failed_runs(engine: Engine, count: int, **options: Any) -> list[Ticket[Any]]:
    """Runs that have failed, each in its own handle."""
    tickets = []
    for n in range(count):
        options = {"handle": f"h{n}", **options}
        tickets.append(await engine.submit("flaky", params={"n": n}, on_conflict="queue", **options))
        options.pop("handle") if options["handle"] == f"h{n}" else None
    for ticket in tickets:
        await ticket.wait()
    return tickets


# One run.


async def test_retry_submits_a_failed_run_again(autojump_clock):
    program = Program()
    async with open_engine(program.jobs) as engine:
        [first] = await failed_runs(engine, 1, lane="side", tags={"a": "1"})
        program.fails = False
        second = await engine.retry(first.id, by="bob")
        assert await second.result() == {"n": 0}
        old, new = await engine.get_run(first.id), await engine.get_run(second.id)
        for name in ("handle", "lane", "job", "kind", "params", "tags", "needs"):
            assert getattr(new, name) == getattr(old, name)
        assert (await engine.history(second.id))[0].by == "bob"


async def test_retry_accepts_runs_that_timed_out_and_no_others(autojump_clock):
    program = Program()
    async with open_engine(program.jobs) as engine:
        late = await engine.submit("idle", handle="late", params={}, run_timeout=5)
        await late.wait()
        await (await engine.retry(late.id)).cancel()
        idle = await engine.submit("idle", handle="idle", params={})
        await settled()
        with pytest.raises(Conflict, match="is running and cannot be retried, only runs that are failed, ti"):
            await engine.retry(idle.id)
        await idle.cancel()
        await idle.wait()
        with pytest.raises(Conflict, match=r"is cancelled and cannot be retried, .*: use rerun") as refused:
            await engine.retry(idle.id)
        assert refused.value.details["run"].id == idle.id
        with pytest.raises(NotFound):
            await engine.retry("0" * 32)


@pytest.mark.parametrize("name", ["rerun", "retry"])
async def test_a_rerun_with_a_request_id_is_submitted_once(name: str, autojump_clock):
    async with open_engine(Program().jobs) as engine:
        [first] = await failed_runs(engine, 1)
        call = getattr(engine, name)
        second = await call(first.id, request_id="again")
        joined = await call(first.id, request_id="again")
        assert (joined.id, joined.joined, second.joined) == (second.id, True, False)


# Cancel.


async def test_cancel_many_cancels_the_runs_that_match(autojump_clock):
    program = Program()
    async with open_engine(program.jobs, max_concurrent=2) as engine:
        tickets = [
            await engine.submit("idle", handle=f"h{n}", params={"n": n}, tags={"even": str(n % 2 == 0)})
            for n in range(8)
        ]
        await settled()
        assert sorted(program.started) == [0, 1]
        assert await engine.cancel_many(tags={"even": "True"}, by="bob") == BulkResult(4, 4)
        await settled()
        statuses = [(await engine.get_run(ticket.id)).status for ticket in tickets]
        assert statuses == ["cancelled", "running", "cancelled", "running"] + ["cancelled", "queued"] * 2
        assert sorted(program.started) == [0, 1, 3], "no run started that was about to be cancelled"
        assert (await engine.history(tickets[0].id))[-1].by == "bob"
        assert await engine.cancel_many(job="idle") == BulkResult(4, 4)
        assert await engine.cancel_many(job="idle") == BulkResult(0)


async def test_queued_runs_are_cancelled_before_those_that_execute(autojump_clock):
    program = Program()
    async with open_engine(program.jobs, max_concurrent=1) as engine:
        for n in range(250):
            await engine.submit("idle", handle=f"h{n % 120}", params={"n": n}, on_conflict="queue")
        await settled()
        assert await engine.cancel_many(job="idle") == BulkResult(250, 250)
        await settled()
        assert program.started == [0]


async def test_a_dry_run_only_counts(autojump_clock):
    async with open_engine(Program().jobs, max_concurrent=0) as engine:
        for n in range(12):
            await engine.submit("idle", handle=f"h{n}", params={})
        seq = (await engine.snapshot()).seq
        assert await engine.cancel_many(job="idle", limit=5, dry_run=True) == BulkResult(12)
        assert await engine.cancel_many(job="flaky", dry_run=True) == BulkResult(0)
        assert await engine.rerun_many(job="idle", dry_run=True) == BulkResult(0)
        assert (await engine.snapshot()).seq == seq


async def test_more_runs_than_the_limit_are_refused_and_nothing_changes(autojump_clock):
    async with open_engine(Program().jobs, max_concurrent=0) as engine:
        for n in range(12):
            await engine.submit("idle", handle=f"h{n}", params={})
        seq = (await engine.snapshot()).seq
        message = r"more than 11 runs match: add filters, or raise limit \(at most 100,000\)"
        with pytest.raises(Invalid, match=message):
            await engine.cancel_many(job="idle", limit=11)
        assert (await engine.snapshot()).seq == seq
        assert await engine.cancel_many(job="idle", limit=12) == BulkResult(12, 12)


async def test_the_limit_is_a_thousand_by_default(autojump_clock, monkeypatch):
    monkeypatch.setattr(bulk, "_PAGE", 300)
    async with open_engine(Program().jobs, max_concurrent=0) as engine:
        for _ in range(1001):
            await engine.submit("idle", handle="h", params={}, on_conflict="queue")
        with pytest.raises(Invalid, match="more than 1,000 runs match"):
            await engine.cancel_many(handle="h")
        assert await engine.cancel_many(handle="h", dry_run=True) == BulkResult(1001)


async def test_refusals_are_counted_and_the_first_ones_named(autojump_clock):
    async with open_engine(Program().jobs, max_concurrent=20) as engine:
        final = [await engine.submit("final", handle=f"f{n}", params={}) for n in range(12)]
        await engine.submit("idle", handle="idle", params={})
        await settled()
        result = await engine.cancel_many(lane="main")
        assert (result.matched, result.done, result.refused, len(result.refusals)) == (13, 1, 12, 10)
        assert {one.run for one in result.refusals} <= {ticket.id for ticket in final}
        assert {one.code for one in result.refusals} == {"not_interactive"}
        assert all(one.message for one in result.refusals)


@pytest.mark.parametrize(
    ("call", "arguments", "message"),
    [
        ("cancel_many", {}, "cancel_many requires at least one filter.* queued, running, suspended"),
        ("cancel_many", {"tags": {}}, "requires at least one filter"),
        ("rerun_many", {"limit": 5}, "rerun_many requires at least one filter"),
        ("cancel_many", {"handle": "a", "limit": 0}, "limit must be an integer between 1 and 100,000"),
        ("rerun_many", {"handle": "a", "limit": 100_001}, "limit must be an integer between 1 and 100,000"),
        ("retry_many", {"handle": "a", "limit": True}, "limit must be an integer"),
        ("cancel_many", {"status": ["queued", "failed"]}, r"queued, running, suspended \(got failed\)"),
        ("cancel_many", {"status": "cancelling"}, "got cancelling"),
        ("rerun_many", {"status": "queued"}, r"rerun_many works on .* \(got queued\)"),
        ("retry_many", {"status": ["failed", "cancelled"]}, r"retry_many works on .* \(got cancelled\)"),
        ("cancel_many", {"handle": "a", "files": "burn"}, "files must be"),
        ("rerun_many", {"handle": "a", "request_id": "x" * 224}, "must have at most 223 characters"),
        ("retry_many", {"handle": "a", "request_id": ""}, "request_id must not be empty"),
        ("cancel_many", {"status": "sleeping"}, "status must be one or more of"),
    ],
)
async def test_arguments_that_mean_nothing_are_refused(
    call: str, arguments: dict[str, Any], message: str, autojump_clock
):
    async with open_engine(Program().jobs) as engine:
        with pytest.raises(Invalid, match=message):
            await getattr(engine, call)(**arguments)


# Rerun and retry.


async def test_rerun_many_submits_the_ended_runs_again_oldest_first(autojump_clock):
    program = Program()
    async with open_engine(program.jobs, max_concurrent=1) as engine:
        await failed_runs(engine, 5, handle="one", tags={"batch": "7"})
        await failed_runs(engine, 2, handle="other")
        program.fails = False
        program.started.clear()
        assert await engine.rerun_many(tags={"batch": "7"}, by="bob") == BulkResult(5, 5)
        await settled()
        assert program.started == [0, 1, 2, 3, 4]
        done = await engine.list_runs(status="succeeded")
        assert [run.tags for run in done] == [{"batch": "7"}] * 5
        assert {(await engine.history(run.id))[0].by for run in done} == {"bob"}


async def test_retry_many_leaves_out_runs_that_succeeded_or_were_cancelled(autojump_clock):
    program = Program()
    async with open_engine(program.jobs) as engine:
        [failed] = await failed_runs(engine, 1)
        program.fails = False
        await (await engine.submit("flaky", handle="fine", params={})).result()
        cancelled = await engine.submit("idle", handle="idle", params={})
        await cancelled.cancel()
        await cancelled.wait()
        assert await engine.retry_many(since=0, dry_run=True) == BulkResult(1)
        assert await engine.rerun_many(since=0, dry_run=True) == BulkResult(3)
        assert await engine.retry_many(since=0) == BulkResult(1, 1)
        [new, _] = await engine.list_runs(handle=(await engine.get_run(failed.id)).handle)
        assert new.params == {"n": 0}


@pytest.mark.parametrize("name", ["rerun_many", "retry_many"])
async def test_a_repeated_call_submits_no_run_twice(name: str, autojump_clock):
    program = Program()
    async with open_engine(program.jobs) as engine:
        await failed_runs(engine, 3)
        await failed_runs(engine, 2, handle="shared")
        await trio.sleep(10)
        call = getattr(engine, name)
        for _ in range(3):  # the new runs fail, too, so that they match
            assert await call(job="flaky", request_id="call 1") == BulkResult(5, 5)
            await trio.sleep(10)
            assert len(await engine.list_runs(job="flaky", status="failed")) == 10
        [newest, *_] = await engine.list_runs(job="flaky")
        since = await call(job="flaky", since=newest.created_at, request_id="call 1")
        assert since == BulkResult(0), "not even if the runs from which they were made do not match"
        assert await call(job="flaky", request_id="call 1", dry_run=True) == BulkResult(5)
        assert await call(job="flaky", request_id="call 2") == BulkResult(10, 10)


async def test_an_interrupted_call_is_completed_by_the_next_one(autojump_clock, monkeypatch):
    monkeypatch.setattr(bulk, "_BATCH", 2)
    program = Program()
    async with open_engine(program.jobs, max_concurrent=0) as engine:
        tickets = [await engine.submit("flaky", handle=f"h{n}", params={"n": n}) for n in range(6)]
        for ticket in tickets:
            await ticket.cancel()
        submit, calls = engine.submit_options, 0

        async def interrupted(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 4:
                raise Unavailable("the engine stops")
            return await submit(*arguments, **options)

        monkeypatch.setattr(type(engine), "submit_options", lambda self, *a, **o: interrupted(*a, **o))
        with pytest.raises(
            Unavailable, match="engine became unavailable after 3 of 6 runs: repeat"
        ) as stopped:
            await engine.rerun_many(job="flaky", request_id="call")
        assert (stopped.value.details, calls) == ({"done": 3, "matched": 6}, 4)
        assert await engine.rerun_many(job="flaky", request_id="call") == BulkResult(6, 6)
        queued = await engine.list_runs(status="queued")
        assert sorted(run.params["n"] for run in queued) == [0, 1, 2, 3, 4, 5]


async def test_a_draining_engine_ends_the_call(autojump_clock):
    async with open_engine(Program().jobs) as engine:
        await failed_runs(engine, 3)
        await engine.drain()
        with pytest.raises(Draining):
            await engine.rerun_many(job="flaky")
        assert len(await engine.list_runs()) == 3


# Batches.


async def test_no_more_than_a_batch_of_runs_is_handled_at_once(autojump_clock):
    at_once = most = 0

    async def act(id: str) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await trio.sleep(1)
        at_once -= 1

    matches = [Match(f"r{n}", f"h{n}", True) for n in range(1050)]
    assert await for_each(act, matches) == BulkResult(1050, 1050)
    assert most == 100


async def test_the_runs_of_a_handle_are_handled_in_order(autojump_clock):
    seen: list[str] = []

    async def act(id: str) -> None:
        await trio.sleep(1)
        seen.append(id)

    await for_each(act, [Match(f"{n:03}", f"h{n % 7}", True) for n in range(300)])
    for handle in range(7):
        mine = [id for id in seen if int(id) % 7 == handle]
        assert mine == sorted(mine)


async def test_a_cancelled_call_stops(autojump_clock):
    seen: list[str] = []

    async def act(id: str) -> None:
        seen.append(id)
        await trio.sleep(10)

    with trio.move_on_after(15):
        await for_each(act, [Match(f"r{n}", f"h{n}", True) for n in range(1000)])
    assert len(seen) == 200
