"""Test the tests: `python -m tests.mutation [module…]`.

Runs the tests of the machines against each mutant (`operators.py` defines the changes). Prints for each
module the share of mutants that the tests caught, and each survivor with its line. With words as arguments,
only the modules whose paths contain one of them are changed. `--tests` selects other tests, `--at-once` the
number of mutants that are tried concurrently.

Mutants that behave like the original are listed in `equivalent.py`, each with the reason. They count as not
caught in the first share, and are excluded from the second.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

os.environ["GREENROOM_MUTATION"] = "1"  # `tests/conftest.py` reads it

import pytest

from .equivalent import EQUIVALENT
from .trial import OPTIONS, ROOT, Result, Trials

MODULES = (
    *(
        f"actors/scheduling/{name}.py"
        for name in (
            "order",
            "offers",
            "executor_pool",
            "handles",
            "admission",
            "supervisor",
            "creation",
            "starts",
            "run_commands",
            "settings",
            "active_runs",
            "restoring",
            "trials",
            "stored_bodies",
        )
    ),
    *(
        f"actors/run/{name}.py"
        for name in (
            "machine",
            "transitions",
            "termination",
            "outcomes",
            "restore",
            "requests",
            "interrupts",
            "message_gate",
            "timers",
        )
    ),
    *(f"actors/executors/{name}.py" for name in ("checks", "awaited", "peer")),
    "actors/journal/batch.py",
    "actors/journal/machine.py",
    "protocol/fold.py",
)
TESTS = ("tests/machines",)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("modules", nargs="*", help="a part of their paths")
    parser.add_argument("--tests", nargs="+", default=list(TESTS))
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    paths = [
        path for path in MODULES if not arguments.modules or any(word in path for word in arguments.modules)
    ]
    os.chdir(ROOT)
    trials = Trials(paths, arguments.tests, arguments.at_once, _report)
    began = time.monotonic()
    code = pytest.main(["-q", *OPTIONS, *arguments.tests], plugins=[trials])
    if not trials.results:
        return int(code)
    print(f"{sum(len(result.points) for result in trials.results)} mutants, {time.monotonic() - began:.0f} s")
    return 0


def _report(line: Callable[[str], None], result: Result) -> None:
    known = EQUIVALENT.get(result.path, {})
    named = {f"{point.scope or ''}: {point.what}" for point in result.survivors}
    others = [point for point in result.survivors if f"{point.scope or ''}: {point.what}" not in known]
    total, equivalent = len(result.points), len(result.survivors) - len(others)
    line(
        f"{result.path}: caught {result.caught} of {total}, {result.caught / total:.1%}"
        f"; without {equivalent} equivalent ones {result.caught / (total - equivalent):.1%}"
    )
    for point in others:
        line(f"  {point.line}: {point.scope or 'module'}: {point.what}")
    for name in known.keys() - named:
        line(f"  in equivalent.py, but caught or not found: {name}")


sys.exit(main())
