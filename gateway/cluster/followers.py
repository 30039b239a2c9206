"""The nodes that follow this one."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from ...protocol import cluster as wire
from ...protocol.errors import Invalid
from ...protocol.records import LeaderInfo, NodeInfo

_ALIVE = 2.0
"""Seconds after a beat for which a follower keeps its id, also if another process joins with it."""


@attrs.define
class Follower:
    """A node that follows this one. `heard_at` and `seq` are those of its last beat."""

    join: wire.Join
    heard_at: float
    seq: int = 0
    draining: bool = False
    leave: Callable[[str | None], None] = lambda to: None
    """Sends the follower away; the argument is the next leader."""
    inform: Callable[[list[NodeInfo]], None] = lambda nodes: None


class Followers:
    """The nodes that follow this one, by their ids."""

    def __init__(self, leader: LeaderInfo, version: str) -> None:
        self.leader = leader
        self.version = version
        """The version of the leader."""
        self._followers: dict[str, Follower] = {}
        self.on_change: Callable[[str, wire.Join], None] = lambda status, join: None
        """Called with `joined` or `left` for each change."""

    def nodes(self, seq: int) -> list[NodeInfo]:
        """All nodes, the leader first. `seq` is the leader's last event."""
        now = trio.current_time()
        leader = NodeInfo(
            id=self.leader.id, address=self.leader.address, role="leader", version=self.version, seq=seq
        )
        return [leader] + [
            NodeInfo(
                id=id,
                address=follower.join.address,
                role="follower",
                version=follower.join.version,
                seq=follower.seq,
                lag=round(max(0.0, now - follower.heard_at), 3),
            )
            for id, follower in sorted(self._followers.items())
        ]

    def furthest(self) -> str | None:
        """The follower that has the most events, and can become the leader."""
        able = [(each.seq, id) for id, each in self._followers.items() if not each.draining]
        return max(able)[1] if able else None

    def dismiss(self, to: str | None) -> None:
        """Send all followers away, because this node no longer leads."""
        for follower in list(self._followers.values()):
            follower.leave(to)

    def check(self, join: wire.Join) -> None:
        """Raise `Invalid` if another node that is alive has this id."""
        known = self._followers.get(join.node)
        if join.node == self.leader.id:
            raise _taken(join.node, self.leader.address)
        if known is None or known.join.start == join.start:
            return
        if trio.current_time() < known.heard_at + _ALIVE:
            raise _taken(join.node, known.join.address)

    def add(self, follower: Follower) -> None:
        """A follower has joined. One of the same id is replaced: it is the same process, or has ended."""
        before = self._followers.pop(follower.join.node, None)
        self._followers[follower.join.node] = follower
        if before is not None:
            before.leave(None)
        else:
            self.on_change("joined", follower.join)
        self._inform()

    def remove(self, follower: Follower) -> None:
        """A follower's connection has ended."""
        if self._followers.get(follower.join.node) is follower:
            del self._followers[follower.join.node]
            self.on_change("left", follower.join)
            self._inform()

    def _inform(self) -> None:
        nodes = self.nodes(0)
        for follower in self._followers.values():
            follower.inform(nodes)


def _taken(node: str, address: str) -> Invalid:
    return Invalid(
        f"another node has this id ({node}), at {address}: set cluster.node to another id", value=node
    )
