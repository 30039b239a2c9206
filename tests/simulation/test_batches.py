"""Batches of submissions in the simulation."""

from typing import Any

import pytest

from greenroom import Jobs, Run
from greenroom.protocol.events import RunStateChanged
from greenroom.protocol.states import Status
from greenroom.simulation import World, simulate
from greenroom.simulation.rules.batches import BatchRules, ModelBatch
from greenroom.simulation.scenarios.batches import batches

jobs = Jobs()


@jobs.job("quick")
async def quick(run: Run, params: Any) -> None: ...


@pytest.mark.parametrize("seed", [0, 5, 13, 29, 57])
def test_no_rule_is_broken_by_batches(seed: int):
    simulate(seed, batches)


def test_the_same_seed_gives_the_same_trace():
    assert simulate(7, batches).trace.text() == simulate(7, batches).trace.text()


def test_the_trace_and_the_story_show_the_outcome_of_each_run():
    async def scenario(world: World) -> None:
        await world.serve(jobs, max_concurrent=0)
        run = {"job": "quick", "handle": "h", "params": 1}
        await world.client("ann").submit_many([run, run], all_or_nothing=False)

    trace = simulate(1, scenario).trace
    assert "run 00e8d4a51" in trace.text()
    assert ', Conflict: handle "h" is taken by run' in trace.text()
    assert 'ann receives #1: run 1; Conflict: handle "h" is taken by run 1' in trace.story()


def created(handle: str, params: int, by: str = "ann") -> RunStateChanged:
    return RunStateChanged(
        seq=1,
        at=0.0,
        by=by,
        run=f"{handle}{params}",
        handle=handle,
        lane="main",
        from_=None,
        to=Status.QUEUED,
        attempt=0,
        reason=None,
        place=1,
        job="quick",
        params=params,
    )


def run(handle: str, params: int, on_conflict: str = "queue", **more: str) -> dict[str, Any]:
    return {"job": "quick", "handle": handle, "params": params, "on_conflict": on_conflict, **more}


RUNS = [run("a", 1), run("a", 2, "join"), run("b", 3), run("b", 3)]


@pytest.mark.parametrize(
    ("all_or_nothing", "commits", "faults"),
    [
        (True, ["a1 a2 b3 b3"], 0),
        (True, ["a1 b3 b3"], 0),
        (True, ["a1 b3"], 1),
        (True, ["a1 a2"], 1),
        (True, ["a1 b3 a2 b3"], 1),
        (True, ["a1 a2 b3 b3 b3"], 1),
        (True, ["a1 a2", "b3 b3"], 3),
        (False, ["a1 b3"], 0),
        (False, ["b3"], 0),
        (False, ["b3 a1"], 1),
        (False, ["a1", "b3"], 1),
        (False, ["c1"], 1),
    ],
)
def test_the_rules_report_a_batch_that_is_divided_incomplete_or_in_another_order(
    all_or_nothing: bool, commits: list[str], faults: int
):
    wrong: list[str] = []
    rules = BatchRules(wrong.append)
    rules.submitted("ann", ModelBatch(RUNS, all_or_nothing))
    for commit in commits:
        rules.commit([created("z", 9, by="bob"), *(created(id[0], int(id[1])) for id in commit.split())])
    assert len(wrong) == faults, wrong
