"""`Following`: a follower's connection to the leader.

It keeps the replica (`replica.py`) up to date and forwards commands. The leader sends everything up to the
`seq` of an answer before the answer, so the replica contains what an answer reports. Beats show the leader
how far this node is, and this node how old its replica can be.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

import attrs
import trio

from ...actors.channel import Reply
from ...actors.executors.connection import ENDED, Connection
from ...protocol import cluster as wire
from ...protocol.codec import JSON
from ...protocol.commandbase import CommandBase
from ...protocol.commands import Ok
from ...protocol.errors import Invalid
from ...protocol.parts import joined
from ...protocol.records import LeaderInfo, Snapshot
from ...protocol.values import too_large
from ..auth.tokens import Caller
from ..client.errors import raised_from
from ..commands.entries import Fields
from ..http.responses import Response
from .follower_session import LEADER_LOST, NOT_LEADER
from .replica import Replica
from .silence import receive_within

logger = logging.getLogger("greenroom.cluster")

_JOIN_TIMEOUT = 5.0
_BEAT_EVERY = 0.25
_CLOSE_TIMEOUT = 0.2


class LeaderLost(Exception):
    """The connection to the leader has ended. `sent`: whether it can have received the command."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


class NotTheLeader(Exception):
    """The other node does not lead; `leader` is the one that it knows."""

    def __init__(self, leader: LeaderInfo | None) -> None:
        super().__init__("the node does not lead")
        self.leader = leader


class RefusedByLeader(Exception):
    """The leader refuses this node, whose configuration or version must change."""


@attrs.define
class _Call:
    """A forwarded command that is not answered yet."""

    reply: Reply[Any]
    parts: list[Ok] = attrs.field(factory=list)


class Following:
    """One connection to a leader. `silence` is the time without any data after which it is lost."""

    def __init__(self, replica: Replica, join: wire.Join, silence: float) -> None:
        self.leader: LeaderInfo | None = None
        """The leader, once this node has joined and its replica is complete."""
        self.draining = join.draining
        """Whether this node is about to leave; the leader is told with the next beat."""
        self.next_leader: str | None = None
        """The node to which the leader has handed the leadership."""
        self._replica = replica
        self._join = join
        self._silence = silence
        self._numbers = count(1)
        self._calls: dict[int, _Call] = {}
        self._outbox: deque[bytes] = deque()
        self._news = trio.lowlevel.ParkingLot()
        self._parts: list[Snapshot] = []
        self._lost = ""
        self._max_frame_bytes = 0

    async def run(self, connection: Connection, ready: Callable[[wire.Joined], None]) -> str:
        """Follow until the connection ends; returns why. `ready` is called when the replica is complete.

        Raises `NotTheLeader` and `RefusedByLeader`.
        """
        try:
            joined = await self._begin(connection)
            self._replica.begin(joined)
            self._max_frame_bytes = joined.max_frame_bytes
            self._ready: Callable[[], None] | None = lambda: self._complete(joined, ready)
            self._until = joined.seq
            self._look()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, connection, nursery.cancel_scope)
                nursery.start_soon(self._beat)
                try:
                    self._lost = await self._read(connection)
                except (*ENDED, Invalid) as error:
                    self._lost = str(error) or "the connection has ended"
                nursery.cancel_scope.cancel()
        finally:
            self.leader = None
            self._lost = self._lost or "the connection was closed"
            for call in self._calls.values():
                call.reply.fail(LeaderLost(self._lost, sent=True))
            self._calls.clear()
            with trio.move_on_after(_CLOSE_TIMEOUT, shield=True):
                await connection.aclose()
        return self._lost

    async def _begin(self, connection: Connection) -> wire.Joined:
        with trio.move_on_after(_JOIN_TIMEOUT):
            await connection.send(JSON.encode(self._join))
            match wire.from_leader(await connection.receive()):
                case wire.Joined() as joined:
                    return joined
                case wire.NotLeader(leader=leader):
                    raise NotTheLeader(leader)
                case wire.NodeRefused(message=message):
                    raise RefusedByLeader(message)
                case wire.Leaving():
                    raise NotTheLeader(None)
                case other:
                    raise trio.BrokenResourceError(f"unexpected message {type(other).__name__}")
        raise trio.BrokenResourceError(f"the leader has not answered within {_JOIN_TIMEOUT:g} s")

    def _complete(self, joined: wire.Joined, ready: Callable[[wire.Joined], None]) -> None:
        self.leader = joined.leader
        ready(joined)

    def _look(self) -> None:
        replica = self._replica
        if self._ready is not None and not replica.is_empty and replica.seq >= self._until:
            ready, self._ready = self._ready, None
            ready()

    # Commands.

    async def forward(self, caller: Caller, command: CommandBase) -> Fields:
        """Have the leader execute a command. Raises its error, or `LeaderLost`."""
        id = next(self._numbers)
        parts: list[Ok] = await self._ask(id, wire.forward(id, principal(caller), command))
        return _fields(parts)

    async def request(
        self, caller: Caller, method: str, path: str, query: dict[str, list[str]], body: bytes
    ) -> Response:
        """Have the leader answer an HTTP request. Raises its error, or `LeaderLost`."""
        id = next(self._numbers)
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise Invalid("body must be UTF-8") from None
        message = wire.ForwardRequest(
            id=id, caller=principal(caller), method=method, path=path, query=query, body=text
        )
        answered: wire.RequestAnswered = await self._ask(id, message)
        return Response(
            answered.status,
            answered.body.encode(),
            answered.content_type,
            unsent=lambda: self._send(wire.Withdraw(id=id)),
        )

    def executor_ended(self, executor: str, how: str) -> None:
        """Report to the leader that a child process of this node has ended."""
        self._send(wire.ExecutorEnded(executor=executor, how=how))

    async def _ask(self, id: int, message: Any) -> Any:
        if self.leader is None:
            raise LeaderLost(self._lost or "no leader is known", sent=False)
        frame = JSON.encode(message)
        size, limit = len(frame), self._max_frame_bytes
        if size > limit:  # the leader would close the connection, which all clients of this node share
            raise too_large("message", str(size), size, limit)
        call = self._calls[id] = _Call(Reply())
        self._put(frame)
        try:
            return await call.reply.get()
        except trio.Cancelled:
            self._send(wire.Withdraw(id=id))
            raise
        finally:
            self._calls.pop(id, None)

    # Writing.

    def _send(self, message: Any) -> None:
        self._put(JSON.encode(message))

    def _put(self, frame: bytes) -> None:
        self._outbox.append(frame)
        self._news.unpark()

    async def _write(self, connection: Connection, scope: trio.CancelScope) -> None:
        try:
            while True:
                while self._outbox:
                    await connection.send(self._outbox.popleft())
                await self._news.park()
        except ENDED as error:
            self._lost = str(error) or "the leader can no longer be reached"
            scope.cancel()

    async def _beat(self) -> None:
        while True:
            self._send(wire.NodeBeat(sent=trio.current_time(), seq=self._replica.seq, draining=self.draining))
            await trio.sleep(_BEAT_EVERY)

    # Reading.

    async def _read(self, connection: Connection) -> str:
        while True:
            frame = await receive_within(self._silence, connection)
            if frame is None:
                return f"the leader was silent for {self._silence:g} s"
            match wire.from_leader(frame):
                case wire.Replicate(events=events):
                    self._replica.apply(events)
                    self._look()
                case wire.ReplaceState(snapshot=snapshot, more=more):
                    self._parts.append(snapshot)
                    if not more:
                        parts, self._parts = self._parts, []
                        self._replica.replace(joined(parts))
                        self._look()
                case wire.NodeBeaten(sent=sent):
                    self._replica.confirmed(sent)
                case wire.Nodes(nodes=nodes):
                    self._replica.list_nodes(nodes)
                case wire.CommandAnswered() | wire.RequestAnswered() | wire.CommandFailed() as answer:
                    self._answered(answer)
                case wire.Leaving(to=to):
                    self.next_leader = to
                    if to is None:
                        return "the leader has sent this node away"
                    return f"the leader has handed the leadership to {to}"
                case wire.Unknown() as unknown:
                    logger.debug("the leader has sent a message of type %s", unknown.type)
                case other:
                    raise trio.BrokenResourceError(f"unexpected message {type(other).__name__}")

    def _answered(self, answer: wire.CommandAnswered | wire.RequestAnswered | wire.CommandFailed) -> None:
        call = self._calls.get(answer.id)
        if call is None:
            return  # the caller has gone
        match answer:
            case wire.RequestAnswered():
                call.reply.set(answer)
            case wire.CommandFailed(code=code, message=message) if code in (NOT_LEADER, LEADER_LOST):
                call.reply.fail(LeaderLost(message, sent=code == LEADER_LOST))
            case wire.CommandFailed(code=code, message=message, details=details):
                call.reply.fail(raised_from(code, message, details))
            case wire.CommandAnswered(ok=ok, more=more):
                call.parts.append(JSON.decode(bytes(ok), Ok))
                if not more:
                    call.reply.set(call.parts)


def principal(caller: Caller) -> wire.Principal:
    """A caller as the leader receives it."""
    return wire.Principal(name=caller.name, role=caller.role, within=caller.scope)


def _fields(parts: list[Ok]) -> Fields:
    """The fields of a reply, with the lists of all parts joined."""
    fields: Fields = {}
    for part in parts:
        for name in Ok.__struct_fields__:
            value = getattr(part, name)
            if name in _OWN or value is None:
                continue
            if isinstance(value, list) and name in fields:
                fields[name] += value
            else:
                fields[name] = value
    return fields


_OWN = frozenset({"id", "seq", "more"})
