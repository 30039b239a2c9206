"""Children find the jobs of their engine, wherever a program has defined them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from greenroom import Jobs
from greenroom.actors.executors.locating import Location, locate
from greenroom.errors import Invalid
from greenroom.executor.loading import load_jobs

jobs = Jobs()

SHOW = """
import sys, msgspec
from greenroom.actors.executors.locating import Location
from greenroom.executor.loading import load_jobs
from greenroom.errors import Invalid

location = msgspec.json.decode(sys.argv[1], type=Location)
sys.path[:] = msgspec.json.decode(sys.argv[2])
try:
    print(*load_jobs(location)._jobs)
except Invalid as error:
    print(error.message)
"""
"""Prints the names of the jobs that a new process loads, or the error."""

JOBS = """
from greenroom import Jobs

jobs = Jobs()


@jobs.job
async def greet(run): ...
"""


def loaded(location: Location, path: list[str] | None = None) -> str:
    """What another process loads."""
    texts = [msgspec.json.encode(value).decode() for value in (location, sys.path if path is None else path)]
    run = subprocess.run(
        [sys.executable, "-P", "-c", SHOW, *texts], capture_output=True, text=True, check=True, timeout=60
    )
    return run.stdout.strip()


def shown_by(program: list[str], folder: Path) -> Location:
    """The location of the jobs of a program, which prints it."""
    run = subprocess.run(
        [sys.executable, *program], cwd=folder, capture_output=True, text=True, check=True, timeout=60
    )
    return msgspec.json.decode(run.stdout, type=Location)


PRINTS = """
if __name__ == "__main__":
    import msgspec
    from greenroom.actors.executors.locating import locate

    print(msgspec.json.encode(locate(jobs)).decode())
"""


def test_jobs_of_a_module_are_found_by_its_name():
    assert locate(jobs) == Location(__name__, "jobs", __file__)


def test_the_module_that_created_the_jobs_is_preferred(monkeypatch: pytest.MonkeyPatch):
    for name in ("aaa_importer", "zzz_importer"):
        importer = ModuleType(name)
        importer.jobs = jobs  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, importer)
    assert locate(jobs).module == __name__


def test_jobs_that_no_module_has_are_refused_with_the_remedy():
    with pytest.raises(Invalid, match=r"no module has this Jobs object .* as in `jobs = Jobs\(\)`"):
        locate(Jobs())


def test_a_given_import_path_is_used():
    given = Jobs()
    given.import_path = "app.jobs:container.jobs"
    assert locate(given) == Location("app.jobs", "container.jobs", None)


def test_a_new_process_imports_the_module_by_its_name(tmp_path: Path):
    (tmp_path / "app.py").write_text(JOBS)
    location = Location("app", "jobs", str(tmp_path / "app.py"))
    assert loaded(location, [*sys.path, str(tmp_path)]) == "greet"


def test_a_script_is_executed_without_its_main_block(tmp_path: Path):
    (tmp_path / "script.py").write_text(JOBS + PRINTS)
    location = shown_by(["script.py"], tmp_path)
    assert location.main
    assert loaded(location) == "greet"


def test_a_module_started_with_m_keeps_its_relative_imports(tmp_path: Path):
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "names.py").write_text("GREET = 'greet'")
    (package / "__main__.py").write_text(JOBS + "\nfrom .names import GREET\n" + PRINTS)
    location = shown_by(["-m", "shop"], tmp_path)
    assert location.package == "shop"
    assert loaded(location, [*sys.path, str(tmp_path)]) == "greet"


def test_jobs_of_an_interactive_session_are_refused(tmp_path: Path):
    text = f"{JOBS}\nfrom greenroom.actors.executors.locating import locate\nlocate(jobs)"
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert "is defined in an interactive session: define the jobs in a module" in run.stderr


def test_a_module_that_was_loaded_from_its_file_is_loaded_from_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "checks" / "deep"
    folder.mkdir(parents=True)
    file = folder / "test_it.py"
    (folder / "helper.py").write_text("GREET = 'greet'")
    file.write_text(JOBS + "\nfrom .helper import GREET\n")
    for name, path in (("checks", folder.parent), ("checks.deep", folder)):
        parent = ModuleType(name)
        parent.__path__ = [str(path)]
        monkeypatch.setitem(sys.modules, name, parent)
    spec = importlib.util.spec_from_file_location("checks.deep.test_it", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    monkeypatch.setitem(sys.modules, "checks.deep.helper", ModuleType("to be restored"))
    del sys.modules["checks.deep.helper"]
    spec.loader.exec_module(module)
    location = locate(module.jobs)
    assert location == Location("checks.deep.test_it", "jobs", str(file))
    assert loaded(location) == "greet"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import nonsense", "cannot import app:jobs: ModuleNotFoundError: No module named 'nonsense' ({}:1)"),
        ("\n1 / 0", "cannot import app:jobs: ZeroDivisionError: division by zero ({}:2)"),
        ("raise SystemExit(3)", "cannot import app:jobs: SystemExit: 3 ({}:1)"),
        ("", "app:jobs not found: module 'app' has no attribute 'jobs'"),
        ("jobs = 3", "app:jobs must be a greenroom.Jobs (got int)"),
    ],
)
def test_an_error_names_the_jobs_and_the_line(tmp_path: Path, text: str, error: str):
    file = tmp_path / "app.py"
    file.write_text(text)
    assert loaded(Location("app", "jobs", str(file)), [*sys.path, os.fspath(tmp_path)]) == error.format(file)


def test_the_same_jobs_are_not_loaded_twice():
    assert load_jobs(locate(jobs)) is jobs
