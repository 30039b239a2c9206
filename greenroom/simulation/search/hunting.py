"""Hunting: play one seed after another, on every core, until one of them breaks a rule.

With N processes, each of them (`hunter.py`) plays every Nth seed, and reports the result of each to the
parent process. A scenario that other processes cannot import is played in this process only.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from subprocess import PIPE

import attrs
import msgspec
import trio

from ..scenarios.by_name import name_of
from ..simulate import Game, SimulationFailed, hidden
from ..world.world import Figures, Scenario, StoreKind
from .shrinking import shrink

PATIENCE = 30.0
"""Seconds that a seed can take beyond the end of the hunt, before it is reported as endless."""

REPORT_EVERY = 1.0

_now = time.monotonic


class NotRepeatable(Exception):
    """A seed failed, but did not fail again when it was replayed."""


class Failed(msgspec.Struct, frozen=True):
    """A seed that broke a rule; or one that did not end, and was killed (`endless`)."""

    seed: int
    invariant: str
    endless: bool = False


@attrs.define
class Hunt:
    """The progress or the result of a hunt: the number of seeds played to their end, the real seconds, the
    sums of the seeds' figures, and the seed that failed, if one did."""

    processes: int
    seeds: int = 0
    seconds: float = 0.0
    figures: Figures = attrs.Factory(Figures)
    failed: Failed | None = None

    def take(self, played: Played) -> None:
        """Add a report of a process: a seed has started, or has been played."""
        if played.figures is not None:
            self.seeds += 1
            for name, value in played.figures.items():
                setattr(self.figures, name, getattr(self.figures, name) + value)
        self.failed = self.failed or played.failed


class Orders(msgspec.Struct, frozen=True):
    """The order to one process of a hunt: play the seeds `first`, `first + stride`, … for `seconds`."""

    scenario: str
    first: int
    stride: int
    seconds: float
    steps: int | None
    store: StoreKind
    folders: tuple[str, ...]  # where the scenario's module may be


class Played(msgspec.Struct, frozen=True):
    """A report of a process: a seed starts (`seed` only), or has been played (with its figures)."""

    seed: int
    figures: dict[str, int | float] | None = None
    failed: Failed | None = None


Report = Callable[[Hunt], object]


def hunt(
    scenario: Scenario,
    *,
    seconds: float = 60.0,
    first_seed: int = 1,
    steps: int | None = None,
    store: StoreKind = "memory",
    processes: int | None = None,
    report: Report | None = None,
) -> Hunt:
    """Play seed after seed for some real seconds. If a seed breaks a rule, raises its `SimulationFailed`,
    after shrinking: with as few steps as were found to be needed.

    `report` is called every second. `processes` defaults to the number of cores.
    """
    __tracebackhide__ = hidden
    game = Game(scenario, steps, store)
    found = search(game, seconds=seconds, first_seed=first_seed, processes=processes, report=report)
    if found.failed is not None:
        with quiet():
            raise shrink(again(found.failed, game), game)
    return found


def again(failed: Failed, game: Game) -> SimulationFailed:
    """Replay a seed that failed in a hunt. Raises `NotRepeatable` if it does not fail again."""
    __tracebackhide__ = hidden
    if failed.endless:
        raise NotRepeatable(f"seed {failed.seed}: {failed.invariant}")
    try:
        game.play(failed.seed)
    except SimulationFailed as error:
        return error
    raise NotRepeatable(
        f"seed {failed.seed} failed ({failed.invariant}), but passes when it is replayed: some state is kept "
        "between simulations, for example in a global variable of the scenario's module; create it in the "
        "scenario function instead"
    )


def search(
    game: Game,
    *,
    seconds: float,
    first_seed: int = 1,
    processes: int | None = None,
    report: Report | None = None,
) -> Hunt:
    """Like `hunt`, but does not replay and shrink a seed that fails; `Hunt.failed` names it."""
    name = name_of(game.scenario)
    if processes is None:
        processes = cores()
    report = report or (lambda _: None)
    if name is None or processes == 1:
        return _search_here(game, seconds, first_seed, report)
    folders = tuple(folder for folder in sys.path if folder)
    orders = [
        Orders(name, first_seed + number, processes, seconds, game.steps, game.store, folders)
        for number in range(processes)
    ]
    return trio.run(_Search(orders, report).run)


def play_seeds(game: Game, first: int, stride: int, seconds: float) -> Iterator[Played]:
    """Play seed after seed, until the time has ended or a seed fails. Yields a report when a seed starts, and
    another when it has ended."""
    began = _now()
    for seed in count(first, stride):
        if _now() - began >= seconds:
            return
        yield Played(seed)
        try:
            played = game.play(seed)
        except SimulationFailed as failed:
            yield Played(seed, attrs.asdict(failed.figures), Failed(seed, failed.invariant))
            return
        yield Played(seed, attrs.asdict(played.figures))


def cores() -> int:
    """The number of cores that this process can use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the engine's log while the block lasts: it reports every failure that a scenario provokes."""
    logger = logging.getLogger("greenroom")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _search_here(game: Game, seconds: float, first_seed: int, report: Report) -> Hunt:
    hunt, began, reported = Hunt(1), _now(), _now()
    with quiet():
        for played in play_seeds(game, first_seed, 1, seconds):
            hunt.take(played)
            hunt.seconds = _now() - began
            if _now() - reported >= REPORT_EVERY:
                reported = _now()
                report(hunt)
    report(hunt)
    return hunt


class _Search:
    """A hunt in several processes."""

    def __init__(self, orders: list[Orders], report: Report) -> None:
        self._orders = orders
        self._report = report
        self._hunt = Hunt(len(orders))
        self._began = _now()
        self._scope = trio.CancelScope()

    async def run(self) -> Hunt:
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_reporting)
                async with trio.open_nursery() as hunters:
                    for orders in self._orders:
                        hunters.start_soon(self._have_done, orders)
                nursery.cancel_scope.cancel()
        self._say()
        return self._hunt

    def _say(self) -> None:
        self._hunt.seconds = _now() - self._began
        self._report(self._hunt)

    async def _keep_reporting(self) -> None:
        while True:
            await trio.sleep(REPORT_EVERY)
            self._say()

    async def _have_done(self, orders: Orders) -> None:
        """Run one process of the hunt until it ends."""
        # Without -P, a file `types.py` in the current folder would replace Python's own module.
        hunter = [sys.executable, "-P", "-m", "greenroom.simulation.search.hunter"]
        command = [*hunter, msgspec.json.encode(orders).decode()]
        async with trio.open_nursery() as nursery:
            start = partial(trio.run_process, command, stdout=PIPE, check=False)
            process = await nursery.start(start)
            seed = await self._listen(process.stdout, orders.seconds)
            if seed is not None:
                why = f"timed out: still running {PATIENCE:g} s after the end of the hunt"
                self._take(Played(seed, failed=Failed(seed, why, endless=True)))
        if process.returncode:
            raise RuntimeError(
                f"a process of the hunt exited with code {process.returncode}; see its standard error above"
            )

    async def _listen(self, process: trio.abc.ReceiveStream, seconds: float) -> int | None:
        """Receive the reports of a process until it has ended. If it takes too long, return the seed that it
        is playing."""
        seed: int | None = None
        text = b""
        with trio.CancelScope() as patience:
            async for part in process:
                *lines, text = (text + part).split(b"\n")
                for line in lines:
                    played = msgspec.json.decode(line, type=Played)
                    seed = played.seed if played.figures is None else None
                    self._take(played)
                if patience.deadline == math.inf:  # its first report: it has started
                    patience.deadline = trio.current_time() + seconds + PATIENCE
        return seed if patience.cancelled_caught else None

    def _take(self, played: Played) -> None:
        self._hunt.take(played)
        if played.failed is not None:  # the first failure ends the hunt
            self._scope.cancel()
