"""`greenroom simulate`: what it simulates, what it prints, and its exit codes."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result

from greenroom.cli import main
from tests.cli.runner import runner

CARELESS = "tests.simulation.shop:careless"
CAREFUL = "tests.simulation.shop:careful"


def simulate(*arguments: object) -> Result:
    """Run the command. Its output never contains a traceback."""
    result = runner().invoke(main, ["simulate", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def found(*arguments: object) -> list[str]:
    """The output of a command that finds a failure."""
    result = simulate(*arguments)
    assert result.exit_code == 1
    return result.stdout.splitlines()


def test_its_help_has_examples():
    shown = simulate("--help").stdout
    assert "Examples:" in shown
    assert "greenroom simulate --hunt 60" in shown


def test_a_seed_that_passes_exits_with_0_and_its_figures():
    result = simulate("--seed", 1, "--scenario", CAREFUL)
    assert result.exit_code == 0
    assert result.stdout.startswith("Seed 1 passes: 20 steps, ")
    for figure in ("commands (", "per second)", "events", "starts", "crashes", "faults", "simulated seconds"):
        assert figure in result.stdout


def test_steps_limits_the_number_of_steps():
    assert "passes: 3 steps," in simulate("--seed", 1, "--scenario", CAREFUL, "--steps", 3).stdout
    kept = simulate("--seed", 1, "--scenario", CAREFUL, "--keep", "3, 7,12")
    assert "passes: 3 steps," in kept.stdout
    assert "passes: 0 steps," in simulate("--seed", 1, "--scenario", CAREFUL, "--keep", "").stdout


def test_a_failure_is_found_shrunk_printed_and_can_be_repeated():
    lines = found("--hunt", 60, "--seed", 50, "--scenario", CARELESS)

    assert any(" processes: " in line or "one process: " in line for line in lines)
    seed = next(line for line in lines if line.startswith("Seed ")).split()[1]
    assert int(seed) >= 50
    assert any(line.startswith("The failure needs ") and line.endswith(" steps. Trace:") for line in lines)
    assert any("customer calls #1: submit" in line for line in lines)
    assert any("supervisor -> journal" in line for line in lines)
    assert any("body of run 1: attempt 1 starts" in line for line in lines)
    assert any("server: dies: killed" in line for line in lines)
    broken, again = lines[-2:]
    assert broken.startswith("Violated: ")
    assert "nobody_is_charged_twice" in broken

    command = again.removeprefix("Replay:   greenroom simulate ").split()
    assert command[:2] == ["--seed", seed]
    assert command[2] == "--keep"
    assert command[4:] == ["--scenario", CARELESS]
    replayed = found(*command)
    assert replayed[-2:] == [broken, again]
    assert lines[-len(replayed) + 1 :] == replayed[1:]


def test_the_seed_in_the_documentation_gives_the_documented_trace():
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "simulation.md").read_text()
    again = page.partition("Replay:   greenroom simulate ")[2].partition("\n")[0]
    lines = found(*again.replace("simulating:", "tests.examples.simulating:").split())
    story = lines[lines.index("") : -1]  # without the line that names the scenario
    assert "\n".join(story) in page


def test_the_failure_of_a_single_seed_is_shrunk_too():
    seed = next(s for s in range(1, 100) if simulate("--seed", s, "--scenario", CARELESS).exit_code)
    lines = found("--seed", seed, "--scenario", CARELESS)
    assert lines[0].startswith(f"Seed {seed} fails: ")
    assert lines[1].startswith("The failure needs ")


def test_a_hunt_without_a_violation_exits_with_0():
    result = simulate("--hunt", 1, "--scenario", CAREFUL, "--steps", 4)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "No rule was violated."


def test_a_seed_that_never_ends_is_reported(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("greenroom.simulation.search.hunting.PATIENCE", 1.0)
    monkeypatch.setattr("greenroom.simulation.search.hunting.cores", lambda: 2)
    result = simulate("--hunt", 1, "--scenario", "tests.simulation.shop:endless")
    assert result.exit_code == 1
    assert "still running 1 s after the end of the hunt" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "--seed N"),
        (("--hunt", "5", "--keep", "3"), "--keep cannot be combined with --hunt"),
        (("--hunt", "0"), "0"),
        (("--hunt", "soon"), "soon"),
        (("--seed", "x"), "x"),
        (("--seed", "1", "--keep", "3-7"), "'3-7' is not a list of step numbers"),
        (("--seed", "1", "--steps", "-1"), "-1"),
        (("--seed", "1", "--store", "postgresql"), "postgresql"),
        (("--seed", "1", "--scenario", "shop"), "use module:function"),
        (("--seed", "1", "--scenario", "no_such_module:shop"), "module 'no_such_module' of scenario"),
    ],
)
def test_invalid_arguments_exit_with_2(arguments: tuple[str, ...], why: str):
    result = simulate(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert why in result.stderr.replace("\n", " ")


def test_a_module_is_found_in_the_current_folder(tmp_path: Path):
    (tmp_path / "my_shop.py").write_text("async def nothing(world):\n    world.note('hello')\n")
    (tmp_path / "my_broken_shop.py").write_text("1 / 0\n")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "greenroom", "simulate", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert "Seed 3 passes" in run("--seed", "3", "--scenario", "my_shop:nothing").stdout
    hunted = run("--hunt", "0.5", "--scenario", "my_shop:nothing")
    assert hunted.returncode == 0, hunted.stderr
    assert hunted.stdout.endswith("No rule was violated.\n")
    broken = run("--seed", "3", "--scenario", "my_broken_shop:nothing")
    assert broken.returncode == 2
    assert "cannot import my_broken_shop:nothing: ZeroDivisionError" in broken.stderr
