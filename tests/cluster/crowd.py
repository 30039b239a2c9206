"""Many clients over the followers of a cluster whose leader is killed again and again.

`python -m tests.cluster.crowd --clients 1000 --kills 5` prints what was checked: that each submission took
effect once, that no acknowledged run is lost, and that the state of each client, folded from its events, is
that of each node.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import trio

from greenroom import connect
from greenroom.gateway.client import Client
from greenroom.protocol.errors import Unavailable
from tests.servers import PostgreSQL

from .processes import Cluster, Node, until

_LIMIT = 50


class Crowd:
    """The clients. `acknowledged` are the runs that they know, by the id of their submission."""

    def __init__(self, urls: list[str], count: int, kills: int) -> None:
        self.acknowledged: dict[str, str] = {}
        self.repeated = 0
        self._urls = urls
        self._count = count
        self._ready = 0
        self._all_ready = trio.Event()
        self._rounds = [trio.Event() for _ in range(kills)]
        self._answered = [trio.Event() for _ in range(kills)]
        self._end = trio.Event()
        self.states: list[Any] = []

    async def run(self, nursery: trio.Nursery) -> None:
        """Connect all clients; each then submits a run per round."""
        for number in range(self._count):
            nursery.start_soon(self._client, number)
            if number % 50 == 49:
                await trio.sleep(0.5)
        await self._all_ready.wait()

    def begin(self, number: int) -> None:
        """Let the clients submit the runs of a round."""
        self._rounds[number].set()

    def finish(self) -> None:
        """Let the clients end with the state that they have."""
        self._end.set()

    async def _client(self, number: int) -> None:
        urls = [self._urls[(number + place) % len(self._urls)] for place in range(len(self._urls))]
        async with connect(urls, patience=120) as client:
            self._ready += 1
            if self._ready == self._count:
                self._all_ready.set()
            for round, begun in enumerate(self._rounds):
                await begun.wait()
                await self._submit(client, f"{number}/{round}")
            await self._end.wait()
            await client.list_runs(limit=1)  # its reply follows all events
            self.states.append(msgspec.json.encode(client.state.snapshot()))

    async def _submit(self, client: Client, id: str) -> None:
        while True:
            try:
                ticket = await client.submit("quick", handle=id, params={}, request_id=id)
            except Unavailable:  # the outcome can be unknown: the request id makes a repetition safe
                self.repeated += 1
                await trio.sleep(0.5)
                continue
            self.acknowledged[id] = ticket.id
            if len(self.acknowledged) % self._count == 0:
                self._answered[len(self.acknowledged) // self._count - 1].set()
            return

    async def acknowledged_all(self, round: int) -> None:
        """Wait until all submissions of a round are acknowledged."""
        await self._answered[round].wait()


def leader_of(nodes: list[Node]) -> Node:
    """The node that leads, when a node knows it."""

    def find() -> Node | None:
        for node in nodes:
            if node.process.poll() is None and (leader := node.cluster()["leader"]) is not None:
                return next((each for each in nodes if each.url == leader["address"]), None)
        return None

    found: Node = until(find)
    return found


async def _kill_leaders(cluster: Cluster, crowd: Crowd, kills: int) -> None:
    for round in range(kills):
        leader = await trio.to_thread.run_sync(leader_of, cluster.nodes)
        crowd.begin(round)
        await trio.sleep(1)
        leader.signal(signal.SIGKILL)
        leader.process.wait()
        cluster.nodes.remove(leader)
        started = cluster.start(port=leader.port)
        await trio.to_thread.run_sync(started.listens)
        await crowd.acknowledged_all(round)
        print(f"kill {round + 1}: {len(crowd.acknowledged)} submissions acknowledged", flush=True)


async def main(clients: int, kills: int, cluster: Cluster) -> int:
    """Play it; returns the exit code."""
    first = cluster.start("--max-concurrent", str(_LIMIT)).leads()
    nodes = [first, cluster.start().follows(), cluster.start().follows()]
    crowd = Crowd([node.url for node in nodes[1:]], clients, kills)
    async with trio.open_nursery() as nursery:
        await crowd.run(nursery)
        print(f"{clients} clients follow", flush=True)
        await _kill_leaders(cluster, crowd, kills)
        snapshot = await trio.to_thread.run_sync(_settled, cluster.nodes)
        crowd.finish()
    records = await trio.to_thread.run_sync(_all_runs, cluster.nodes[0])
    states = [msgspec.json.decode(state) for state in crowd.states]
    same = sum(state == snapshot for state in states)
    runs = set(crowd.acknowledged.values())
    print(f"{len(crowd.acknowledged)} submissions, {len(runs)} runs, {len(records)} in the store")
    print(f"{crowd.repeated} submissions were repeated by their clients")
    print(f"{same} of {len(states)} clients have the state of the cluster at event {snapshot['seq']}")
    good = len(runs) == len(crowd.acknowledged) == len(records) == clients * kills and same == clients
    print("good" if good else "NOT GOOD")
    return 0 if good else 1


def _settled(nodes: list[Node]) -> dict[str, Any]:
    """The state of all nodes, when nothing executes and all have the same."""

    def find() -> dict[str, Any] | None:
        states = [node.request("GET", "/api/state") for node in nodes]
        pending = states[0]["engine"]["executing"] + states[0]["engine"]["queued"]
        attached = all(each["status"] != "disconnected" for each in states[0]["executors"].values())
        return states[0] if not pending and attached and all(state == states[0] for state in states) else None

    found: dict[str, Any] = until(find)
    return found


def _all_runs(node: Node) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        before = f"&before={found[-1]['id']}" if found else ""
        page = node.request("GET", f"/api/runs?limit=1000{before}")["runs"]
        if not page:
            return found
        found += page


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=5)
    given = parser.parse_args()
    server = PostgreSQL()
    server.initialize()
    server.start()
    try:
        with tempfile.TemporaryDirectory() as folder, Cluster(Path(folder), server) as cluster:
            sys.exit(trio.run(main, given.clients, given.kills, cluster))
    finally:
        server.close()
