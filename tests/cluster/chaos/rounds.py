"""Rounds of faults under load, and the checks at the end."""

from __future__ import annotations

import logging
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import trio

from greenroom import Client, connect
from greenroom.gateway.background import background
from greenroom.protocol.states import Status
from tests.executors.chaos.load import RESUMABLE, Load
from tests.executors.chaos.marks import read
from tests.executors.chaos.story import check_marks
from tests.executors.chaos.world import until
from tests.servers import Server

from .told import ClusterStory, Told, follow, tell
from .world import Node, World, world

logger = logging.getLogger("greenroom.chaos")

Fault = Callable[[], Awaitable[None]]

_SLOW = 2.0
"""Seconds that a busy machine may take for what should happen immediately."""


class Rounds:
    """Does one fault per round. All are reversible, so that the next round begins with all nodes."""

    def __init__(self, made: World, story: ClusterStory, seed: str) -> None:
        self.world = made
        self.story = story
        self.counts: Counter[str] = Counter()
        self.exits: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._left: list[Fault] = []

    @property
    def faults(self) -> list[Fault]:
        return [
            self.kill_leader,
            self.kill_follower,
            self.kill_leader_twice,
            self.kill_all,
            self.stop_leader_beyond_lease,
            self.stop_leader_shortly,
            self.stop_follower_beyond_ttl,
            self.stop_follower_shortly,
            self.cut_leader_off,
            self.cut_follower_off,
            self.close_leader_shortly,
            self.silence_leader_one_way,
            self.silence_follower_one_way,
            self.cut_leader_from_store,
            self.cut_follower_from_store,
            self.cut_leader_from_all,
            self.leave_store_to_one_follower,
            self.stop_store_shortly,
            self.stop_store_beyond_lease,
            self.kill_store,
            self.end_sessions,
            self.terminate_leader,
            self.terminate_follower,
            self.step_down,
            self.step_down_twice,
        ]

    def plan(self, faults: Sequence[Fault]) -> None:
        """Do these faults first."""
        self._left = list(faults)[::-1]

    async def do(self, number: int) -> None:
        """Do one round: all faults occur once, in random order, before one occurs again."""
        if not self._left:
            self._left = self._random.sample(self.faults, len(self.faults))
        fault = self._left.pop()
        name = fault.__name__  # type: ignore[attr-defined]
        self.counts[name] += 1
        lost, began = self.story.why.copy(), time.monotonic()
        await fault()
        self.world.network.heal()
        self._repair()
        took = time.monotonic() - began
        await self.world.ready()
        leader = await self.world.leader()
        healthy = time.monotonic() - began - took
        ended = len(self.story.ends)
        await trio.sleep(self._random.uniform(0.5, 2))
        await until(lambda: len(self.story.ends) > ended, "some run ends", 60)
        term = self.story.leaders[-1].term if self.story.leaders else 0
        logger.warning(
            "round %d: %s took %.1f s, then %.1f s until all was well; %s leads in term %d; %d runs have "
            "ended; lost bodies: %s",
            *(number, name, took, healthy, leader.name, term),
            *(len(self.story.ends), dict(self.story.why - lost)),
        )

    def _repair(self) -> None:
        """Start nodes that have ended, as a supervisor of processes would."""
        for node in self.world.nodes:
            if not node.program.runs:
                self.exits[f"code {node.program.process.returncode}"] += 1
                self.world.start(node)

    @property
    def _short(self) -> float:
        return self._random.uniform(0.05, 0.3) * min(self.world.lease_ttl, self.world.executor_ttl)

    @property
    def _long(self) -> float:
        return self._random.uniform(1.1, 1.5) * max(self.world.lease_ttl, self.world.executor_ttl)

    async def _follower(self) -> Node:
        return self._random.choice(self.world.others(await self.world.leader()))

    # The faults.

    async def kill_leader(self) -> None:
        leader = await self.world.leader()
        await self.world.kill(leader)
        await self.world.leader(but=leader)

    async def kill_follower(self) -> None:
        await self.world.kill(await self._follower())
        await trio.sleep(self._short)

    async def kill_leader_twice(self) -> None:
        await self.kill_leader()
        await self.kill_leader()

    async def kill_all(self) -> None:
        for node in self.world.nodes:
            node.program.signal(signal.SIGKILL)
        for node in self.world.nodes:
            await node.program.ended()

    async def stop_leader_beyond_lease(self) -> None:
        await self.world.stop(await self.world.leader(), self._long)

    async def stop_leader_shortly(self) -> None:
        await self.world.stop(await self.world.leader(), self._short)

    async def stop_follower_beyond_ttl(self) -> None:
        await self.world.stop(await self._follower(), self._long)

    async def stop_follower_shortly(self) -> None:
        await self.world.stop(await self._follower(), self._short)

    async def cut_leader_off(self) -> None:
        self.world.network.silence(self.world.around(await self.world.leader()))
        await trio.sleep(self._long)

    async def cut_follower_off(self) -> None:
        self.world.network.silence(self.world.around(await self._follower()))
        await trio.sleep(self._long)

    async def close_leader_shortly(self) -> None:
        self.world.network.close(self.world.around(await self.world.leader()))
        await trio.sleep(self._short)

    async def silence_leader_one_way(self) -> None:
        await self._silence_one_way(await self.world.leader())

    async def silence_follower_one_way(self) -> None:
        await self._silence_one_way(await self._follower())

    async def _silence_one_way(self, node: Node) -> None:
        outgoing = self._random.random() < 0.5
        around = [each for each in self.world.around(node) if (each[0] == node.name) == outgoing]
        self.world.network.silence(around)
        await trio.sleep(self._long)

    async def cut_leader_from_store(self) -> None:
        await self._cut_from_store(await self.world.leader())

    async def cut_follower_from_store(self) -> None:
        await self._cut_from_store(await self._follower())

    async def _cut_from_store(self, *nodes: Node) -> None:
        how = self._random.choice([self.world.network.silence, self.world.network.close])
        how(self.world.to_store(*nodes))
        await trio.sleep(self._long)

    async def cut_leader_from_all(self) -> None:
        leader = await self.world.leader()
        self.world.network.silence(self.world.around(leader) + self.world.to_store(leader))
        await self.world.leader(*self.world.others(leader), but=leader)
        await trio.sleep(self._short)

    async def leave_store_to_one_follower(self) -> None:
        only = await self._follower()
        self.world.network.close(self.world.to_store(*self.world.others(only)))
        await self.world.leader(but=self.world.others(only)[0])
        await trio.sleep(self._long)

    async def stop_store_shortly(self) -> None:
        await self._stop_store(self._short, self.world.server.stop)

    async def stop_store_beyond_lease(self) -> None:
        await self._stop_store(self._long, self.world.server.stop)

    async def kill_store(self) -> None:
        await self._stop_store(self._short, self.world.server.kill)

    async def _stop_store(self, seconds: float, stop: Callable[[], None]) -> None:
        await trio.to_thread.run_sync(stop)
        await trio.sleep(seconds)
        await trio.to_thread.run_sync(self.world.server.start)

    async def end_sessions(self) -> None:
        await trio.to_thread.run_sync(self.world.server.end_sessions)

    async def terminate_leader(self) -> None:
        await self._terminate(await self.world.leader())

    async def terminate_follower(self) -> None:
        await self._terminate(await self._follower())

    async def _terminate(self, node: Node) -> None:
        code = await self.world.terminate(node)
        assert code == 0, f"a terminated node exited with {code}"

    async def step_down(self) -> None:
        leader = await self.world.leader()
        assert await leader.post("/api/cluster/step-down") is not None
        await self.world.leader(but=leader)

    async def step_down_twice(self) -> None:
        await self.step_down()
        await self.step_down()


async def play(
    folder: Path,
    server: Server,
    rounds: int,
    *,
    seed: str,
    lease_ttl: float = 3.0,
    executor_ttl: float = 6.0,
    only: Sequence[str] = (),
) -> dict[str, Any]:
    """Play some rounds, at first with these faults, and check everything; returns counts."""
    story, told = ClusterStory(), Told()
    load = Load(story, seed)
    async with (
        world(folder, server, lease_ttl=lease_ttl, executor_ttl=executor_ttl) as made,
        made.reading() as store,
        background() as nursery,
    ):
        await nursery.start(tell, made.nodes[0].url, store, story)
        followers = [await nursery.start(follow, node.url, node.name, told) for node in made.nodes]
        for number, node in enumerate(made.nodes):
            await nursery.start(_use, node.url, load, node.name, number == 0)
        chaos = Rounds(made, story, seed)
        chaos.plan([getattr(chaos, name) for name in only])
        for number in range(1, rounds + 1):
            await chaos.do(number)
        load.paused = True
        await _all_end(made, story, load)
        await _check_the_end(made, story, load, followers)
        await told.compare(store, story.state.seq)
        counts = check_marks(story, list(read(made.marks)), made.pauses, executor_ttl / 15 + _SLOW)
        term, _ = made.leases()
        assert story.leaders[-1].term <= term, "terms only grow"
    ends = Counter(f"{end.to}{f' ({end.reason})' if end.reason else ''}" for end in story.ends.values())
    return {
        "faults": dict(chaos.counts),
        "exits": dict(chaos.exits),
        "runs": dict(ends),
        "lost bodies": dict(story.why),
        **counts,
        "terms": term,
        "snapshots": told.snapshots,
        "events": story.state.seq,
    }


async def _use(url: str, load: Load, name: str, talks: bool, task_status: trio.TaskStatus[None]) -> None:
    async with connect(url, patience=120) as client, trio.open_nursery() as nursery:
        task_status.started()
        nursery.start_soon(load.submit_for_ever, client, name)
        if talks:
            nursery.start_soon(load.talk_for_ever, client)


async def _all_end(made: World, story: ClusterStory, load: Load) -> None:
    """Wait until all runs have ended. If some do not, the error tells what each node knows of them."""
    with trio.move_on_after(120):
        await until(
            lambda: load.acknowledged_runs <= story.created.keys() == story.ends.keys(), "all end", 300
        )
        return
    left = (load.acknowledged_runs | story.created.keys()) - story.ends.keys()
    told = {run: story.state.runs.get(run) for run in left}
    for node in made.nodes:
        async with connect(node.url, patience=10) as client:
            snapshot = await client.snapshot()
            known = {run: snapshot.runs.get(run) for run in left}
            assert not left, (
                f"runs have not ended; {node.name} knows {known} and {snapshot.executors} in event "
                f"{snapshot.seq}; clients were told {told} up to event {story.state.seq}"
            )


async def _is_idle(client: Client) -> bool:
    return not any(executor.bodies for executor in await client.executors.list())


async def _check_the_end(made: World, story: ClusterStory, load: Load, followers: Sequence[Client]) -> None:
    for node in made.nodes:
        async with connect(node.url, patience=120) as client:
            snapshot = await client.snapshot()
            await until(
                partial(_folds_equal, story, followers, client), f"all folds equal {node.name}'s state"
            )
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


async def _folds_equal(story: ClusterStory, followers: Sequence[Client], client: Client) -> bool:
    """Whether the folds of all clients have the same seq as a snapshot, and then are equal to it."""
    snapshot = await client.snapshot()
    folds = [story.state.snapshot(), client.state.snapshot()] + [each.state.snapshot() for each in followers]
    if any(fold.seq != snapshot.seq for fold in folds):
        return False
    for fold in folds:
        assert fold == snapshot
    return True
