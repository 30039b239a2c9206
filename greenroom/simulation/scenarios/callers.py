"""Callers: clients that make one call each, and check its result.

A caller compares the result with the events committed between the call and its return. If these events race
with the call, any result is accepted that was correct at some moment in between. The engine learns of a
commit only when it returns, so "before the call" means the events that a follower has received.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random

from ...protocol.errors import GreenroomError, Unavailable
from ...protocol.events import Event
from ..world.client import Client
from ..world.world import World

Deed = Callable[["Caller", Random], Awaitable[None]]
"""An action of a caller, with random numbers for its details."""


_NOTHING = ("nothing was changed", "was not carried out")
"""Parts of the messages of `Unavailable` that promise that the command had no effect."""


class Desk:
    """A record of the calls that all callers of a server have made."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()  # the number of uses of each request id
        self.resets_begun = self.resets_done = 0


class Caller:
    """See the module's docstring."""

    def __init__(self, client: Client, world: World, desk: Desk) -> None:
        self.client = client
        self.world = world
        self.desk = desk
        self.rules = client.server.rules
        self.model = self.rules.model
        self.since = 0
        self._life = 0

    @property
    def mine(self) -> list[Event]:
        """The committed events that the caller has caused."""
        return [event for event in self.model.events if event.by == self.client.name]

    async def call(self, deed: Deed, random: Random) -> None:
        """Make the call."""
        self.since, self._life = self.rules.observations.seen, self.client.server.lives
        try:
            await deed(self, random)
        except Unavailable as error:
            if any(nothing in error.message for nothing in _NOTHING):
                self.check(not self.mine, f"received {error!r}, but {self.mine} is committed")

    def wrong(self, what: str) -> None:
        """Fail: the result of the call is wrong."""
        self.world.fail(f"{self.client.name} {what}")

    def check(self, condition: object, what: str) -> None:
        """Fail unless the condition is true."""
        if not condition:
            self.wrong(what)

    @property
    def same_life(self) -> bool:
        """Whether the called engine is still running, and not shutting down."""
        server = self.client.server
        return server.running and server.lives == self._life and not self.rules.is_left

    def some_run(self, random: Random) -> str:
        """One of the latest runs, or an unknown one."""
        ids = list(self.model.runs)[-6:]
        return random.choice(ids) if ids and random.random() < 0.95 else "unknown"

    def check_holder(self, handle: str, error: GreenroomError) -> None:
        """Check that the run that an error names holds the handle, or was about to."""
        named = error.details["active_run"]
        known = self.model.runs[named]
        pending = known.handle == handle and (known.ended_in is None or known.ended_in > self.since)
        held = named in self.model.handle(handle).held_by(self.since, self.model.seq)
        self.check(pending or held, f"received a conflict with {known}, which did not hold handle {handle}")
