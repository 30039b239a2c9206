"""Batches: the same with the embedded engine and with every client."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom import Jobs, Run, errors
from greenroom.gateway.client import RunEngine

from .everywhere import everywhere

JOBS = Jobs()
on_each = everywhere(JOBS)


@JOBS.job("add")
async def add(run: Run, params: dict[str, int]) -> int:
    return params["a"] + params["b"]


@JOBS.job("wait", lane="waiting")
async def wait(run: Run, params: dict[str, Any]) -> Any:
    return await run.next_message()


def adding(handle: str, a: int, **options: Any) -> Any:
    return {"job": "add", "handle": handle, "params": {"a": a, "b": 1}, **options}


@on_each
async def test_the_tickets_are_in_the_order_of_the_runs(engine: RunEngine):
    tickets = await engine.submit_many([adding(f"handle {number}", number) for number in range(20)])
    assert [ticket.joined for ticket in tickets] == [False] * 20
    assert [await ticket.result() for ticket in tickets] == list(range(1, 21))
    runs = await engine.list_runs(limit=20)
    assert [run.id for run in reversed(runs)] == [ticket.id for ticket in tickets]
    assert [run.place for run in reversed(runs)] == sorted(run.place or 0 for run in runs)


@on_each
async def test_one_refusal_refuses_all_and_names_its_index(engine: RunEngine):
    before = (await engine.snapshot()).seq
    with pytest.raises(errors.Conflict, match=r'^runs\[2\]: handle "b" is taken by run') as refused:
        await engine.submit_many([adding("a", 1, request_id="r"), adding("b", 1), adding("b", 1)])
    assert refused.value.details["index"] == 2
    assert (await engine.snapshot()).seq == before
    [ticket] = await engine.submit_many([adding("a", 2, request_id="r")])
    assert (await ticket.result(), ticket.joined) == (3, False)


@on_each
async def test_each_run_for_itself_has_its_error_in_its_place(engine: RunEngine):
    runs = [
        adding("a", 1),
        adding("a", 2),
        adding("", 3),
        {"job": "missing", "handle": "b"},
        {"job": "add", "handel": "b"},
        adding("c", 4),
    ]
    outcomes = await engine.submit_many(runs, all_or_nothing=False)
    codes = [one.code if isinstance(one, errors.GreenroomError) else "" for one in outcomes]
    assert codes == ["", "conflict", "invalid", "invalid", "invalid", ""]
    first, conflict, _, unknown, misspelled, last = outcomes
    assert not isinstance(first, errors.GreenroomError)
    assert not isinstance(last, errors.GreenroomError)
    assert isinstance(conflict, errors.Conflict)
    assert conflict.details == {"active_run": first.id}
    assert 'job "missing" not found' in str(unknown)
    assert str(misspelled) == 'unexpected field "handel": did you mean "handle"?'
    assert (await first.result(), await last.result()) == (2, 5)


@on_each
async def test_the_runs_of_a_batch_follow_their_on_conflict(engine: RunEngine):
    await engine.set_concurrency("waiting", 0)
    waiting = {"job": "wait", "handle": "a", "params": {}}
    first, queued, joined, other = await engine.submit_many(
        [
            waiting,
            waiting | {"on_conflict": "queue"},
            waiting | {"on_conflict": "join"},
            waiting | {"handle": "b"},
        ]
    )
    assert (joined.id, joined.joined) == (first.id, True)
    snapshot = await engine.snapshot()
    assert snapshot.handles["a"].waiting == [queued.id]
    assert snapshot.lanes["waiting"].queued == [first.id, other.id]


@on_each
async def test_a_request_id_twice_is_one_run(engine: RunEngine):
    once = adding("a", 1, request_id="once")
    first, again = await engine.submit_many([once, once])
    assert (first.id, first.joined, again.joined) == (again.id, False, True)
    [later] = await engine.submit_many([once])
    assert (later.id, later.joined) == (first.id, True)
    with pytest.raises(errors.Conflict, match=r'^runs\[0\]: request_id "once" was already used') as refused:
        await engine.submit_many([adding("a", 2, request_id="once")])
    assert refused.value.details["run"].id == first.id
    [other] = await engine.submit_many([adding("a", 2, request_id="once")], all_or_nothing=False)
    assert isinstance(other, errors.Conflict)
    assert other.details["run"].id == first.id


@on_each
async def test_an_empty_batch_has_no_outcomes(engine: RunEngine):
    assert await engine.submit_many([]) == []


@on_each
@pytest.mark.parametrize(
    ("runs", "error", "message"),
    [
        ("add", errors.Invalid, 'runs must be a list (got "add")'),
        ([{"job": "add"}], errors.Invalid, "runs[0]: required fields are missing: handle"),
        ([None], errors.Invalid, "runs[0]: must be an object with job, handle and options (got null)"),
        (
            [adding("a", 1)] * 10_001,
            errors.TooLarge,
            "runs must have at most 10000 entries (got 10001): divide them among several calls",
        ),
    ],
)
async def test_what_is_no_batch_is_refused(engine: RunEngine, runs: Any, error: Any, message: str):
    with pytest.raises(error) as refused:
        await engine.submit_many(runs)
    assert refused.value.message == message


@on_each
async def test_each_run_can_have_its_on_wait(engine: RunEngine, follows: bool):
    await engine.set_concurrency("main", 0)
    told: list[str] = []
    runs = [
        adding(name, 1, warn_after=1, on_wait=lambda waited, ahead, blockers, name=name: told.append(name))
        for name in ("a", "b")
    ]
    first, second = await engine.submit_many(runs)
    while follows and not told:
        await first.wait(timeout=0.5)
    assert set(told) <= ({"a", "b"} if follows else set())  # a client that does not follow gets no event
    assert not second.joined
