"""Rules of lanes: priorities, ageing, fairness, limits per key, rates, and pauses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio

from greenroom import Engine, Jobs, Run, Ticket
from greenroom.errors import Conflict, Invalid, NotFound
from tests.support import open_engine

from ..support import Bodies, until_status

MINUTE = 60


class Starts:
    """The job `note` notes the handle and the time of its start, and lasts for a second."""

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.jobs.job("note")(self.note)
        self.jobs.job("urgent", priority=7)(self.note)
        self.jobs.job("pausing")(self.pause)
        self.starts: list[tuple[str, float]] = []

    async def note(self, run: Run, params: dict[str, Any]) -> None:
        self.starts.append((run.handle, trio.current_time()))
        await trio.sleep(1)

    async def pause(self, run: Run, params: dict[str, Any]) -> None:
        self.starts.append((run.handle, trio.current_time()))
        await run.sleep(1)
        self.starts.append((run.handle, trio.current_time()))

    @property
    def order(self) -> list[str]:
        return [handle for handle, _ in self.starts]

    @property
    def times(self) -> list[float]:
        return [round(time, 3) for _, time in self.starts]


@pytest.fixture
def starts() -> Starts:
    return Starts()


async def submit(engine: Engine, handle: str, job: str = "note", **options: Any) -> Ticket[Any]:
    return await engine.submit(job, handle=handle, **({"params": {}} | options))


async def finish(*tickets: Ticket[Any]) -> None:
    for ticket in tickets:
        await ticket.wait(math.inf)


# Priorities.


async def test_the_highest_priority_starts_first_then_the_lowest_place(autojump_clock, starts):
    async with open_engine(starts.jobs, max_concurrent=1) as engine:
        tickets = [await submit(engine, "first")]
        for handle, priority in (("low", -1), ("a", 0), ("high", 5), ("b", 0), ("highest", 100)):
            tickets.append(await submit(engine, handle, priority=priority))
        await finish(*tickets)
    assert starts.order == ["first", "highest", "high", "a", "b", "low"]


async def test_priorities_count_among_lanes(autojump_clock, starts):
    async with open_engine(starts.jobs, max_concurrent=1, lanes={"x": 2, "y": 2}) as engine:
        tickets = [await submit(engine, "first")]
        tickets.append(await submit(engine, "x", lane="x"))
        tickets.append(await submit(engine, "y", lane="y", priority=1))
        await finish(*tickets)
    assert starts.order == ["first", "y", "x"]


async def test_a_submission_has_the_priority_of_its_job_else_of_its_lane(autojump_clock, starts):
    async with open_engine(starts.jobs, lanes={"x": {"limit": 3, "priority": 4}}) as engine:
        tickets = [
            await submit(engine, "a", "urgent", lane="x"),
            await submit(engine, "b", lane="x"),
            await submit(engine, "c", lane="x", priority=0),
            await submit(engine, "d"),
        ]
        runs = [await engine.get_run(ticket.id) for ticket in tickets]
        assert [run.priority for run in runs] == [7, 4, 0, 0]
        again = await engine.rerun((await tickets[0].wait(math.inf), tickets[0].id)[1])
        assert (await engine.get_run(again.id)).priority == 7
        await finish(*tickets, again)


async def test_a_run_gains_a_step_of_priority_for_each_age_of_waiting(autojump_clock):
    bodies = Bodies()
    async with open_engine(bodies.jobs, lanes={"x": {"limit": 1, "age": 10}}) as engine:
        first = await submit(engine, "first", "wait", lane="x")
        old = await submit(engine, "old", "wait", lane="x")
        await trio.sleep(19)
        newer = await submit(engine, "newer", "wait", lane="x", priority=2)  # 20 s ahead
        await trio.sleep(2)
        newest = await submit(engine, "newest", "wait", lane="x", priority=2)
        for ticket in (first, newer, old, newest):
            await until_status(engine, ticket, "running")
            bodies.end(ticket)
    assert bodies.begun == [ticket.id for ticket in (first, newer, old, newest)]


async def test_without_ageing_only_the_priority_counts(autojump_clock):
    bodies = Bodies()
    async with open_engine(bodies.jobs, lanes={"x": {"limit": 1, "age": None}}) as engine:
        first = await submit(engine, "first", "wait", lane="x")
        old = await submit(engine, "old", "wait", lane="x")
        await trio.sleep(1000)
        newest = await submit(engine, "newest", "wait", lane="x", priority=1)
        for ticket in (first, newest, old):
            await until_status(engine, ticket, "running")
            bodies.end(ticket)


async def test_the_priority_of_a_queued_run_can_be_changed(autojump_clock, starts):
    async with open_engine(starts.jobs, max_concurrent=1) as engine:
        tickets = [await submit(engine, handle) for handle in ("first", "a", "b", "c")]
        changed = await engine.set_priority(tickets[3].id, 3, by="ann")
        assert (changed.priority, changed.status) == (3, "queued")
        assert (await engine.set_priority("b", -3)).priority == -3  # the active run of a handle
        [event] = [it for it in await engine.history(changed.id) if it.type == "run_changed"]
        assert (event.by, event.priority) == ("ann", 3)
        await finish(*tickets)
    assert starts.order == ["first", "c", "a", "b"]


async def test_the_priority_of_a_run_that_waits_in_its_handle_can_be_changed(autojump_clock, starts):
    async with open_engine(starts.jobs, max_concurrent=1) as engine:
        tickets = [await submit(engine, "a"), await submit(engine, "a", on_conflict="queue")]
        tickets += [await submit(engine, "b"), await submit(engine, "c")]
        await engine.set_priority(tickets[1].id, 9)
        await finish(*tickets)
    assert starts.order == ["a", "b", "a", "c"]  # it gets its place when the first one has ended


async def test_the_priority_of_a_run_that_has_started_cannot_be_changed(autojump_clock, starts):
    async with open_engine(starts.jobs) as engine:
        ticket = await submit(engine, "a")
        await until_status(engine, ticket, "running")
        with pytest.raises(Conflict, match="only before it starts"):
            await engine.set_priority(ticket.id, 1)
        await finish(ticket)
        with pytest.raises(Conflict, match="is succeeded: its priority") as caught:
            await engine.set_priority(ticket.id, 1)
        assert caught.value.details["run"].id == ticket.id
        with pytest.raises(NotFound):
            await engine.set_priority("f" * 32, 1)


@pytest.mark.parametrize("priority", [101, -101, True, 1.5, "high"])
async def test_a_bad_priority_is_refused(autojump_clock, starts, priority):
    async with open_engine(starts.jobs) as engine:
        with pytest.raises(Invalid, match="priority must be an integer between -100 and 100"):
            await submit(engine, "a", priority=priority)
        ticket = await submit(engine, "a")
        with pytest.raises(Invalid, match="priority must be an integer"):
            await engine.set_priority(ticket.id, priority)


# Fairness, and limits per key.


async def test_keys_take_turns(autojump_clock, starts):
    lanes = {"x": {"limit": 1, "fair_by": "tenant"}}
    async with open_engine(starts.jobs, lanes=lanes) as engine:
        tickets = [
            await submit(engine, f"{tenant}{number}", lane="x", params={"tenant": tenant})
            for tenant, count in (("big", 5), ("small", 2), ("tiny", 1))
            for number in range(count)
        ]
        await finish(*tickets)
    assert starts.order == ["big0", "big1", "small0", "tiny0", "big2", "small1", "big3", "big4"]


async def test_a_key_starts_as_many_runs_in_its_turn_as_its_weight(autojump_clock, starts):
    lanes = {"x": {"limit": 1, "fair_by": "user.plan", "weights": {"gold": 3}}}
    async with open_engine(starts.jobs, lanes=lanes) as engine:
        tickets = [await submit(engine, "first", lane="x", key="other")]
        for plan in ("free", "gold"):
            for number in range(5):
                params = {"user": {"plan": plan}}
                tickets.append(await submit(engine, f"{plan}{number}", lane="x", params=params))
        await finish(*tickets)
    assert starts.order[1:] == [
        *("free0", "gold0", "gold1", "gold2"),
        *("free1", "gold3", "gold4"),
        *("free2", "free3", "free4"),
    ]


async def test_the_key_of_a_submission_comes_before_the_parameter(autojump_clock, starts):
    async with open_engine(starts.jobs, lanes={"x": {"limit": 1, "fair_by": "tenant"}}) as engine:
        tickets = [await submit(engine, f"a{n}", lane="x", params={"tenant": "a"}) for n in range(3)]
        tickets.append(await submit(engine, "b", lane="x", params={"tenant": "a"}, key="b"))
        assert (await engine.get_run(tickets[-1].id)).key == "b"
        await finish(*tickets)
    assert starts.order == ["a0", "a1", "b", "a2"]


async def test_priorities_count_within_the_turns_of_a_key(autojump_clock, starts):
    async with open_engine(starts.jobs, lanes={"x": {"limit": 1, "fair_by": "tenant"}}) as engine:
        tickets = [await submit(engine, "first", lane="x", key="z")]
        for key in ("a", "b"):
            tickets.append(await submit(engine, f"{key}0", lane="x", key=key))
            tickets.append(
                await submit(engine, f"{key}9", lane="x", key=key, priority=9 if key == "b" else 0)
            )
        await finish(*tickets)
    assert starts.order == ["first", "a0", "b9", "a9", "b0"]


async def test_no_more_runs_of_a_key_execute_than_its_limit_and_others_pass(autojump_clock, starts):
    lanes = {"x": {"limit": 3, "limit_per_key": 1}}
    async with open_engine(starts.jobs, max_concurrent=9, lanes=lanes) as engine:
        tickets = [await submit(engine, f"a{number}", lane="x", key="a") for number in range(3)]
        tickets += [await submit(engine, f"b{number}", lane="x", key="b") for number in range(2)]
        tickets.append(await submit(engine, "none", lane="x"))
        await finish(*tickets)
    found = {handle: round(time - starts.starts[0][1]) for handle, time in starts.starts}
    assert found == {"a0": 0, "b0": 0, "none": 0, "a1": 1, "b1": 1, "a2": 2}


# Rates.


async def test_a_lane_starts_no_more_runs_than_its_rate(autojump_clock, starts):
    lanes = {"x": {"limit": None, "rate": "6/min"}}
    async with open_engine(starts.jobs, max_concurrent=9, lanes=lanes) as engine:
        began = trio.current_time()
        await finish(*[await submit(engine, f"h{n}", lane="x") for n in range(4)])
    assert [time - began for time in starts.times] == pytest.approx([0, 10, 20, 30])


async def test_a_burst_starts_at_once(autojump_clock, starts):
    lanes = {"x": {"limit": None, "rate": "1/10s", "burst": 3}}
    async with open_engine(starts.jobs, max_concurrent=9, lanes=lanes) as engine:
        began = trio.current_time()
        await finish(*[await submit(engine, f"h{n}", lane="x") for n in range(5)])
        await trio.sleep(1000)
        await finish(*[await submit(engine, f"i{n}", lane="x") for n in range(4)])
    assert [time - began for time in starts.times[:5]] == pytest.approx([0, 0, 0, 10, 20])
    assert [time - starts.times[5] for time in starts.times[5:]] == pytest.approx([0, 0, 0, 10])


async def test_each_key_can_have_a_rate_of_its_own(autojump_clock, starts):
    lanes = {"x": {"limit": None, "rate": "1/10s", "rate_per": "key"}}
    async with open_engine(starts.jobs, max_concurrent=9, lanes=lanes) as engine:
        began = trio.current_time()
        tickets = [await submit(engine, f"{key}{n}", lane="x", key=key) for key in "ab" for n in range(2)]
        tickets += [
            await submit(engine, f"none{n}", lane="x") for n in range(2)
        ]  # without a key, without a rate
        await finish(*tickets)
    found = {handle: round(time - began) for handle, time in starts.starts}
    assert found == {"a0": 0, "b0": 0, "none0": 0, "none1": 0, "a1": 10, "b1": 10}


async def test_a_body_that_goes_on_takes_no_token(autojump_clock, starts):
    lanes = {"x": {"limit": None, "rate": "1/min"}}
    async with open_engine(starts.jobs, lanes=lanes) as engine:
        await finish(await submit(engine, "a", "pausing", lane="x"))
    assert starts.times[1] - starts.times[0] == pytest.approx(1)


async def test_a_rate_can_be_changed_while_runs_wait(autojump_clock, starts):
    async with open_engine(
        starts.jobs, max_concurrent=9, lanes={"x": {"limit": None, "rate": "1/h"}}
    ) as engine:
        began = trio.current_time()
        tickets = [await submit(engine, f"h{n}", lane="x") for n in range(3)]
        await trio.sleep(5)
        assert (await engine.set_lane("x", rate="6/min")).rate == "6/min"
        await finish(tickets[1])
        rules = await engine.set_lane("x", rate=None)
        assert (rules.rate, rules.burst) == (None, 1)
        await finish(*tickets)
    times = [time - began for time in starts.times]
    assert times[1] <= 15
    assert times[2] == pytest.approx(times[1] + 1)


# Changes of rules, and pauses.


async def test_a_paused_lane_starts_nothing_and_keeps_its_limit(autojump_clock, starts):
    async with open_engine(starts.jobs, lanes={"x": 2}) as engine:
        await engine.pause_lane("x", by="ann")
        ticket = await submit(engine, "a", lane="x")
        other = await submit(engine, "b")
        await finish(other)
        snapshot = await engine.snapshot()
        assert (snapshot.lanes["x"].paused, snapshot.lanes["x"].limit) == (True, 2)
        assert snapshot.runs[ticket.id].status == "queued"
        await engine.resume_lane("x")
        await finish(ticket)
        assert not (await engine.snapshot()).lanes["x"].paused


async def test_rules_that_change_apply_to_the_runs_that_wait(autojump_clock, starts):
    async with open_engine(starts.jobs, lanes={"x": 1}) as engine:
        tickets = [await submit(engine, f"a{n}", lane="x", params={"tenant": "a"}) for n in range(3)]
        tickets.append(await submit(engine, "b", lane="x", params={"tenant": "b"}))
        rules = await engine.set_lane("x", fair_by="tenant", by="ann")
        assert rules.fair_by == "tenant"
        assert (await engine.snapshot()).lanes["x"].rules == rules
        await finish(*tickets)
    assert starts.order == ["a0", "a1", "b", "a2"]


@pytest.mark.parametrize(
    ("rules", "error"),
    [
        ({"rat": "1/s"}, 'rules of lane "x" do not include "rat": did you mean "rate"?'),
        ({"age": -1}, 'age of lane "x" must be a number of seconds above 0, or none (got -1)'),
        ({"age": "10m"}, 'age of lane "x" must be a number of seconds above 0, or none (got "10m")'),
        ({"rate": "fast"}, 'rate of lane "x" must be a count per s, min, h or day'),
        ({"rate": "0/s"}, "to let nothing start, pause the lane"),
        ({"burst": 2}, "require a rate"),
        ({"rate": "1/s", "burst": 0}, "must be at least 1"),
        ({"rate": "1/s", "rate_per": "tenant"}, 'must be "lane" or "key"'),
        ({"fair_by": ""}, "must be names with dots between them"),
        ({"fair_by": "a..b"}, "must be names with dots between them"),
        ({"weights": {"a": 0}}, "at least 1"),
        ({"weights": 3}, "must be a table"),
        ({"limit_per_key": 0}, "must be at least 1"),
        ({"age": 0}, "must be a number of seconds above 0, or none"),
        ({"priority": 200}, "must be an integer between -100 and 100"),
    ],
)
async def test_bad_rules_are_refused_and_change_nothing(autojump_clock, starts, rules, error):
    async with open_engine(starts.jobs) as engine:
        before = await engine.snapshot()
        with pytest.raises(Invalid) as caught:
            await engine.set_lane("x", **rules)
        assert error in str(caught.value)
        assert await engine.snapshot() == before
    with pytest.raises(Invalid) as caught:
        async with open_engine(starts.jobs, lanes={"x": {"limit": 1, **rules}}):
            pytest.fail("it is open")
    assert error in str(caught.value)


async def test_a_limit_among_rules_is_refused_with_the_call_that_sets_it(autojump_clock, starts):
    async with open_engine(starts.jobs) as engine:
        with pytest.raises(Invalid, match='limit of lane "x" is not a rule: set it with set_concurrency'):
            await engine.set_lane("x", limit=3)


@pytest.mark.parametrize("key", ["", 7, "a" * 300])
async def test_a_bad_key_is_refused(autojump_clock, starts, key):
    async with open_engine(starts.jobs) as engine:
        with pytest.raises(Invalid, match="key"):
            await submit(engine, "a", key=key)


async def test_a_submission_with_another_priority_or_key_is_another_one(autojump_clock, starts):
    async with open_engine(starts.jobs) as engine:
        first = await submit(engine, "a", priority=1, key="k", request_id="r")
        assert (await submit(engine, "a", priority=1, key="k", request_id="r")).id == first.id
        for options in ({"priority": 2, "key": "k"}, {"priority": 1}, {}):
            with pytest.raises(Conflict, match="request_id"):
                await submit(engine, "a", request_id="r", **options)


async def test_a_wait_for_a_token_or_a_paused_lane_is_reported_with_its_reason(autojump_clock, starts):
    lanes = {"x": {"limit": None, "rate": "1/min"}, "y": 1}
    async with open_engine(starts.jobs, lanes=lanes) as engine:
        await engine.pause_lane("y")
        seq = (await engine.snapshot()).seq
        tickets = [await submit(engine, handle, lane="x") for handle in "ab"]
        tickets.append(await submit(engine, "c", lane="y"))
        found: dict[str, str | None] = {}
        async for event in engine.events(after=seq):
            if event.type == "run_waiting":
                found[event.handle] = event.reason
            if len(found) == 2:
                break
        assert found == {
            "b": "the rate 1/min in lane 'x' has a token in 58.0 s",
            "c": "lane 'y' is paused",
        }
        await engine.resume_lane("y")
        await finish(*tickets)
