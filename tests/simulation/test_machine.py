"""A Hypothesis state machine on top of the simulation: it draws commands and faults, and shrinks failures.

The methods of a state machine are synchronous, so they only record actions. At the end of the example, all
actions are played in one simulation, under all rules.
"""

from __future__ import annotations

import logging
from random import Random

import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from greenroom.simulation import World, simulate
from greenroom.simulation.scenarios.commands import CONTROLS, FAULTS, LIMITS, LOOKS, TALKS, Play


@pytest.fixture(autouse=True)
def _silent(caplog: pytest.LogCaptureFixture) -> None:
    """Silence the log: thousands of bodies fail here on purpose."""
    caplog.set_level(logging.CRITICAL + 1, logger="greenroom")


draws = st.integers(0, 10_000)  # the seed for the details of one action
moments = st.sampled_from((0.0, 0.5, 1.0, 2.5))


class Machine(RuleBasedStateMachine):
    """Records actions, pauses and restarts, and plays them at the end."""

    store = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.seed = 0
        self.max_concurrent = 2
        self.script: list[tuple[str, int, bool]] = []

    @initialize(seed=st.integers(0, 10_000), max_concurrent=st.integers(1, 3))
    def begin(self, seed, max_concurrent):
        self.seed, self.max_concurrent = seed, max_concurrent

    @rule(draw=draws, wait=st.booleans())
    def submit(self, draw, wait):
        self.script.append(("submit", draw, wait))

    @rule(draw=draws)
    def submit_without_waiting(self, draw):
        self.script.append(("submit", draw, False))

    @rule(deed=st.sampled_from(CONTROLS), draw=draws, wait=st.booleans())
    def control(self, deed, draw, wait):
        self.script.append((deed, draw, wait))

    @rule(deed=st.sampled_from(TALKS + LOOKS), draw=draws, wait=st.booleans())
    def talk(self, deed, draw, wait):
        self.script.append((deed, draw, wait))

    @rule(deed=st.sampled_from(FAULTS), draw=draws, wait=st.booleans())
    def go_wrong(self, deed, draw, wait):
        self.script.append((deed, draw, wait))

    @rule(draw=draws)
    def start(self, draw):
        self.script.append(("start", draw, True))

    @rule(seconds=moments)
    def pause(self, seconds):
        self.script.append(("pause", round(seconds * 10), True))

    @rule(turns=st.integers(1, 12))
    def let_tasks_run(self, turns):
        self.script.append(("turns", turns, True))

    def teardown(self) -> None:
        simulate(self.seed, self.play, store=self.store)

    async def play(self, world: World) -> None:
        play = Play(world, max_concurrent=self.max_concurrent)
        async with play.staged():
            for deed, draw, wait in self.script:
                if deed == "pause":
                    await trio.sleep(draw / 10)
                elif deed == "turns":
                    for _ in range(draw):
                        await trio.lowlevel.checkpoint()
                elif deed == "start":
                    await play.start(Random(draw))
                else:
                    await play.do(deed, Random(draw), wait=wait)


class MachineOnSqlite(Machine):
    """The same, on the real SQLite store with a database in memory."""

    store = "sqlite"


class Crowd(Machine):
    """Many short runs, while limits change."""

    @rule(draw=draws)
    def submit_short(self, draw):
        self.script.append(("submit_short", draw, False))

    @rule(draw=draws)
    def submit_another_short(self, draw):
        self.script.append(("submit_short", draw, False))

    @rule(deed=st.sampled_from(LIMITS), draw=draws)
    def limit(self, deed, draw):
        self.script.append((deed, draw, False))


def at_least(examples: int, steps: int) -> settings:
    return settings(
        max_examples=max(examples, settings().max_examples),
        stateful_step_count=steps,
        suppress_health_check=[HealthCheck.too_slow],
    )


TestNoRuleIsBrokenInAnyOrderOfCommands = Machine.TestCase
TestNoRuleIsBrokenInAnyOrderOfCommands.settings = at_least(600, steps=20)

TestNoRuleIsBrokenOnSqlite = MachineOnSqlite.TestCase
TestNoRuleIsBrokenOnSqlite.settings = at_least(100, steps=20)

TestManyShortRunsStartInOrderOfPlace = Crowd.TestCase
TestManyShortRunsStartInOrderOfPlace.settings = at_least(200, steps=20)
