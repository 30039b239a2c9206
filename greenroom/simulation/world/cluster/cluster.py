"""A simulated cluster: its nodes, their network and their store, and what must be true of all of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio

from ....actors.jobs import Jobs
from ....protocol.fold import Projection
from .node import Lead, NodeLife, SimulatedNode
from .wires import Wires

if TYPE_CHECKING:
    from ..world import World

_ELECTED_WITHIN = 3.0
"""The leases after which a cluster with a node that can lead must have a leader."""
_FOLLOWS_WITHIN = 15.0
"""Seconds within which a node that reaches the leader must follow it."""


class SimulatedCluster:
    """See the module's docstring."""

    def __init__(
        self,
        world: World,
        jobs: Jobs,
        *,
        lease_ttl: float,
        executor_ttl: float,
        max_concurrent: int,
        slots: int | None,
        shutdown_timeout: float,
    ) -> None:
        self.disk = world.leased_disk("cluster", lease_ttl)
        self.wires = Wires(world.derived)
        self.jobs = jobs
        self.lease_ttl = lease_ttl
        self.executor_ttl = executor_ttl
        self.max_concurrent = max_concurrent
        self.slots = slots
        self.shutdown_timeout = shutdown_timeout
        self.nodes: dict[str, SimulatedNode] = {}
        self.lead: Lead | None = None
        """The last process whose engine has opened the store."""
        self.calm_since = math.inf
        """Since when there was no fault; the scenario keeps it."""
        self._world = world
        self._taken = trio.lowlevel.ParkingLot()
        self._led_at = 0.0
        self._last: Lead | None = None
        self._able_since: dict[NodeLife, float] = {}
        self._apart: dict[NodeLife, float] = {}
        self._seqs: dict[NodeLife, int] = {}
        self._compared: dict[NodeLife, int] = {}

    def add(self, name: str, *, drift: float = 0.0) -> SimulatedNode:
        """Start a node."""
        node = self.nodes[name] = SimulatedNode(self._world, self, name, drift)
        node.start()
        return node

    def at(self, address: str) -> SimulatedNode:
        """The node with an address."""
        return next(node for node in self.nodes.values() if node.address == address)

    @property
    def leader(self) -> SimulatedNode | None:
        """The node that leads, if its process runs and its lease is good."""
        life = self._leading()
        return None if life is None else life.machine

    def begin_lead(self, lead: Lead) -> None:
        """A process has opened the store for its engine."""
        self.lead = lead
        self._taken.unpark_all()

    async def next_lead(self) -> Lead:
        """Wait until a process opens the store for its engine."""
        await self._taken.park()
        assert self.lead is not None, "it has begun"
        return self.lead

    def _leading(self) -> NodeLife | None:
        lead = self.lead
        if lead is None or lead.life.dead or lead.life.paused or lead.engine is None:
            return None
        return lead.life if lead.store.has_lease and not lead.engine.stopped else None

    # At the end of an instant.

    def end_instant(self) -> None:
        """Check the rules: no task is runnable."""
        rules = self.disk.rules
        leading = self._leading()
        if leading is not None and self.disk.at_rest:
            self._world.judge(rules, rules.end_instant, self._world.ticking.now)
        else:
            self._world.judge(rules, rules.executors.end_instant)
        lives = [node.life for node in self.nodes.values() if node.life is not None]
        self._check_leader(leading, lives)
        for life in lives:
            self._check_seq(life)
            if not life.paused and leading is not None and life is not leading:
                self._check_follower(life, leading)
            else:
                self._apart.pop(life, None)

    def _check_leader(self, leading: NodeLife | None, lives: list[NodeLife]) -> None:
        """Check that a node leads if one can."""
        now = trio.current_time()
        disk = self.disk
        able = [life for life in lives if not (life.paused or life.leaving or life in disk.cut_off)]
        if disk.down or disk.full or disk.no_renewals or disk.delay or disk.rates:
            able = []
        self._able_since = {life: self._able_since.get(life, now) for life in able}
        if leading is not None or self.lead is not self._last:
            self._led_at, self._last = now, self.lead
        since = max(self._led_at, min(self._able_since.values(), default=now))
        if now - since > _ELECTED_WITHIN * self.lease_ttl:
            names = [life.name for life in able]
            self._world.fail(f"no node leads since {since:g}, although {names} can")

    def _check_seq(self, life: NodeLife) -> None:
        """Check that the state of a node never goes back."""
        if life.node is None:
            return
        seq = life.node.stream.last_seq
        if seq < self._seqs.get(life, 0):
            self._world.fail(f"the state of {life.name} goes back from {self._seqs[life]} to {seq}")
        if seq > self.disk.rules.model.seq:
            self._world.fail(
                f"{life.name} shows event {seq}, but {self.disk.rules.model.seq} is the last one"
            )
        self._seqs[life] = seq

    def _check_follower(self, life: NodeLife, leading: NodeLife) -> None:
        """Check that a node that reaches the leader follows it, and has its state."""
        node, now = life.node, trio.current_time()
        fine = self.wires.is_fine(life.machine.name, leading.machine.name)
        if node is None or not fine or life in self.disk.cut_off or not self.disk.at_rest:
            self._apart.pop(life, None)
            return
        following, line = node.router.following, life.leader_line
        leader = None if following is None else following.leader
        if leader is None or leader.address != leading.address:
            since = self._apart.setdefault(life, now)
            if now - since > _FOLLOWS_WITHIN + self.lease_ttl:
                self._world.fail(f"{life.name} does not follow {leading.name} since {since:g}")
            return
        self._apart.pop(life, None)
        if line is None or not line.quiet:
            return
        model = self.disk.rules.model
        if node.replica.seq != model.seq:
            self._world.fail(f"the replica of {life.name} stays at {node.replica.seq}, expected {model.seq}")
        elif self._compared.get(life) != model.seq:
            self._compared[life] = model.seq
            snapshot = node.replica.look_now(Projection.snapshot)
            rules = self.disk.rules
            self._world.judge(rules, rules.observations.shown_snapshot, snapshot)
