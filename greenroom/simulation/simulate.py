"""`simulate`: play a scenario under a seed. The same seed gives the same story, byte for byte."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import ExitStack
from operator import methodcaller

import attrs
import trio

from ..actors import actor
from .determinism.guard import guarded
from .determinism.scheduler import Chooser, Scheduling, SeededChooser
from .determinism.seeded_run import determined
from .world.trace import Trace
from .world.world import Figures, Scenario, StoreKind, World

_real_time = time.perf_counter  # the guard forbids it to everyone else


@attrs.frozen
class Simulated:
    """What came of a simulation."""

    seed: int
    trace: Trace
    figures: Figures


class SimulationFailed(Exception):
    """A rule was broken: `invariant` says which, and the seed brings it back, with those of the scenario's
    steps that are in `keep` (`None`: all of them).

    `game` is what was played; `None` if a chooser decided, so that the seed can't replay it.
    """

    def __init__(
        self,
        seed: int,
        invariant: str,
        trace: Trace,
        figures: Figures,
        keep: Collection[int] | None = None,
        game: Game | None = None,
    ) -> None:
        kept = "" if keep is None else f" with steps {', '.join(map(str, sorted(keep))) or 'none'}"
        super().__init__(f"seed {seed}{kept}: {invariant}")
        self.seed = seed
        self.keep = None if keep is None else tuple(sorted(keep))
        self.invariant = invariant
        self.trace = trace
        self.figures = figures
        self.game = game


hidden = methodcaller("errisinstance", SimulationFailed)
"""For `__tracebackhide__`: pytest leaves such a function out of the traceback of a failure."""


def simulate(
    seed: int,
    scenario: Scenario,
    *,
    steps: int | None = None,
    keep: Collection[int] | None = None,
    store: StoreKind = "memory",
    chooser: Chooser | None = None,
) -> Simulated:
    """Play a scenario in a run of trio of its own, and return when it has ended; `SimulationFailed` if a rule
    was broken.

    `steps` goes before the number that the scenario asks for; of its steps only those in `keep` are taken.
    A `chooser` decides which task goes on, instead of the seed.
    """
    __tracebackhide__ = hidden
    if actor.observer is not None:
        raise RuntimeError("a simulation is under way in this process, which can have only one at a time")
    began = _real_time()
    world = World(seed, scenario, steps, keep, store)
    game = Game(scenario, steps, store) if chooser is None else None
    if chooser is None:
        chooser = world.chooser = SeededChooser(f"{seed}/schedule")
    actor.observer = world.trace.message
    try:
        with determined(str(seed)), ExitStack() as guarding:
            trio.run(
                _guarded_run,
                world,
                guarding,
                clock=world.ticking,
                instruments=[Scheduling(chooser)],
            )
    finally:
        actor.observer = None
        world.figures.commands = world.trace.commands
        world.figures.simulated_seconds = world.ticking.now
        world.figures.real_seconds = _real_time() - began
    if world.interrupted:
        raise KeyboardInterrupt
    if world.failure is not None:
        invariant, reason = world.failure
        raise SimulationFailed(seed, invariant, world.trace, world.figures, keep, game) from reason
    return Simulated(seed, world.trace, world.figures)


@attrs.frozen
class Game:
    """A scenario, and how it is played whatever the seed; see `simulate`."""

    scenario: Scenario
    steps: int | None = None
    store: StoreKind = "memory"

    def play(self, seed: int, keep: Collection[int] | None = None) -> Simulated:
        """Play one seed."""
        __tracebackhide__ = hidden
        return simulate(seed, self.scenario, steps=self.steps, keep=keep, store=self.store)


async def _guarded_run(world: World, guarding: ExitStack) -> None:
    """Guarded from within: trio itself needs sockets before it begins. A run that is broken off doesn't come
    back here, so whoever has called it sees to the guard's end."""
    guarding.enter_context(guarded(world.touched, world.clock, world.derived("masks")))
    await world.run()
    guarding.close()
