"""A scenario with webhooks that fail: callers redeliver and drop them while deliveries are in flight, the
engine stops for longer than a day, and its clock is set forward and back.

The rules are those of the scenario `webhooks`, and these: the receiver of a dropped webhook gets no event,
and a webhook is dead only after an hour without an interruption. Before the end the clock is set back by a
year, which must not delay any delivery.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

import trio

from ...protocol.errors import GreenroomError
from ...protocol.webhooks import GIVE_UP_AFTER
from ..world.world import World
from .commands import pause
from .webhooks import Play

_JUMPS = (-365 * GIVE_UP_AFTER, -4000.0, -100.0, 100.0, 4000.0, GIVE_UP_AFTER + 3600)


async def failing_webhooks(world: World) -> None:
    """The scenario."""
    await _Play(world).go_through()


class _Play(Play):
    async def step(self, random: Random) -> None:
        await self._start()
        deeds = (*(self._submit,) * 3, *(self._decide,) * 4, self._wait, self._receive, self._receive)
        deed = random.choice((*deeds, self._fault, self._be_stopped, self._jump))
        await deed(random)
        await pause(random)
        self._rules.check_deaths()

    async def _start(self) -> None:
        if not self._server.running:
            self._rules.interrupted(self._world.clock())
        await super()._start()

    async def _wait(self, random: Random) -> None:
        await trio.sleep(random.choice((2.0, 8.0, 400.0, 4000.0, GIVE_UP_AFTER / 2)))

    async def _be_stopped(self, random: Random) -> None:
        await self._server.stop()
        await trio.sleep(random.choice((60.0, GIVE_UP_AFTER + 3600)))

    async def _jump(self, random: Random) -> None:
        self._set_clock(random.choice(_JUMPS))

    def _set_clock(self, seconds: float) -> None:
        self._world.clock.jump(seconds)
        self._rules.interrupted(self._world.clock())

    async def _decide(self, random: Random) -> None:
        self._callers += 1
        self.nursery.start_soon(self._change, f"operator {self._callers}", Random(random.random()))

    async def _change(self, name: str, random: Random) -> None:
        """Redeliver or drop one webhook that fails or is dead."""
        calls = self._world.client(name).webhooks
        with suppress(GreenroomError):
            failing = await calls.failing()
            for webhook in failing:
                self._rules.listed(webhook)
            found = [*failing, *await calls.dead()]
            if not found:
                return
            webhook = random.choice(found)
            if random.random() < 0.5:
                await calls.redeliver(webhook.id)
            else:
                self._rules.drops(webhook.id)
                await calls.drop(webhook.id)
                self._rules.dropped(webhook.id)

    async def end(self) -> None:
        """See `Play.end`."""
        self._set_clock(-365 * GIVE_UP_AFTER)
        await super().end()
        self._rules.check_deaths()
