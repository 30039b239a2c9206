"""Nodes that call one service for each item: modes, and the handling of failures."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from greenroom import Jobs
from tests.support import open_engine

from .definitions import Definition
from .restarts import Lives
from .walking import Calls, Walked, ended, flow, local, node, start, walk

pytestmark = pytest.mark.usefixtures("place")

AT_ONCE = {"parallel_mode": "concurrent"}
TWO = {**AT_ONCE, "max_parallel": 2}
MODES = [{}, AT_ONCE, TWO]
END = local("echo", "$params.nothing", "end")


def each(func: str = "even", **fields: Any) -> Definition:
    return node("foreach", "$params.items", "out", exec_type="local", func=func, **fields)


async def walked(
    each: Definition, items: Any, jobs: Jobs | None = None, edges: str = "f end, f:error end"
) -> Walked:
    async with open_engine(jobs or Calls().jobs) as engine:
        return await walk(engine, flow(edges, f=each, end=END), {"items": items})


@pytest.mark.usefixtures("each_store")
@pytest.mark.parametrize("mode", MODES)
async def test_the_results_are_in_the_order_of_the_items(mode: Definition, autojump_clock: MockClock) -> None:
    done = await walked(each(**mode), [4, 0, 6, 2])
    assert done.result["out"] == [4, 0, 6, 2]
    branches = [row for row in done.rows if row.branch is not None]
    assert sorted((row.branch, row.output, row.status, row.action) for row in branches) == [
        (str(index), item, "ok", None) for index, item in enumerate([4, 0, 6, 2])
    ]
    [whole] = done.of("f")
    assert (whole.status, whole.output, whole.prep, whole.action) == (
        "ok",
        [4, 0, 6, 2],
        [4, 0, 6, 2],
        "default",
    )
    assert all(row.input == {"input": row.output} for row in branches)


@pytest.mark.parametrize(
    ("mode", "seconds"),
    [({}, 14), (AT_ONCE, 6), (TWO, 8), ({"max_parallel": 3}, 14)],
)
async def test_the_mode_determines_how_many_items_are_concurrent(
    mode: Definition, seconds: float, autojump_clock: MockClock
) -> None:
    began = trio.current_time()
    await walked(each("sleep", **mode), [6, 2, 2, 4])
    assert trio.current_time() - began == pytest.approx(seconds, abs=0.1)


async def test_max_parallel_limits_the_concurrent_items(autojump_clock: MockClock) -> None:
    jobs, now, most = Calls().jobs, 0, 0

    @jobs.function("count")
    async def count(input: Any) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await trio.sleep(input)
        now -= 1

    await walked(each("count", max_parallel=3, **AT_ONCE), [3, 1, 2, 1, 5, 1, 1, 2], jobs)
    assert most == 3


async def test_an_empty_array_has_an_empty_result(autojump_clock: MockClock) -> None:
    for mode in ({}, AT_ONCE):
        done = await walked(each(**mode), [])
        assert done.result["out"] == []
        assert done.story == ["f ok default", "end ok default"]


@pytest.mark.parametrize("items", [None, {"a": 1}, "text", 5])
async def test_an_input_that_is_not_an_array_is_an_error_of_the_node(
    items: Any, autojump_clock: MockClock
) -> None:
    done = await walked(each(on_error="sorry"), items, edges="f:sorry end")
    assert done.story[0] == "f error sorry"
    assert (done.rows[0].error or "").startswith("bad_input: the input must be an array")


# Failures.


async def test_fail_fast_ends_the_batch_and_keeps_earlier_results(autojump_clock: MockClock) -> None:
    done = await walked(each(on_error="sorry"), [2, 4, 1, 6, 8], edges="f:sorry end")
    assert done.result == {"out": [2, 4], "end": None}
    assert done.story == ["f[0] ok", "f[1] ok", "f[2] error", "f error sorry", "end ok default"]
    [whole] = done.of("f")
    assert whole.error == "branch_failed: branch 2: service_error: ValueError: 1 is odd"
    assert whole.output == [2, 4]
    done = await walked(each(), [2, 1, 4], edges="f:sorry end")
    assert done.error == 'node "f": branch_failed: branch 1: service_error: ValueError: 1 is odd'


async def test_fail_fast_cancels_items_in_flight(autojump_clock: MockClock) -> None:
    began = trio.current_time()
    done = await walked(each(**AT_ONCE), [2, 8, 3, 0, 6])
    assert trio.current_time() - began == pytest.approx(3, abs=0.1)
    assert done.result["out"] == [2, 0]
    assert sorted(done.story[:5]) == ["f[0] ok", "f[1] cancelled", "f[2] error", "f[3] ok", "f[4] cancelled"]
    assert done.story[5:] == ["f error error", "end ok default"]


async def test_fail_fast_starts_no_waiting_items(autojump_clock: MockClock) -> None:
    calls = Calls()
    await walked(each(max_parallel=2, **AT_ONCE), [4, 1, 6, 8], calls.jobs)
    assert sorted(calls.of("even")) == [1, 4]


async def test_a_success_at_the_same_time_as_the_failure_is_kept(autojump_clock: MockClock) -> None:
    jobs = Calls().jobs

    @jobs.function("same")
    async def same(input: int) -> int:
        await trio.sleep(1)
        if input == 3:
            raise ValueError("no")
        return input

    done = await walked(each("same", **AT_ONCE), list(range(8)), jobs)
    ok = [row.output for row in done.rows if row.branch is not None and row.status == "ok"]
    assert done.result["out"] == sorted(ok)
    assert len([row for row in done.rows if row.branch is not None]) == 8


@pytest.mark.parametrize("mode", MODES)
async def test_collected_errors_replace_their_results(mode: Definition, autojump_clock: MockClock) -> None:
    done = await walked(each(failure_strategy="collect_errors", **mode), [2, 1, 4, 3])
    assert done.result["out"] == [
        2,
        {"error": "service_error: ValueError: 1 is odd"},
        4,
        {"error": "service_error: ValueError: 3 is odd"},
    ]
    assert done.of("f")[0].status == "ok"
    assert done.of("f")[0].error is None


@pytest.mark.parametrize("mode", MODES)
async def test_ignored_errors_are_left_out(mode: Definition, autojump_clock: MockClock) -> None:
    done = await walked(each(failure_strategy="ignore_errors", **mode), [2, 1, 4, 3])
    assert done.result["out"] == [2, 4]
    assert done.of("f")[0].status == "ok"
    assert sorted(row.status for row in done.rows if row.branch is not None) == ["error", "error", "ok", "ok"]
    assert (await walked(each(failure_strategy="ignore_errors", **mode), [1])).result["out"] == []


async def test_each_item_is_retried_up_to_max_retries(autojump_clock: MockClock) -> None:
    retried = each(max_retries=2, wait_ms=1000, failure_strategy="collect_errors", **AT_ONCE)
    began = trio.current_time()
    done = await walked(retried, [0, 1])
    assert trio.current_time() - began == pytest.approx(5, abs=0.1)
    assert [row.status for row in done.of("f", "0")] == ["ok"]
    assert [(row.status, row.last) for row in done.of("f", "1")] == [
        ("error", False),
        ("error", False),
        ("error", True),
    ]


async def test_the_timeout_applies_to_each_item(autojump_clock: MockClock) -> None:
    done = await walked(each(timeout_ms=3000, failure_strategy="collect_errors", **AT_ONCE), [2, 4])
    assert done.result["out"] == [2, {"error": "timeout: not finished within 3 s"}]
    assert done.of("f", "1")[0].status == "timeout"
    done = await walked(
        each(timeout_ms=3000, on_timeout="late", on_error="sorry"), [2, 4], edges="f:sorry end"
    )
    assert done.story == ["f[0] ok", "f[1] timeout", "f error sorry", "end ok default"]


async def test_each_visit_has_its_own_branches(autojump_clock: MockClock) -> None:
    more = local("double", "n", "n")
    again = node("choice", choice_cases=[{"action": "again", "expr": "$shared.n lt 8"}])
    async with open_engine(Calls().jobs) as engine:
        done = await walk(
            engine,
            flow("i f, f m, m c, c:again f", i=local("echo", "$params.n", "n"), f=each(), m=more, c=again),
            {"items": [0, 2], "n": 2},
        )
    assert [(row.visit, row.branch) for row in done.rows if row.node == "f"] == [
        (1, "0"),
        (1, "1"),
        (1, None),
        (2, "0"),
        (2, "1"),
        (2, None),
    ]


# The state during the execution.


async def test_the_state_shows_the_finished_items(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        mode = {"max_parallel": 2, "failure_strategy": "collect_errors", **AT_ONCE}
        ticket = await start(engine, flow("f end", f=each(**mode), end=END), {"items": [0, 1, 8, 6]})
        await trio.sleep(5)
        task = await engine.flows.task(ticket.id)
        assert (task.node, task.steps) == ("f", 0)
        assert task.shared == {
            "_rt.fe:f": {
                "done": {"0": 0},
                "errs": {"1": "service_error: ValueError: 1 is odd"},
                "idx": 2,
                "mode": "concurrent",
                "max": 2,
                "strategy": "collect_errors",
            }
        }
        done = await ended(engine, ticket)
        assert (await engine.flows.task(ticket.id)).shared == done.result


@pytest.mark.parametrize("how", ["clean", "crash"])
async def test_the_node_run_starts_with_its_first_item_also_over_a_restart(
    how: str, autojump_clock: MockClock
) -> None:
    lives = Lives(Calls().jobs)
    async with getattr(lives, how)() as engine:
        ticket = await start(engine, flow("", f=each("sleep")), {"items": [10, 10]})
        await trio.sleep(15)  # the second item sleeps
    async with lives.clean() as engine:
        done = await ended(engine, ticket.id)
    first, *_, whole = done.rows
    assert whole.branch is None
    assert whole.started_at == first.started_at


async def test_the_node_run_keeps_the_first_results_up_to_the_limit(
    autojump_clock: MockClock,
) -> None:
    """The number of results is not limited, but the size of a page of node runs is."""
    calls = Calls()

    @calls.jobs.function("long")
    async def long(item: int) -> str:
        return f"{item}" * 300

    async with open_engine(calls.jobs, max_value_bytes=1000) as engine:
        done = await walk(
            engine,
            flow("", a=node("foreach", "$params.items", exec_type="local", func="long")),
            {"items": list(range(9))},
        )
        assert done.result == {}
        *branches, whole = done.rows
    assert [row.output for row in branches] == [f"{n}" * 300 for n in range(9)]
    assert whole.output == [f"{n}" * 300 for n in range(3)]


async def test_the_shown_branches_of_the_current_node_are_limited_in_size(autojump_clock: MockClock) -> None:
    jobs = Calls().jobs

    @jobs.function("long")
    async def long(item: int) -> str:
        if item == 9:
            await trio.sleep_forever()
        return "x" * 300

    definition = flow("", f=node("foreach", "$params.items", exec_type="local", func="long"))
    async with open_engine(jobs, max_value_bytes=1000) as engine:
        ticket = await start(engine, definition, {"items": list(range(10))})
        await trio.sleep(1)
        kept = (await engine.flows.task(ticket.id)).shared["_rt.fe:f"]
        assert (kept["idx"], list(kept["done"])) == (9, ["0", "1", "2"])
        await ticket.cancel()
