"""Only the chooser decides the order of tasks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import permutations
from math import inf

import trio
import trio.testing
from trio._core import _run

from greenroom.simulation.determinism.scheduler import Chooser, RoundRobin, Scheduling, SeededChooser, Task


def run(chooser: Chooser, main: Callable[[], object], *instruments: trio.abc.Instrument) -> None:
    clock = trio.testing.MockClock(autojump_threshold=0)
    trio.run(main, clock=clock, instruments=[Scheduling(chooser), *instruments])


class Script:
    """Chooses among the tasks whose names are letters by a list of indices, and otherwise the first."""

    def __init__(self, indices: Iterable[int]) -> None:
        self._indices = iter(indices)
        self.asked: list[list[str]] = []

    def choose(self, runnable: Sequence[Task]) -> int:
        names = [task.name for task in runnable]
        if any(len(name) > 1 for name in names):
            return 0  # trio's own tasks, at the start and the end
        self.asked.append(names)
        return next(self._indices, 0)


def order_of(chooser: Chooser, tasks: int = 3, steps: int = 1) -> list[str]:
    """The order in which tasks take their steps."""
    order: list[str] = []

    async def walk(name: str) -> None:
        for _ in range(steps):
            order.append(name)
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for name in "abcdefghij"[:tasks]:
                nursery.start_soon(walk, name, name=name)

    run(chooser, main)
    return order


def test_every_order_of_every_step_can_be_chosen():
    scripts = [(a, b, c, d) for a in range(2) for b in range(2) for c in range(2) for d in range(2)]
    orders = {"".join(order_of(Script(script), tasks=2, steps=2)) for script in scripts}

    assert orders == {"".join(order) for order in permutations("aabb")}


def test_a_chooser_is_called_only_for_a_choice_and_sees_tasks_in_the_order_of_their_spawning():
    script = Script([2, 1])
    order = order_of(script)

    assert order == ["c", "b", "a"]
    assert script.asked[:2] == [["a", "b", "c"], ["a", "b", "c"]]  # c runs once more, to end
    assert min(len(asked) for asked in script.asked) == 2


def test_a_seed_always_chooses_the_same():
    orders = [order_of(SeededChooser(7), tasks=10, steps=5) for _ in range(3)]

    assert orders[0] == orders[1] == orders[2]


def test_different_seeds_choose_different_orders_with_equal_frequency():
    orders = ["".join(order_of(SeededChooser(seed))) for seed in range(600)]

    counts = {order: orders.count(order) for order in set(orders)}
    assert set(counts) == {"".join(order) for order in permutations("abc")}
    assert min(counts.values()) > 60  # 100, give or take


def test_round_robin_runs_each_task_once_before_any_task_again():
    order = order_of(RoundRobin(), tasks=4, steps=3)

    assert order == list("abcd") * 3


def test_the_clock_advances_when_no_task_is_runnable():
    seen: list[tuple[float, str]] = []

    async def sleep(name: str, seconds: float) -> None:
        await trio.sleep(seconds)
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        seen.append((trio.current_time(), name))

    async def main() -> None:
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            for name, seconds in [("late", 5.0), ("soon", 1.0), ("soon too", 1.0)]:
                nursery.start_soon(sleep, name, start + seconds - trio.current_time())
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(3):
            await trio.sleep(inf)
        seen.append((trio.current_time(), "done"))

    run(SeededChooser(1), main)

    assert sorted(seen) == [(1.0, "soon"), (1.0, "soon too"), (5.0, "late"), (8.0, "done")]


def test_tasks_from_a_set_run_in_the_same_order_in_every_process():
    program = """
import sys, trio, trio.testing
from greenroom.simulation.determinism.scheduler import Scheduling, SeededChooser
names = []
async def wait(name):
    try:
        await trio.sleep_forever()
    finally:
        names.append(name)
async def main():
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(wait, number)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()  # which goes through sets
ballast = [object() for _ in range(int(sys.argv[1]))]
trio.run(main, instruments=[Scheduling(SeededChooser(3))])
print(names)
"""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program, str(ballast)], capture_output=True, check=True, text=True
        ).stdout
        for ballast in (0, 12_345, 100_000)
    }

    assert len(outputs) == 1


def test_the_scheduler_is_restored_after_the_run():
    order_of(SeededChooser(0))

    async def main() -> None:
        assert type(_run.GLOBAL_RUN_CONTEXT.runner.runq).__name__ == "deque"

    trio.run(main)
