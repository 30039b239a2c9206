"""Batches of runs with other options: delays, priorities, keys and tags; and what a batch refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio

from greenroom import Jobs, Run
from greenroom.errors import Conflict, Invalid
from tests.support import open_engine


@pytest.fixture
def starts() -> list[str]:
    return []


@pytest.fixture
def jobs(starts: list[str]) -> Jobs:
    jobs = Jobs()

    @jobs.job("note")
    async def note(run: Run, params: dict[str, Any]) -> None:
        starts.append(run.handle)
        await trio.sleep(1)

    return jobs


def run(handle: str, **options: Any) -> Any:
    return {"job": "note", "handle": handle, "params": {}, **options}


@pytest.mark.parametrize("all_or_nothing", [True, False])
async def test_a_batch_can_contain_every_kind_of_run(autojump_clock, jobs, starts, all_or_nothing):
    async with open_engine(jobs, max_concurrent=1) as engine:
        tickets: Any = await engine.submit_many(
            [
                run("first"),
                run("later", delay=100),
                run("reserved", delay=50, reserve=True),
                run("plain", tags={"n": "1"}),
                run("urgent", priority=5, key="k"),
                run("later", on_conflict="queue"),
            ],
            all_or_nothing=all_or_nothing,
        )
        runs = [await engine.get_run(ticket.id) for ticket in tickets]
        assert [it.status for it in runs] == [*["queued"] * 4, "running", "queued"]
        assert [it.not_before is not None for it in runs] == [False, True, True, False, False, False]
        assert (runs[3].tags, runs[4].priority, runs[4].key) == ({"n": "1"}, 5, "k")
        for ticket in tickets:
            await ticket.wait(math.inf)
    assert starts == ["urgent", "first", "plain", "later", "reserved", "later"]


async def test_a_refused_batch_leaves_no_delayed_run(autojump_clock, jobs, starts):
    async with open_engine(jobs, max_pending=3) as engine:
        before = await engine.snapshot()
        with pytest.raises(Conflict, match=r"runs\[2\]"):
            await engine.submit_many([run("a", delay=9), run("b", delay=9, reserve=True), run("b")])
        assert await engine.snapshot() == before
        await engine.submit_many([run(handle, delay=9) for handle in "abc"])  # none of them counts twice
        await trio.sleep(60)
    assert sorted(starts) == ["a", "b", "c"]


async def test_a_conflict_recommends_no_policy_that_a_batch_refuses(autojump_clock, jobs):
    async with open_engine(jobs) as engine:
        with pytest.raises(Conflict) as refused:
            await engine.submit_many([run("a"), run("a")])
        assert 'on_conflict "queue", "replace" or "join"' in refused.value.message
        assert "coalesce" not in refused.value.message


async def test_a_run_of_a_batch_cannot_coalesce(autojump_clock, jobs):
    async with open_engine(jobs) as engine:
        with pytest.raises(Invalid, match=r'runs\[1\]: on_conflict must not be "coalesce" in a batch'):
            await engine.submit_many([run("a"), run("a", on_conflict="coalesce")])


async def test_a_coalescing_run_takes_the_turn_of_its_newest_parameters(autojump_clock, jobs, starts):
    lanes = {"x": {"limit": 1, "fair_by": "tenant"}}
    async with open_engine(jobs, lanes=lanes) as engine:
        tickets = [await engine.submit(**run("first", lane="x", key="other"))]
        for number in range(3):
            tickets.append(await engine.submit(**run(f"a{number}", lane="x") | {"params": {"tenant": "a"}}))
        changed = run("a2", lane="x", on_conflict="coalesce") | {"params": {"tenant": "b"}}
        assert (await engine.submit(**changed)).id == tickets[3].id
        for ticket in tickets:
            await ticket.wait(math.inf)
    assert starts == ["first", "a0", "a2", "a1"]
