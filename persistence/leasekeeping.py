"""What the holder of a lease does about it, decided without waiting: when to renew, when to stop acting.

`Keeping` is a machine. It is told what came of each renewal and what time it is, and says what to do; a
thread (`persistence/leasethread.py`) or, in a simulation, a task carries that out. It knows no database.

The time is the holder's own, by a clock that also counts while the machine is suspended. A lease is good
until its `ttl` has passed since a renewal was *sent*: the store counts from later, so the holder stops before
anybody else may begin. Its bodies are cancelled a margin before that, so that they have time to end.
"""

from __future__ import annotations

import math
import time
from enum import Enum
from typing import Literal

import msgspec


def now() -> float:
    """Seconds by a clock that can't be set, and that counts while the machine is suspended where there is
    one."""
    return time.clock_gettime(_CLOCK)


_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Renewed(msgspec.Struct, frozen=True):
    """A renewal that was sent at this time has succeeded."""

    sent: float


class Failed(msgspec.Struct, frozen=True):
    """A renewal has failed: the store can't be reached, or doesn't answer. `damaged`: what is stored can't be
    relied on."""

    why: str
    damaged: bool = False


class Taken(msgspec.Struct, frozen=True):
    """A renewal was refused: somebody else has the lease."""

    why: str


class Asked(msgspec.Struct, frozen=True):
    """Somebody has found the lease not good enough, and waits to hear when it is."""


Told = Renewed | Failed | Taken | Asked


class Do(Enum):
    """What to do now."""

    RENEW = "renew"
    """Send a renewal."""
    GIVE_UP = "give up"
    """The renewal that is under way has had no answer for too long: end its connection."""
    CANCEL = "cancel"
    """No body may go on: cancel them. The lease is about to end, or is somebody else's."""
    END = "end"
    """The lease is over: whatever still executes must end now."""
    GO_ON = "go on"
    """The lease is good again: bodies may begin again."""
    STOP = "stop"
    """Somebody else has the lease, for good, or the store is damaged: the engine must stop."""


State = Literal["held", "lapsing", "over"]


class Keeping:
    """See the module's text. `sent` is when what took the lease was sent."""

    def __init__(self, ttl: float, sent: float) -> None:
        self.ttl = ttl
        self.until = sent + ttl
        """When the lease is over, unless it is renewed."""
        self.taken: str | None = None
        """Who else has it, once somebody has."""
        self.why = ""
        """Why the last renewal failed."""
        self.state: State = "held"
        self._margin = ttl / 5  # before its end it is given up, if it could not be renewed
        self._moment = ttl / 15
        self._ends_at = math.inf  # when whatever still executes must end
        self._renew_at = sent + ttl / 3
        self._asked: float | None = None  # when the renewal that is under way was sent
        self._gave_up = False

    @property
    def acts_until(self) -> float:
        """Until when bodies may execute."""
        return -math.inf if self.taken is not None else self.until - self._margin

    def turn(self, now: float, told: Told | None = None) -> list[Do]:
        """What to do, as of now and after what it is told."""
        does: list[Do] = []
        if told is not None and not isinstance(told, Asked):
            self._asked = None
            does += self._told(told, now)
        if self.state == "held" and now >= self.acts_until:
            self.state = "lapsing"
            # Who was suspended comes here late, with bodies that nobody could cancel: they get a moment.
            self._ends_at = max(self.until, now + self._moment)
            does.append(Do.CANCEL)
        elif self.state == "held" and isinstance(told, Asked):
            does.append(Do.GO_ON)
        if self.state == "lapsing" and now >= self._ends_at:
            self.state = "over"
            does.append(Do.END)
        if self._asked is None:
            if self.taken is None and now >= self._renew_at:
                self._asked, self._gave_up = now, False
                does.append(Do.RENEW)
        elif not self._gave_up and now >= self._asked + self.ttl / 3:
            self._gave_up = True
            does.append(Do.GIVE_UP)
        return does

    def next(self) -> float:
        """When the next `turn` is due, if nothing is told before."""
        times = [math.inf]
        if self.state == "held":
            times.append(self.acts_until)
        elif self.state == "lapsing":
            times.append(self._ends_at)
        if self._asked is None and self.taken is None:
            times.append(self._renew_at)
        elif self._asked is not None and not self._gave_up:
            times.append(self._asked + self.ttl / 3)
        return min(times)

    def _told(self, told: Renewed | Failed | Taken, now: float) -> list[Do]:
        if isinstance(told, Taken):
            self.taken = told.why
            if self.state == "held":  # it comes without a warning: what executes gets a moment to go
                self.until = now + self._margin
            return [Do.STOP]
        if isinstance(told, Failed):
            self.why = told.why
            self._renew_at = now + self._moment
            return [Do.STOP] if told.damaged else []
        self.until = max(self.until, told.sent + self.ttl)
        self._renew_at = told.sent + self.ttl / 3
        if self.state != "held" and now < self.acts_until:
            self.state = "held"
            return [Do.GO_ON]
        return []
