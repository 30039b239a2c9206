"""`NodeEngine`: what stands for the engine at the gateway of a node.

While the node leads, it is its engine; otherwise its replica, which answers reads. The stream is the same for
both, so subscribers do not notice a change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...actors.engine.api import Engine
from ...actors.journal.stream import Stream
from ...protocol.errors import Unavailable
from ...protocol.records import Snapshot
from .replica import Replica


class NodeEngine:
    """See the module's docstring. `serves` returns what serves now."""

    def __init__(self, stream: Stream, serves: Callable[[], Engine | Replica]) -> None:
        self.stream = stream
        self._serves = serves

    async def snapshot(self) -> Snapshot:
        """The state. If the node's engine stops meanwhile, the state with which its replica continues."""
        serving = self._serves()
        try:
            return await serving.snapshot()
        except Unavailable:
            if isinstance(serving, Replica) or not serving.stopped:
                raise
            return serving.committed.snapshot()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._serves(), name)
