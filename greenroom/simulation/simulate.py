"""`simulate`: play a scenario under a seed. The same seed gives the same story, byte for byte."""

from __future__ import annotations

import time
from collections.abc import Collection

import attrs
import trio

from ..actors import actor
from .determinism import determined
from .guard import guarded
from .schedule import Chooser, Scheduling, SeededChooser
from .trace import Trace
from .world import Figures, Scenario, StoreKind, World

_real_time = time.perf_counter  # the guard forbids it to everyone else


@attrs.frozen
class Simulated:
    """What came of a simulation."""

    seed: int
    trace: Trace
    figures: Figures


class SimulationFailed(Exception):
    """A rule was broken: `invariant` says which, and the seed brings it back."""

    def __init__(self, seed: int, invariant: str, trace: Trace, figures: Figures) -> None:
        super().__init__(f"seed {seed}: {invariant}")
        self.seed = seed
        self.invariant = invariant
        self.trace = trace
        self.figures = figures


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
    began = _real_time()
    world = World(seed, scenario, steps, keep, store)
    actor.observer = world.trace.message
    try:
        with determined(str(seed)):
            trio.run(
                _guarded_run,
                world,
                clock=world.ticking,
                instruments=[Scheduling(chooser or SeededChooser(f"{seed}/schedule"))],
            )
    except BaseException as error:
        if world.failure is None:
            raise
        cause: BaseException | None = error
    else:
        cause = None
    finally:
        actor.observer = None
        world.figures.real_seconds = _real_time() - began
    if world.failure is not None:
        invariant, reason = world.failure
        raise SimulationFailed(seed, invariant, world.trace, world.figures) from (reason or cause)
    return Simulated(seed, world.trace, world.figures)


async def _guarded_run(world: World) -> None:
    """Guarded from within: trio itself needs sockets before it begins, and closes them at its end."""
    with guarded(world.touched, world.clock):
        await world.run()
