"""Imports point down the folder list only, and `protocol/` stays pure. The files are read, not imported."""

import ast
import tomllib
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A folder can import from itself and from the folders after it.
FOLDERS = ("greenroom", "gateway", "actors", "persistence", "protocol")

# All that `protocol/` can import in addition to itself. Add only modules without I/O, clock or randomness.
PURE = frozenset(
    """
    __future__ abc base64 binascii bisect collections contextlib copy dataclasses datetime difflib enum
    fractions functools graphlib hashlib heapq hmac inspect itertools json keyword math operator re reprlib
    string struct textwrap types typing unicodedata urllib.parse
    attrs cattrs msgspec yaml
    """.split()
)


def complaints(source: str, path: str) -> list[str]:
    """The faults in the imports of one file; its path is relative to the project's folder."""
    return [f"{path}:{line}: {fault}" for line, fault in faults(source, PurePosixPath(path).parent.parts)]


def faults(source: str, folders: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    home = folders[0]
    package = ".".join(folders if home == "greenroom" else ("greenroom", *folders))
    for line, written in imports(source):
        try:
            name = resolve_name(written, package)
        except ImportError:
            yield line, f"{written} leaves the package"
            continue
        top = name.partition(".")[0]
        if top in FOLDERS[1:]:
            yield line, f"{name} is a second copy of greenroom.{name}, under the folder's name"
        elif top == "greenroom":
            if home != "greenroom" and name == written:
                yield line, f"{name} is ours, so write it as a relative import"
            if FOLDERS.index(folder_of(name)) < FOLDERS.index(home):
                yield line, f"{home}/ imports {name}, which points up to {folder_of(name)}/"
        elif home == "protocol" and not {top, name} & PURE:
            yield line, f"protocol/ imports {name}, which is not listed as pure"


def imports(source: str) -> Iterator[tuple[int, str]]:
    """The line of each import anywhere in the file, and the module as written."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")


def folder_of(name: str) -> str:
    """The folder of one of the project's modules; the package itself is the folder `greenroom`."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in FOLDERS else "greenroom"


def sources() -> Iterator[Path]:
    for name in FOLDERS:
        yield from sorted((ROOT / name).rglob("*.py"))


def test_imports_point_down_the_folder_list():
    found = [
        complaint
        for file in sources()
        for complaint in complaints(file.read_text(encoding="utf-8"), file.relative_to(ROOT).as_posix())
    ]
    assert not found, "\n".join(found)


def test_there_are_files_to_check_in_the_highest_and_the_lowest_folder():
    assert {"greenroom", "protocol"} <= {file.relative_to(ROOT).parts[0] for file in sources()}


def test_every_folder_with_code_is_listed_for_the_wheel():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    folders = {file.parent.relative_to(ROOT).as_posix() for file in sources()}
    assert set(setuptools["package-dir"].values()) == folders
    assert set(setuptools["package-dir"]) == set(setuptools["packages"])


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("protocol/fold.py", "from __future__ import annotations\nimport msgspec, collections.abc"),
        ("protocol/fold.py", "from . import states\nfrom .events import Event"),
        ("protocol/deep/er.py", "from ..events import Event\nfrom ...protocol import names"),
        ("persistence/sqlite.py", "import sqlite3, trio\nfrom ..protocol import records"),
        ("persistence/dialects/sqlite.py", "from ..store import Store\nfrom ...protocol import records"),
        ("actors/__init__.py", "from .run import Run\nfrom ..persistence.store import Store"),
        ("gateway/server.py", "from ..actors import Engine"),
        ("greenroom/__init__.py", "from .actors import Engine\nfrom greenroom.protocol import errors"),
    ],
)
def test_an_import_that_points_down_is_accepted(path: str, source: str):
    assert complaints(source, path) == []


@pytest.mark.parametrize(
    ("path", "source", "fault"),
    [
        ("persistence/memory.py", "from ..actors.run import Run", "points up to actors/"),
        ("persistence/dialects/sqlite.py", "from ...actors.run import Run", "points up to actors/"),
        ("actors/__init__.py", "from ..gateway import server", "points up to gateway/"),
        ("actors/run.py", "from .. import errors", "points up to greenroom/"),
        ("actors/run.py", "from .. import protocol", "points up to greenroom/"),
        ("gateway/server.py", "from ..simulation import play", "points up to greenroom/"),
        ("protocol/fold.py", "from ..persistence import store", "points up to persistence/"),
        ("protocol/fold.py", "def f():\n    from ..actors import run", "points up to actors/"),
        (
            "protocol/fold.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..actors import run",
            "points up to actors/",
        ),
        ("actors/run.py", "from ... import anything", "leaves the package"),
        ("greenroom/cli.py", "from ..actors import Engine", "leaves the package"),
        ("actors/run.py", "import greenroom.protocol.states", "write it as a relative import"),
        ("actors/run.py", "from greenroom.protocol import states", "write it as a relative import"),
        ("actors/run.py", "from protocol import states", "second copy of greenroom.protocol"),
        ("greenroom/__init__.py", "import actors.run", "second copy of greenroom.actors.run"),
    ],
)
def test_an_import_that_points_elsewhere_is_named_with_its_file(path: str, source: str, fault: str):
    [complaint] = complaints(source, path)
    assert complaint.startswith(f"{path}:")
    assert fault in complaint


@pytest.mark.parametrize(
    "module",
    ["trio", "socket", "os", "os.path", "pathlib", "asyncio", "threading", "sqlite3", "time", "random"],
)
def test_protocol_may_import_neither_trio_nor_anything_that_does_io(module: str):
    assert complaints(f"import {module}", "protocol/fold.py") == [
        f"protocol/fold.py:1: protocol/ imports {module}, which is not listed as pure"
    ]
    assert len(complaints(f"from {module} import something", "protocol/deep/er.py")) == 1


def test_each_bad_import_is_reported_with_its_line():
    source = "import trio\nimport msgspec\n\nfrom ..actors import run\n"
    assert [text.split(":")[1] for text in complaints(source, "protocol/fold.py")] == ["1", "4"]
