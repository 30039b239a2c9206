"""The types of the public interface: mypy accepts what should work, and names what should not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    file for file in Path(__file__).parent.glob("*.py") if not file.stem.startswith(("_", "test_"))
)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the package as it is installed, for mypy, which does not read `package-dir`."""
    package = tmp_path / "greenroom"
    package.mkdir()
    for file in (ROOT / "greenroom").iterdir():
        (package / file.name).symlink_to(file)
    for name in ("actors", "gateway", "persistence", "protocol"):
        (package / name).symlink_to(ROOT / name)
    return tmp_path


def test_mypy_reports_exactly_the_marked_errors(installed: Path, pytestconfig: pytest.Config):
    cache = pytestconfig.cache.mkdir("mypy") if pytestconfig.cache is not None else installed / "cache"
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context"]
    checked = subprocess.run(
        [*command, "--cache-dir", str(cache), *map(str, FILES)],
        cwd=installed,
        env={"MYPYPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not checked.stderr
    found: dict[tuple[str, int], str] = {}
    for file, line, text in re.findall(r"^(.+?):(\d+): error: (.*)$", checked.stdout, re.MULTILINE):
        found.setdefault((Path(file).name, int(line)), text)
    assert found
    for place, wanted in expected().items():
        if wanted in found.get(place, ""):
            found[place] = wanted
    assert found == expected()


def expected() -> dict[tuple[str, int], str]:
    """The expected errors by file and line."""
    return {
        (file.name, number): line.partition("  # error: ")[2]
        for file in FILES
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if "  # error: " in line
    }
