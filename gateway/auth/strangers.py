"""Limits of strangers, the clients that have not authenticated: frames, bytes and processor time.

Everything that a connection sends before it sends a token is counted twice: in its own account, and in the
account of its address. An account decreases by a tenth of the limit each second. A request or a connection
with a valid token removes from the accounts what was counted for it. If no token is required, nothing is
counted.

A frame here is a WebSocket frame, a chunk of a body, a request, or a connection: each has a cost that does
not depend on its size.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

import trio

from ...protocol.errors import RateLimited
from ..config import Limits

_FORGOTTEN = 0.1
_MOST_ADDRESSES = 10_000
_NAMES = ("stranger_frames", "stranger_bytes", "stranger_time")
_UNITS = ("frames", "bytes", "seconds of processor time")

_Amounts = tuple[float, float, float]


class _Account:
    """The recent use of frames, bytes and processor time."""

    __slots__ = ("_at", "_used")

    def __init__(self) -> None:
        self._used = [0.0, 0.0, 0.0]
        self._at = trio.current_time()

    def add(self, amounts: _Amounts, most: _Amounts, sign: int = 1) -> None:
        now = trio.current_time()
        share = (now - self._at) * _FORGOTTEN
        self._at = now
        for index, amount in enumerate(amounts):
            left = max(0.0, self._used[index] - share * most[index])
            self._used[index] = max(0.0, left + sign * amount)

    def over(self, most: _Amounts) -> int | None:
        """The index of the first amount above its limit."""
        for index, used in enumerate(self._used):
            if used > most[index]:
                return index
        return None


class Strangers:
    """The accounts of a gateway. `counts` returns whether tokens are required."""

    def __init__(self, limits: Callable[[], Limits], counts: Callable[[], bool]) -> None:
        self.limits = limits
        self.counts = counts
        self._accounts: dict[str, _Account] = {}

    def arrive(self, address: str | None) -> Stranger:
        """Start counting for a new connection, and for its address if that is known."""
        return Stranger(self, None if address is None else self._account(address_group(address)))

    def _account(self, group: str) -> _Account:
        """The account of a group of addresses. Above the maximum, the least recently used one is dropped."""
        account = self._accounts.pop(group, None) or _Account()
        self._accounts[group] = account
        if len(self._accounts) > _MOST_ADDRESSES:
            del self._accounts[next(iter(self._accounts))]
        return account


class Stranger:
    """The client of a connection, until it sends a valid token."""

    __slots__ = ("_address", "_known", "_own", "_strangers", "_used")

    def __init__(self, strangers: Strangers, address: _Account | None) -> None:
        self._strangers = strangers
        self._own = _Account()
        self._address = address
        self._known = False
        self._used: _Amounts = (0.0, 0.0, 0.0)
        self.use(frames=1)

    @property
    def known(self) -> bool:
        """Whether the client is authenticated, or needs no token; then nothing is counted."""
        return self._known or not self._strangers.counts()

    def use(self, *, frames: int = 0, bytes: int = 0, seconds: float = 0.0) -> None:
        """Count what was received."""
        if not self.known:
            amounts = (float(frames), float(bytes), seconds)
            before = self._used
            self._used = (before[0] + amounts[0], before[1] + amounts[1], before[2] + amounts[2])
            self._count(amounts, 1)

    def recognise(self) -> None:
        """Stop counting, because a valid token was received, and remove what was counted since `forget`."""
        if not self.known:
            self._count(self._used, -1)
        self._used = (0.0, 0.0, 0.0)
        self._known = True

    def forget(self) -> None:
        """Count again: the next request must have its own token."""
        self._known = False
        self._used = (0.0, 0.0, 0.0)

    def excess(self, *, alone: bool = False) -> RateLimited | None:
        """The error for a client that has exceeded a limit; `alone` checks the account of this connection
        only."""
        if self.known:
            return None
        limits = self._strangers.limits()
        most = _amounts(limits)
        index = self._own.over(most)
        if index is not None:
            where = "this connection"
        else:
            most = _amounts(limits, limits.strangers_per_address)
            index = None if alone or self._address is None else self._address.over(most)
            where = "the connections of this address together"
        if index is None:
            return None
        return RateLimited(
            f"limit exceeded: without a token, {where} can use at most {most[index]:g} {_UNITS[index]}, plus "
            "a tenth of that per second; send a token first, or wait",
            limit=_NAMES[index],
            retry_after=1,
        )

    def _count(self, amounts: _Amounts, sign: int) -> None:
        limits = self._strangers.limits()
        self._own.add(amounts, _amounts(limits), sign)
        if self._address is not None:
            self._address.add(amounts, _amounts(limits, limits.strangers_per_address), sign)


def _amounts(limits: Limits, times: int = 1) -> _Amounts:
    return limits.stranger_frames * times, limits.stranger_bytes * times, limits.stranger_time * times


def address_group(address: str) -> str:
    """The addresses that count as one client: of IPv6, all with the same first 64 bits, since a client can
    choose the other 64."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(IPv6Address(int(parsed) >> 64 << 64))
    return str(parsed)
