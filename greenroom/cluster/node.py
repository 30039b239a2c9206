"""`Node`: one node of a cluster. It leads, follows the leader, or looks for it.

The lease of the store decides who leads. A follower does not ask for it while it is connected to the leader.
When the connection ends, it reads the lease, and takes it if it is free. If the store cannot be reached, it
asks other nodes who leads. A leader whose lease could not be renewed in time dismisses its followers, because
another node can have taken the lease.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Protocol, TypeVar

import attrs
import trio

from ..actors.channel import Reply
from ..actors.engine.api import Engine
from ..actors.engine.leadership import Leadership
from ..actors.executors.connection import ENDED, Connection
from ..actors.journal.stream import Stream
from ..gateway.background import background
from ..gateway.cluster.followers import Followers
from ..gateway.cluster.following import Following, NotTheLeader, RefusedByLeader
from ..gateway.cluster.leading import Leading
from ..gateway.cluster.replica import Replica
from ..gateway.cluster.router import Router
from ..gateway.cluster.standing import NodeEngine
from ..persistence.failures import StoreBroken, StoreDown
from ..persistence.holders import is_alive
from ..persistence.lease import Lease
from ..persistence.store import Store
from ..protocol import cluster as wire
from ..protocol.errors import Conflict, GreenroomError, Invalid
from ..protocol.records import ClusterInfo, LeaderInfo, NodeInfo
from .dialing import RefusedByNode

T = TypeVar("T")

logger = logging.getLogger("greenroom.cluster")

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
_A_MOMENT = 0.05
_FAILED = (*ENDED, OSError, Invalid)
"""What a connection to a node raises when it cannot be opened, has ended, or carries malformed frames."""
_PRECEDENCE = 2.0
"""Seconds for which the other followers leave the lease to the one that the leader has chosen."""
_HANDOVER_TIMEOUT = 2.0
"""Seconds for which a leader that steps down waits for the commands that it has received."""


class ClusterBroken(Exception):
    """This node cannot take part in its cluster. The message says why, and the remedy."""


class Reading(Store, Protocol):
    """The store of a node, for reading next to the leader."""

    async def leased_to(self) -> Lease | None:
        """The lease, of whichever node."""

    async def stored_epoch(self) -> str | None:
        """The epoch in the store; `None` if no engine has opened it yet."""


OpenEngine = Callable[[Leadership], AbstractAsyncContextManager[tuple[Engine, int]]]
"""Opens the engine of a leader, with the term of its lease."""


@attrs.frozen
class Identity:
    """A node: its id, its address for the others, and its version."""

    id: str
    address: str
    version: str


class Node:
    """See the module's docstring. `dial` connects to another node; `reading` reads the store; `lead` opens
    the engine. `lease_ttl` is the ttl of the leader's lease."""

    def __init__(
        self,
        identity: Identity,
        *,
        dial: Callable[[str], Awaitable[Connection]],
        dial_executor: Callable[[str], Awaitable[Connection]],
        reading: Reading,
        leased_to: Callable[[], Awaitable[Lease | None]] | None = None,
        lead: OpenEngine,
        lease_ttl: float,
        max_value_bytes: int,
        random: random.Random,
    ) -> None:
        self.identity = identity
        self.stream = Stream()
        self.replica = Replica(self.stream, reading, max_value_bytes)
        self.router = Router(self.replica, self.info, self._dial_for_executors, random)
        self.engine = NodeEngine(self.stream, lambda: self.router.serves)
        self.has_state = trio.Event()
        """Set when the state of the cluster is known for the first time."""
        self._reading = reading
        self._dial = dial
        self._dial_executor = dial_executor
        self._leased_to = leased_to or reading.leased_to
        self._lead_engine = lead
        self._silence = lease_ttl / 3
        self._random = random
        self._lease: Reply[Lease | None] | None = None  # the last reading of the lease
        self._resigning: trio.Event | None = None  # while this node leads
        self._draining = False
        self._reached = True  # at its address, as far as it knows
        self._yields_until = -math.inf
        self._pause = 0.0
        self._said = ""  # why it does not find a leader
        self._broken = ""  # why it last could not lead with the store
        self._expires_at = math.inf  # the lease of the leader, as last read

    # For the server.

    @property
    def is_leader(self) -> bool:
        """Whether this node leads."""
        return self.router.leading is not None

    @property
    def has_followers(self) -> bool:
        """Whether another node could lead instead."""
        leading = self.router.leading
        return leading is not None and leading.followers.furthest() is not None

    def leader_address(self) -> str | None:
        """The address of the leader. Can be called from any thread."""
        leader = self.router.leader
        return None if leader is None else leader.address

    def info(self) -> ClusterInfo:
        """The cluster, as this node knows it."""
        leading, leader = self.router.leading, self.router.leader
        me = self.identity
        if leading is not None:
            nodes = leading.followers.nodes(self.stream.last_seq)
            return ClusterInfo(node=me.id, role="leader", leader=leader, nodes=nodes)
        if leader is not None:
            return ClusterInfo(node=me.id, role="follower", leader=leader, nodes=list(self.replica.nodes))
        others = [
            NodeInfo(id=other.id, address=other.address, role="unknown", version=other.version)
            for other in self.replica.nodes
            if other.id != me.id
        ]
        here = NodeInfo(
            id=me.id, address=me.address, role="looking", version=me.version, seq=self.replica.seq
        )
        return ClusterInfo(node=me.id, role="looking", leader=None, nodes=[*others, here])

    def can_be_reached(self, reached: bool) -> None:
        """Whether this node can be reached at its address. Otherwise it does not take the lead."""
        self._reached = reached
        self._tell_leader()

    async def drain(self) -> None:
        """This node is about to leave: it hands the leadership over, and does not take it again. Returns when
        another node can lead, or there is none."""
        self._draining = True
        self._tell_leader()
        if self.has_followers:
            await self.step_down()
            while self._resigning is not None:
                await self.router.wait_for_change()

    @property
    def _stays_behind(self) -> bool:
        """Whether this node does not take the lead: it is about to leave, or others could not reach it."""
        return self._draining or not self._reached

    def _tell_leader(self) -> None:
        if self.router.following is not None:
            self.router.following.draining = self._stays_behind

    async def step_down(self) -> None:
        """Hand the leadership to the follower that has the most events. Returns when this node no longer
        leads. Raises `Conflict` without a follower."""
        if self._resigning is None or not self.has_followers:
            raise Conflict("no other node can lead: start another node, or one that is not draining")
        self._resigning.set()
        while self.is_leader:
            await self.router.wait_for_change()

    async def run(self) -> None:
        """Lead and follow until cancelled. Raises `ClusterBroken`, and the errors of the engine."""
        async with background() as self._tasks:
            await self._run()

    async def _run(self) -> None:
        hint: LeaderInfo | None = None
        while True:
            leader, hint = hint, None
            if leader is None:
                leader = await self._find_leader()
            if leader is not None:
                hint = await self._follow(leader)
            elif self._stays_behind or trio.current_time() < self._yields_until:
                await trio.sleep(_SHORTEST_PAUSE)
            else:
                await self._lead()

    # Looking.

    async def _find_leader(self) -> LeaderInfo | None:
        """The leader as the lease shows it, or as other nodes say. `None` if the lease is free."""
        while True:
            try:
                with trio.move_on_after(self._silence) as waiting:
                    lease = await self._read_lease()
                why = "no answer in time" if waiting.cancelled_caught else None
            except StoreDown as error:
                why = error.message
            if why is not None:
                self._say(f"cannot read the lease: {why}")
                found = await self._ask_peers()
                if found is not None:
                    return found
            else:
                holder = None if lease is None else lease.holder
                if lease is not None and lease.is_blocked:
                    logger.warning(
                        "the lease is blocked for %.1f s, because its storage was lost", lease.left
                    )
                    await trio.sleep(lease.left)
                    continue
                if lease is None or holder is None or not lease.is_held or is_alive(holder) is False:
                    return None
                if lease.address is None:
                    raise ClusterBroken(
                        f"the store is in use by an engine that is not a node of a cluster ({holder}): stop "
                        "it, or start it with --cluster"
                    )
                if lease.address != self.identity.address:
                    self._expires_at = trio.current_time() + lease.left
                    return LeaderInfo(id="", address=lease.address, term=lease.term)
                self._say(
                    f"the lease belongs to another process with the address {lease.address} ({holder}): "
                    "waiting until it expires. If another node is running, give each node its own "
                    "cluster.advertise"
                )
            await self._wait_longer()

    async def _read_lease(self) -> Lease | None:
        """Read the lease, in a task that continues when this is cancelled: a call to a store that does not
        answer cannot be cancelled."""
        if self._lease is None or self._lease.done:
            self._lease = Reply()
            self._tasks.start_soon(_call_to, self._lease, self._leased_to)
        return await self._lease.get()

    async def _stored_epoch(self) -> str | None:
        """The epoch in this node's store, empty if there is none; `None` if it cannot be read now."""
        reply = Reply[str | None]()
        self._tasks.start_soon(_call_to, reply, self._reading.stored_epoch)
        try:
            with trio.move_on_after(self._silence):
                return await reply.get() or ""
        except StoreDown:
            logger.debug("the epoch of the store could not be read")
        return None

    async def _ask_peers(self, above: int = -1) -> LeaderInfo | None:
        """The leader of the highest term that the other nodes know, if that is above this one."""
        found: list[LeaderInfo] = []
        async with trio.open_nursery() as nursery:
            for address in set(self.replica.addresses.values()) - {self.identity.address}:
                nursery.start_soon(self._ask_peer, address, found)
        others = [leader for leader in found if leader.address != self.identity.address]
        leader = max(others, key=lambda leader: leader.term, default=None)
        return leader if leader is not None and leader.term > above else None

    async def _ask_peer(self, address: str, found: list[LeaderInfo]) -> None:
        with trio.move_on_after(_LONGEST_PAUSE):
            try:
                leader = await self._ask(address)
            except (*_FAILED, RefusedByNode) as error:
                logger.debug("the node at %s does not answer: %s", address, error)
            else:
                found += [] if leader is None else [leader]

    async def _ask(self, address: str) -> LeaderInfo | None:
        """Ask a node who leads."""
        connection = await self._dial(address)
        try:
            await connection.send(wire.encoded(self._join(asks=True)))
            answer = wire.from_leader(await connection.receive())
        finally:
            with trio.CancelScope() as closing:
                closing.cancel()
                await connection.aclose()
        if isinstance(answer, wire.Joined):
            return answer.leader
        return answer.leader if isinstance(answer, wire.NotLeader) else None

    def _say(self, why: str) -> None:
        """Log why this node does not find a leader: the first time as a warning."""
        logger.log(logging.DEBUG if why == self._said else logging.WARNING, "%s", why)
        self._said = why

    async def _wait_longer(self) -> None:
        self._pause = min(_LONGEST_PAUSE, max(_SHORTEST_PAUSE, 2 * self._pause))
        await trio.sleep(self._pause * self._random.uniform(0.5, 1))

    # Following.

    async def _dial_for_executors(self, leader: LeaderInfo) -> Connection:
        try:
            return await self._dial_executor(leader.address)
        except RefusedByNode as error:
            raise trio.BrokenResourceError(str(error)) from None

    def _join(self, *, asks: bool = False, store: str | None = None) -> wire.Join:
        me, replica = self.identity, self.replica
        return wire.Join(
            node=me.id,
            address=me.address,
            version=me.version,
            protocol=wire.VERSION,
            epoch=None if replica.is_empty else replica.epoch,
            after=replica.seq,
            draining=self._stays_behind,
            start=self.router.start,
            asks=asks,
            store=store,
        )

    async def _follow(self, leader: LeaderInfo) -> LeaderInfo | None:
        """Follow a node until the connection ends. Returns another leader, if that node knows one."""
        store = await self._stored_epoch() if self.replica.is_empty else None
        following = Following(self.replica, self._join(store=store), self._silence)
        try:
            # Not for longer than the lease is valid: then another node can lead, perhaps this one.
            patience = min(self._silence, max(_SHORTEST_PAUSE, self._expires_at - trio.current_time()))
            with trio.move_on_after(patience) as waiting:
                connection = await self._dial(leader.address)
            if waiting.cancelled_caught:
                raise trio.BrokenResourceError("timed out")
            self.router.follow(following)
            why = await following.run(connection, self._has_joined)
        except NotTheLeader as error:
            await self._wait_longer()
            known = error.leader
            if known is None or known.address == self.identity.address or known.term <= leader.term:
                return None  # an earlier leader, or the same one: look again
            return known
        except RefusedByLeader as error:
            raise ClusterBroken(f"the leader at {leader.address} refuses this node: {error}") from None
        except RefusedByNode as error:
            raise ClusterBroken(f"the node at {leader.address} refuses this node: {error}") from None
        except _FAILED as error:
            why = str(error) or type(error).__name__
            self._say(f"cannot reach the leader at {leader.address}: {why}")
            await self._wait_longer()
            return None
        finally:
            self.router.follow(None)
        logger.info("no longer following %s: %s", leader.address, why)
        if following.next_leader is None:
            await self._wait_longer()  # each join is an event, so they must not follow each other at once
        elif following.next_leader != self.identity.id:
            self._yields_until = trio.current_time() + _PRECEDENCE
        return None

    def _has_joined(self, joined: wire.Joined) -> None:
        self._pause = 0.0
        self._said = ""
        self._yields_until = -math.inf
        logger.info(
            "following node %s at %s, the leader of term %d",
            joined.leader.id,
            joined.leader.address,
            joined.leader.term,
        )
        self._begin_state()

    def _begin_state(self) -> None:
        self.has_state.set()
        self.router.changed()

    # Leading.

    async def _lead(self) -> None:
        """Take the lease, and lead until it is lost or handed over."""
        me = self.identity
        followers: Followers | None = None
        to: str | None = None
        failed: GreenroomError | None = None
        self.router.taking_over = True
        try:
            with trio.CancelScope() as leading:
                async with self._lead_engine(
                    Leadership(
                        self.stream,
                        me.id,
                        me.address,
                        self.replica.adopt,
                        continues=not self.replica.is_empty,
                    )
                ) as (engine, term):
                    followers = Followers(LeaderInfo(id=me.id, address=me.address, term=term), me.version)
                    to = await self._serve_as_leader(engine, followers)
                    leading.cancel()  # the engine then stops at once, and executors keep their bodies
                    await trio.lowlevel.checkpoint()
        except (Conflict, StoreDown, StoreBroken) as error:
            failed = error
            if followers is not None and not (self._resigning is not None and self._resigning.is_set()):
                logger.error("this node no longer leads: %s", error.message)  # otherwise the reason is logged
        finally:
            self._resigning = None
            self.router.taking_over = False
            if followers is not None:
                followers.dismiss(to)  # now that the lease is free
            else:
                self.replica.engine_failed()
            self.router.changed()
        if to is not None:
            self._yields_until = trio.current_time() + _PRECEDENCE
        if failed is not None and followers is None:
            await self._cannot_lead(failed)

    async def _cannot_lead(self, error: GreenroomError) -> None:
        """The engine could not be opened. Raises the error if this node cannot continue."""
        if isinstance(error, Conflict):
            logger.info("another node has taken the lease")
            await trio.sleep(_A_MOMENT)
        elif isinstance(error, StoreDown):
            self._say(f"cannot lead: {error.message}")
            await self._wait_longer()
        elif await self._find_leader() is None:
            # The first time, the lease can have been taken by a node that has failed since.
            if error.message == self._broken:
                raise error
            self._broken = error.message
            logger.warning("cannot lead: %s", error.message)
        else:  # which has taken the lease in the meantime
            logger.info("another node leads: %s", error.message)

    async def _serve_as_leader(self, engine: Engine, followers: Followers) -> str | None:
        """Lead until this node resigns; returns the node that leads next."""
        leader = followers.leader
        followers.on_change = partial(self._node_changed, engine)
        epoch = await engine.look(lambda committed: committed.epoch)
        leading = Leading(engine, epoch, followers)
        self._resigning = resigning = trio.Event()
        self.replica.epoch = epoch
        self._pause = 0.0
        logger.info("this node, %s, leads the cluster in term %d", leader.id, leader.term)
        try:
            self.router.lead(engine, leading, self.step_down)
            self._begin_state()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_lease, leading)
                await resigning.wait()
                nursery.cancel_scope.cancel()
        finally:
            self.replica.adopt(epoch, engine.committed)
            self.router.resign()
            leading.stop()
        to = followers.furthest()
        with trio.move_on_after(_HANDOVER_TIMEOUT):
            await leading.idle()
        return to

    def _node_changed(self, engine: Engine, status: str, join: wire.Join) -> None:
        self.replica.addresses[join.node] = join.address
        engine.node_changed(join.node, status, join.address, join.version)

    async def _watch_lease(self, leading: Leading) -> None:
        """When the lease could not be renewed, send the followers away, and give up commands. If another node
        leads, resign."""
        engine, followers = leading.engine, leading.followers
        while True:
            await engine.lease_lapsed()
            followers.dismiss(None)
            leading.lapse()
            while not engine.has_lease:
                other = await self._ask_peers(above=followers.leader.term)
                if other is not None:
                    logger.error("this node no longer leads: %s leads in term %d", other.address, other.term)
                    assert self._resigning is not None, "this node leads"
                    self._resigning.set()
                    return
                await trio.sleep(_LONGEST_PAUSE)
            self.router.changed()  # commands can be executed again


async def _call_to(reply: Reply[T], call: Callable[[], Awaitable[T]]) -> None:
    try:
        reply.set(await call())
    except Exception as error:  # raised where it is awaited
        reply.fail(error)
