"""Each test here runs with the gateway of an engine, and with that of a follower: `tests.support.NODES`."""

from tests.nodes import node

__all__ = ["node"]
