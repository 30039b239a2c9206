"""`simulate`: play a scenario under a seed. The same seed gives the same trace, byte for byte."""

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

_real_time = time.perf_counter  # taken here, because the guard replaces it during a simulation


@attrs.frozen
class Simulated:
    """The result of a simulation in which every rule was satisfied."""

    seed: int
    trace: Trace
    figures: Figures


class SimulationFailed(Exception):
    """A simulation broke a rule: `invariant` describes the rule.

    The same seed reproduces the failure, together with `keep`: the numbers of the scenario's steps that were
    taken (`None`: all of them).

    `game` is what was simulated; `None` if a chooser decided, so that the seed cannot replay it.
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
    """Play a scenario in a trio run of its own, and return when it has ended.

    Raises `SimulationFailed` if a rule was broken. `steps` overrides the number of steps that the scenario
    requests; if `keep` is given, only the steps with these numbers are taken. If a `chooser` is given, it
    decides which task runs next, instead of the seed.
    """
    __tracebackhide__ = hidden
    if actor.observer is not None:
        raise RuntimeError("another simulation is running in this process: run one at a time")
    began = _real_time()
    world = World(seed, scenario, steps, keep, store)
    game = Game(scenario, steps, store) if chooser is None else None
    if chooser is None:
        chooser = world.chooser = SeededChooser(f"{seed}/schedule")
    actor.observer = world.trace.message
    world.scheduling = Scheduling(chooser)
    try:
        with determined(str(seed)), ExitStack() as guarding:
            trio.run(
                _guarded_run,
                world,
                guarding,
                clock=world.ticking,
                instruments=[world.scheduling],
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
    """A scenario and the options that are the same for every seed; see `simulate`."""

    scenario: Scenario
    steps: int | None = None
    store: StoreKind = "memory"

    def play(self, seed: int, keep: Collection[int] | None = None) -> Simulated:
        """Play one seed."""
        __tracebackhide__ = hidden
        return simulate(seed, self.scenario, steps=self.steps, keep=keep, store=self.store)


async def _guarded_run(world: World, guarding: ExitStack) -> None:
    """Run the world under the guard, which starts here because trio opens sockets before its first task.

    If the run is aborted, this function does not resume; the caller's exit stack then ends the guard.
    """
    guarding.enter_context(guarded(world.touched, world.clock, world.derived("masks")))
    await world.run()
    guarding.close()
