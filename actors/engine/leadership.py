"""`Leadership`: what the engine of a cluster's leader has in addition to other engines."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from ...protocol.fold import Projection
from ..journal.stream import Stream


@attrs.frozen
class Leadership:
    """`stream` is that of the node, and outlives the engine: the node continues it as a follower. `node` and
    `address` are shown to clients. `restored` is called with the epoch and the restored state just before
    the stream continues at its seq, so that the node never shows an older state than its stream."""

    stream: Stream
    node: str
    address: str
    restored: Callable[[str, Projection], None]
    continues: bool = False
    """Whether the node has followed another leader, so that limits and draining stay as they are."""
