"""Nodes that leave: in order, and by SIGKILL."""

from __future__ import annotations

import itertools
import signal
from collections import defaultdict
from functools import partial
from pathlib import Path

import trio

from greenroom import Client, connect
from greenroom.gateway.background import background
from greenroom.protocol.states import Status
from tests.executors.chaos.marks import Mark, read
from tests.executors.chaos.world import until
from tests.servers import Server

from .told import Told, follow
from .world import World, world


def _marks(made: World) -> list[Mark]:
    return [mark for handle in read(made.marks) for mark in handle]


class Commands:
    """Clients that send commands all the time; none may fail."""

    def __init__(self) -> None:
        self.done = 0
        self._numbers = itertools.count()

    async def send_for_ever(self, url: str, *, task_status: trio.TaskStatus[None]) -> None:
        async with connect(url) as client:
            task_status.started()
            while True:
                number = next(self._numbers)
                ticket = await client.submit("walk", handle=f"c{number}", params={"count": 1, "pace": 0})
                await ticket.result()
                await client.set_params(f"p{number % 10}", {"number": number})
                await client.list_runs(limit=5)
                self.done += 1

    async def more(self) -> None:
        """Wait until each client has had further commands executed."""
        enough = self.done + 30
        await until(lambda: self.done >= enough, "commands are executed")


async def test_a_leader_that_drains_hands_over_and_no_client_of_the_others_sees_an_error(
    tmp_path: Path, postgresql: Server
):
    commands = Commands()
    async with world(tmp_path, postgresql) as made, background() as nursery:
        leader = await made.leader()
        for node in made.others(leader):
            for _ in range(4):
                await nursery.start(commands.send_for_ever, node.url)
        await commands.more()
        assert await made.terminate(leader) == 0
        new = await made.leader(but=leader)
        await commands.more()
        made.start(leader)
        await made.ready()
        await made.leader()
        await commands.more()
        assert made.leases() == (2, new.address)
        assert await new.post("/api/cluster/step-down") is not None
        third = await made.leader(but=new)
        await commands.more()
        assert made.leases() == (3, third.address)


async def test_a_killed_node_affects_only_the_runs_whose_bodies_it_had(tmp_path: Path, postgresql: Server):
    steps = {"count": 60, "pace": 0.2}  # 12 seconds, so no body has ended when all are at step 6
    async with world(tmp_path, postgresql, max_concurrent=90) as made:
        leader = await made.leader()
        victim, other = made.others(leader)
        async with connect(leader.url) as client:
            jobs = {}
            for number in range(90):
                job = "walk" if number % 2 else "once"
                ticket = await client.submit(job, handle=f"h{number}", params=steps)
                jobs[ticket.id] = job
            await until(partial(_all_at, made, 90, 6), "all are at step 6", every=0.2)
            affected = {mark.run for mark in _marks(made) if mark.pid == victim.pid}
            assert len(affected) >= 20
            victim_pid = victim.pid
            await made.kill(victim)
            for id in jobs:
                assert (await client.wait(id, timeout=120)).ended
            for id, job in jobs.items():
                run = client.state.runs[id]
                crashed = job == "once" and id in affected
                expected = (Status.FAILED, "crashed") if crashed else (Status.SUCCEEDED, None)
                assert (run.status, run.reason, run.attempt) == (*expected, 1)
        bodies = defaultdict(set)
        for mark in _marks(made):
            bodies[mark.run].add((mark.pid, mark.fence))
        for id, job in jobs.items():
            again = id in affected and job == "walk"
            assert len(bodies[id]) == (2 if again else 1)
            if again:
                assert {pid for pid, _ in bodies[id]} & {leader.pid, other.pid}
        assert victim_pid not in {mark.pid for mark in _marks(made) if mark.run not in affected}


def _all_at(made: World, count: int, step: int) -> bool:
    return len({mark.run for mark in _marks(made) if mark.what == "step" and mark.value == step}) == count


async def test_all_nodes_restart_at_once_and_nothing_is_lost(tmp_path: Path, postgresql: Server):
    told = Told()
    async with world(tmp_path, postgresql) as made, background() as nursery:
        clients: list[Client] = [
            await nursery.start(follow, node.url, node.name, told) for node in made.nodes
        ]
        tickets = {}
        for number in range(30):
            job = ("walk", "once", "twice")[number % 3]
            ticket = await clients[number % 3].submit(job, handle=f"h{number}", params={"count": 20})
            tickets[ticket.id] = job
        await until(lambda: len({mark.run for mark in _marks(made)}) > 8, "bodies execute")
        for node in made.nodes:
            node.program.signal(signal.SIGKILL)
        for node in made.nodes:
            await node.program.ended()
            made.start(node)
        await made.ready()
        for id, job in tickets.items():
            run = await clients[0].wait(id, timeout=120)
            if run.status is Status.FAILED:
                assert (job, run.reason) == ("once", "crashed")
            else:
                assert run.status is Status.SUCCEEDED
                assert run.attempt == 1 or job == "twice"
        seq = (await clients[0].snapshot()).seq
        await until(lambda: all(client.state.seq >= seq for client in clients), "all clients follow")
        async with made.reading() as store:
            await told.compare(store, seq)
        for marks in read(made.marks):
            fences = [mark.fence for mark in marks]
            assert fences == sorted(fences), "the bodies of a handle overlap"
