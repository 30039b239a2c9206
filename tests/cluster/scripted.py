"""Scripted nodes: one side of a connection between nodes, whose frames the test sends and receives."""

from __future__ import annotations

from typing import Any, TypeVar

import trio

from greenroom.actors.executors.connection import Connection
from greenroom.gateway.auth.tokens import Caller, Role
from greenroom.protocol import cluster as wire
from greenroom.protocol.commandbase import CommandBase
from tests.following import join_of
from tests.support import PATIENCE

T = TypeVar("T")

OPERATOR = Caller("olga", Role.OPERATOR)
ADMIN = Caller("ada", Role.ADMIN)


class ScriptedFollower:
    """A follower on a connection to a leader. `received` has all messages of the leader."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.received: list[wire.FromLeader] = []
        self._ids = 0

    async def send(self, message: Any) -> None:
        await self.connection.send(wire.encoded(message))

    async def join(self, node: str = "n2", **given: Any) -> wire.Joined:
        await self.send(join_of(node, **given))
        return await self.until(wire.Joined)

    async def receive(self) -> wire.FromLeader:
        with trio.fail_after(PATIENCE):
            message = wire.from_leader(await self.connection.receive())
        self.received.append(message)
        return message

    async def until(self, kind: type[T]) -> T:
        """The next message of this type."""
        while True:
            message = await self.receive()
            if isinstance(message, kind):
                return message

    async def forward(self, command: CommandBase, caller: Caller = ADMIN) -> int:
        """Forward a command; returns its id."""
        self._ids += 1
        principal = wire.Principal(name=caller.name, role=caller.role, within=caller.scope)
        await self.send(wire.forward(self._ids, principal, command))
        return self._ids

    async def answer(self, id: int) -> wire.CommandAnswered | wire.CommandFailed:
        """The answer to a command."""
        while True:
            message = await self.receive()
            if isinstance(message, wire.CommandAnswered | wire.CommandFailed) and message.id == id:
                return message

    def seqs(self) -> list[int]:
        """The seqs of all received events."""
        return [e.seq for m in self.received if isinstance(m, wire.Replicate) for e in m.events]


class ScriptedLeader:
    """A leader on a connection of a follower."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def send(self, message: Any) -> None:
        await self.connection.send(wire.encoded(message))

    async def receive(self, kind: type[T]) -> T:
        """The next message of this type; beats are ignored."""
        with trio.fail_after(PATIENCE):
            while True:
                message = wire.from_follower(await self.connection.receive())
                if isinstance(message, kind):
                    return message
                assert isinstance(message, wire.NodeBeat), message
