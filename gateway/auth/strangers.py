"""What those may use who have not said who they are: frames, bytes and processor time.

Everything that a connection sends before it brings a token is counted: on its own account, and on one that
all connections of its address share. What an account holds is forgotten bit by bit, a tenth of the limit each
second. A request or a connection that brings a token in force takes back what it had been counted for. Where
no token is needed nobody is a stranger, and nothing is counted.

A frame here is a frame of a WebSocket, a chunk of a body, a request, or a connection: whatever costs
something however few bytes it has.
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
    """What has been used lately, of all three."""

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
        """Which of the three is more than it may be."""
        for index, used in enumerate(self._used):
            if used > most[index]:
                return index
        return None


class Strangers:
    """The accounts of a gateway. `counts` says whether tokens are needed at all."""

    def __init__(self, limits: Callable[[], Limits], counts: Callable[[], bool]) -> None:
        self.limits = limits
        self.counts = counts
        self._accounts: dict[str, _Account] = {}

    def arrive(self, address: str | None) -> Stranger:
        """A connection has come, from an address if that is known."""
        return Stranger(self, None if address is None else self._account(_group(address)))

    def _account(self, group: str) -> _Account:
        """Of those that connect again and again, the account stays; the others are forgotten first."""
        account = self._accounts.pop(group, None) or _Account()
        self._accounts[group] = account
        if len(self._accounts) > _MOST_ADDRESSES:
            del self._accounts[next(iter(self._accounts))]
        return account


class Stranger:
    """Who is at the other end of a connection, until it brings a token."""

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
        """Whether what comes now is counted for nobody."""
        return self._known or not self._strangers.counts()

    def use(self, *, frames: int = 0, bytes: int = 0, seconds: float = 0.0) -> None:
        """Count what has come."""
        if not self.known:
            amounts = (float(frames), float(bytes), seconds)
            before = self._used
            self._used = (before[0] + amounts[0], before[1] + amounts[1], before[2] + amounts[2])
            self._count(amounts, 1)

    def recognise(self) -> None:
        """A token in force has come: take back what was counted since the last time that nobody was known."""
        if not self.known:
            self._count(self._used, -1)
        self._used = (0.0, 0.0, 0.0)
        self._known = True

    def forget(self) -> None:
        """What comes next, a request, has to bring its own token."""
        self._known = False
        self._used = (0.0, 0.0, 0.0)

    def excess(self, *, alone: bool = False) -> RateLimited | None:
        """What to refuse a stranger with who has used too much; `alone` looks at this connection only."""
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
            f"without a token, {where} may use {most[index]:g} {_UNITS[index]}, a tenth of it each second: "
            "send a token first, or wait",
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


def _group(address: str) -> str:
    """What counts as one address: of IPv6 the first half, since the other is its holder's to choose."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(IPv6Address(int(parsed) >> 64 << 64))
    return str(parsed)
