"""The decisions of the holder of a lease: when to renew it, and when to stop executing bodies.

An engine holds a lease on its store, and an executor on its engine (each beat renews it). `Keeping` is the
machine of both; a `Pace` contains what differs. It receives the results of renewals and the time, and returns
what to do. A thread (`persistence/leasethread.py`), or a task in a simulation, carries that out. It does no
input or output.

The clock is the holder's, and also counts while the machine is suspended. A lease is good until its `ttl` has
passed since a renewal was *sent*. The other side counts from a later time, so the holder stops before another
one can begin. Bodies are cancelled a margin earlier, so that they have time to end.
"""

from __future__ import annotations

import math
import time
from enum import Enum
from typing import Literal

import msgspec


def now() -> float:
    """Return seconds of a monotonic clock, which counts while the machine is suspended if the system has such
    a clock."""
    return time.clock_gettime(_CLOCK)


_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Pace(msgspec.Struct, frozen=True):
    """When the holder of a lease acts, in fractions of the ttl."""

    renew: float
    """From the sending of a successful renewal to the next one."""
    timeout: float
    """How long a renewal can take."""
    cancel: float
    """From the cancel of bodies to the expiry."""
    again: float
    """From a failed renewal to the next one."""
    end: float
    """From the moment when bodies that still execute must end to the expiry."""


STORE = Pace(renew=1 / 3, timeout=1 / 3, again=1 / 15, cancel=1 / 5, end=0)
"""For an engine, whose commits are fenced by the store."""

EXECUTOR = Pace(renew=1 / 12, timeout=1 / 6, again=1 / 30, cancel=1 / 3, end=1 / 6)
"""For an executor: the engine counts the ttl with another clock, which can be faster. With the default
ttls, bodies continue when the leader of a cluster falls silent and another one takes over."""

MOMENT = 1 / 15
"""The fraction of the ttl that late bodies get to end."""


class Renewed(msgspec.Struct, frozen=True):
    """The renewal that was sent at this time succeeded. `ttl` is that of the lease from now on, if it has
    changed."""

    sent: float
    ttl: float | None = None


class Failed(msgspec.Struct, frozen=True):
    """A renewal failed: the store is unreachable or does not answer. `damaged`: its data is damaged."""

    why: str
    damaged: bool = False


class Taken(msgspec.Struct, frozen=True):
    """A renewal was refused: another holder has the lease."""

    why: str


class Asked(msgspec.Struct, frozen=True):
    """The engine found that the lease is not good, and waits for a notification when it is."""


Told = Renewed | Failed | Taken | Asked


class Do(Enum):
    """An action that the machine decides."""

    RENEW = "renew"
    """Send a renewal."""
    ABORT = "abort"
    """The renewal in flight has timed out: close its connection."""
    CANCEL = "cancel"
    """Cancel all bodies: the lease is about to expire, or belongs to another holder."""
    END = "end"
    """The lease has expired: bodies that still execute must end now."""
    RESUME = "resume"
    """The lease is good again: bodies can start."""
    STOP = "stop"
    """Another holder has the lease, or the store is damaged: the engine must stop."""


State = Literal["held", "lapsing", "over"]


class Keeping:
    """The state of a lease. `sent` is when the lease was requested."""

    def __init__(self, ttl: float, sent: float, pace: Pace = STORE) -> None:
        self.ttl = ttl
        self.until = sent + ttl
        """When the lease expires, unless it is renewed."""
        self.taken: str | None = None
        """Why the lease is lost, once another holder has it."""
        self.why = ""
        """Why the last failed renewal failed."""
        self.state: State = "held"
        self._pace = pace
        self._ends_at = math.inf  # when bodies that still execute must end
        self._renew_at = sent + pace.renew * ttl
        self._asked: float | None = None  # when the renewal in flight was sent
        self._aborted = False

    @property
    def acts_until(self) -> float:
        """Until when bodies are allowed to execute."""
        return -math.inf if self.taken is not None else self.until - self._pace.cancel * self.ttl

    def turn(self, now: float, told: Told | None = None) -> list[Do]:
        """Return what to do now, after an optional message."""
        does: list[Do] = []
        if told is not None and not isinstance(told, Asked):
            self._asked = None
            does += self._received(told, now)
        if self.state == "held" and now >= self.acts_until:
            self.state = "lapsing"
            # After a suspension this happens late, and no body was cancelled yet: they get a moment.
            ends_at = self.until - self._pace.end * self.ttl
            self._ends_at = max(ends_at, now + MOMENT * self.ttl)
            does.append(Do.CANCEL)
        elif self.state == "held" and isinstance(told, Asked):
            does.append(Do.RESUME)
        if self.state == "lapsing" and now >= self._ends_at:
            self.state = "over"
            does.append(Do.END)
        if self._asked is None:
            if self.taken is None and now >= self._renew_at:
                self._asked, self._aborted = now, False
                does.append(Do.RENEW)
        elif not self._aborted and now >= self._asked + self._pace.timeout * self.ttl:
            self._aborted = True
            does.append(Do.ABORT)
        return does

    def next(self) -> float:
        """Return when the next `turn` is due, if no message arrives before."""
        times = [math.inf]
        if self.state == "held":
            times.append(self.acts_until)
        elif self.state == "lapsing":
            times.append(self._ends_at)
        if self._asked is None and self.taken is None:
            times.append(self._renew_at)
        elif self._asked is not None and not self._aborted:
            times.append(self._asked + self._pace.timeout * self.ttl)
        return min(times)

    def _received(self, told: Renewed | Failed | Taken, now: float) -> list[Do]:
        if isinstance(told, Taken):
            self.taken = told.why
            if self.state == "held":  # without warning: executing bodies get a moment to end
                self.until = now + self._pace.cancel * self.ttl
            return [Do.STOP]
        if isinstance(told, Failed):
            self.why = told.why
            self._renew_at = now + self._pace.again * self.ttl
            return [Do.STOP] if told.damaged else []
        if told.ttl is not None and told.ttl != self.ttl:
            self.ttl, self.until = told.ttl, told.sent + told.ttl
        self.until = max(self.until, told.sent + self.ttl)
        self._renew_at = told.sent + self._pace.renew * self.ttl
        if self.state != "held" and now < self.acts_until:
            self.state = "held"
            return [Do.RESUME]
        return []
