"""Servers in separate processes, controlled by lines on standard input, and their cost.

The clients are not in the server's process, so their cost is not measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

_ROOT = Path(__file__).resolve().parents[2]
_PROCESSOR_TIME = 2  # CPUCLOCK_SCHED of Linux


class Program:
    """`python -m MODULE ARGUMENTS…`, which prints its port first, and then a line after each order."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.{module}", *arguments],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.port = int(self.answer())

    def __enter__(self) -> Program:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def tell(self, order: str) -> None:
        """Send it an order."""
        assert self._process.stdin is not None
        self._process.stdin.write(order.encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """Wait for the next line that it prints."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server has ended with {self._process.wait()}")
        return line.decode().strip()

    def ask(self, order: str) -> str:
        """Send it an order, and wait until it is carried out."""
        self.tell(order)
        return self.answer()

    @property
    def computed(self) -> float:
        """Seconds of processor time that it has used, in all its threads."""
        return processor_time(self._process.pid)

    @property
    def resident(self) -> int:
        """Bytes of memory that it uses."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def processor_time(process: int) -> float:
    """Seconds of processor time that a process has used, in all its threads."""
    return time.clock_gettime(~process << 3 | _PROCESSOR_TIME)


class Taken:
    """A cost: elapsed seconds, and seconds of a program's processor time."""

    passed = 0.0
    computed = 0.0


@contextmanager
def taking(program: Program) -> Iterator[Taken]:
    """Measure the cost of the block."""
    taken = Taken()
    start, computed = time.perf_counter(), program.computed
    yield taken
    taken.passed = time.perf_counter() - start
    taken.computed = program.computed - computed
