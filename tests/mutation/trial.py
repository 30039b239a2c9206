"""Run collected tests against mutants, each in a forked process.

The child puts the changed code into the existing function, runs the tests that call it until the first one
fails, and reports which. So nothing is imported or collected again. Code outside of functions is evaluated
when its module is imported; such a mutant gets a new Python process (`imported.py`).
"""

from __future__ import annotations

import ast
import gc
import importlib
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from .operators import Point, points

ROOT = Path(__file__).resolve().parents[2]
MEMORY = 4 << 30
PATIENCE = 300.0
"""The timeout for a mutant that only waits, in seconds. A mutant that is busy can use three times the
processor time that a test takes without it, plus two seconds."""

IMPORTED = "GREENROOM_MUTANT"
"""The environment variable that passes a new Python process its mutant: a file and a number."""


def module_name(path: str) -> str:
    """The name of the module in a file of the project."""
    return "greenroom." + path.removesuffix(".py").replace("/", ".")


class Result:
    """The results for the mutants of one module."""

    def __init__(self, path: str, found: Sequence[Point]) -> None:
        self.path = path
        self.points = found
        self.caught = 0
        self.survivors: list[Point] = []


class Trials:
    """A pytest plugin that runs the tests against mutants instead of once."""

    def __init__(
        self,
        paths: Sequence[str],
        tests: Sequence[str],
        at_once: int,
        report: Callable[[Callable[[str], None], Result], None],
    ) -> None:
        self.results: list[Result] = []
        self._report = report
        self._paths = paths
        self._tests = tests
        self._at_once = at_once
        self._took: dict[str, float] = {}  # by test: seconds of processor time
        self._items: list[pytest.Item] = []
        self._calls: dict[str, set[tuple[str, str | None]]] = {}  # by test: the functions, with their files
        self._kills: Counter[str] = Counter()  # by test
        self._children: dict[int, tuple[Any, Result, Point, float]] = {}  # by pipe

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be collected")
        items = self._baseline(session)
        gc.collect()
        gc.freeze()  # children need not track the objects that exist now
        for path in self._paths:
            source = (ROOT / path).read_text()
            tree = ast.parse(source, path)
            result = Result(path, points(tree))
            self.results.append(result)
            self._kills = Counter()
            for number, point in enumerate(result.points):
                while len(self._children) >= self._at_once:
                    self._wait()
                called = str(ROOT / path), point.scope
                self._items = [
                    item for item in items if point.scope is None or called in self._calls[item.nodeid]
                ]
                self._items.sort(
                    key=lambda item: -self._kills[item.nodeid]
                )  # stable: else the quickest first
                self._start(result, tree, number, point)
            while self._children:
                self._wait()
            self._report(session.config.get_terminal_writer().line, result)
        return True

    def _baseline(self, session: pytest.Session) -> list[pytest.Item]:
        """Run the unchanged tests once to find out which functions each of them calls: only the tests that
        call the changed function are run against a mutant, the fastest first. All must pass."""
        for number, item in enumerate(session.items):
            at = time.process_time()
            called: set[CodeType] = set()
            sys.setprofile(partial(_note, called))
            try:
                fails = _fails(session.items, number)
            finally:
                sys.setprofile(None)
            self._calls[item.nodeid] = {
                (code.co_filename, code.co_qualname.partition(".<locals>")[0]) for code in called
            }
            if fails:
                raise session.Interrupted(f"{item.nodeid} fails without any mutant")
            self._took[item.nodeid] = time.process_time() - at
        return sorted(session.items, key=lambda item: self._took[item.nodeid])

    def _start(self, result: Result, tree: ast.Module, number: int, point: Point) -> None:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            os._exit(self._child(result, tree, number, point, writing))
        os.close(writing)
        self._children[reading] = (pid, result, point, time.monotonic())

    def _wait(self) -> None:
        ready, _, _ = select.select(list(self._children), [], [], 1.0)
        for pipe, (pid, _, _, began) in list(self._children.items()):
            if pipe in ready:
                self._finish(pipe)
            elif time.monotonic() - began > PATIENCE:
                os.kill(pid, signal.SIGKILL)
                self._finish(pipe)

    def _finish(self, pipe: int) -> None:
        pid, result, point, _ = self._children.pop(pipe)
        said = b""
        while part := os.read(pipe, 4096):
            said += part
        os.close(pipe)
        os.waitpid(pid, 0)
        if said == b"survived":
            result.survivors.append(point)
            return
        result.caught += 1
        killer = said.decode(errors="replace")  # empty, if it was killed or crashed
        if killer:
            self._kills[killer] += 1

    # In the child.

    def _child(
        self,
        result: Result,
        tree: ast.Module,
        number: int,
        point: Point,
        writing: int,
    ) -> int:
        os.setpgid(0, 0)
        silence = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(silence, fd)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        said = "crashed"
        try:
            if point.scope is not None and _replace_code(result.path, tree, point):
                said = self._first_failing()
            else:
                said = _in_own_python(result.path, number, self._tests, PATIENCE)
        except BaseException as error:
            said = type(error).__name__
        os.write(writing, said.encode())
        return 0

    def _first_failing(self) -> str:
        items = self._items
        for number, item in enumerate(items):
            seconds = int(time.process_time() + 2 + 3 * self._took[item.nodeid])
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
            if _fails(items, number):
                return item.nodeid
        return "survived"


def _note(called: set[CodeType], frame: FrameType, event: str, _: object) -> None:
    if event == "call":
        called.add(frame.f_code)


def _fails(items: Sequence[pytest.Item], number: int) -> bool:
    following = items[number + 1] if number + 1 < len(items) else None
    reports = runtestprotocol(items[number], log=False, nextitem=following)
    return any(report.failed for report in reports)


def _replace_code(path: str, tree: ast.Module, point: Point) -> bool:
    """Put the changed code into the existing function; false if that is not possible."""
    assert point.scope is not None, "it stands in a function"
    module = importlib.import_module(module_name(path))
    function = _function(module, point.scope)
    if function is None:
        return False
    point.apply()
    changed = _code(compile(ast.fix_missing_locations(tree), path, "exec"), point.scope)
    if changed is None or changed.co_freevars != function.__code__.co_freevars:
        return False
    function.__code__ = changed
    return True


def _function(module: Any, scope: str) -> FunctionType | None:
    *classes, name = scope.split(".")
    found = module
    for owner in classes:
        found = getattr(found, owner)
    found = vars(found).get(name)
    if isinstance(found, property):
        found = found.fget
    found = getattr(found, "__func__", found)
    found = getattr(found, "__wrapped__", found)
    return found if isinstance(found, FunctionType) else None


def _code(code: CodeType, scope: str) -> CodeType | None:
    for part in scope.split("."):
        codes = [const for const in code.co_consts if isinstance(const, CodeType) and const.co_name == part]
        if len(codes) != 1:
            return None
        (code,) = codes
    return code


def _in_own_python(path: str, number: int, tests: Sequence[str], limit: float) -> str:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "tests.mutation.imported", *OPTIONS, *tests]
    environment = os.environ | {IMPORTED: f"{path}:{number}"}
    run = partial(subprocess.run, command, cwd=ROOT, env=environment, check=False, timeout=limit)
    try:
        return "survived" if run().returncode == 0 else "a Python of its own"
    except subprocess.TimeoutExpired:
        return "a Python of its own"


# Greenroom's entry point for pytest makes pytest rewrite `tests`, too, which is imported already.
_IMPORTED = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
OPTIONS = ("-n0", "-p", "no:cacheprovider", "-p", "no:randomly", "-W", _IMPORTED)
