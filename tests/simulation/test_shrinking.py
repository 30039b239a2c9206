"""A failing seed is shrunk by leaving out steps, as long as it fails in the same way."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.simulation import SimulationFailed, World, simulate
from greenroom.simulation.search.shrinking import minimize, shrink
from greenroom.simulation.simulate import Game


def failure(scenario, seed: int = 1, **options) -> SimulationFailed:
    with pytest.raises(SimulationFailed) as info:
        simulate(seed, scenario, **options)
    return info.value


@given(st.sets(st.integers(1, 60)), st.integers(1, 60))
def test_exactly_the_needed_steps_are_found(needed: set[int], count: int):
    needed = {number for number in needed if number <= count}
    smallest = list(range(1, count + 1))

    def fails(kept: Sequence[int]) -> bool:
        nonlocal smallest
        if needed <= set(kept):
            smallest = list(kept)
            return True
        return False

    minimize(smallest, fails, lambda: True)
    assert smallest == sorted(needed)


@given(st.integers(1, 60), st.integers(0, 20))
def test_shrinking_ends_when_its_time_has_expired(count: int, limit: int):
    tried: list[Sequence[int]] = []

    def fails(kept: Sequence[int]) -> bool:
        tried.append(kept)
        return len(tried) % 3 == 0

    minimize(range(1, count + 1), fails, lambda: len(tried) < limit)
    assert len(tried) <= max(limit, 0)


@given(st.integers(1, 40), st.randoms(use_true_random=False))
def test_an_order_of_steps_is_never_changed(count: int, random):
    def fails(kept: Sequence[int]) -> bool:
        assert list(kept) == sorted(set(kept))
        return random.random() < 0.5

    minimize(range(1, count + 1), fails, lambda: True)


async def needs_three_and_seven(world: World) -> None:
    seen = []
    async for step in world.steps(10):
        seen.append(step.number)
        world.check(not {3, 7} <= set(seen), f"step {step.number} came after step 3")


def test_steps_that_a_failure_does_not_need_are_left_out():
    small = shrink(failure(needs_three_and_seven), Game(needs_three_and_seven))
    assert small.keep == (3, 7)
    assert small.seed == 1


def test_a_failure_that_needs_no_step_keeps_none():
    async def scenario(world: World) -> None:
        async for _ in world.steps(10):
            pass
        world.check(False, "it fails in any case")

    assert shrink(failure(scenario), Game(scenario)).keep == ()


def test_a_different_failure_does_not_count_as_the_same():
    async def scenario(world: World) -> None:
        seen = []
        async for step in world.steps(10):
            seen.append(step.number)
        world.check(5 in seen, "the fifth step is required by this scenario in every case")
        world.check(9 not in seen, "a customer was charged twice")

    small = shrink(failure(scenario), Game(scenario))
    assert small.keep == (5, 9)
    assert small.invariant == "a customer was charged twice"


def test_details_may_differ_as_long_as_the_rule_is_the_same():
    async def scenario(world: World) -> None:
        seen = []
        async for step in world.steps(10):
            seen.append(step.number)
        details = ", ".join("one two three four five six seven eight nine ten".split()[: len(seen)])
        world.check(
            4 not in seen,
            f"a run of ({details}) took a slot that belongs to handle '{details}' [{{{details}}}]",
        )

    small = shrink(failure(scenario), Game(scenario))
    assert small.keep == (4,)


def test_a_failure_with_kept_steps_is_shrunk_further():
    failed = failure(needs_three_and_seven, keep=[2, 3, 7, 9])
    assert shrink(failed, Game(needs_three_and_seven)).keep == (3, 7)


def test_without_time_a_failure_stays_as_it_is():
    failed = failure(needs_three_and_seven)
    assert shrink(failed, Game(needs_three_and_seven), seconds=0) is failed


def test_more_steps_than_the_scenario_requests_are_shrunk_too():
    async def scenario(world: World) -> None:
        async for step in world.steps(5):
            world.check(step.number != 17, "step 17 is wrong")

    failed = failure(scenario, steps=30)
    assert shrink(failed, Game(scenario, 30)).keep == (17,)
