"""A scenario with webhooks: receivers fail, are slow, or are down for longer than a day, while the engine
crashes, stops and loses its disk.

The rules check that each event reaches its receiver in the order of its run. At the end all receivers accept
everything; then each event must have been delivered, or its webhook must be listed as dead.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import trio

from ...actors.jobs import Jobs
from ...actors.run.api import Run
from ...actors.workers.push import PushFailed
from ...protocol.errors import GreenroomError
from ...protocol.webhooks import GIVE_UP_AFTER
from ..rules.webhooks import WebhookRules
from ..world.disk_backend import Trouble
from ..world.server import Server
from ..world.world import World
from .commands import pause

_RECEIVERS = ("https://one.example", "https://two.example", "https://three.example")
_TYPES = (("run_state_changed",), ("run_log",), ("run_log", "run_state_changed"))
_PATIENCE = 3 * 3600.0
"""Seconds; longer than the longest pause between two attempts."""

jobs = Jobs()


@jobs.job("logs", resumable=True)
async def logs(run: Run, params: dict[str, float]) -> None:
    """A body that logs something, and ends after some seconds."""
    await run.log("begins")
    await trio.sleep(params.get("seconds", 0.0))
    await run.log("ends")


async def webhooks(world: World) -> None:
    """The scenario."""
    await Play(world).go_through()


class _Receivers:
    """The receivers: each accepts, refuses, or does not respond. An engine uses it as its `Push`."""

    def __init__(self, world: World, rules: WebhookRules) -> None:
        self.states = dict.fromkeys(_RECEIVERS, "accepts")
        self._world = world
        self._rules = rules
        self._random = world.derived("receivers")

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """See `Push`."""
        event = msgspec.json.decode(body)
        run, seq = event["run"], event["seq"]
        self._world.trace.add("webhook", url, f"gets event {seq} of run {run}")
        self._rules.gets(url, run, seq)
        state = self.states[url]
        await trio.sleep(60.0 if state == "hangs" else self._random.choice((0.0, 0.1, 3.0)))
        if state == "is gone":
            raise PushFailed("unreachable", "connection refused")
        if state == "refuses" or (state == "accepts some" and self._random.random() < 0.5):
            return 503, b""
        self._rules.accepts(url, run, seq)
        if self._random.random() < 0.1 and state != "accepts all":
            raise PushFailed("reset", "connection lost before the response was complete")
        return 204, b""


class Play:
    """The steps of the scenario, and its end."""

    def __init__(self, world: World) -> None:
        self.nursery: trio.Nursery
        self._world = world
        self._server: Server
        self._rules: WebhookRules
        self._receivers: _Receivers
        self._callers = 0

    async def go_through(self) -> None:
        """Do all steps."""
        await self.begin()
        async with trio.open_nursery() as self.nursery:
            async for step in self._world.steps(40):
                await self.step(step.random)
            self.nursery.cancel_scope.cancel()
        await self.end()

    async def begin(self) -> None:
        """Start the server."""
        self._rules = WebhookRules(lambda: self._server.rules.model.events, self._world.fail)
        self._receivers = _Receivers(self._world, self._rules)
        self._server = await self._world.serve(
            jobs,
            max_concurrent=3,
            shutdown_timeout=3,
            push=self._receivers,
            webhook_secret="the secret of a simulation",
            lanes={"told": {"limit": 2, "notify": {"url": _RECEIVERS[2], "types": list(_TYPES[2])}}},
        )

    async def step(self, random: Random) -> None:
        """Do something."""
        await self._start()
        deed = random.choice((*(self._submit,) * 5, self._wait, self._receive, self._receive, self._fault))
        await deed(random)
        await pause(random)

    async def _start(self) -> None:
        await self._server.start_again()

    # Calls.

    async def _submit(self, random: Random) -> None:
        self._callers += 1
        options: dict[str, Any] = {"lane": random.choice(("main", "told")), "on_conflict": "queue"}
        options["params"] = {"seconds": random.choice((0.0, 0.0, 5.0, 70.0))}
        if random.random() < 0.8:
            options["notify"] = {"url": random.choice(_RECEIVERS[:2]), "types": list(random.choice(_TYPES))}
        self.nursery.start_soon(self._attempt, f"caller {self._callers}", options, random.random() < 0.2)

    async def _attempt(self, name: str, options: dict[str, Any], cancels: bool) -> None:
        client = self._world.client(name)
        # Other scenarios check what is refused, and what a caller may conclude from a crash.
        with suppress(GreenroomError):
            ticket = await client.submit("logs", handle=name, **options)
            notify = options.get("notify")
            if notify is not None:
                self._rules.subscribe(ticket.id, notify["url"], notify["types"])
            if options["lane"] == "told":
                self._rules.subscribe(ticket.id, _RECEIVERS[2], _TYPES[2])
            if cancels:
                await client.cancel(ticket.id)

    # Time and faults.

    async def _wait(self, random: Random) -> None:
        await trio.sleep(random.choice((0.5, 10.0, 400.0, GIVE_UP_AFTER / 2)))

    async def _receive(self, random: Random) -> None:
        states = ("accepts", "accepts", "accepts some", "refuses", "hangs", "is gone")
        self._receivers.states[random.choice(_RECEIVERS)] = random.choice(states)

    async def _fault(self, random: Random) -> None:
        fault = random.choice((self._crash, self._crash_at_a_commit, self._crash_at_a_commit, self._stop))
        await fault(random)

    async def _crash(self, random: Random) -> None:
        await self._server.crash()
        await trio.sleep(random.choice((0.0, 5.0, 4000.0)))

    async def _crash_at_a_commit(self, random: Random) -> None:
        troubles: tuple[Trouble, ...] = (
            *("crash_before", "crash_within", "crash_after"),
            *("lost_request", "lost_reply", "refused"),
        )
        self._server.disk.fail_commit(random.choice(troubles), after=random.randint(0, 4))

    async def _stop(self, random: Random) -> None:
        await self._server.stop()
        await trio.sleep(random.choice((0.0, 30.0, 500.0)))

    # The end.

    async def end(self) -> None:
        """Let all receivers accept everything, and check that each event was delivered."""
        self._server.disk.repair()
        self._receivers.states = dict.fromkeys(_RECEIVERS, "accepts all")
        lives = 0
        while lives != self._server.lives or not self._server.running:
            await self._start()
            lives = self._server.lives
            await trio.sleep(_PATIENCE)
        engine = self._server.engine
        assert engine is not None, "the server is up"
        dead = await engine.webhooks.dead(limit=1000)
        self._rules.check_all_delivered({(webhook.run, webhook.url) for webhook in dead})
        for webhook in dead:
            await engine.webhooks.redeliver(webhook.id)
        await trio.sleep(_PATIENCE)
        self._rules.check_all_delivered(())
