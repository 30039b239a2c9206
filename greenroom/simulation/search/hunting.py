"""Hunting: one seed after another, on every core, until one of them breaks a rule.

Each process of a hunt takes every so-manieth seed (`hunter.py`), and tells the one that hunts how each seed
went. A scenario that only this program can find is hunted in this process alone.
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
"""Seconds that a seed may take beyond the end of the hunt; whichever takes longer is taken for endless."""

REPORT_EVERY = 1.0

_now = time.monotonic


class NotRepeatable(Exception):
    """A seed has failed, and can't be made to fail again."""


class Failed(msgspec.Struct, frozen=True):
    """A seed that has broken a rule; or that did not end, and had to be given up."""

    seed: int
    invariant: str
    endless: bool = False


@attrs.define
class Hunt:
    """How a hunt stands: how many seeds have been played to their end in how many real seconds, what they did
    together, and the seed that failed."""

    processes: int
    seeds: int = 0
    seconds: float = 0.0
    figures: Figures = attrs.Factory(Figures)
    failed: Failed | None = None

    def take(self, played: Played) -> None:
        """A seed has begun, or has been played."""
        if played.figures is not None:
            self.seeds += 1
            for name, value in played.figures.items():
                setattr(self.figures, name, getattr(self.figures, name) + value)
        self.failed = self.failed or played.failed


class Orders(msgspec.Struct, frozen=True):
    """What one process of a hunt is to do: play `first`, `first + stride`, … for so many seconds."""

    scenario: str
    first: int
    stride: int
    seconds: float
    steps: int | None
    store: StoreKind
    folders: tuple[str, ...]  # where the scenario's module may be


class Played(msgspec.Struct, frozen=True):
    """What a process says of its hunt: that it begins a seed, then how that went."""

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
    """Play seed after seed for so long. If one breaks a rule, it is made small, and its `SimulationFailed` is
    raised.

    `report` is called every second. There are as many processes as cores, unless told otherwise.
    """
    __tracebackhide__ = hidden
    game = Game(scenario, steps, store)
    found = search(game, seconds=seconds, first_seed=first_seed, processes=processes, report=report)
    if found.failed is not None:
        with quiet():
            raise shrink(again(found.failed, game), game)
    return found


def again(failed: Failed, game: Game) -> SimulationFailed:
    """Play a seed again that has failed in a hunt."""
    __tracebackhide__ = hidden
    if failed.endless:
        raise NotRepeatable(f"seed {failed.seed}: {failed.invariant}")
    try:
        game.play(failed.seed)
    except SimulationFailed as error:
        return error
    raise NotRepeatable(
        f"seed {failed.seed} has failed ({failed.invariant}), but survives when it is played again: "
        "something is remembered from one simulation to the next, in a global of the scenario's module, say"
    )


def search(
    game: Game,
    *,
    seconds: float,
    first_seed: int = 1,
    processes: int | None = None,
    report: Report | None = None,
) -> Hunt:
    """As `hunt`, but a seed that fails is only named, in `Hunt.failed`."""
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
    """Play seed after seed, until the time is over or one has failed. Each is told of when it begins, and
    when it has ended."""
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
    """How many processes can work at once."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def quiet() -> Iterator[None]:
    """Without the engine's log, which tells of each failure that a scenario provokes."""
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
        """Have one process do its part."""
        # Without -P, a file `types.py` in the current folder would replace Python's own module.
        hunter = [sys.executable, "-P", "-m", "greenroom.simulation.search.hunter"]
        command = [*hunter, msgspec.json.encode(orders).decode()]
        async with trio.open_nursery() as nursery:
            start = partial(trio.run_process, command, stdout=PIPE, check=False)
            process = await nursery.start(start)
            seed = await self._listen(process.stdout, orders.seconds)
            if seed is not None:
                why = f"it has not ended {PATIENCE:g} s after the hunt"
                self._take(Played(seed, failed=Failed(seed, why, endless=True)))
        if process.returncode:
            raise RuntimeError(f"a process of the hunt ended with {process.returncode}; see above for why")

    async def _listen(self, process: trio.abc.ReceiveStream, seconds: float) -> int | None:
        """Take what a process says, until it has ended; or until it has been silent for too long, which
        leaves a seed."""
        seed: int | None = None
        text = b""
        with trio.CancelScope() as patience:
            async for part in process:
                *lines, text = (text + part).split(b"\n")
                for line in lines:
                    played = msgspec.json.decode(line, type=Played)
                    seed = played.seed if played.figures is None else None
                    self._take(played)
                if patience.deadline == math.inf:  # it has begun
                    patience.deadline = trio.current_time() + seconds + PATIENCE
        return seed if patience.cancelled_caught else None

    def _take(self, played: Played) -> None:
        self._hunt.take(played)
        if played.failed is not None:  # the first failure ends the hunt
            self._scope.cancel()
