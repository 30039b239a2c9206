"""How many deliveries each receiver gets at a time, so that none holds up the others.

A receiver is *prompt* if its last delivery succeeded quickly. All others, which fail, are slow or are new,
get one delivery at a time, and together at most half of all. This module does no I/O.
"""

from __future__ import annotations

MOST = 16
"""Deliveries in flight."""

MOST_PER_RECEIVER = 4
MOST_TO_OTHERS = MOST // 2
PROMPT = 5.0
"""Seconds within which a prompt receiver responds."""

_MOST_KNOWN = 1000


class Shares:
    """The deliveries in flight, and the receivers that are prompt."""

    def __init__(self) -> None:
        self._in_flight: dict[str, str] = {}  # the receivers of webhooks, by their ids
        self._prompt: dict[str, None] = {}

    @property
    def webhooks(self) -> list[str]:
        """The ids of the webhooks that are being delivered."""
        return list(self._in_flight)

    @property
    def left(self) -> int:
        """The number of deliveries that can still start."""
        return MOST - len(self._in_flight)

    def busy(self) -> list[str]:
        """The receivers that have as many deliveries as they get."""
        receivers = list(self._in_flight.values())
        return [
            receiver
            for receiver in sorted(set(receivers))
            if receiver not in self._prompt or receivers.count(receiver) >= MOST_PER_RECEIVER
        ]

    def among(self) -> list[str] | None:
        """The only receivers that get further deliveries; `None` if all do that are not busy."""
        others = sum(receiver not in self._prompt for receiver in self._in_flight.values())
        return list(self._prompt) if others >= MOST_TO_OTHERS else None

    def take(self, webhook: str, receiver: str) -> bool:
        """Begin a delivery, unless there is no room for it."""
        among = self.among()
        refused = receiver in self.busy() or (among is not None and receiver not in among)
        if refused or not self.left:
            return False
        self._in_flight[webhook] = receiver
        return True

    def release(self, webhook: str) -> None:
        """A delivery has ended."""
        del self._in_flight[webhook]

    def rate(self, receiver: str, *, prompt: bool) -> None:
        """Record whether a receiver has accepted an event within `PROMPT` seconds."""
        self._prompt.pop(receiver, None)
        if prompt:
            self._prompt[receiver] = None
            if len(self._prompt) > _MOST_KNOWN:
                del self._prompt[next(iter(self._prompt))]  # the one that was rated first
