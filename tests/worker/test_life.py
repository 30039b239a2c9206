"""How a worker shuts down, on mock time. The signals are real: they are sent to the test process."""

from __future__ import annotations

import signal
from typing import Any

import pytest
import trio
import trio.testing

from greenroom import Services
from greenroom.errors import Unauthorized
from greenroom.worker.calls import Calls
from greenroom.worker.life import DRAIN, Life
from greenroom.worker.presence import Presence
from greenroom.worker.pull import Pull
from greenroom.worker.registry import open_registry
from tests.worker.standin import StandIn

services = Services()


@services.service("sleep")
async def sleep(seconds: float) -> str:
    await trio.sleep(seconds)
    return "slept"


class Lived:
    """A worker that receives a signal one second after its start."""

    def __init__(self) -> None:
        self.server = StandIn()
        self.signals = [signal.SIGTERM]
        self.code: int | None = None
        self.seconds = 0.0
        self._told = 0.0

    async def live(self) -> None:
        calls = Calls(2)
        async with (
            open_registry("http://server", "w1", transport=self.server.transport) as registry,
            trio.open_nursery() as nursery,
        ):
            presence = Presence(registry, calls, services.names, "queue")
            nursery.start_soon(self._end)
            pull = Pull(registry, calls, services, presence)
            self.code = await Life(pull, presence, calls, lambda: None).run()
            self.seconds = trio.current_time() - self._told

    async def _end(self) -> None:
        await trio.sleep(1)
        self._told = trio.current_time()
        for number in self.signals:
            signal.raise_signal(number)
            await trio.testing.wait_all_tasks_blocked()


async def test_it_exits_with_code_0_when_all_calls_are_done(autojump_clock: Any):
    life = Lived()
    life.server.put("q1", "sleep", input=20)
    await life.live()
    assert life.code == 0
    assert life.seconds == pytest.approx(19)
    assert [body["result"] for body in life.server.bodies("/queue/complete")] == ["slept"]


async def test_it_sends_heartbeats_until_then(autojump_clock: Any):
    life = Lived()
    life.server.put("q1", "sleep", input=20)
    await life.live()
    assert [body["load"] for body in life.server.bodies("/workers/heartbeat")] == [1, 1, 1, 1]


async def test_a_call_that_takes_too_long_is_cancelled_and_left_to_other_workers(autojump_clock: Any):
    life = Lived()
    life.server.put("q1", "sleep", input=600)
    await life.live()
    assert life.code == 0
    assert life.seconds == pytest.approx(DRAIN)
    assert life.server.bodies("/queue/complete") == []


async def test_a_second_signal_does_not_wait(autojump_clock: Any):
    life = Lived()
    life.signals = [signal.SIGTERM, signal.SIGINT]
    life.server.put("q1", "sleep", input=600)
    await life.live()
    assert life.code == 128 + signal.SIGINT
    assert life.seconds == pytest.approx(0)


async def test_a_refusal_of_the_server_is_raised(autojump_clock: Any):
    life = Lived()
    life.server.instead = lambda *_: (401, {"error": "who are you?"})
    with pytest.RaisesGroup(Unauthorized):  # the group is the test's own
        await life.live()
