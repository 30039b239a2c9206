"""The client is the embedded engine at a distance, and both are the same in asyncio: the same methods,
results and refusals."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import attrs
import msgspec
import pytest
import trio

from greenroom import Jobs, Run, errors
from greenroom.gateway.client import RunEngine, RunTicket
from greenroom.protocol.events import Event
from greenroom.protocol.fold import fold
from greenroom.protocol.records import BulkResult, Snapshot

from .everywhere import SYNCHRONOUS, everywhere, outcome, sleep


class Add(msgspec.Struct):
    a: int
    b: int = 0


@attrs.frozen
class Point:
    x: float


def make_jobs() -> Jobs:
    jobs = Jobs()

    @jobs.job("add")
    async def add(run: Run, params: Add) -> int:
        return params.a + params.b

    @jobs.job("point")
    async def point(run: Run, params: Point) -> float:
        return params.x

    @jobs.job("wait", lane="waiting")
    async def wait(run: Run, params: dict[str, Any]) -> Any:
        return await run.next_message()

    @jobs.job("ask")
    async def ask(run: Run, params: dict[str, Any]) -> Any:
        return await run.interrupt({"may": "I?"}, timeout=None)

    @jobs.job("ask twice")
    async def ask_twice(run: Run, params: dict[str, Any]) -> Any:
        answers = {}

        async def ask_about(key: str) -> None:
            answers[key] = await run.interrupt({"about": key}, key=key)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_about, "a")
            nursery.start_soon(ask_about, "b")
        return answers

    @jobs.job("fail")
    async def fail(run: Run, params: dict[str, Any]) -> None:
        raise ValueError("as it should")

    @jobs.job("stream", accepts="streaming")
    async def stream(run: Run, params: dict[str, Any]) -> None:
        await trio.sleep_forever()

    @jobs.job("log")
    async def log(run: Run, params: dict[str, Any]) -> None:
        for number in range(params["lines"]):
            await run.log(f"line {number}")

    return jobs


JOBS = make_jobs()
on_each = everywhere(JOBS)


@JOBS.job
async def move(run: Run, params: Point) -> Point:
    return Point(params.x + 1)


async def undecorated(run: Run) -> None: ...


@on_each
async def test_a_ticket_gives_the_result(engine: RunEngine):
    ticket = await engine.submit("add", handle="alice", params={"a": 1, "b": 2})
    assert await ticket.result() == 3
    assert not ticket.joined
    assert await ticket.wait()


@on_each
@pytest.mark.parametrize(("job", "params"), [("add", Add(a=3)), ("point", Point(x=3)), ("add", {"a": 3})])
async def test_parameters_can_be_an_instance_of_the_jobs_class(engine: RunEngine, job: str, params: Any):
    ticket = await engine.submit(job, handle="alice", params=params)
    assert await ticket.result() == 3


@on_each
async def test_a_job_can_be_named_by_its_function(engine: RunEngine):
    ticket = await engine.submit(move, handle="alice", params=Point(x=3))
    assert await ticket.result() == Point(x=4)
    by_name = await engine.submit("move", handle="alice", params={"x": 3})
    assert await by_name.result() == {"x": 4}


@on_each
async def test_the_same_request_id_twice_is_one_run(engine: RunEngine):
    first = await engine.submit("add", handle="alice", params={"a": 1}, request_id="once")
    again = await engine.submit("add", handle="alice", params={"a": 1}, request_id="once")
    assert again.id == first.id
    assert again.joined


@on_each
async def test_join_gives_the_run_that_is_there(engine: RunEngine):
    first = await engine.submit("wait", handle="alice", params={})
    joined = await engine.submit("wait", handle="alice", params={}, on_conflict="join")
    assert (joined.id, joined.joined) == (first.id, True)


@on_each
async def test_coalescing_changes_the_parameters_of_the_run_that_waits(engine: RunEngine):
    await engine.submit("wait", handle="alice", params={"n": 1}, on_conflict="coalesce")
    second = await engine.submit("wait", handle="alice", params={"n": 2}, on_conflict="coalesce")
    third = await engine.submit("wait", handle="alice", params={"n": 3}, on_conflict="coalesce")
    assert not second.joined
    assert (third.id, third.joined) == (second.id, True)
    assert (await engine.get_run(second.id)).params == {"n": 3}
    assert (await engine.snapshot()).runs[second.id].params == {"n": 3}


@on_each
async def test_a_ticket_waits_no_longer_than_its_timeout(engine: RunEngine):
    ticket = await engine.submit("wait", handle="alice", params={})
    assert not await ticket.wait(timeout=5)


@on_each
async def test_a_cancelled_run_raises_that_with_its_last_state(engine: RunEngine):
    ticket = await engine.submit("wait", handle="alice", params={})
    await running(engine, ticket)
    cancelling = await ticket.cancel()
    assert cancelling.status == "cancelling"
    with pytest.raises(errors.RunCancelled) as caught:
        await ticket.result()
    assert caught.value.run.status == "cancelled"


@on_each
async def test_a_failed_run_raises_that_with_its_error(engine: RunEngine):
    ticket = await engine.submit("fail", handle="alice", params={})
    with pytest.raises(errors.RunFailed, match="as it should") as caught:
        await ticket.result()
    assert "ValueError" in (caught.value.run.error or "")


@on_each
async def test_a_run_that_waits_longer_than_queue_timeout_times_out(engine: RunEngine):
    await engine.set_max_concurrent(0)
    ticket = await engine.submit("add", handle="alice", params={"a": 1}, queue_timeout=3)
    with pytest.raises(errors.RunTimedOut):
        await ticket.result()


@on_each
async def test_an_infinite_timeout_is_none(engine: RunEngine, time_jumps: bool):
    ticket = await engine.submit("wait", handle="alice", params={}, run_timeout=math.inf, warn_after=math.inf)
    assert not await ticket.wait(timeout=5000 if time_jumps else 5)


@on_each
async def test_messages_reach_the_body(engine: RunEngine):
    ticket = await engine.submit("wait", handle="alice", params={})
    await running(engine, ticket)
    assert await engine.inject("alice", {"say": "hello"}) == "accepted"
    assert await ticket.result() == {"say": "hello"}


@on_each
async def test_interrupts_are_answered_once(engine: RunEngine):
    ticket = await engine.submit("ask", handle="alice", params={})
    await running(engine, ticket)
    [interrupt] = (await engine.snapshot()).interrupts
    assert await engine.answer(interrupt, "yes") == "resolved"
    assert await ticket.result() == "yes"
    assert await engine.answer(interrupt, "no") == "already_resolved"
    assert await engine.answer("nobody.1", "no") == "not_found"


@on_each
async def test_a_run_can_be_named_by_its_handle(engine: RunEngine):
    ticket = await engine.submit("wait", handle="alice", params={})
    await running(engine, ticket)
    assert (await engine.get_run("alice")).id == ticket.id
    assert (await engine.wait("alice", timeout=1)).status == "running"
    assert await engine.history("alice") == await engine.history(ticket.id)
    assert (await engine.cancel("alice")).id == ticket.id
    with pytest.raises(errors.RunCancelled):
        await ticket.result()
    assert (await engine.wait(ticket.id)).status == "cancelled"


@on_each
async def test_a_handle_whose_runs_have_ended_has_no_active_run(engine: RunEngine):
    ticket = await engine.submit("add", handle="alice", params={"a": 1})
    await ticket.result()
    refused: dict[str, Callable[[], Awaitable[Any]]] = {
        "get_run": lambda: engine.get_run("alice"),
        "wait": lambda: engine.wait("alice"),
        "history": lambda: engine.history("alice"),
        "cancel": lambda: engine.cancel("alice"),
        "signal": lambda: engine.signal("alice", "a", 1),
    }
    for act in refused.values():
        with pytest.raises(
            errors.NoActiveRun, match=f'"alice" has no .* last one, {ticket.id}, is succeeded'
        ):
            await act()
    with pytest.raises(errors.NoActiveRun, match='"alice" is neither a pending run nor a handle'):
        await engine.inject("alice", "hello")
    with pytest.raises(errors.NoActiveRun, match='"alice" is neither a pending run nor a handle'):
        await engine.answer("alice", "yes", key="a")
    assert await engine.answer("alice", "yes") == "not_found"


@on_each
async def test_an_interrupt_can_be_named_by_its_run_and_key(engine: RunEngine):
    ticket = await engine.submit("ask twice", handle="alice", params={})
    await running(engine, ticket)
    assert await engine.answer("alice", "yes") == "not_found"  # which of the two?
    assert await engine.answer("alice", "for c", key="c") == "not_found"
    assert await engine.answer("alice", "for b", key="b") == "resolved"
    assert await engine.answer(ticket.id, "for a", key="a") == "resolved"
    assert await ticket.result() == {"a": "for a", "b": "for b"}


@on_each
async def test_rerun_is_a_new_run_of_the_same(engine: RunEngine):
    first = await engine.submit("add", handle="alice", params={"a": 4})
    await first.result()
    second = await engine.rerun(first.id)
    assert second.id != first.id
    assert await second.result() == 4


@on_each
async def test_rerun_keeps_the_needs(engine: RunEngine):
    first = await engine.submit("add", handle="alice", params={"a": 4}, needs=["gpu", "big"])
    await first.cancel()
    second = await engine.rerun(first.id)
    assert (await engine.get_run(second.id)).needs == ("big", "gpu")
    await second.cancel()


@on_each
async def test_a_run_can_start_later(engine: RunEngine):
    at = datetime.now(UTC) + timedelta(hours=1)
    for handle, options in {
        "at": {"start_at": at},
        "seconds": {"start_at": at.timestamp()},
        "delay": {"delay": 3600},
    }.items():
        ticket = await engine.submit("add", handle=handle, params={"a": 4}, **options)
        run = await engine.get_run(ticket.id)
        assert (run.status, run.waiting_for, run.place) == ("queued", "time", None)
        assert run.not_before is not None
        assert abs(run.not_before - at.timestamp()) < 100
        await ticket.cancel()
    reserved = await engine.submit("add", handle="reserved", params={"a": 4}, start_at=at, reserve=True)
    assert (await engine.snapshot()).handles["reserved"].active_run == reserved.id
    await reserved.cancel()
    soon = await engine.submit("add", handle="alice", params={"a": 4}, delay=0.1)
    assert await soon.result() == 4


@on_each
@pytest.mark.parametrize(
    "options",
    [{"start_at": 1, "delay": 1}, {"delay": -1}, {"start_at": datetime(2026, 1, 1)}, {"reserve": True}],
)
async def test_bad_times_of_a_start_are_refused(engine: RunEngine, options: dict[str, Any]):
    with pytest.raises(errors.Invalid):
        await engine.submit("add", handle="alice", params={"a": 4}, **options)


@on_each
async def test_rerun_keeps_the_tags_and_is_submitted_once(engine: RunEngine):
    first = await engine.submit("add", handle="alice", params={"a": 4}, tags={"customer": "42"})
    await first.result()
    second = await engine.rerun(first.id, request_id="again")
    third = await engine.rerun(first.id, request_id="again")
    assert (third.id, second.joined, third.joined) == (second.id, False, True)
    assert (await engine.get_run(second.id)).tags == {"customer": "42"}


@on_each
async def test_retry_is_for_runs_that_failed(engine: RunEngine):
    failed = await engine.submit("fail", handle="alice", params={})
    await failed.wait()
    again = await engine.retry(failed.id)
    assert (again.id != failed.id, again.joined) == (True, False)
    fine = await engine.submit("add", handle="bob", params={"a": 1})
    await fine.result()
    with pytest.raises(errors.Conflict, match="is succeeded and cannot be retried"):
        await engine.retry(fine.id)


@on_each
async def test_runs_are_found_by_every_filter(engine: RunEngine):
    for name, job, tags in (
        ("a", "add", {"n": "1"}),
        ("b", "fail", {"n": "2", "m": "=x"}),
        ("c", "fail", {}),
    ):
        ticket = await engine.submit(job, handle=name, params={"a": 1} if job == "add" else {}, tags=tags)
        await ticket.wait()
    [second] = await engine.list_runs(handle="b")
    assert await engine.list_files(second.id) == []
    assert second.tags == {"n": "2", "m": "=x"}
    for filter, expected in (
        ({"tags": {"m": "=x"}}, "b"),
        ({"tags": {"n": "1", "m": "=x"}}, ""),
        ({"job": "fail"}, "cb"),
        ({"job": "fail", "status": ["failed"], "tags": {"n": "2"}}, "b"),
        ({"error": "as it should"}, "cb"),
        ({"error": "As it should"}, ""),
        ({"since": second.created_at, "job": "fail"}, "cb"),
        ({"until": second.created_at - 1e6}, ""),
        ({"flow": "add"}, ""),
        ({"parent": second.id}, ""),
    ):
        found = await engine.list_runs(**filter)  # type: ignore[arg-type]
        assert "".join(run.handle for run in found) == expected, filter


@on_each
async def test_many_runs_are_cancelled_or_submitted_again(engine: RunEngine):
    for n in range(3):
        await engine.submit("wait", handle=f"w{n}", params={}, tags={"odd": str(n % 2)})
        failed = await engine.submit("fail", handle=f"f{n}", params={})
        await failed.wait()
    assert await engine.cancel_many(tags={"odd": "0"}, dry_run=True) == BulkResult(2)
    assert await engine.cancel_many(tags={"odd": "0"}) == BulkResult(2, 2)
    for _ in range(2):
        assert await engine.retry_many(job="fail", request_id="again") == BulkResult(3, 3)
    for run in await engine.list_runs(job="fail"):
        await engine.wait(run.id)
    assert len(await engine.list_runs(job="fail")) == 6
    assert await engine.rerun_many(handle="f1", limit=2) == BulkResult(2, 2)
    await engine.submit("wait", handle="w9", params={})
    with pytest.raises(errors.Invalid, match="more than 1 runs match"):
        await engine.cancel_many(lane="waiting", limit=1)
    assert await engine.cancel_many(lane="waiting") == BulkResult(2, 2)


@on_each
async def test_a_schedule_is_put_triggered_paused_and_deleted(engine: RunEngine):
    put = await engine.schedules.put(
        "tick", job="add", params={"a": 4}, cron="0 3 * * *", timezone="Europe/Berlin", deadline=math.inf
    )
    assert (put.name, put.handle, put.options) == ("tick", "schedule:tick", {"deadline": "none"})
    assert len(put.next) == 3
    ticket = await engine.schedules.trigger("tick", request_id="1")
    assert await ticket.result() == 4
    again = await engine.schedules.trigger("tick", request_id="1")
    assert (again.id, again.joined) == (ticket.id, True)
    assert (await engine.schedules.pause("tick")).next == ()
    assert (await engine.schedules.resume("tick")) == await engine.schedules.get("tick")
    assert [record.name for record in await engine.schedules.list()] == ["tick"]
    await engine.schedules.delete("tick")
    with pytest.raises(errors.NotFound, match='schedule "tick" not found'):
        await engine.schedules.get("tick")
    assert await engine.schedules.preview(cron="0 3 * * *", timezone="Europe/Berlin") == put.next
    both = {"every": 60, "cron": "* * * * *"}
    for times in ({}, {"cron": "bad"}, {"every": 0}, both, {"cron": "0 0 30 2 *"}):
        with pytest.raises(errors.Invalid):
            await engine.schedules.preview(**times)  # type: ignore[arg-type]
    for options in ({}, {"cron": "bad"}, {"every": 0}, {"every": 60, "missed": "some"}):
        with pytest.raises(errors.Invalid):
            await engine.schedules.put("tick", job="add", **options)


@on_each
async def test_webhooks_that_do_not_exist_are_not_found(engine: RunEngine):
    for listed in (engine.webhooks.dead, engine.webhooks.failing):
        assert list(await listed(limit=10, after="0" * 32)) == []
        with pytest.raises(errors.Invalid, match="after must be the id of a webhook"):
            await listed(after="x")
    for call in (engine.webhooks.redeliver, engine.webhooks.drop):
        with pytest.raises(errors.NotFound, match="with its run, or it never existed"):
            await call("0" * 32)
        with pytest.raises(errors.Invalid, match="must be the id of a webhook"):
            await call("x")
    for notify in ("https://example.org/", {"url": "https://example.org/", "types": ["run_log"]}):
        with pytest.raises(errors.Invalid, match="notify requires a secret"):
            await engine.submit("add", handle="alice", params={"a": 1}, notify=notify)


@on_each
async def test_a_handles_draft_is_used_without_parameters(engine: RunEngine):
    await engine.set_params("alice", {"a": 7})
    ticket = await engine.submit("add", handle="alice")
    assert await ticket.result() == 7


@on_each
async def test_limits_and_clears_are_effective_immediately(engine: RunEngine):
    await engine.set_concurrency("waiting", 0)
    tickets = [await engine.submit("wait", handle=f"h{n}", params={}) for n in range(3)]
    assert await engine.clear_lane("waiting") == 3
    for ticket in tickets:
        with pytest.raises(errors.RunCancelled) as caught:
            await ticket.result()
        assert caught.value.run.reason == "lane_cleared"
    snapshot = await engine.snapshot()
    assert snapshot.lanes["waiting"].limit == 0
    await engine.set_concurrency("waiting", None)
    assert (await engine.snapshot()).lanes["waiting"].limit is None
    assert await engine.clear_handle("h0") == 0
    assert await engine.release_handle("h0") is False


@on_each
async def test_draining_refuses_until_resumed(engine: RunEngine):
    await engine.drain()
    with pytest.raises(errors.Draining):
        await engine.submit("add", handle="alice", params={"a": 1})
    await engine.resume()
    assert await (await engine.submit("add", handle="alice", params={"a": 1})).result() == 1


@on_each
async def test_runs_are_listed_the_newest_first(engine: RunEngine):
    ids = []
    for number in range(5):
        ticket = await engine.submit("add", handle=f"h{number % 2}", params={"a": number})
        await ticket.result()
        ids.append(ticket.id)
    assert [run.id for run in await engine.list_runs()] == ids[::-1]
    assert [run.id for run in await engine.list_runs(limit=2, before=ids[3])] == [ids[2], ids[1]]
    assert [run.params["a"] for run in await engine.list_runs(handle="h1")] == [3, 1]
    assert await engine.list_runs(status="failed") == []
    assert len(await engine.list_runs(status=iter(("failed", "succeeded")))) == 5
    assert (await engine.get_run(ids[0])).result == 0


@on_each
async def test_history_contains_all_events_of_a_run(engine: RunEngine):
    ticket = await engine.submit("add", handle="alice", params={"a": 1})
    await ticket.result()
    assert [event.to for event in await engine.history(ticket.id)] == ["queued", "running", "succeeded"]  # type: ignore[union-attr]


@on_each
async def test_the_events_after_a_snapshot_lead_to_the_next(engine: RunEngine, follows: bool):
    if not follows:
        with pytest.raises(errors.Invalid, match="follow"):
            engine.events()
        return
    start = await engine.snapshot()
    for number in range(3):
        await (await engine.submit("add", handle=f"h{number}", params={"a": 1})).result()
    end = await engine.snapshot()
    seen: list[Event] = []
    async for event in engine.events(after=start.seq):
        assert not isinstance(event, Snapshot)
        seen.append(event)
        if event.seq == end.seq:
            break
    assert fold(start, seen) == end


@on_each
async def test_events_are_filtered(engine: RunEngine, follows: bool):
    if not follows:
        return
    start = (await engine.snapshot()).seq
    events = engine.events(after=start, filter={"handles": ["b"], "types": ["run_state_changed"]})
    for handle in "abc":
        await (await engine.submit("add", handle=handle, params={"a": 1})).result()
    seen = [await anext(events) for _ in range(3)]
    assert [(event.handle, event.to) for event in seen] == [  # type: ignore[union-attr]
        ("b", "queued"),
        ("b", "running"),
        ("b", "succeeded"),
    ]


@on_each
async def test_waiting_for_what_executes(engine: RunEngine, follows: bool):
    if not follows:
        return
    assert await engine.wait_for_active(timeout=1)
    ticket = await engine.submit("wait", handle="alice", params={})
    await running(engine, ticket)
    assert not await engine.wait_for_active(timeout=1)
    async with anyio.create_task_group() as nursery:
        nursery.start_soon(later, 2, lambda: engine.inject("alice", 1))
        later_one = await engine.submit("wait", handle="bob", params={})
        assert await engine.wait_for_active(timeout=10)
    assert not (await engine.get_run(later_one.id)).ended


@on_each
async def test_a_reset_ends_waiting_for_what_executes(engine: RunEngine, follows: bool):
    if not follows:
        return
    ticket = await engine.submit("wait", handle="alice", params={})
    await running(engine, ticket)
    async with anyio.create_task_group() as nursery:
        nursery.start_soon(later, 2, engine.reset_lanes)
        assert await engine.wait_for_active(timeout=10)
    await engine.inject("alice", 1)


@on_each
async def test_a_long_wait_is_reported(engine: RunEngine, follows: bool):
    if not follows:
        return
    called = anyio.Event()
    heard: list[tuple[float, int, list[str]]] = []

    def on_wait(waited: float, ahead: int, blockers: list[str]) -> None:
        heard.append((waited, ahead, blockers))
        called.set()

    first = await engine.submit("wait", handle="alice", params={})
    await running(engine, first)
    await engine.submit("wait", handle="bob", params={}, on_wait=on_wait, warn_after=3)
    with anyio.fail_after(10):
        await called.wait()
    [(waited, ahead, blockers)] = heard
    assert waited >= 3
    assert (ahead, blockers) == (0, [first.id])


@on_each
@pytest.mark.parametrize("keyword", ["handel", "parent", "job_name"])
async def test_a_keyword_that_does_not_exist_is_named(engine: RunEngine, keyword: str):
    mistyped: dict[str, Any] = {keyword: "x"}
    with pytest.raises(TypeError, match=f"nexpected keyword argument '{keyword}'"):
        await engine.submit("add", handle="alice", params={"a": 1}, **mistyped)
    with pytest.raises(TypeError, match=f"nexpected keyword argument '{keyword}'"):
        await engine.flows.start("order", **mistyped)
    assert await engine.list_runs() == []


@on_each
async def test_a_mistyped_keyword_is_refused_with_the_most_similar_one(engine: RunEngine):
    with pytest.raises(TypeError, match=r"""^submit\(\) got .* 'lanes': did you mean "lane"\?$"""):
        await engine.submit("add", handle="alice", params={"a": 1}, lanes="x")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"""^start\(\) got .* 'verison': did you mean "version"\?$"""):
        await engine.flows.start("order", verison=1)  # type: ignore[call-arg]


Refusal = Callable[[RunEngine, RunTicket, str], Awaitable[Any]]
"""Something that is refused: given the engine, a run that executes on `busy`, and the id of an ended one."""

REFUSED: dict[str, Refusal] = {
    "unknown job": lambda e, t, o: e.submit("nope", handle="x", params={}),
    "job is no text": lambda e, t, o: e.submit(5, handle="x", params={}),  # type: ignore[call-overload]
    "job is another function": lambda e, t, o: e.submit(undecorated, handle="x"),  # type: ignore[call-overload]
    "wrong parameters of a function": lambda e, t, o: e.submit(move, handle="x", params={"y": 3}),  # type: ignore[misc]
    "empty handle": lambda e, t, o: e.submit("add", handle=" ", params={"a": 1}),
    "handle is no text": lambda e, t, o: e.submit("add", handle=5, params={"a": 1}),  # type: ignore[arg-type]
    "wrong parameters": lambda e, t, o: e.submit("add", handle="x", params={"a": "one"}),
    "missing parameters": lambda e, t, o: e.submit("add", handle="x"),
    "parameters that are no JSON": lambda e, t, o: e.submit("wait", handle="x", params={"a": {1, 2}}),
    "NaN": lambda e, t, o: e.submit("wait", handle="x", params={"a": [math.nan]}),
    "a large integer": lambda e, t, o: e.submit("wait", handle="x", params={"a": 2**64}),
    "too large": lambda e, t, o: e.submit("wait", handle="x", params={"a": "x" * (1 << 20)}),
    "kind": lambda e, t, o: e.submit("wait", handle="x", params={}, kind="stop"),
    "lane": lambda e, t, o: e.submit("wait", handle="x", params={}, lane="a\nb"),
    "on_conflict": lambda e, t, o: e.submit("wait", handle="x", params={}, on_conflict="fight"),  # type: ignore[arg-type]
    "request id": lambda e, t, o: e.submit("wait", handle="x", params={}, request_id=""),
    "negative timeout": lambda e, t, o: e.submit("wait", handle="x", params={}, run_timeout=-1),
    "timeout that is no number": lambda e, t, o: e.submit("wait", handle="x", params={}, deadline="none"),  # type: ignore[arg-type]
    "on_wait": lambda e, t, o: e.submit("wait", handle="x", params={}, on_wait=5),  # type: ignore[arg-type]
    "busy handle": lambda e, t, o: e.submit("wait", handle="busy", params={}),
    "join another": lambda e, t, o: e.submit("wait", handle="busy", params={"a": 1}, on_conflict="join"),
    "request id with other parameters": lambda e, t, o: e.submit(
        "add", handle="old", params={"a": 2}, request_id="old"
    ),
    "cancel nobody": lambda e, t, o: e.cancel("nobody"),
    "cancel an ended run": lambda e, t, o: e.cancel(o),
    "cancel with strange files": lambda e, t, o: t.cancel("burn"),  # type: ignore[arg-type]
    "get nobody": lambda e, t, o: e.get_run("nobody"),
    "wait for nobody": lambda e, t, o: e.wait("nobody"),
    "wait for a run for a negative time": lambda e, t, o: e.wait(o, -1),
    "answer nobody by key": lambda e, t, o: e.answer("nobody", "yes", key="a"),
    "answer by no key": lambda e, t, o: e.answer("busy", "yes", key=5),  # type: ignore[arg-type]
    "answer an unknown run": lambda e, t, o: e.answer(o, "yes", key="a"),
    "cancel a handle without a run": lambda e, t, o: e.cancel("old"),
    "get no text": lambda e, t, o: e.get_run(7),  # type: ignore[arg-type]
    "history of nobody": lambda e, t, o: e.history("nobody"),
    "files of nobody": lambda e, t, o: e.list_files("nobody"),
    "files of no text": lambda e, t, o: e.list_files(5),  # type: ignore[arg-type]
    "rerun nobody": lambda e, t, o: e.rerun("nobody"),
    "retry nobody": lambda e, t, o: e.retry("nobody"),
    "retry a run that succeeded": lambda e, t, o: e.retry(o),
    "cancel all": lambda e, t, o: e.cancel_many(),
    "cancel many ended runs": lambda e, t, o: e.cancel_many(status="failed"),
    "cancel many with strange files": lambda e, t, o: e.cancel_many(handle="busy", files="burn"),  # type: ignore[arg-type]
    "rerun more than the highest limit": lambda e, t, o: e.rerun_many(handle="a", limit=10**6),
    "retry many with a long request id": lambda e, t, o: e.retry_many(handle="a", request_id="x" * 250),
    "tags that are no mapping": lambda e, t, o: e.list_runs(tags=["a"]),  # type: ignore[arg-type]
    "tags with a number": lambda e, t, o: e.submit("add", handle="x", params={"a": 1}, tags={"a": 1}),  # type: ignore[dict-item]
    "runs since yesterday": lambda e, t, o: e.list_runs(since="yesterday"),  # type: ignore[arg-type]
    "runs without an error": lambda e, t, o: e.list_runs(error=""),
    "inject into nobody": lambda e, t, o: e.inject("nobody", "hello"),
    "inject into an ended run": lambda e, t, o: e.inject(o, "hello"),
    "inject no JSON": lambda e, t, o: e.inject("busy", b"hello"),
    "inject while it does not stream": lambda e, t, o: e.inject("stream", "hello"),
    "answer no JSON": lambda e, t, o: e.answer("nobody.1", {1: 2}),
    "locked draft": lambda e, t, o: e.set_params("busy", {"a": 1}),
    "draft of nobody": lambda e, t, o: e.set_params("", {"a": 1}),
    "limit": lambda e, t, o: e.set_concurrency("main", -1),
    "limit that is no number": lambda e, t, o: e.set_concurrency("main", "1"),  # type: ignore[arg-type]
    "global limit": lambda e, t, o: e.set_max_concurrent(-1),
    "no global limit": lambda e, t, o: e.set_max_concurrent(None),  # type: ignore[arg-type]
    "clear a bad lane": lambda e, t, o: e.clear_lane("a\nb"),
    "clear a bad handle": lambda e, t, o: e.clear_handle(""),
    "release a bad handle": lambda e, t, o: e.release_handle(""),
    "list too many": lambda e, t, o: e.list_runs(limit=1001),
    "list a strange status": lambda e, t, o: e.list_runs(status="happy"),
    "list strange statuses": lambda e, t, o: e.list_runs(status=5),  # type: ignore[arg-type]
    "wait for a negative time": lambda e, t, o: t.wait(-1),
    "drain an unknown executor": lambda e, t, o: e.executors.drain("gpu-1"),
    "drain no text": lambda e, t, o: e.executors.drain(7),  # type: ignore[arg-type]
    "wait for active for a negative time": lambda e, t, o: e.wait_for_active(-1),
}


@pytest.mark.parametrize("kind", ["client", SYNCHRONOUS, "asyncio, embedded", "asyncio, client"])
@pytest.mark.parametrize("refusal", REFUSED.values(), ids=REFUSED)
def test_what_the_engine_refuses_all_refuse_alike(refusal: Refusal, kind: str):
    expected, got = (
        outcome(each, JOBS, lambda engine: refused(engine, refusal)) for each in ("embedded", kind)
    )
    assert type(got) is type(expected)
    assert got.code == expected.code
    assert set(got.details) == set(expected.details)
    assert {name: type(value) for name, value in got.details.items()} == {
        name: type(value) for name, value in expected.details.items()
    }


async def refused(engine: RunEngine, refusal: Refusal) -> errors.GreenroomError:
    """The error in a fixed situation."""
    old = await engine.submit("add", handle="old", params={"a": 1}, request_id="old")
    await old.result()
    busy = await engine.submit("wait", handle="busy", params={})
    streaming = await engine.submit("stream", handle="stream", params={})
    await running(engine, busy, streaming)
    with pytest.raises(errors.GreenroomError) as caught:
        await refusal(engine, busy, old.id)
    await busy.cancel()
    await streaming.cancel()
    return caught.value


async def running(engine: RunEngine, *tickets: RunTicket) -> None:
    """Let the runs start; on mock time any time is sufficient."""
    await sleep(1)
    for ticket in tickets:
        assert (await engine.get_run(ticket.id)).status == "running"


async def later(seconds: float, act: Callable[[], Awaitable[Any]]) -> None:
    await sleep(seconds)
    await act()


@on_each
async def test_history_has_pages(engine: RunEngine):
    ticket = await engine.submit("log", handle="alice", params={"lines": 250})
    await ticket.result()
    events = await engine.history(ticket.id)
    assert len(events) == 253
    pages = [await engine.history(ticket.id, limit=100)]
    while pages[-1]:
        pages.append(await engine.history(ticket.id, after=pages[-1][-1].seq, limit=100))
    assert [len(page) for page in pages] == [100, 100, 53, 0]
    assert [event for page in pages for event in page] == events
    assert await engine.history(ticket.id, before=events[-1].seq + 1) == events
    assert await engine.history(ticket.id, before=events[200].seq, limit=30) == events[170:200]
    assert await engine.history(ticket.id, after=events[190].seq, before=events[200].seq) == events[191:200]
    assert await engine.history(ticket.id, before=0) == []
    for wrong in ({"limit": 0}, {"limit": 1001}, {"after": -1}, {"before": -1}, {"before": "1"}):
        with pytest.raises(errors.Invalid):
            await engine.history(ticket.id, **wrong)


@on_each
async def test_the_jobs_that_can_be_submitted_are_listed_by_name(engine: RunEngine):
    jobs = {job.name: job for job in await engine.list_jobs()}
    assert list(jobs) == ["add", "ask", "ask twice", "fail", "log", "move", "point", "stream", "wait"]
    assert (jobs["wait"].lane, jobs["wait"].params) == ("waiting", None)
    assert (jobs["add"].lane, jobs["add"].params) == ("main", msgspec.json.schema(Add))


@on_each
async def test_executors_are_listed_and_drained(engine: RunEngine):
    assert list(await engine.executors.list()) == []
    with pytest.raises(errors.NotFound, match='executor "gpu-1" not found'):
        await engine.executors.drain("gpu-1")
