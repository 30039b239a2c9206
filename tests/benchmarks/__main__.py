"""Run a benchmark: `python -m tests.benchmarks NAME [--json] [--quick]`; without a name, list them."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from .figures import as_json, as_lines, machine

BENCHMARKS = (
    "memory",
    "store",
    "gateway",
    "flows",
    "aio",
    "executors",
    "cluster",
    "order",
    "batches",
    "delays",
    "before",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=BENCHMARKS, help="which benchmark to run")
    parser.add_argument("--json", action="store_true", help="write JSON instead of a table")
    parser.add_argument("--quick", action="store_true", help="use smaller sizes, for less exact results")
    args = parser.parse_args()
    if args.name is None:
        for name in BENCHMARKS:
            print(f"{name:<10} {_module(name).__doc__.splitlines()[0]}")
        return
    benchmark = _module(args.name)
    if args.quick:
        vars(benchmark).update(benchmark.QUICK)
    if args.json:
        print(as_json(args.name, benchmark.measure()))
        return
    print(" ".join(f"{what} {value}" for what, value in machine().items()), end="\n\n")
    for line in as_lines(benchmark.measure()):
        print(line)
        sys.stdout.flush()  # show the line immediately, also through a pipe


def _module(name: str):
    return import_module(f".{name}", __package__)


main()
