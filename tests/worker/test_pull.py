"""Taking work from the server's queue, on mock time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import trio
import trio.testing

from greenroom import Services
from greenroom.worker.calls import Calls
from greenroom.worker.presence import Presence
from greenroom.worker.pull import Pull
from greenroom.worker.registry import open_registry
from tests.worker.standin import Answer, StandIn

POLL, HEARTBEAT, COMPLETE = "/queue/poll", "/queue/heartbeat", "/queue/complete"


class Puller:
    """A worker at a fake server's queue, with services that the test controls."""

    def __init__(self, limit: int) -> None:
        self.server = StandIn()
        self.calls = Calls(limit)
        self.begun: list[Any] = []
        self.cancelled: list[Any] = []
        self.go_on = trio.Event()
        self.services = Services()
        self.services.service("echo")(self._echo)
        self.services.service("fail")(self._fail)
        self.services.service("wait")(self._wait)
        self.services.service("sleep")(trio.sleep)
        self.pull: Pull

    async def _echo(self, input: Any, params: dict[str, Any]) -> Any:
        return [input, params]

    async def _fail(self, input: Any) -> Any:
        return 1 // 0

    async def _wait(self, input: Any) -> Any:
        self.begun.append(input)
        try:
            await self.go_on.wait()
        except trio.Cancelled:
            self.cancelled.append(input)
            raise
        return input

    async def completed(self, count: int = 1) -> dict[str, Any]:
        done = await self.server.until(COMPLETE, count)
        await trio.testing.wait_all_tasks_blocked()  # the worker has received the response
        return done


@asynccontextmanager
async def pulling(limit: int = 10) -> AsyncIterator[Puller]:
    one = Puller(limit)
    async with (
        open_registry("http://server", "w1", transport=one.server.transport) as registry,
        trio.open_nursery() as nursery,
    ):
        presence = Presence(registry, one.calls, one.services.names, "queue")
        one.pull = Pull(registry, one.calls, one.services, presence)
        nursery.start_soon(presence.run)
        nursery.start_soon(one.pull.run)
        yield one
        nursery.cancel_scope.cancel()


async def test_it_takes_an_item_calls_the_service_and_reports_the_result(autojump_clock: Any):
    async with pulling() as one:
        one.server.put("q1", "echo", input=1, params={"a": 2})
        assert await one.completed() == {
            "queue_id": "q1",
            "worker_id": "w1",
            "result": [1, {"a": 2}],
            "error": "",
        }
        polled = one.server.bodies(POLL)[0]
        assert polled == {"worker_id": "w1", "services": ["echo", "fail", "wait", "sleep"]}
        assert one.calls.load == 0


@pytest.mark.parametrize(
    ("service", "input_json", "error"),
    [
        ("fail", "{}", "ZeroDivisionError: "),
        ("nope", "{}", "service 'nope' not found; this worker serves echo, fail, wait, sleep"),
        ("echo", "{", "input_json is not valid: "),
        ("echo", "[]", "input_json is not valid: "),
    ],
)
async def test_a_failure_is_reported_as_an_error(
    autojump_clock: Any, service: str, input_json: str, error: str
):
    async with pulling() as one:
        one.server.put("q1", service)
        one.server.queue[0]["input_json"] = input_json
        done = await one.completed()
        assert done["result"] is None
        assert done["error"].startswith(error)


async def test_it_polls_only_when_it_is_registered(autojump_clock: Any):
    one = Puller(1)
    async with (
        open_registry("http://server", "w1", transport=one.server.transport) as registry,
        trio.open_nursery() as nursery,
    ):
        presence = Presence(registry, one.calls, one.services.names, "queue")
        nursery.start_soon(Pull(registry, one.calls, one.services, presence).run)
        await trio.sleep(100)
        assert one.server.received == []
        nursery.start_soon(presence.run)
        await one.server.until(POLL)
        nursery.cancel_scope.cancel()


async def test_it_takes_items_up_to_the_limit_and_the_next_when_one_is_done(autojump_clock: Any):
    async with pulling(limit=2) as one:
        for number in range(3):
            one.server.put(f"q{number}", "wait", input=number)
        await trio.sleep(100)
        assert one.begun == [0, 1]
        assert len(one.server.queue) == 1
        assert one.calls.load == 2
        one.go_on.set()
        await one.completed(3)
        assert one.begun == [0, 1, 2]


async def test_the_load_in_heartbeats_is_the_items_in_progress(autojump_clock: Any):
    async with pulling() as one:
        one.server.put("q1", "wait")
        one.server.put("q2", "wait")
        await trio.sleep(1)
        assert (await one.server.until("/workers/heartbeat"))["load"] == 2


async def test_a_server_that_answers_polls_immediately_is_polled_once_a_second(autojump_clock: Any):
    async with pulling() as one:
        one.server.instead = lambda path, body: (204, None) if path == POLL else None
        await one.server.until(POLL, 5)
        first, *_, last = one.server.times(POLL)
        assert last - first == pytest.approx(4)


@pytest.mark.parametrize("answer", [(503, None), (429, None), (401, {"error": "no"}), (200, {"id": 5})])
async def test_failed_polls_are_retried_with_growing_delay(autojump_clock: Any, answer: Answer):
    async with pulling() as one:
        one.server.instead = lambda path, body: answer if path == POLL else None
        await one.server.until(POLL, 5)
        assert one.server.gaps(POLL) == [0.5, 1, 2, 4]
        one.server.instead = StandIn().instead
        one.server.put("q1", "echo")
        await one.completed()


async def test_a_long_call_sends_a_heartbeat_for_its_item_every_twenty_seconds(autojump_clock: Any):
    async with pulling() as one:
        one.server.put("q1", "sleep", input=110)
        assert (await one.completed())["queue_id"] == "q1"
        began = one.server.times(POLL)[0]
        times = [round(at - began, 3) for at in one.server.times(HEARTBEAT)]
        assert times == [20, 40, 60, 80, 100]
        assert one.server.bodies(HEARTBEAT)[0] == {"queue_id": "q1", "worker_id": "w1"}


@pytest.mark.parametrize("status", [404, 409])
async def test_a_call_whose_item_is_no_longer_assigned_is_cancelled(autojump_clock: Any, status: int):
    async with pulling() as one:
        one.server.instead = lambda path, body: (status, None) if path == HEARTBEAT else None
        one.server.put("q1", "wait", input="x")
        await one.server.until(HEARTBEAT)
        await trio.sleep(1)
        assert one.cancelled == ["x"]
        assert one.calls.load == 0
        await trio.sleep(100)
        assert one.server.bodies(COMPLETE) == []


async def test_a_call_whose_item_had_no_heartbeat_for_a_minute_is_cancelled(autojump_clock: Any):
    async with pulling() as one:
        one.server.put("q1", "wait", input="x")
        await one.server.until(HEARTBEAT)
        one.server.instead = unreachable
        await trio.sleep(59)
        assert one.cancelled == []
        await trio.sleep(2)
        assert one.cancelled == ["x"]
        assert one.calls.load == 0


async def test_a_failed_heartbeat_is_retried_soon(autojump_clock: Any):
    async with pulling() as one:
        one.server.put("q1", "wait")
        await trio.sleep(1)
        one.server.instead = unreachable
        await one.server.until(HEARTBEAT, 3)
        one.server.instead = StandIn().instead
        await one.server.until(HEARTBEAT, 5)
        assert one.server.gaps(HEARTBEAT) == [1, 1, 1, 20]


def unreachable(path: str, body: dict[str, Any]) -> Answer:
    raise httpx.ConnectError("nobody listens")


async def test_reporting_a_result_is_retried_until_it_succeeds(autojump_clock: Any):
    async with pulling() as one:
        one.server.instead = lambda path, body: unreachable(path, body) if path == COMPLETE else None
        one.server.put("q1", "echo", input=1)
        await one.server.until(COMPLETE, 4)
        one.server.instead = StandIn().instead
        assert (await one.completed(5))["result"] == [1, {}]
        await trio.sleep(100)
        assert len(one.server.bodies(COMPLETE)) == 5


async def test_a_result_that_cannot_be_reported_within_a_minute_is_dropped(
    autojump_clock: Any, caplog: pytest.LogCaptureFixture
):
    async with pulling() as one:
        one.server.instead = lambda path, body: unreachable(path, body) if path == COMPLETE else None
        one.server.put("q1", "echo", input=1)
        await trio.sleep(100)
        began, *_, last = one.server.times(COMPLETE)
        assert 50 < last - began < 60
        assert one.calls.load == 0
    assert "the result of queue item q1 could not be reported before the item expired" in caplog.text


@pytest.mark.parametrize("status", [404, 409])
async def test_a_result_that_is_no_longer_needed_is_dropped(
    autojump_clock: Any, status: int, caplog: pytest.LogCaptureFixture
):
    async with pulling() as one:
        one.server.instead = lambda path, body: (status, None) if path == COMPLETE else None
        one.server.put("q1", "echo")
        await trio.sleep(100)
        assert len(one.server.bodies(COMPLETE)) == 1
        assert one.calls.load == 0
    assert "the result of queue item q1 is no longer needed" in caplog.text


async def test_a_result_that_the_server_refuses_is_reported_as_an_error(autojump_clock: Any):
    async with pulling() as one:
        one.server.instead = lambda path, body: (
            (413, {"error": "too much"}) if path == COMPLETE and body["result"] else None
        )
        one.server.put("q1", "echo", input=1)
        done = await one.completed(2)
        assert done["result"] is None
        assert done["error"].startswith("the server refused the result: ")
        assert done["error"].endswith("returned status 413: too much")


async def test_after_stop_it_takes_no_items_and_reports_the_remaining_results(autojump_clock: Any):
    async with pulling() as one:
        one.server.put("q1", "wait", input=1)
        await trio.sleep(1)
        one.pull.stop()
        one.server.put("q2", "wait", input=2)
        await trio.sleep(30)
        assert one.begun == [1]
        assert len(one.server.bodies(HEARTBEAT)) == 1
        one.go_on.set()
        assert (await one.completed())["queue_id"] == "q1"
