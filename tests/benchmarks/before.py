"""The cost of a run in this version and in the last version before the core was redesigned.

In memory, on SQLite and on PostgreSQL. The older version is copied from git into a temporary folder. The two
versions alternate in one execution, and each load has its own process. The jobs do nothing. Processor time is
that of all threads of the process; elapsed time depends more on the machine, and is shown in addition. Each
ratio is the median of the ratios of all rounds.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median

import msgspec
import pytest

from tests.servers import PostgreSQL

from .figures import Figure
from .loads import Load, Took
from .store import measure_alone, percentile
from .versions import ROOT, call, lay_out, lay_out_commit

COMMIT = "9ba0f6310bae71c74c392f67a288679254fcd098"
"""The last version before the redesign."""

RUNS = 20_000
DURABLE_RUNS = 10_000
CLIENTS, FEW_CLIENTS, FEW_SLOTS = 1_000, 100, 10
ALONE = 1_000
SHORT, LONG, SHORT_TIMES = 1_000, 100_000, 5
BURST, SUBMITTERS = 5_000, 100
ROUNDS = 5
BARE_ROUNDS = 3

QUICK = {"ROUNDS": 2, "RUNS": 5_000, "DURABLE_RUNS": 4_000, "ALONE": 200, "LONG": 20_000, "BARE_ROUNDS": 1}


class Pair(msgspec.Struct, frozen=True):
    """The cost of one load in each round: with the older version, and with this one."""

    before: list[Took]
    now: list[Took]

    def ratio(self, what: str) -> float:
        pairs = zip(self.now, self.before, strict=True)
        return median(getattr(now, what) / getattr(before, what) for now, before in pairs)


def measure() -> Iterator[Figure]:
    """All figures."""
    with tempfile.TemporaryDirectory(prefix="greenroom-") as folder:
        before, now = Path(folder) / "before", Path(folder) / "now"
        lay_out_commit(COMMIT, before)
        lay_out(ROOT, now)
        both = {"before": before, "now": now}
        yield from measure_processor_time(both)
        yield from measure_handles(both)
        yield from measure_alone_beside(both, Path(folder))
        yield from measure_queues(both)
        yield from measure_bursts(both)
        yield from measure_server(both)


def measure_processor_time(both: Mapping[str, Path]) -> Iterator[Figure]:
    loads = [
        ("in memory, new handles", Load("steady", "memory", RUNS, CLIENTS, CLIENTS), 0.4),
        (f"SQLite, {CLIENTS:,} clients", Load("steady", "sqlite", DURABLE_RUNS, CLIENTS, CLIENTS), 0.4),
        (
            f"SQLite, {FEW_CLIENTS} clients, a limit of {FEW_SLOTS}",
            Load("steady", "sqlite", DURABLE_RUNS, FEW_CLIENTS, FEW_SLOTS),
            0.5,
        ),
    ]
    for name, load, most in loads:
        yield from compare(name, in_turns(both, load), most)


def measure_handles(both: Mapping[str, Path]) -> Iterator[Figure]:
    reused = Load("reused", "memory", RUNS, CLIENTS, 100)
    engines, channels = in_turns(both, reused), in_turns(both, msgspec.structs.replace(reused, kind="bare"))
    yield from compare(f"in memory, {CLIENTS:,} handles reused", engines)
    shares = {
        name: median(bare.computed / engine.computed for bare, engine in zip(bares, engines, strict=True))
        for name, bares, engines in (
            ("before", channels.before, engines.before),
            ("now", channels.now, engines.now),
        )
    }
    yield Figure(
        "the engine / bare channels",
        shares["now"],
        "",
        ">=",
        0.45,
        note=f"before {shares['before']:.2g}; bare channels take "
        f"{median(one.computed for one in channels.now) * 1e6:.0f} µs of processor time for a run",
    )


def measure_alone_beside(both: Mapping[str, Path], folder: Path) -> Iterator[Figure]:
    pair = in_turns(both, Load("alone", "sqlite", ALONE, limit=100))
    yield from compare("SQLite, one at a time", pair)
    singles = {name: median(one.median for one in took) for name, took in name_sides(pair)}
    yield Figure(
        "SQLite, one at a time, p50: now / before",
        pair.ratio("median"),
        "",
        "<=",
        0.6,
        note=f"{singles['before'] * 1e3:.2f} ms before, {singles['now'] * 1e3:.2f} ms now",
    )
    beside = [measure_alone(folder / f"alone{number}") for number in range(BARE_ROUNDS)]
    yield Figure(
        "SQLite, one at a time, p50 / that of a bare commit",
        median(percentile(one.runs, 0.5) / percentile(one.commits, 0.5) for one in beside),
        "",
        "<=",
        2.8,
        note=f"{median(one.commits_per_run for one in beside):.2g} commits for a run; "
        f"a bare one takes {median(percentile(one.commits, 0.5) for one in beside) * 1e3:.2f} ms",
    )


def measure_queues(both: Mapping[str, Path]) -> Iterator[Figure]:
    short = in_turns(both, Load("backlog", "memory", SHORT, limit=100, times=SHORT_TIMES))
    long = in_turns(both, Load("backlog", "memory", LONG, limit=100))
    yield from compare(f"in memory, {SHORT:,} queued", short)
    yield from compare(f"in memory, {LONG:,} queued", long)
    for name, shorts, longs in (("before", short.before, long.before), ("now", short.now, long.now)):
        collecting = median(one.collecting for one in longs) * 1e6
        yield Figure(
            f"{name}, {LONG:,} queued / {SHORT:,} queued",
            median(one.computed / other.computed for one, other in zip(longs, shorts, strict=True)),
            "",
            "<=" if name == "now" else None,
            1.2 if name == "now" else None,
            note=f"of the former, Python's garbage collection took {collecting:.0f} µs",
        )


def measure_bursts(both: Mapping[str, Path]) -> Iterator[Figure]:
    for store, where in (("memory", "in memory"), ("sqlite", "SQLite")):
        for clients in (1, SUBMITTERS):
            submitters = "one submitter" if clients == 1 else f"{clients} submitters"
            load = Load("burst", store, BURST, clients, 100)
            yield from compare(f"{where}, {BURST:,} runs, {submitters}", in_turns(both, load))


def measure_server(both: Mapping[str, Path]) -> Iterator[Figure]:
    """On PostgreSQL, whose processor time is not counted; it never syncs, so that no disk is measured."""
    try:
        server = PostgreSQL()
    except pytest.skip.Exception as error:
        print(error, file=sys.stderr)
        return
    try:
        server.initialize()
        server.start()
        for name, load in (
            (f"{CLIENTS:,} clients", Load("steady", "", DURABLE_RUNS, CLIENTS, CLIENTS)),
            (
                f"{FEW_CLIENTS} clients, a limit of {FEW_SLOTS}",
                Load("steady", "", DURABLE_RUNS, FEW_CLIENTS, FEW_SLOTS),
            ),
            ("one at a time", Load("alone", "", ALONE, limit=100)),
        ):
            yield from compare(f"PostgreSQL, {name}", in_turns(both, load, server.fresh_database))
    finally:
        server.close()


def in_turns(both: Mapping[str, Path], load: Load, database: Callable[[], str] | None = None) -> Pair:
    took: dict[str, list[Took]] = {name: [] for name in both}
    for number in range(ROUNDS):
        for name in both if number % 2 else reversed(both):  # so that no side is always the first
            one_load = load if database is None else msgspec.structs.replace(load, store=database())
            text = msgspec.json.encode(one_load).decode()
            one = msgspec.json.decode(call(both[name], "loads", text), type=Took)
            assert one.version == str(both[name]), f"{one.version} was measured instead of {both[name]}"
            took[name].append(one)
    return Pair(took["before"], took["now"])


def compare(name: str, pair: Pair, most: float | None = None) -> Iterator[Figure]:
    for side, took in name_sides(pair):
        collecting = median(one.collecting for one in took) * 1e6
        yield Figure(
            f"{name}: {side}",
            median(one.computed for one in took) * 1e6,
            "µs",
            note=f"{median(one.passed for one in took) * 1e6:,.0f} µs pass"
            + (f"; garbage collection takes {collecting:.0f} µs" if collecting >= 1 else ""),
        )
    yield Figure(
        f"{name}: now / before",
        pair.ratio("computed"),
        "",
        None if most is None else "<=",
        most,
        note=f"by the time that passed {pair.ratio('passed'):.2g}",
    )


def name_sides(pair: Pair) -> Iterator[tuple[str, list[Took]]]:
    yield "before", pair.before
    yield "now", pair.now
