"""Very many delayed runs: the time and the memory of opening their store.

Each opening has its own process: see `opening.py`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from .bare import fill
from .figures import Figure
from .opening import jobs
from .store import open_copy

DELAYED = 1_000_000
ROUNDS = 3

QUICK = {"DELAYED": 100_000, "ROUNDS": 1}

DAY = 24 * 3600.0


def measure() -> Iterator[Figure]:
    """All figures."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "delayed.db"
        fill(path, jobs, DELAYED, finished=False, delay=DAY)
        openings = [open_copy(path) for _ in range(ROUNDS)]
    name = f"opening a store with {DELAYED:,} delayed runs"
    computed = median(opening.computed for opening in openings)
    yield Figure(
        name,
        median(opening.seconds for opening in openings),
        "s",
        "<=",
        10,
        note=f"{computed:.2g} s of processor time; the file is in the system's cache",
    )
    yield Figure(f"{name}: memory", max(opening.resident for opening in openings) / 1e9, "GB", "<=", 1)
