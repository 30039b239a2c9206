"""The tests pass with the oldest releases that `pyproject.toml` permits (only with GREENROOM_FLOORS=long).

These releases are installed in a separate virtual environment, which runs the tests that use them most. They
are releases for the oldest Python: some of them cannot be installed with a newer one.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTED = (
    "body cli engine examples flow gateway lifetime persistence protocol stores stream tracing webhooks "
    "worker workers"
).split()

LEFT_OUT = [
    f"--ignore={ROOT / 'tests/gateway/test_openapi.py'}",  # its tool requires a newer Rich
    f"--ignore={ROOT / 'tests/cli/test_docs.py'}",  # the generator requires a newer Click
    "--deselect=tests/cli/test_front.py::test_a_command_that_is_mistyped_is_guessed",  # only by a newer Click
]


def floors() -> list[str]:
    """Each dependency at the oldest release that is admitted, as a constraint for pip."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = [
        *project["dependencies"],
        *extras["postgres"],
        *extras["mysql"],
        *extras["redis"],
        *extras["otel"],
    ]
    found = [re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", requirement) for requirement in declared]
    assert all(found), declared
    pinned = {match[1]: match[2] for match in found if match}
    pinned["psycopg-binary"] = pinned["psycopg"]
    pinned["opentelemetry-sdk"] = pinned["opentelemetry-api"]
    return [f"{name}=={version}" for name, version in pinned.items()]


def tools() -> list[str]:
    """The dependencies of the tests, in addition to those of the project."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["test"]
    named = [tool for tool in extra if not tool.startswith(("greenroom[", "schemathesis", "opentelemetry"))]
    return [*named, "opentelemetry-sdk"]


def test_every_dependency_names_its_oldest_release() -> None:
    assert len(floors()) > 13


@pytest.mark.long("GREENROOM_FLOORS")
def test_the_oldest_releases_pass_the_tests(tmp_path: Path) -> None:
    constraints = tmp_path / "floors.txt"
    constraints.write_text("\n".join(floors()))
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    wanted = ["-e", f"{ROOT}[postgres,mysql,redis,otel]", *tools()]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted, "-c", constraints], check=True)
    tests = [ROOT / "tests" / name for name in TESTED]
    subprocess.run(
        [python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *LEFT_OUT, *tests],
        check=True,
        cwd=ROOT,
    )
