"""Bugs are planted in a copy of the engine, one at a time, and a hunt has to find each.

The hunt starts with the known seed of the bug, which the patch names, so it usually ends with the first seed.
After a change of the engine or of the scenario it can need another seed, within a minute. Three bugs are also
hunted from an unrelated seed; with `GREENROOM_PLANTED=all` all of them are.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from greenroom.simulation import simulate
from greenroom.simulation.scenarios.by_name import find
from tests.simulation.planting import BUGS, copy_package, environment, known_seed, plant, scenario_of

HUNTED = os.environ.get("GREENROOM_PLANTED", "three")
SECONDS = 60
UNRELATED_SEED = 10_000_000
THREE = ("status_not_compared", "slot_not_freed_at_the_end", "flow_visit_counted_twice")


def hunt(bug: str, package: Path, first_seed: int, *, processes: int) -> tuple[int, str]:
    """Hunt for a bug. Returns the seed that fails, and the rule that it breaks."""
    command = [sys.executable, str(Path(__file__).with_name("hunted.py"))]
    command.append(json.dumps([scenario_of(bug), first_seed, SECONDS, processes]))
    done = subprocess.run(
        command, cwd=package.parent, env=environment(package), stdout=subprocess.PIPE, check=True
    )
    failed, seeds, seconds = json.loads(done.stdout)
    assert failed is not None, f"none of {seeds} seeds from {first_seed} on failed within {seconds} s"
    print(f"seed {failed[0]} fails after {seeds} seeds in {seconds} s: {failed[1]}")
    return failed[0], failed[1]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return copy_package(tmp_path)


def test_there_are_at_least_twelve_bugs():
    assert len(BUGS) >= 12


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found_by_its_known_seed(bug: str, package: Path):
    plant(bug, package)
    seed, _ = hunt(bug, package, known_seed(bug), processes=1)
    simulate(seed, find(scenario_of(bug)))  # without the bug, no rule is broken


@pytest.mark.parametrize("bug", BUGS if HUNTED == "all" else THREE)
def test_a_bug_is_found_by_a_hunt(bug: str, package: Path):
    plant(bug, package)
    seed, _ = hunt(bug, package, UNRELATED_SEED, processes=2)
    simulate(seed, find(scenario_of(bug)))


def test_the_hunt_imports_the_copy_of_the_package(package: Path):
    code = "import greenroom.actors.scheduling.order as order; print(order.__file__)"
    command = [sys.executable, "-c", code]
    file = subprocess.run(
        command, cwd=package.parent, env=environment(package), capture_output=True, text=True, check=True
    )
    assert Path(file.stdout.strip()) == package / "actors" / "scheduling" / "order.py"


def test_a_patch_that_no_longer_fits_is_refused_by_name(package: Path):
    bug = THREE[0]
    plant(bug, package)
    with pytest.raises(ValueError, match=rf"planted/{bug}\.patch no longer fits .*update the patch"):
        plant(bug, package)
