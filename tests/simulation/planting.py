"""Engines with bugs in them: a copy of the package, with one of the patches in `planted/` applied to it.

A patch is a unified diff below a description of the bug and a seed that shows it, in the built-in scenario or
in the one that the patch names. Its line numbers are ignored: the old text of each hunk must occur exactly
once, so that patches still apply when the code around them changes.
"""

import os
import re
import shutil
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUGS = {patch.stem: patch for patch in sorted((Path(__file__).parent / "planted").glob("*.patch"))}


def copy_package(folder: Path) -> Path:
    """Copy the package as it is installed: `greenroom/` in the folder, with its sub-packages and compiled
    modules."""
    package = folder / "greenroom"
    _copy(ROOT / "greenroom", package)
    for name in ("actors", "persistence", "protocol", "gateway"):
        if (ROOT / name).is_dir():
            _copy(ROOT / name, package / name)
    return package


def environment(package: Path) -> dict[str, str]:
    """The environment in which Python imports this copy and its compiled modules."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
    return inherited | {"PYTHONPATH": str(package.parent)}


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    for module in target.rglob("*.py"):
        compiled = Path(cache_from_source(str(source / module.relative_to(target))))
        if compiled.exists():
            (module.parent / "__pycache__").mkdir(exist_ok=True)
            shutil.copy(compiled, module.parent / "__pycache__")


def known_seed(bug: str) -> int:
    """The known seed of a bug, which its patch names."""
    found = _said("Seed", bug)
    assert found is not None, f"planted/{bug}.patch names no seed"
    return int(found)


def scenario_of(bug: str) -> str:
    """The name of the scenario that shows a bug."""
    return _said("Scenario", bug) or "commands"


def _said(what: str, bug: str) -> str | None:
    found = re.search(rf"^{what}: (\S+)$", BUGS[bug].read_text(encoding="utf-8"), re.MULTILINE)
    return None if found is None else found[1]


def plant(bug: str, package: Path) -> None:
    """Apply a bug's patch to a copy of the package. Raises `ValueError` if it no longer fits."""
    for path, before, after in _hunks(BUGS[bug].read_text(encoding="utf-8")):
        file = package / path
        text = file.read_text(encoding="utf-8")
        if text.count(before) != 1:
            raise ValueError(
                f"planted/{bug}.patch no longer fits {path}: the text that it replaces occurs "
                f"{text.count(before)} times, expected once; update the patch:\n{before}"
            )
        file.write_text(text.replace(before, after), encoding="utf-8")


def _hunks(patch: str) -> Iterator[tuple[str, str, str]]:
    """The file, the old text and the new text of each hunk."""
    path, before, after = "", "", ""
    for line in [*patch.splitlines(keepends=True), "@@"]:
        if line.startswith(("@@", "--- ")):
            if before or after:
                yield path, before, after
            before = after = ""
        elif line.startswith("+++ b/"):
            path = line.removeprefix("+++ b/").strip()
        elif path and line.startswith((" ", "-", "+")):
            before += "" if line.startswith("+") else line[1:]
            after += "" if line.startswith("-") else line[1:]
