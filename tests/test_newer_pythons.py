"""The newest Python that `pyproject.toml` names passes a part of the tests; in the long form, each newer one
passes most of them.

The long form is GREENROOM_PYTHONS=long. Each Python gets a virtual environment of its own. One that is not
installed is skipped.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.test_floors import ROOT, TESTED, tools

SOURCES = ("greenroom", "gateway", "actors", "persistence", "protocol")
COMPILE = """
import sys
for name in sys.argv[1:]:
    with open(name, encoding="utf-8") as file:
        compile(file.read(), name, "exec", dont_inherit=True)
"""


def newer() -> list[str]:
    """The versions of Python that the project names, except the oldest one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    return [version for version in named if version != project["requires-python"].removeprefix(">=")]


def installed(version: str) -> str:
    """The path of a Python of this version: one of the system, or of pyenv."""
    found = sorted(str(path) for path in Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    found += [path] if (path := shutil.which(f"python{version}", path="/usr/local/bin:/usr/bin")) else []
    if not found:
        pytest.skip(f"Python {version} is not installed")
    return found[-1]


def test_the_project_names_newer_pythons_than_the_oldest_and_this_one():
    named = {*newer(), "3.11"}
    assert {"3.12", "3.13"} <= named
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in named


@pytest.mark.parametrize("version", newer())
def test_a_newer_python_compiles_every_module_without_a_warning(version: str):
    sources = [str(path) for name in SOURCES for path in (ROOT / name).rglob("*.py")]
    assert len(sources) > 300
    subprocess.run([installed(version), "-W", "error", "-c", COMPILE, *sources], check=True)


def test_the_newest_python_passes_the_tests_of_asyncio_and_of_the_machines(tmp_path: Path):
    version = newer()[-1]
    light = ("pytest", "pytest-trio", "pytest-xdist", "hypothesis", "fastapi", "uvicorn", "uvloop")
    wanted = [tool for tool in tools() if re.match(r"[\w-]+", tool)[0] in light]
    brief = ("-n", "0", "--hypothesis-profile", "brief")  # this Python executes all examples
    run_tests(version, tmp_path, ["-e", str(ROOT), *wanted], ["aio", "machines"], brief)


@pytest.mark.long("GREENROOM_PYTHONS")
@pytest.mark.parametrize("version", newer())
def test_a_newer_python_passes_the_tests(version: str, tmp_path: Path):
    run_tests(version, tmp_path, ["-e", f"{ROOT}[test]"], [*TESTED, "platforms", "testing"])


def run_tests(
    version: str, folder: Path, wanted: list[str], tests: list[str], options: Sequence[str] = ("-n", "2")
) -> None:
    """Run tests with this Python, in an environment with these requirements."""
    subprocess.run([installed(version), "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
    paths = [ROOT / "tests" / name for name in tests]
    subprocess.run(
        [python, "-m", "pytest", "-q", *options, "-o", f"cache_dir={folder / 'cache'}", *paths],
        check=True,
        cwd=ROOT,
    )
