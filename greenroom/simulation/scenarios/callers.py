"""What callers do, and whether what they are told is so.

A caller does one thing. What it is told is compared with everything that has been committed between the call
and the answer: where that is a race, any answer will do that was true at some moment of it. What is on the
disk is not known to the engine until its commit returns; so "before the call" is what a follower has seen.
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
"""What a caller does, with what is drawn at random about it."""


_NOTHING = ("nothing was changed", "was not carried out")


class Desk:
    """What all callers of a server have done."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()  # how many have used each request id
        self.resets_begun = self.resets_done = 0


class Caller:
    """See the module's text."""

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
        """Do something that a client can do."""
        self.since, self._life = self.rules.observations.seen, self.client.server.lives
        try:
            await deed(self, random)
        except Unavailable as error:
            if any(nothing in error.message for nothing in _NOTHING):
                self.check(not self.mine, f"was told that {error}, but {self.mine} is committed")

    def wrong(self, what: str) -> None:
        """What the caller was told is not so."""
        self.world.fail(f"{self.client.name} {what}")

    def check(self, condition: object, what: str) -> None:
        """Unless the condition holds, what the caller was told is not so."""
        if not condition:
            self.wrong(what)

    @property
    def same_life(self) -> bool:
        """Whether the engine that was asked is there still, and not being left."""
        server = self.client.server
        return server.running and server.lives == self._life and not self.rules.is_left

    def some_run(self, random: Random) -> str:
        """One of the latest runs, or an unknown one."""
        ids = list(self.model.runs)[-6:]
        return random.choice(ids) if ids and random.random() < 0.95 else "unknown"

    def check_holder(self, handle: str, error: GreenroomError) -> None:
        """The run that is named held the handle, or was about to hold it."""
        named = error.details["active_run"]
        known = self.model.runs[named]
        pending = known.handle == handle and (known.ended_in is None or known.ended_in > self.since)
        held = named in self.model.handle(handle).held_by(self.since, self.model.seq)
        self.check(pending or held, f"was refused for {known}, which did not hold handle {handle}")
