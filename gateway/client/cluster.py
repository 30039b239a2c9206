"""The client's `cluster`: the nodes behind the gateway, and a change of their leader."""

from __future__ import annotations

from ...protocol import commands as wire
from ...protocol.records import ClusterInfo
from .calls import expected
from .link import Link


class ClientCluster:
    """The cluster of a gateway. Every method raises `Conflict` if its server is not a node of a cluster."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def status(self) -> ClusterInfo:
        """The nodes, and which of them leads; as the leader knows them, or as this node does without one."""
        ok = await self._link.ask(wire.GetCluster(id=self._link.number()), repeatable=True)
        return expected(ok.cluster)

    async def step_down(self) -> None:
        """Let the leader hand the leadership to the follower that has the most events. Returns when it no
        longer leads. Raises `Conflict` if no other node can lead. Requires the role admin."""
        await self._link.ask(wire.StepDown(id=self._link.number()))
