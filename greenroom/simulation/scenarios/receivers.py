"""A scenario with many receivers of webhooks, most of which hang, fail, are slow or break, while the engine
crashes and stops.

Two receivers accept everything. The rule: whatever the others do, these get their events within a few
seconds, also when the engine has just started again and many deliveries to the others are overdue.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

import msgspec
import trio

from ...actors.jobs import Jobs
from ...actors.run.api import Run
from ...actors.webhooks.shares import MOST, PATIENCE, Share
from ...protocol.errors import GreenroomError
from ..rules.webhooks import WebhookRules
from ..world.server import Server
from ..world.world import World
from .commands import pause

_KINDS = ("hangs", "hangs", "hangs", "fails", "breaks", "slow")
_OTHERS = [f"https://{kind}-{number}.example" for number in range(12) for kind in _KINDS]
_GOOD = ("https://one.example", "https://two.example")
_TYPES = ("run_state_changed",)
_TRYING = len(_OTHERS) / MOST[Share.NEW] * PATIENCE + 5.0
"""Seconds in which each new receiver is tried."""
_PROMPTLY = 5.0

jobs = Jobs()


@jobs.job("quick")
async def quick(run: Run, params: None = None) -> None:
    """A body that ends at once."""


async def receivers(world: World) -> None:
    """The scenario."""
    play = _Play(world)
    await play.begin()
    async for step in world.steps(30):
        await play.step(step.random)


class _Play:
    """The play; an engine uses it as its `Push`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._server: Server
        self._rules: WebhookRules
        self._submitted = 0

    async def begin(self) -> None:
        self._rules = WebhookRules(lambda: self._server.rules.model.events, self._world.fail)
        self._server = await self._world.serve(
            jobs,
            max_concurrent=100,
            shutdown_timeout=3,
            push=self,
            webhook_secret="the secret of a simulation",
        )

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """See `Push`."""
        event = msgspec.json.decode(body)
        run, seq = event["run"], event["seq"]
        self._world.trace.add("webhook", url, f"gets event {seq} of run {run}")
        kind = url.removeprefix("https://").partition("-")[0]
        await trio.sleep({"hangs": 60.0, "slow": 7.0}.get(kind, 0.1))
        if kind == "breaks":
            raise OSError("a push that does not know PushFailed")
        if kind == "fails":
            return 503, b""
        self._rules.accepts(url, run, seq)
        return 204, b""

    async def step(self, random: Random) -> None:
        if not self._server.running:
            await self._server.start()
        deed = random.choice((self._crowd, self._check, self._check, self._restart, self._wait))
        await deed(random)
        await pause(random)

    async def _crowd(self, random: Random) -> None:
        """Submit runs to others, and wait until each receiver was tried."""
        for url in random.sample(_OTHERS, random.randint(1, len(_OTHERS))):
            await self._submit(url)
        await trio.sleep(_TRYING)

    async def _check(self, random: Random) -> None:
        """Check that events for those that accept arrive promptly."""
        url = random.choice(_GOOD)
        run = await self._submit(url)
        if run is not None:
            self._rules.subscribe(run, url, _TYPES)
        await trio.sleep(_PROMPTLY)
        self._rules.check_all_delivered(())

    async def _restart(self, random: Random) -> None:
        if random.random() < 0.5:
            await self._server.crash()
        else:
            await self._server.stop()
        await trio.sleep(random.choice((0.0, 60.0, 4000.0)))
        await self._server.start()

    async def _wait(self, random: Random) -> None:
        await trio.sleep(random.choice((5.0, 60.0, 4000.0)))

    async def _submit(self, url: str) -> str | None:
        self._submitted += 1
        name = f"caller {self._submitted}"
        with suppress(GreenroomError):
            ticket = await self._world.client(name).submit("quick", handle=name, params=None, notify=url)
            return ticket.id
        return None
