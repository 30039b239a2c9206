"""A scenario with a cluster: three nodes on one store, clients at all of them, and executors.

Nodes are partitioned, in one direction or both, paused for longer than a lease, killed, drained and started
again; the leader steps down; the store fails for one node or for all; connections are held and deliver late.
Clocks drift. Clients move between nodes. Bodies write their fence into all that they report. At the end
everything is healed; then all runs must end, all nodes must have the same state, and every command that was
acknowledged must have taken effect once.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any

import trio

from ...gateway.background import background
from ...gateway.client.errors import OutcomeUnknown
from ...protocol.errors import GreenroomError, Unavailable
from ...protocol.events import RunMessage
from ..world.cluster.cluster import SimulatedCluster
from ..world.cluster.node import SimulatedNode
from ..world.cluster.posting import post
from ..world.remote_client import RemoteClient
from ..world.world import World
from .executor_bodies import JOBS, Bodies, draw_params
from .executors import Reports

HANDLES = ("ann", "bob", "cleo")
NAMES = ("n1", "n2", "n3")
MAX_CONCURRENT = 4
LEASE_TTL = 6.0
EXECUTOR_TTL = 12.0
_PATIENCE = 60.0
"""Seconds; longer than a lost executor and the longest body take."""
_ANSWERED_WITHIN = 45.0
"""Seconds; longer than a command waits for a connection and a leader."""


async def nodes(world: World) -> None:
    """The scenario."""
    play = _Play(world)
    await play.begin()
    async with background() as clients:
        for station in play.stations:
            clients.start_soon(station.run)
        clients.start_soon(play.keep_nodes)
        async with trio.open_nursery() as play.nursery:  # ends when the last fault has ended
            async for step in world.steps(30):
                await play.step(step.random)
            play.let_go()
        await play.end()


class Station:
    """A client that is always connected to one of the nodes, and moves between them."""

    def __init__(self, name: str, world: World, cluster: SimulatedCluster, *, follows: bool) -> None:
        self.client: RemoteClient | None = None
        self.node: SimulatedNode | None = None
        """The node to which it connects."""
        self.name = name
        self._world = world
        self._cluster = cluster
        self._follows = follows
        self._random = world.derived("station", name)
        self._times = 0

    async def run(self) -> None:
        """Connect again and again, until cancelled."""
        while True:
            self._times += 1
            node = self.node = self._cluster.nodes[self._random.choice(NAMES)]
            name = self.name if self._times == 1 else f"{self.name} ({self._times})"
            try:
                async with self._world.connect(
                    name, node, follow=self._follows, patience=20.0
                ) as self.client:
                    await trio.sleep_forever()
            except Unavailable:
                await trio.sleep(0.5)
            finally:
                self.client = None

    def move(self, node: SimulatedNode) -> None:
        """Lose the connection, and connect to this node."""
        if self.client is not None:
            self.node = node
            self.client.route.server = node  # type: ignore[assignment]  # a node stands for a server here
            self.client.route.cut()


class _Play:
    def __init__(self, world: World) -> None:
        self.nursery: trio.Nursery
        self.stations: list[Station] = []
        self._world = world
        self._bodies = Bodies()
        self._faults = 0
        self._names = 0
        self._down: set[SimulatedNode] = set()
        self._acknowledged: dict[str, str] = {}  # by request id: the run
        self._posted: dict[str, str | None] = {}  # by marker: the run; None if it was refused
        self._told: dict[str, bool | None] = {}  # by message: whether it was accepted; None if unknown

    async def begin(self) -> None:
        world, random = self._world, self._world.derived("nodes")
        self._cluster = await world.cluster(
            self._bodies.jobs,
            lease_ttl=LEASE_TTL,
            executor_ttl=EXECUTOR_TTL,
            max_concurrent=MAX_CONCURRENT,
            slots=random.choice((1, 2, None)),
            shutdown_timeout=random.choice((1.0, 5.0)),
        )
        self._cluster.calm_since = 0.0
        for name in NAMES:
            self._cluster.add(name, drift=random.choice((0.0, 0.0, -0.1, 0.1)))
        for number, name in enumerate(("ann", "bob", "cleo")):
            self.stations.append(Station(name, world, self._cluster, follows=number < 2))
        world.invariant(Reports(self._rules.model.events))

    async def step(self, random: Random) -> None:
        deed = random.choice(random.choice(self._deeds))
        await deed(self, random)
        await trio.sleep(random.choice((0.0, 0.0, 0.1, 0.5, 2.0)))

    async def keep_nodes(self) -> None:
        """Start nodes that have ended, as a service manager does."""
        while True:
            await trio.sleep(1.0)
            for node in self._nodes:
                if node.life is None and node not in self._down:
                    node.start()

    @property
    def _nodes(self) -> list[SimulatedNode]:
        return list(self._cluster.nodes.values())

    @property
    def _rules(self) -> Any:
        return self._cluster.disk.rules

    # Clients.

    async def _submit(self, random: Random) -> None:
        """Submit with a request id of its own."""
        self._names += 1
        request, job, handle = f"request-{self._names}", random.choice(JOBS), random.choice(HANDLES)
        params = draw_params(random)

        async def submit(client: RemoteClient) -> None:
            ticket = await client.submit(
                job, handle=handle, params=params, on_conflict="queue", request_id=request
            )
            known = self._rules.model.runs
            self._world.check(ticket.id in known, f"run {ticket.id} was acknowledged, but is not stored")
            self._acknowledged[request] = ticket.id

        self._call(random, submit)

    async def _post(self, random: Random) -> None:
        """Submit over HTTP, without a request id."""
        self._post_to(random.choice(self._nodes), random)

    def _post_to(self, node: SimulatedNode, random: Random) -> None:
        self._names += 1
        marker = f"posted-{self._names}"
        dice = self._world.derived(marker)
        body = {
            "job": "once",
            "handle": random.choice(HANDLES),
            "params": {"parts": [random.choice((0.0, 0.5, 3.0))], "marker": marker},
            "on_conflict": "queue",
        }

        async def call() -> None:
            with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                with trio.move_on_after(_ANSWERED_WITHIN):
                    number = self._world.trace.command(marker, "post", [node.name, body])
                    status, answer = await post(node, dice, "/api/runs", body)
                    self._world.trace.add("note", marker, f"post #{number} is answered {status}: {answer}")
                    if status in (200, 201):
                        self._world.check(status == 201, f"{marker} has joined a run: {answer}")
                        self._posted[marker] = answer["run_id"]
                    elif answer.get("details", {}).get("outcome") != "unknown":
                        self._posted[marker] = None

        self.nursery.start_soon(call)

    async def _inject(self, random: Random) -> None:
        self._inject_by(self.stations, random)

    def _inject_by(self, stations: list[Station], random: Random) -> None:
        """Send a message, which must be stored once if it is accepted."""
        run = self._pending(random)
        if run is None or not stations:
            return
        self._names += 1
        message = f"message-{self._names}"

        async def inject(client: RemoteClient) -> None:
            self._told[message] = None
            try:
                outcome = await client.inject(run, message)
            except OutcomeUnknown:
                return
            except GreenroomError as error:
                if error.details.get("outcome") != "unknown":
                    self._told[message] = False
            else:
                self._told[message] = outcome == "accepted"

        self._call(random, inject, stations)

    async def _cancel(self, random: Random) -> None:
        run = self._pending(random)
        if run is not None:
            self._call(random, lambda client: client.cancel(run))

    async def _answer(self, random: Random) -> None:
        interrupts = [i for run in self._rules.model.pending.values() for i in run.interrupts]
        if interrupts:
            chosen, data = random.choice(interrupts), random.random() < 0.5
            self._call(random, lambda client: client.answer(chosen, data))

    async def _limit(self, random: Random) -> None:
        limit = random.randint(1, MAX_CONCURRENT)
        self._call(random, lambda client: client.set_max_concurrent(limit))

    async def _look(self, random: Random) -> None:
        """Read runs; what was acknowledged must be there."""
        known = list(self._acknowledged.values())
        if known:
            run = random.choice(known)
            self._call(random, lambda client: client.get_run(run))

    async def _move(self, random: Random) -> None:
        random.choice(self.stations).move(random.choice(self._nodes))

    async def _wait(self, random: Random) -> None:
        await trio.sleep(random.choice((0.5, 3.0, 8.0, 15.0)))

    def _pending(self, random: Random) -> str | None:
        runs = list(self._rules.model.pending)
        return random.choice(runs) if runs else None

    def _call(
        self,
        random: Random,
        deed: Callable[[RemoteClient], Awaitable[object]],
        stations: list[Station] | None = None,
    ) -> None:
        client = random.choice(stations or self.stations).client
        if client is None:
            return
        self._names += 1
        named = client.named(f"caller {self._names} of {client.name}")

        async def call() -> None:
            answered = False
            with trio.move_on_after(_ANSWERED_WITHIN):
                with suppress(GreenroomError):
                    await deed(named)
                answered = True
            calm = trio.current_time() - self._cluster.calm_since
            late = not answered and calm > _ANSWERED_WITHIN
            self._world.check(not late, f"{named.name} got no answer within {_ANSWERED_WITHIN:g} s")

        self.nursery.start_soon(call)

    # Faults. Each one ends after a while; other steps are taken meanwhile.

    async def _partition(self, random: Random) -> None:
        """Cut one node off from the others."""
        node, seconds = self._draw_node(random), _draw_seconds(random)
        others = [name for name in NAMES if name != node.name]

        async def partition() -> None:
            self._cluster.wires.cut_off([node.name], others)
            await trio.sleep(seconds)
            self._cluster.wires.free()

        self._fault(node, f"is partitioned for {seconds:g} s", partition)

    async def _block(self, random: Random) -> None:
        """Deliver nothing from one node to another."""
        node, seconds = self._draw_node(random), _draw_seconds(random)
        other = random.choice([name for name in NAMES if name != node.name])
        way = (node.name, other) if random.random() < 0.5 else (other, node.name)

        async def block() -> None:
            self._cluster.wires.block(way)
            await trio.sleep(seconds)
            self._cluster.wires.free()

        self._fault(node, f"is cut off from {way[0]} to {way[1]} for {seconds:g} s", block)

    async def _deafen(self, random: Random) -> None:
        """Let a node receive nothing from the leader, while it forwards a command."""
        leader, seconds = self._cluster.leader, random.choice((2.05, 2.5, 3.5))
        node = random.choice([node for node in self._nodes if node is not leader])
        if leader is None:
            return
        way = leader.name, node.name

        async def deafen() -> None:
            self._cluster.wires.block(way)
            await trio.sleep(seconds)
            self._cluster.wires.free()

        self._fault(node, f"receives nothing from the leader for {seconds:g} s", deafen)
        await trio.sleep(0.1)
        self._post_to(node, random)
        self._inject_by([station for station in self.stations if station.node is node], random)

    async def _hold(self, random: Random) -> None:
        """Hold what is in flight between two nodes, and deliver it when they have connected again."""
        node, seconds = self._draw_node(random), _draw_seconds(random)
        other = random.choice([name for name in NAMES if name != node.name])

        async def hold() -> None:
            held = self._cluster.wires.hold(node.name, other)
            await trio.sleep(seconds)
            self._cluster.wires.let_go(held)

        self._fault(node, f"its connections with {other} are held for {seconds:g} s", hold)

    async def _break(self, random: Random) -> None:
        node = self._draw_node(random)
        other = random.choice([name for name in NAMES if name != node.name])

        async def break_off() -> None:
            self._cluster.wires.break_off(node.name, other)

        self._fault(node, f"its connections with {other} break", break_off)

    async def _slow(self, random: Random) -> None:
        node, seconds = self._draw_node(random), _draw_seconds(random)
        other = random.choice([name for name in NAMES if name != node.name])
        delay = 0.0, random.choice((0.1, 1.0, 3.0))

        async def slow() -> None:
            self._cluster.wires.slow_down(node.name, other, delay)
            await trio.sleep(seconds)
            self._cluster.wires.free()

        self._fault(node, f"its line to {other} is slow for {seconds:g} s", slow)

    async def _fade(self, random: Random) -> None:
        """Let a node connect again to the leader over a slow line, and block the line soon after."""
        leader = self._cluster.leader
        others = [node for node in self._nodes if node is not leader]
        node, seconds, delay = random.choice(others), random.uniform(0.0, 12.0), random.choice((4.0, 8.0))
        if leader is None:
            return
        wires = self._cluster.wires

        async def fade() -> None:
            wires.slow_down(node.name, leader.name, (0.0, delay))
            wires.break_off(node.name, leader.name)
            await trio.sleep(seconds)
            wires.cut_off([node.name], [leader.name])
            await trio.sleep(1.5 * EXECUTOR_TTL)
            wires.free()

        self._fault(node, f"fades away from the leader within {seconds:g} s", fade)

    async def _pause(self, random: Random) -> None:
        node, seconds = self._draw_node(random), _draw_seconds(random)

        async def pause() -> None:
            node.pause()
            await trio.sleep(seconds)
            node.go_on()

        self._fault(node, f"is paused for {seconds:g} s", pause)

    async def _overtake(self, random: Random) -> None:
        """Pause the leader with commits in flight, and let it continue when another node takes the lease."""
        leader, disk = self._cluster.leader, self._cluster.disk
        if leader is None:
            return
        seconds = random.choice((0.0, 0.1, 0.3))

        async def overtake() -> None:
            disk.delay = (0.1, 0.5)
            await trio.sleep(seconds)
            leader.pause()
            with trio.move_on_after(4 * LEASE_TTL):
                await self._cluster.next_lead()
            leader.go_on()
            await trio.sleep(1.0)
            disk.repair()

        for deed in (self._submit, self._post, self._post):
            await deed(random)
        self._fault(leader, "is paused with commits in flight until it is replaced", overtake)

    async def _stall_successor(self, random: Random) -> None:
        """Kill the leader, and pause the node that takes the lease while it opens its engine."""
        leader, disk, seconds = self._cluster.leader, self._cluster.disk, _draw_seconds(random)
        pause = random.choice((0.0, 0.1, 0.3))
        if leader is None:
            return

        async def stall() -> None:
            disk.delay = (0.0, 0.3)
            leader.kill()
            with trio.move_on_after(4 * LEASE_TTL):
                await self._cluster.next_lead()
            await trio.sleep(pause)
            lead = self._cluster.lead
            assert lead is not None, "a node has led before"
            lead.life.pause()
            await trio.sleep(seconds)
            disk.repair()
            lead.life.go_on()

        self._fault(leader, f"is killed, and its successor is paused for {seconds:g} s", stall)

    async def _kill(self, random: Random) -> None:
        node, seconds = self._draw_node(random), random.choice((0.0, 1.0, 10.0))

        async def kill() -> None:
            self._down.add(node)
            node.kill()
            await trio.sleep(seconds)
            self._down.discard(node)
            node.start()

        self._fault(node, f"is killed, and started again after {seconds:g} s", kill)

    async def _drain(self, random: Random) -> None:
        node = self._draw_node(random)

        async def drain() -> None:
            self._down.add(node)
            node.drain()
            with trio.move_on_after(_PATIENCE):
                await node.ended()
            node.kill("its drain takes too long")
            self._down.discard(node)
            node.start()

        if node.serves:
            self._fault(node, "is drained", drain)

    async def _step_down(self, random: Random) -> None:
        """Have the leader step down, by a command at any node."""
        chosen = random.choice(self._nodes)
        dice = self._world.derived("step-down", self._names)

        async def step_down() -> None:
            with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                with trio.move_on_after(_ANSWERED_WITHIN):
                    await post(chosen, dice, "/api/cluster/step-down", {})

        self._fault(chosen, "is asked that the leader steps down", step_down)

    async def _lose_store(self, random: Random) -> None:
        """Let one node not reach the store."""
        node, seconds = self._draw_node(random), random.choice((2.5, 9.0, 25.0, 25.0))

        async def lose() -> None:
            life = node.life
            if life is not None:
                self._cluster.disk.cut_off.add(life)
                await trio.sleep(seconds)
                self._cluster.disk.cut_off.discard(life)

        self._fault(node, f"does not reach the store for {seconds:g} s", lose)

    async def _disturb_store(self, random: Random) -> None:
        """Let the store fail, or be slow, for all nodes."""
        disk, seconds = self._cluster.disk, random.choice((0.5, 3.0, 10.0))
        how = random.choice(("down", "no_renewals", "slow", "troubles"))

        async def disturb() -> None:
            if how == "slow":
                disk.delay = (0.0, random.choice((0.1, 0.5)))
            elif how == "troubles":
                disk.rates = {"lost_request": 0.2, "lost_reply": 0.2, "refused": 0.1}
            else:
                setattr(disk, how, True)
            await trio.sleep(seconds)
            disk.repair()

        self._fault(self._nodes[0], f"and the others have a store that is {how} for {seconds:g} s", disturb)

    async def _die_at_commit(self, random: Random) -> None:
        """Kill the leader at its next commit."""
        how: Any = random.choice(("crash_before", "crash_within", "crash_after"))
        self._cluster.disk.fail_commit(how, after=random.choice((0, 0, 1, 3)))
        await trio.lowlevel.checkpoint()

    def _draw_node(self, random: Random) -> SimulatedNode:
        """A node; the leader more often than the others."""
        leader, other = self._cluster.leader, random.choice(self._nodes)
        return leader if leader is not None and random.random() < 0.5 else other

    def _fault(self, node: SimulatedNode, what: str, deed: Callable[[], Awaitable[None]]) -> None:
        self._world.fault(f"node {node.name}", what)
        self._faults += 1
        self._cluster.calm_since = math.inf

        async def cause() -> None:
            try:
                await deed()
            finally:
                self._faults -= 1
                if not self._faults:
                    self._cluster.calm_since = trio.current_time()

        self.nursery.start_soon(cause)

    _deeds = (
        *[(_submit,)] * 3,
        (_post, _submit, _inject, _inject),
        (_cancel, _answer, _inject, _limit, _look, _look),
        (_wait, _wait, _move),
        (
            *(_partition, _block, _block, _deafen, _deafen, _hold, _break, _slow, _fade, _fade),
            *(_pause, _pause, _pause, _kill, _drain),
            *(_overtake, _overtake, _stall_successor),
            *(_step_down, _step_down, _lose_store, _lose_store, _disturb_store, _die_at_commit),
        ),
    )

    # The end.

    def let_go(self) -> None:
        """Let all bodies end."""
        self._bodies.letting_go.set()

    async def end(self) -> None:
        """Heal everything. Then all runs must end."""
        self._world.note("everything is healed")
        cluster, model = self._cluster, self._rules.model
        cluster.disk.repair()
        cluster.disk.cut_off.clear()
        cluster.wires.free()
        self._down.clear()
        for node in self._nodes:
            node.go_on()
            node.start()
        await trio.sleep(_PATIENCE)
        for number in range(10):
            client = await self._connected()
            pending = list(model.pending.values())
            with suppress(GreenroomError):
                await client.set_max_concurrent(MAX_CONCURRENT)
                for run in pending:
                    if run.reason == "message":  # it waits for one, with a body or without
                        await client.inject(run.id, f"the end {number}")
            if not pending:
                break
            await trio.sleep(_PATIENCE)
        self._world.check(not model.pending, f"these runs have not ended: {list(model.pending.values())}")
        await trio.sleep(2.0)
        self._check_that_all_agree()
        self._check_commands()

    async def _connected(self) -> RemoteClient:
        with trio.move_on_after(_PATIENCE):
            while True:
                for station in self.stations:
                    if station.client is not None and station.client.connected:
                        return station.client
                await trio.sleep(1.0)
        self._world.check(False, "no client is connected at the end")
        raise AssertionError("the check raises")

    def _check_that_all_agree(self) -> None:
        """Check that all nodes and clients have the same state, and nothing is held."""
        check, model, rules = self._world.check, self._rules.model, self._rules
        leader = self._cluster.leader
        check(leader is not None, "no node leads at the end")
        for node in self._nodes:
            check(node.serves, f"{node.name} does not serve at the end")
            check(node.shown_seq == model.seq, f"{node.name} is at {node.shown_seq}, not at {model.seq}")
        for station in self.stations:
            client = station.client
            check(client is not None and client.connected, f"{station.name} is not connected at the end")
            if client is not None and client.follows:
                check(client.state.seq == model.seq, f"{client.name} is at event {client.state.seq}")
        bodies = rules.executors.executing()
        check(not bodies, f"these bodies execute at the end: {bodies}")
        left = [name for name, handle in model.handles.items() if handle.holder or handle.waiting]
        check(not left, f"these handles are held at the end: {left}")

    def _check_commands(self) -> None:
        """Check that each command took effect once if it was acknowledged, and at most once otherwise."""
        check, model = self._world.check, self._rules.model
        for request, run in self._acknowledged.items():
            made = list(model.made_for.get(request, ()))
            check(made == [run], f"request {request} created {made}, but its caller received {run}")
        for request, runs in model.made_for.items():
            of_clients = [id for id in runs if model.runs[id].parent is None]
            check(len(of_clients) <= 1, f"request {request} was executed several times: {runs}")
        markers: dict[str, list[str]] = {}
        for run in model.runs.values():
            if isinstance(run.params, dict) and "marker" in run.params:
                markers.setdefault(run.params["marker"], []).append(run.id)
        for marker, runs in markers.items():
            check(len(runs) == 1, f"{marker} was executed several times: {runs}")
        for marker, posted in self._posted.items():
            expected = [] if posted is None else [posted]
            check(
                markers.get(marker, []) == expected, f"{marker} was answered {posted}: {markers.get(marker)}"
            )
        sent = [event.message for event in model.events if isinstance(event, RunMessage)]
        for message, accepted in self._told.items():
            count = sent.count(message)
            allowed = {None: (0, 1), True: (1,), False: (0,)}[accepted]
            check(count in allowed, f"{message} was stored {count} times (accepted: {accepted})")


def _draw_seconds(random: Random) -> float:
    """How long a fault lasts: for less or for more than a lease, and than the ttl of executors."""
    return random.choice((0.5, 2.5, 4.0, 7.0, 9.0, 14.0, 25.0))
