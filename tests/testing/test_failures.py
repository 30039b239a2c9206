"""A test whose simulation fails shows the event history and how the failure is replayed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.testing.sessions import pytest_in

SCENARIO = """
    from greenroom import Jobs, Run
    from greenroom.simulation import SimulationFailed, World, hunt, simulate

    async def fails(world: World) -> None:
        jobs = Jobs()

        @jobs.job("nothing")
        async def nothing(run: Run) -> None: ...

        await world.serve(jobs)
        async for step in world.steps(30):
            await world.client("ann").submit("nothing", handle="a", on_conflict="queue")
            world.check(step.number < 25, "step 25 is one too many")
"""


def replayed(shown: str, folder: Path) -> str:
    """What the command prints that a report names."""
    [command] = re.findall(r"^E +Replay: (.*)$", shown, re.MULTILINE)
    *cd, words = command.split(" && ")
    place = folder / shlex.split(cd[0])[1] if cd else folder
    greenroom = Path(sys.executable).with_name("greenroom")
    done = subprocess.run(
        [greenroom, *shlex.split(words)[1:]], cwd=place, capture_output=True, text=True, check=False
    )
    return done.stdout


def test_a_failed_simulation_shows_its_history_and_the_command_that_replays_it(tmp_path: Path):
    shown = pytest_in(
        tmp_path, test_it=SCENARIO + "\n    def test_it():\n        simulate(7, fails, keep=[25])\n"
    )
    section = shown.partition("simulation of seed 7")[2]
    assert "ann calls #1: submit" in section
    assert "Violated: step 25 is one too many" in section
    assert "Replay: greenroom simulate --seed 7 --keep 25 --scenario test_it:fails\n" in shown
    history = section.partition("\n")[2].partition("\n\nViolated")[0]
    assert history in replayed(shown, tmp_path)


def test_the_command_names_the_folder_of_the_module(tmp_path: Path):
    test = SCENARIO + "\n    def test_it():\n        hunt(fails, seconds=60, processes=1, steps=26)\n"
    shown = pytest_in(tmp_path, **{"tests of mine/test_it": test})
    assert (
        "Replay: cd 'tests of mine' && greenroom simulate --seed 1 --keep 25 --scenario test_it:fails"
        in shown
    )
    assert "--steps 26" in shown
    assert "Violated: step 25 is one too many" in replayed(shown, tmp_path)


def test_a_scenario_of_a_function_is_replayed_by_a_call(tmp_path: Path):
    test = """
    from greenroom.simulation import simulate

    def test_it():
        async def local(world):
            world.check(False, "as written")

        simulate(3, local, keep=[])
    """
    shown = pytest_in(tmp_path, test_it=test)
    assert "Replay: simulate(3, local, keep=[]). `greenroom simulate` can replay" in shown


def test_the_traceback_shows_the_test_and_not_the_simulation(tmp_path: Path):
    shown = pytest_in(tmp_path, test_it=SCENARIO + "\n    def test_it():\n        simulate(7, fails)\n")
    assert ">       simulate(7, fails)" in shown
    assert "trio.run(" not in shown


def test_a_failure_is_found_in_a_group_and_below_another_error(tmp_path: Path):
    test = (
        SCENARIO
        + """
    def test_group():
        try:
            simulate(7, fails)
        except SimulationFailed as error:
            raise ExceptionGroup("several", [error])

    def test_cause():
        try:
            simulate(8, fails)
        except SimulationFailed as error:
            raise AssertionError("the shop is broken") from error
    """
    )
    shown = pytest_in(tmp_path, test_it=test)
    assert shown.count(" simulation of seed 7 ") == 1
    assert shown.count(" simulation of seed 8 ") == 1


def test_of_a_long_history_the_end_is_shown_and_all_of_it_on_request(tmp_path: Path):
    test = SCENARIO + "\n    def test_it():\n        simulate(7, fails)\n"
    cut, complete = (pytest_in(tmp_path, *more, test_it=test) for more in ((), ("-vv",)))
    assert re.search(r"^… [\d,]+ earlier lines: pytest -vv shows them$", cut, re.MULTILINE)
    assert "---- step 1\n" not in cut
    assert "!!!! FAILED" in cut
    assert "---- step 1\n" in complete


def test_a_failure_that_the_test_expects_is_not_shown(tmp_path: Path):
    test = (
        SCENARIO
        + """
    import pytest

    def test_it():
        with pytest.raises(SimulationFailed):
            simulate(7, fails)
        assert False
    """
    )
    assert "simulation of seed" not in pytest_in(tmp_path, test_it=test)
