"""How many deliveries each receiver gets at a time, so that none holds up the others.

There are three kinds of receivers, and each kind has its own share of the deliveries in flight. A receiver is
*prompt* if its last delivery succeeded quickly. It is *new* if nothing is known of it, and its webhook has no
failed attempt. All *others* fail or are slow. A new receiver has a short time for its response if more new
receivers wait: then it continues in the share of the others, or, without room there, its attempt ends as
failed. So a receiver that failed never has to be waited for by one that did not, not even after a restart:
failed attempts are stored. This module does no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

import msgspec

MOST_PER_RECEIVER = 4
"""Deliveries in flight to a prompt receiver. Any other gets one."""

PROMPT = 5.0
"""Seconds within which a prompt receiver responds."""

PATIENCE = 1.0
"""Seconds that a new receiver has for its response in any case."""

_MOST_KNOWN = 1000


class Share(Enum):
    """The kinds of receivers, with the number of deliveries that each gets."""

    PROMPT = "prompt"
    NEW = "new"
    OTHERS = "others"


MOST = {Share.PROMPT: 12, Share.NEW: 8, Share.OTHERS: 4}


class Wanted(msgspec.Struct, frozen=True):
    """The webhooks that a share can deliver now, as arguments of `Store.due_webhooks`."""

    most: int
    busy: Sequence[str]
    without: Sequence[str]
    among: Sequence[str] | None
    failed: bool | None


class _Delivery(msgspec.Struct):
    receiver: str
    share: Share
    since: float = math.inf
    """When the request was sent that has no response yet."""
    ends: bool = False


class Shares:
    """The deliveries in flight, and what is known of receivers. Times are those of one monotonic clock."""

    def __init__(self) -> None:
        self._in_flight: dict[str, _Delivery] = {}  # by the ids of their webhooks
        self._prompt: dict[str, None] = {}
        self._others: dict[str, None] = {}

    def wanted(self, share: Share, now: float) -> Wanted | None:
        """What a share can deliver; `None` for nothing. New receivers are always looked for, because one that
        does not respond gives way to one that waits."""
        if share is Share.NEW:
            self._move_slow(now)
        most = MOST[share] if share is Share.NEW else self._room(share)
        without, busy = list(self._in_flight), {*self._busy(), *self._prompt}
        if share is Share.PROMPT:
            among = [receiver for receiver in self._prompt if self._count(receiver) < MOST_PER_RECEIVER]
            wanted = Wanted(most if among else 0, [], without, among, None)
        elif share is Share.NEW:
            wanted = Wanted(most, [*busy, *self._others], without, None, failed=False)
        else:
            wanted = Wanted(most, [*busy], without, list(self._others), failed=True)
        return wanted if wanted.most else None

    def is_full(self, share: Share) -> bool:
        """Whether no further delivery of a share can start."""
        return self._room(share) == 0

    def take(self, webhook: str, receiver: str, share: Share) -> bool:
        """Begin a delivery, unless there is no room for it."""
        limit = 1
        if share is Share.PROMPT:
            limit = MOST_PER_RECEIVER if receiver in self._prompt else 0
        if self.is_full(share) or webhook in self._in_flight or self._count(receiver) >= limit:
            return False
        self._in_flight[webhook] = _Delivery(receiver, share)
        return True

    def sent(self, webhook: str, now: float) -> None:
        """The request of a delivery is sent."""
        self._in_flight[webhook].since = now

    def answered(self, webhook: str) -> None:
        """The request of a delivery has a response, or was given up."""
        self._in_flight[webhook].since = math.inf

    def give_way(self, count: int, now: float) -> list[str]:
        """Choose the deliveries to new receivers that end now, because as many new ones wait; returns their
        webhooks. A receiver that still has time is not among them."""
        count -= sum(delivery.ends for delivery in self._in_flight.values())
        slow = [webhook for since, webhook in self._waiting() if since + PATIENCE <= now]
        ending = slow[: max(0, count)]
        for webhook in ending:
            self._in_flight[webhook].ends = True
        return ending

    def until_slow(self, now: float) -> float:
        """The seconds until the next new receiver may have had its time; never 0."""
        left = (since + PATIENCE - now for since, _ in self._waiting())
        return min((seconds for seconds in left if seconds > 0), default=PATIENCE)

    def release(self, webhook: str) -> None:
        """A delivery has ended."""
        del self._in_flight[webhook]

    def rate(self, receiver: str, *, prompt: bool) -> None:
        """Record whether a receiver has accepted an event within `PROMPT` seconds."""
        self._prompt.pop(receiver, None)
        self._others.pop(receiver, None)
        known = self._prompt if prompt else self._others
        known[receiver] = None
        if len(known) > _MOST_KNOWN:
            del known[next(iter(known))]  # the one that was rated first

    def is_prompt(self, receiver: str) -> bool:
        """Whether the last delivery to a receiver succeeded quickly."""
        return receiver in self._prompt

    def _move_slow(self, now: float) -> None:
        for since, webhook in self._waiting():
            if since + PATIENCE <= now and self._room(Share.OTHERS):
                self._in_flight[webhook].share = Share.OTHERS

    def _waiting(self) -> list[tuple[float, str]]:
        """The new receivers that have not responded, the longest waiting first."""
        return sorted(
            (delivery.since, webhook)
            for webhook, delivery in self._in_flight.items()
            if delivery.share is Share.NEW and delivery.since < math.inf and not delivery.ends
        )

    def _room(self, share: Share) -> int:
        return MOST[share] - sum(delivery.share is share for delivery in self._in_flight.values())

    def _busy(self) -> list[str]:
        return [delivery.receiver for delivery in self._in_flight.values()]

    def _count(self, receiver: str) -> int:
        return sum(delivery.receiver == receiver for delivery in self._in_flight.values())
