"""A seed decides everything: the same seed gives the same trace, byte for byte, in any process."""

import contextlib
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio
import trio._core._run as trio_run

from greenroom import Jobs, Run
from greenroom.actors import actor
from greenroom.simulation import SimulationFailed, World, simulate
from greenroom.simulation.determinism import seeded_run
from greenroom.simulation.determinism.seeded_run import SimulatedClock, determined

from .lively import digest, trace_of

ROOT = Path(__file__).resolve().parents[2]
SEEDS = ["1", "2", "3", "4", "5", "6"]


def run_in_a_process(hash_seed: str, seeds: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.simulation.lively", *seeds],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_seed_gives_the_same_trace_in_every_process_with_any_hash_seed():
    processes = [
        run_in_a_process("0", SEEDS),
        run_in_a_process("1", SEEDS),
        run_in_a_process("random", SEEDS),
        run_in_a_process("2", SEEDS[::-1]),  # independent of earlier simulations
    ]

    first, *others, backwards = [process.communicate(timeout=120)[0].splitlines() for process in processes]

    assert len(first) == len(SEEDS)
    assert all(lines == first for lines in others)
    assert backwards[::-1] == first


def test_a_seed_gives_the_same_trace_again_in_the_same_process():
    assert digest(7, "memory") == digest(7, "memory")
    assert digest(7, "sqlite") == digest(7, "sqlite")


def test_another_seed_gives_another_trace():
    assert len({trace_of(seed).text() for seed in range(5)}) == 5


def test_the_trace_contains_commands_replies_events_bodies_faults_and_lives():
    entries = [entry for seed in range(8) for entry in trace_of(seed).entries]

    assert {entry.kind for entry in entries} == {
        *("step", "command", "reply", "event", "message", "body", "life", "fault")
    }


def test_a_simulation_restores_all_global_state_when_it_ends():
    dice = trio_run._r.getstate()
    assert gc.isenabled()

    for seed in range(3):
        trace_of(seed)

    assert trio_run._r.getstate() == dice
    assert gc.isenabled()
    assert "id" not in vars(trio_run)
    assert actor.observer is None


def test_of_two_equal_deadlines_the_one_that_was_set_first_expires_first():
    """Independent of addresses: with many deadlines, an order by address would differ."""
    woken: list[int] = []

    async def wait(number: int) -> None:
        def wake(_: object) -> trio.lowlevel.Abort:
            woken.append(number)
            return trio.lowlevel.Abort.SUCCEEDED

        with trio.move_on_at(10):
            await trio.lowlevel.wait_task_rescheduled(wake)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(wait, number)
                await trio.testing.wait_all_tasks_blocked()

    with determined("any"):
        trio.run(main, clock=SimulatedClock(lambda: None, lambda why: None))

    assert woken == list(range(50))


def test_time_passes_only_in_the_simulation():
    async def scenario(world: World) -> None:
        began = world.clock()
        await trio.sleep(365 * 86400)
        world.check(world.clock() == began + 365 * 86400, "the wall clock has advanced by a year")
        world.clock.jump(-3600)
        world.check(world.clock() == began + 365 * 86400 - 3600, "the wall clock was set back")

    figures = simulate(1, scenario).figures

    assert figures.simulated_seconds == 365 * 86400
    assert figures.real_seconds < 10


def test_a_wall_clock_that_jumps_is_seen_in_the_events():
    jobs = Jobs()

    @jobs.job("nothing")
    async def nothing(run: Run) -> None: ...

    async def scenario(world: World) -> None:
        await world.serve(jobs)
        ann = world.client("ann")
        first = await ann.submit("nothing", handle="a")
        world.clock.jump(-86400)
        second = await ann.submit("nothing", handle="b")
        earlier = (await ann.get_run(second.id)).created_at - (await ann.get_run(first.id)).created_at
        world.check(earlier == -86400, f"it was {earlier}")

    simulate(1, scenario)


def test_a_deadlock_is_a_failure_instead_of_a_test_that_hangs():
    async def scenario(world: World) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

    with pytest.raises(SimulationFailed, match="the simulation hangs: deadlock"):
        simulate(1, scenario)


def test_a_busy_loop_is_a_failure_instead_of_a_test_that_hangs(monkeypatch):
    monkeypatch.setattr(seeded_run, "_MOST_LOOKS", 1000)
    monkeypatch.setattr(seeded_run, "_COLLECTED_EVERY", 500)

    async def scenario(world: World) -> None:
        while True:
            await trio.lowlevel.checkpoint()

    with pytest.raises(SimulationFailed, match="the simulation hangs: some task is always runnable"):
        simulate(1, scenario)


def test_a_scenario_with_many_steps_in_many_instants_is_no_busy_loop(monkeypatch):
    monkeypatch.setattr(seeded_run, "_MOST_LOOKS", 1000)
    monkeypatch.setattr(seeded_run, "_COLLECTED_EVERY", 100)

    async def scenario(world: World) -> None:
        for _ in range(1000):
            await trio.sleep(1)

    simulate(1, scenario)


def test_a_scenario_that_swallows_every_cancellation_ends_too():
    async def scenario(world: World) -> None:
        while True:
            with contextlib.suppress(trio.Cancelled):
                await trio.sleep_forever()

    with pytest.raises(SimulationFailed, match="the simulation hangs"):
        simulate(1, scenario)


def test_a_step_is_the_same_if_other_steps_are_left_out():
    drawn: dict[int, float] = {}

    async def scenario(world: World) -> None:
        async for step in world.steps(10):
            drawn[step.number] = step.random.random()

    assert simulate(3, scenario).figures.steps == 10
    all_of_them = dict(drawn)
    drawn.clear()
    assert simulate(3, scenario, keep=[2, 9]).figures.steps == 2

    assert drawn == {2: all_of_them[2], 9: all_of_them[9]}
    drawn.clear()
    assert simulate(3, scenario, steps=12).figures.steps == 12
    assert drawn | all_of_them == drawn
