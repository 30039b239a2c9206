"""`Router`: where a node executes a client's command: in its own engine, or at the leader.

While no leader is known, commands wait for `PATIENCE` seconds. A command that was sent to a leader that is
lost is repeated at the next one if that is safe; a submission is, because each one has a request id.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import trio
from msgspec.structs import replace

from ...actors.engine.api import Engine
from ...actors.executors.connection import ENDED, Connection
from ...protocol.cluster import Identified, Identify, NotLeader, no_leader
from ...protocol.commandbase import CommandBase
from ...protocol.commands import GetCluster
from ...protocol.errors import Invalid, Unavailable
from ...protocol.records import ClusterInfo, LeaderInfo
from ..auth.tokens import Caller, Role
from ..commands.entries import Entry, Fields
from .follower_session import NodeGateway
from .following import Following, LeaderLost
from .joining import receive_first, send_last, serve
from .leading import Leading
from .relay import relay
from .replica import Replica
from .request_ids import with_request_ids, with_true_joins
from .turns import Turn, Turns

T = TypeVar("T")

logger = logging.getLogger("greenroom.cluster")

PATIENCE = 5.0
"""Seconds for which a command waits for a leader."""

_MOST_LOSSES = 3
"""How often in succession a leader can be lost soon after it was sent a command, until the command fails: the
command itself can be the reason."""
_TAKEOVER_PATIENCE = 4.0
"""Seconds for which a node that joins waits while this node takes over: less than it waits for an answer."""
_ITSELF = Caller("cluster", Role.ADMIN)
"""The caller of the commands of nodes."""


class Router:
    """See the module's docstring. A node leads, follows, or looks for the leader."""

    def __init__(
        self,
        replica: Replica,
        info: Callable[[], ClusterInfo],
        dial: Callable[[LeaderInfo], Awaitable[Connection]],
        ids: random.Random,
    ) -> None:
        self.engine: Engine | None = None
        """The node's own engine, while it leads."""
        self.leading: Leading | None = None
        self.following: Following | None = None
        self.taking_over = False
        """Whether this node opens its engine: it has the lease, or soon finds that another node has it."""
        self.replica = replica
        self.info = info
        """What this node knows of its cluster."""
        self.start = ""
        """The start id of this process."""
        self.takeovers = 0
        """How often this node has become the leader."""
        self.step_down_here: Callable[[], Awaitable[None]] | None = None
        """Hands the leadership over, while this node leads."""
        self._dial = dial
        self._ids = ids
        self._changed = trio.lowlevel.ParkingLot()
        self._listeners: dict[Callable[[], None], None] = {}

    # For the node.

    def lead(self, engine: Engine, leading: Leading, step_down: Callable[[], Awaitable[None]]) -> None:
        """This node leads with its own engine."""
        self.engine, self.leading, self.step_down_here = engine, leading, step_down
        leading.start = self.start
        self.takeovers += 1
        self.taking_over = False
        self.changed()

    def follow(self, following: Following | None) -> None:
        """This node connects to a leader, or no longer does."""
        self.following = following

    async def replaced(self, leader: LeaderInfo) -> None:
        """Wait until the cluster has another leader, or this one leads in another term."""
        while self.leader in (None, leader):
            await self.wait_for_change()

    async def wait_for_change(self) -> None:
        """Wait until this node leads, follows, or looks for the leader."""
        await self._changed.park()

    def resign(self) -> None:
        """This node no longer leads."""
        self.engine = self.leading = self.step_down_here = None
        self.changed()

    def changed(self) -> None:
        """The leader is another one, or the state of this node is complete."""
        self._changed.unpark_all()
        self.replica.wake()
        for callback in list(self._listeners):
            callback()

    def listen(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the leader may be another one. It must be fast, and must not raise."""
        self._listeners[callback] = None

    def unlisten(self, callback: Callable[[], None]) -> None:
        """Remove a listener."""
        self._listeners.pop(callback, None)

    @property
    def leader(self) -> LeaderInfo | None:
        """The leader, while this node leads or follows."""
        if self.leading is not None:
            return self.leading.followers.leader
        return None if self.following is None else self.following.leader

    @property
    def serves(self) -> Engine | Replica:
        """What answers reads at this node."""
        return self.replica if self.engine is None else self.engine

    # For the gateway.

    async def execute(
        self,
        call: Callable[[CommandBase], Awaitable[Fields]],
        entry: Entry,
        caller: Caller,
        command: Any,
        turns: Turns | None = None,
    ) -> Fields:
        """Execute a command: with `call` in this node, or at the leader. Returns when the state of this node
        contains the effect. `turns` are those of the client's connection."""
        if entry.local:
            if turns is not None and self.engine is None:
                with trio.move_on_after(PATIENCE):
                    await turns.answered()
            return await self._read(call, caller, command)
        if turns is None or entry.waits:
            return await self._execute(call, entry, caller, command, None)
        with turns.turn() as turn:
            return await self._execute(call, entry, caller, command, turn)

    async def _execute(
        self,
        call: Callable[[CommandBase], Awaitable[Fields]],
        entry: Entry,
        caller: Caller,
        command: Any,
        turn: Turn | None,
    ) -> Fields:
        sent = with_request_ids(command, self._draw_request_id)
        fields = await self._at_leader(
            lambda: call(sent),
            lambda following: following.forward(caller, sent),
            repeatable=entry.repeatable,
            clients_repeat=entry.repeatable and sent is command,
            waits=entry.waits,
            turn=turn,
        )
        return fields if sent is command else with_true_joins(command, fields)

    def _draw_request_id(self) -> str:
        return f"node:{self._ids.getrandbits(128):032x}"

    async def request(
        self,
        here: Callable[[], Awaitable[T]],
        there: Callable[[Following], Awaitable[T]],
        *,
        waits: bool = False,
    ) -> T:
        """Answer an HTTP request in this node, or at the leader. It is not repeated at the next leader."""
        return await self._at_leader(here, there, repeatable=False, waits=waits)

    async def reach(self, seq: int) -> bool:
        """Wait until this node has the event `seq`, which a client has from another node, but at most for
        `PATIENCE`. False: the client must not be served here, because it would go back.

        Also true if the leader does not have the event: the store was restored from a backup.
        """
        began = trio.current_time()
        with trio.move_on_after(PATIENCE):
            while self.replica.seq < seq and not self._knows_all(since=began):
                await self.replica.wait_for_news()
            return True
        return False

    def _knows_all(self, since: float) -> bool:
        """Whether this node has all events that were committed before this time."""
        if self.leading is not None:
            return self.leading.is_current
        return self.replica.confirmed_at > since

    async def status(self) -> ClusterInfo:
        """The cluster as the leader knows it; as this node does while no leader answers."""
        here, following = self.info(), self.following
        if following is None or following.leader is None:
            return here
        try:
            fields = await following.forward(_ITSELF, GetCluster(id=0))
        except (LeaderLost, Unavailable):
            return here
        known: ClusterInfo = fields["cluster"]
        return replace(known, node=here.node, role=here.role)

    async def serve_executor(self, connection: Connection, name: str) -> None:
        """Serve an executor that has connected to this node: in its own engine, or by passing its frames on
        to the leader. `name` is that of its token."""
        if self.engine is not None:
            await self.engine.executors.serve(connection, name=name)
        else:
            await self._relay_executor(connection)

    async def executor_ended(self, executor: str, how: str) -> None:
        """Report to the leader that a child process of this node has ended. Waits until a leader is known."""
        while True:
            if self.engine is not None and not self.engine.stopped:
                self.engine.executors.ended(executor, how)
                return
            if self.following is not None and self.following.leader is not None:
                self.following.executor_ended(executor, how)
                return
            await self._changed.park()

    async def _relay_executor(self, connection: Connection) -> None:
        deadline = trio.current_time() + PATIENCE
        try:
            while self.leader is None:
                await self._wait(deadline)
        except Unavailable as error:
            logger.info("connection of an executor is closed: %s", error.message)
            await connection.aclose()
        else:
            leader = self.leader
            assert leader is not None, "it was found"
            await relay(connection, self._dial, leader, partial(self.replaced, leader))

    async def serve_node(self, connection: Connection, gateway: NodeGateway) -> None:
        """Serve a node that follows this one, or tell it who leads. While this node takes over, it waits,
        because the lease already names it."""
        with trio.move_on_after(_TAKEOVER_PATIENCE):
            while self.taking_over:
                await self.wait_for_change()
        if self.leading is not None and self.leading.engine.has_lease:
            await serve(self.leading, connection, gateway)
            return
        try:
            first = await receive_first(connection)
        except (*ENDED, Invalid):
            return
        if isinstance(first, Identify):
            await send_last(connection, Identified(start=self.start))
        else:
            # Not this node: it has no lease, so another one may lead.
            leader = None if self.leading is not None else self.leader
            await send_last(connection, NotLeader(leader=leader))

    async def _read(
        self, call: Callable[[CommandBase], Awaitable[Fields]], caller: Caller, command: CommandBase
    ) -> Fields:
        deadline = trio.current_time() + PATIENCE
        while True:
            while self.engine is None and self.replica.is_empty:
                await self._wait(deadline)
            engine, following = self.engine, self.following
            try:
                return await call(command)
            except Unavailable:
                if engine is not None and engine.stopped:  # this node no longer leads
                    while self.engine is engine:
                        await self._wait(deadline)
                    continue
                if engine is not None or following is None or following.leader is None:
                    raise
                break  # this node cannot reach the store
        return await self._at_leader(
            lambda: call(command), lambda following: following.forward(caller, command), repeatable=True
        )

    async def _at_leader(
        self,
        here: Callable[[], Awaitable[T]],
        there: Callable[[Following], Awaitable[T]],
        *,
        repeatable: bool,
        clients_repeat: bool = False,
        waits: bool = False,
        turn: Turn | None = None,
    ) -> T:
        """`clients_repeat`: the client, too, can safely send the command again."""
        deadline = trio.current_time() + PATIENCE
        sent = False  # whether a leader can have executed it
        losses = 0
        while True:
            if turn is not None:
                await turn.come()
            leading, following = self.leading, self.following
            began, lost = trio.current_time(), False
            if leading is not None and leading.accepts:
                try:
                    with leading.command(waits=waits):
                        result = await here()
                        if leading.is_current:
                            return result
                except Unavailable:
                    if leading.is_current:
                        raise
                lost = True
                deadline = trio.current_time() + PATIENCE  # the wait for the next leader begins
            elif following is not None and following.leader is not None:
                try:
                    return await there(following)
                except LeaderLost as error:
                    lost = error.sent
                deadline = trio.current_time() + PATIENCE
            if lost:
                sent = True
                losses = losses + 1 if trio.current_time() < began + PATIENCE else 1
                if not repeatable or losses == _MOST_LOSSES:
                    raise _unknown()
            if turn is not None:
                turn.lost()
            if self.leading is leading and self.following is following:
                try:
                    await self._wait(deadline)
                except Unavailable:
                    if sent and not clients_repeat:
                        raise _unknown() from None
                    raise
            else:
                await trio.lowlevel.checkpoint()  # commands that were lost together

    async def _wait(self, deadline: float) -> None:
        """Wait for a change. Raises `Unavailable` if there is none in time."""
        with trio.move_on_at(deadline) as waiting:
            await self._changed.park()
        if waiting.cancelled_caught:
            raise no_leader("no leader of the cluster is known at this node")


def _unknown() -> Unavailable:
    return Unavailable(
        "the leader was lost before it answered; the command may or may not have been carried out: check "
        "before you repeat it",
        outcome="unknown",
    )
