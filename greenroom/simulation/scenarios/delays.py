"""A scenario with delayed runs among others, on few handles, while the clock jumps.

Runs are submitted for a later time, with and without their handle reserved, in every lane and with every
`on_conflict`; they are cancelled and cleared, the engine drains, crashes and restarts, and its clock is set
forward and back. `rules/delays.py` checks that none starts early, and that each is noticed soon after its
time. At the end the clock is set forward: then every run must end.
"""

from __future__ import annotations

from random import Random
from typing import Any

import trio

from ...protocol.errors import Conflict, Draining
from ..world.world import World
from .bodies import HANDLES, LANES, draw_short_step
from .callers import Caller
from .commands import PATIENCE, Play, pause

_TIMES = (0.0, 0.5, 2.0, 2.0, 10.0, 60.0, 4000.0)
_JUMPS = (-3600.0, -10.0, -1.0, 1.0, 10.0, 30.0, 3600.0)
_LONGER_THAN_ANY_TIME = 100_000.0


async def delays(world: World) -> None:
    """The scenario."""
    play = _Play(world)
    await play.go_through(play.step)


class _Play(Play):
    async def step(self, random: Random) -> None:
        if random.random() < 0.7:
            await self.start(random)
        if random.random() < 0.45:
            await self.do("submit_later", random, wait=False)
        else:
            await self.do(random.choice(random.choice(_DEEDS)), random, wait=random.random() < 0.2)
        await pause(random)
        if random.random() < 0.15:
            await trio.sleep(random.choice((2.0, 11.0, 20.0)))

    async def _do(self, deed: str, random: Random) -> None:
        if deed == "submit_later":
            await Caller(self.world.client(self.new_name()), self.world, self.desk).call(submit_later, random)
        else:
            await super()._do(deed, random)

    async def jump(self, random: Random) -> None:
        self._set_clock(random.choice(_JUMPS))

    def _set_clock(self, seconds: float) -> None:
        self.server.rules.delays.look()
        self.world.clock.jump(seconds)

    async def let_everything_end(self) -> None:
        self.server.disk.repair()
        self._set_clock(_LONGER_THAN_ANY_TIME)
        await self._until_up_and_free()
        delayed = [run for run in self.server.rules.model.pending.values() if run.delayed]
        self.world.check(not delayed, f"still delayed after {PATIENCE:g} s: {delayed}")
        await super().let_everything_end()


async def submit_later(caller: Caller, random: Random) -> None:
    """Submit a delayed run, and check what is committed."""
    reserve = random.random() < 0.35
    options: dict[str, Any] = {
        "handle": random.choice(HANDLES),
        "lane": random.choice(LANES),
        "on_conflict": random.choice(("reject", "queue", "replace", "join")),
        "params": {"attempts": [[draw_short_step(random) for _ in range(random.randint(0, 2))]]},
        "reserve": reserve,
    }
    seconds = random.choice(_TIMES)
    if random.random() < 0.5:
        options["delay"] = seconds
    else:
        options["start_at"] = caller.world.clock() + random.choice((0.0, -1.0)) + seconds
    if random.random() < 0.1:
        options["request_id"] = random.choice(("later", "still later"))
        caller.desk.requests[options["request_id"]] += 1
    try:
        ticket = await caller.client.submit("plain", **options)
    except Draining:
        drained = True in caller.model.drained_between(caller.since, caller.model.seq)
        caller.check(drained or not caller.same_life, "received draining, but the engine was not draining")
    except Conflict as error:
        by_request = "request_id" in options and "active_run" not in error.details
        caller.check(reserve or seconds < 1 or by_request, f"a delayed run was refused: {error}")
    else:
        known = caller.model.runs.get(ticket.id)
        caller.check(known is not None, f"received run {ticket.id}, which is not committed")


_RUNS = ("submit", "submit_short", "cancel", "cancel", "snapshot", "list_runs")
_CONTROLS = (
    "clear_lane",
    "clear_handle",
    "drain",
    "resume",
    "resume",
    "set_concurrency",
    "set_max_concurrent",
)
_FAULTS = ("crash", "crash_at_a_commit", "lose_a_commit", "stop", "trouble_the_disk", "trouble_a_follower")
_DEEDS = (_RUNS, _RUNS, _CONTROLS, _FAULTS, ("jump",))
