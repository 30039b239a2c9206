"""Rounds of faults under load, and the checks at the end."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import trio

from greenroom import Client, connect
from greenroom.protocol.states import Status

from .load import RESUMABLE, Load, follow
from .marks import read
from .story import Story, check_marks
from .world import Place, World, until, world

logger = logging.getLogger("greenroom.chaos")

Fault = Callable[[Place], Awaitable[None]]

_SLOW = 2.0
"""Seconds that a busy machine may take for what should happen immediately."""


class Rounds:
    """Does one fault per round. All are reversible, so that the next round begins with all executors."""

    def __init__(self, made: World, story: Story, seed: str) -> None:
        self.world = made
        self.story = story
        self.counts: Counter[str] = Counter()
        self.exits: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._left: list[Fault] = []
        self._reused: set[str] = set()
        self._harmless = [
            self.stop_executor_shortly,
            self.close_shortly,
            self.silence_shortly,
            self.kill_engine,
            self.restart_engine,
        ]

    @property
    def faults(self) -> list[Fault]:
        return [
            self.kill_executor,
            self.kill_executor_and_restart_it,
            self.stop_executor_beyond_ttl,
            self.stop_executor_shortly,
            self.close_shortly,
            self.close_beyond_ttl,
            self.silence_shortly,
            self.silence_beyond_ttl,
            self.silence_one_way_beyond_ttl,
            self.another_version,
            self.drain_executor,
            self.kill_engine,
            self.kill_engine_twice,
            self.kill_engine_and_executor,
            self.restart_engine,
        ]

    def plan(self, faults: Sequence[Fault]) -> None:
        """Do these faults first."""
        self._left = list(faults)[::-1]

    async def do(self, number: int) -> None:
        """Do one round: all faults occur once, in random order, before one occurs again."""
        if not self._left:
            self._left = self._random.sample(self.faults, len(self.faults))
        fault, place = self._left.pop(), self._random.choice(self.world.places)
        name = fault.__name__  # type: ignore[attr-defined]
        self.counts[name] += 1
        ended = len(self.story.ends)
        lost, losers = self.story.why.copy(), len(self.story.losers)
        names = {each.name for each in self.world.places} - self._reused
        began = time.monotonic()
        await fault(place)
        await self._repair()
        took = time.monotonic() - began
        await trio.sleep(self._random.uniform(0.5, 2))
        await until(lambda: len(self.story.ends) > ended, "some run ends", 60)
        if fault in self._harmless and took < 0.4 * self.world.ttl:
            assert not names.intersection(self.story.losers[losers:]), f"{name} lost bodies"
        logger.warning(
            "round %d: %s at %s took %.1f s; %d runs have ended; lost bodies: %s",
            number, name, place.name, took, len(self.story.ends), dict(self.story.why - lost),
        )  # fmt: skip

    async def _repair(self) -> None:
        """Start executors that have ended, as a supervisor of processes would."""
        for place in self.world.places:
            if not place.program.runs:
                self.exits[f"code {place.program.process.returncode}"] += 1
                self.world.start_executor(place)

    @property
    def _short(self) -> float:
        return self._random.uniform(0.05, 0.3) * self.world.ttl

    @property
    def _long(self) -> float:
        return self._random.uniform(1.1, 1.5) * self.world.ttl

    # The faults.

    async def kill_executor(self, place: Place) -> None:
        await place.program.kill()
        self.world.start_executor(place)

    async def kill_executor_and_restart_it(self, place: Place) -> None:
        await place.program.kill()
        self._reused.add(place.name)
        self.world.start_executor(place, name=place.name)

    async def stop_executor_beyond_ttl(self, place: Place) -> None:
        await self.world.stop(place, self._long)

    async def stop_executor_shortly(self, place: Place) -> None:
        await self.world.stop(place, self._short)

    async def close_shortly(self, place: Place) -> None:
        place.proxy.close()
        await trio.sleep(self._short)
        place.proxy.heal()

    async def close_beyond_ttl(self, place: Place) -> None:
        place.proxy.close()
        await trio.sleep(self._long)
        place.proxy.heal()

    async def silence_shortly(self, place: Place) -> None:
        place.proxy.silence()
        await trio.sleep(self._short)
        place.proxy.heal()

    async def silence_beyond_ttl(self, place: Place) -> None:
        place.proxy.silence()
        await trio.sleep(self._long)
        place.proxy.heal()

    async def silence_one_way_beyond_ttl(self, place: Place) -> None:
        place.proxy.silence([self._random.choice(["up", "down"])])
        await trio.sleep(self._long)
        place.proxy.heal()

    async def another_version(self, place: Place) -> None:
        await place.program.kill()
        self.world.start_executor(place, version=self._random.choice(["fewer", "changed"]))
        await trio.sleep(0.7 * self.world.ttl)
        assert await self.world.drain(place) == 0
        self.world.start_executor(place)

    async def drain_executor(self, place: Place) -> None:
        code = await self.world.drain(place)
        assert code == 0, f"a drained executor exited with {code}"
        self.world.start_executor(place)

    async def kill_engine(self, place: Place) -> None:
        await self.world.kill_server()
        self.world.start_server()
        await self.world.ready()

    async def kill_engine_twice(self, place: Place) -> None:
        await self.kill_engine(place)
        await trio.sleep(self._random.uniform(0, 0.5))
        await self.kill_engine(place)

    async def kill_engine_and_executor(self, place: Place) -> None:
        await self.world.kill_server()
        await place.program.kill()
        self.world.start_server()
        self.world.start_executor(place)
        await self.world.ready()

    async def restart_engine(self, place: Place) -> None:
        code = await self.world.stop_server()
        assert code == 0, f"the server exited with {code}"
        self.world.start_server()
        await self.world.ready()


async def play(
    folder: Path, rounds: int, *, ttl: float, seed: str, only: Sequence[str] = ()
) -> dict[str, Any]:
    """Play some rounds, at first with these faults, and check everything; returns counts."""
    story = Story()
    load = Load(story, seed)
    async with world(folder, ttl=ttl) as made, trio.open_nursery() as nursery:
        for place in made.places:
            made.start_executor(place)
        await nursery.start(follow, made.url, folder / "greenroom.db", story)
        for number in range(3):
            await nursery.start(_use, made.url, load, f"c{number}", number == 0)
        chaos = Rounds(made, story, seed)
        chaos.plan([getattr(chaos, name) for name in only])
        for number in range(1, rounds + 1):
            await chaos.do(number)
        load.paused = True
        await until(lambda: load.acknowledged_runs <= story.ends.keys(), "all acknowledged runs end", 120)
        await until(lambda: story.ends.keys() == story.created.keys(), "all runs end", 120)
        await _check_the_end(made, story, load)
        counts = check_marks(story, list(read(made.marks)), made.pauses, ttl / 15 + _SLOW)
        nursery.cancel_scope.cancel()
    ends = Counter(f"{end.to}{f' ({end.reason})' if end.reason else ''}" for end in story.ends.values())
    return {
        "faults": dict(chaos.counts),
        "exits": dict(chaos.exits),
        "runs": dict(ends),
        "lost bodies": dict(story.why),
        **counts,
        "events": story.state.seq,
    }


async def _use(url: str, load: Load, name: str, talks: bool, task_status: trio.TaskStatus[None]) -> None:
    async with connect(url, patience=120) as client, trio.open_nursery() as nursery:
        task_status.started()
        nursery.start_soon(load.submit_for_ever, client, name)
        if talks:
            nursery.start_soon(load.talk_for_ever, client)


async def _is_idle(client: Client) -> bool:
    return not any(executor.bodies for executor in await client.executors.list())


async def _check_the_end(made: World, story: Story, load: Load) -> None:
    async with connect(made.url, patience=120) as client:
        snapshot = await client.snapshot()
        state = story.state
        await until(lambda: state.seq >= snapshot.seq, "the client follows")
        assert state.snapshot() == snapshot or state.seq > snapshot.seq
        assert client.state.snapshot() == await client.snapshot()
        assert snapshot.engine.executing == snapshot.engine.queued == 0, "slots come back"
        await until(partial(_is_idle, client), "no executor has bodies")
    for run, end in story.ends.items():
        created = story.created[run]
        attempts = list(story.starts[run].values())
        if created.job in RESUMABLE:
            assert set(attempts) <= {1}, f"run {run} of {created.job} lost an attempt: {attempts}"
            assert end.to is Status.SUCCEEDED, f"a resumable run has not succeeded: {created}, {end}"
        else:
            assert attempts == sorted(attempts), f"run {run}: {attempts}"
            assert len(attempts) <= (2 if created.job == "twice" else 1), f"run {run}: {attempts}"
            if end.to is Status.FAILED:
                assert end.reason in ("crashed", "body_lost"), f"{created}, {end}"
            else:
                drained = end.to is Status.CANCELLED and end.reason == "shutdown"
                assert drained or end.to is Status.SUCCEEDED, f"{created}, {end}"
    assert len(load.acknowledged_runs) == len(load.acknowledged), "each request has its own run"
