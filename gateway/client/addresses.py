"""The addresses of a client, and the order in which it tries them.

All nodes of a cluster have the same events with the same numbers, so a client can use any of them. Each
client tries the addresses in its own random order: many clients spread over all nodes, and the clients of a
node that fails spread over the others. One attempt at each address is a round. `Link` makes the attempts, and
pauses only after a round.
"""

from __future__ import annotations

import random as random_module
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import SplitResult

import msgspec
import trio

OpenStream = Callable[[], Awaitable[trio.abc.Stream]]

_LONGEST_LIMIT, _SHORTEST_LIMIT = 10.0, 1.0


class Address(msgspec.Struct, eq=False):
    """The URL of a gateway, how to connect to it, and why the last attempt failed (`None`: it has not)."""

    url: SplitResult
    open_stream: OpenStream
    failure: str | None = None


class Addresses:
    """The addresses in this client's order, and the state of the round."""

    def __init__(
        self, addresses: Sequence[Address], *, patience: float, random: random_module.Random
    ) -> None:
        self._addresses = list(addresses)
        self._tried = 0
        self.time_limit = _LONGEST_LIMIT
        """For how many seconds an attempt waits for `welcome`. With several addresses, one that does not
        respond must not use up the client's patience."""
        if self.several:
            random.shuffle(self._addresses)
            self.time_limit = max(_SHORTEST_LIMIT, min(_LONGEST_LIMIT, patience / len(addresses)))

    @property
    def several(self) -> bool:
        """Whether there is more than one address."""
        return len(self._addresses) > 1

    @property
    def current(self) -> Address:
        """The address of the connection, or of the next attempt."""
        return self._addresses[0]

    def begin_round(self) -> None:
        """Count no attempt before this one."""
        self._tried = 0

    def failed(self, why: str) -> bool:
        """Record that the current address failed, and continue with the next one. Returns whether the round
        is complete; the next attempt then begins another."""
        address = self._addresses.pop(0)
        address.failure = why
        self._addresses.append(address)
        self._tried += 1
        if self._tried < len(self._addresses):
            return False
        self._tried = 0
        return True

    def failures(self) -> str:
        """Why each address failed, the current one first."""
        texts = [f"{one.url.geturl()}: {one.failure or 'not tried'}" for one in self._addresses]
        return "; ".join(texts)
