"""The log of nodes that are refused because of their secret, at the node that refuses them.

The gateway adds each refusal. A node that starts again and again is logged at most once per minute, and
strangers without a secret cannot fill the log.
"""

from __future__ import annotations

import logging

import trio

from .strangers import address_group

logger = logging.getLogger("greenroom.cluster")

_PAUSE = 60.0
"""Seconds after a warning in which no other one about the same address is logged."""
_MOST_ADDRESSES = 100
"""The number of addresses that are logged within `_PAUSE`."""


class RefusedNodes:
    """See the module's docstring. One per gateway."""

    def __init__(self) -> None:
        self._logged: dict[str, float] = {}  # by address, the oldest first

    def add(self, address: str | None) -> None:
        """A node at this address was refused; `None` if its connection has no address."""
        now = trio.current_time()
        while self._logged and next(iter(self._logged.values())) <= now - _PAUSE:
            del self._logged[next(iter(self._logged))]
        group = "" if address is None else address_group(address)
        if group in self._logged or len(self._logged) == _MOST_ADDRESSES:
            return
        self._logged[group] = now
        logger.warning(
            "a node at %s is refused, because the secret of the cluster is missing or differs: use the same "
            "secret_file on each node",
            address or "an unknown address",
        )
