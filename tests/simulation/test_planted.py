"""Bugs are put into the engine on purpose, one at a time, and a hunt has to find each.

That is done in a copy of the package. A hunt for a bug begins with the seed that has found it before, which
the patch names, so usually it ends at once; after a change of the engine or of the scenario another seed may
have to be found, in a minute at most. Three bugs are hunted from a seed that has nothing to do with them;
`GREENROOM_PLANTED=all` is the long form: so are all of them.
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
FAR_AWAY = 10_000_000
THREE = ("status_not_compared", "slot_not_freed_at_the_end", "flow_visit_counted_twice")


def hunt(bug: str, package: Path, first_seed: int, *, processes: int) -> tuple[int, str]:
    """The seed that fails, and the rule that it breaks."""
    command = [sys.executable, str(Path(__file__).with_name("hunted.py"))]
    command.append(json.dumps([scenario_of(bug), first_seed, SECONDS, processes]))
    done = subprocess.run(
        command, cwd=package.parent, env=environment(package), stdout=subprocess.PIPE, check=True
    )
    failed, seeds, seconds = json.loads(done.stdout)
    assert failed is not None, f"no seed from {first_seed} on has failed, of {seeds} in {seconds} s"
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
    simulate(seed, find(scenario_of(bug)))  # it is the bug that breaks the rule


@pytest.mark.parametrize("bug", BUGS if HUNTED == "all" else THREE)
def test_a_bug_is_found_by_a_hunt(bug: str, package: Path):
    plant(bug, package)
    seed, _ = hunt(bug, package, FAR_AWAY, processes=2)
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
    with pytest.raises(ValueError, match=rf"planted/{bug}\.patch no longer fits .*Make it anew"):
        plant(bug, package)
