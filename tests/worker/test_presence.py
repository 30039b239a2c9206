"""Registration and heartbeats of a worker, on mock time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import trio

from greenroom.errors import Forbidden, Invalid, NotFound, Unauthorized, Unavailable
from greenroom.protocol.flow.records import WorkerKind
from greenroom.worker.calls import Calls
from greenroom.worker.presence import Presence
from greenroom.worker.registry import open_registry
from tests.worker.standin import PATIENCE, Answer, StandIn

URL = "http://127.0.0.1:8081"


@asynccontextmanager
async def present(server: StandIn, kind: WorkerKind = "http") -> AsyncIterator[Calls]:
    calls = Calls(10)
    async with open_registry("http://server", "w1", "secret", transport=server.transport) as registry:
        presence = Presence(registry, calls, ("a", "b"), kind, URL if kind == "http" else "")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(presence.run)
            yield calls
            nursery.cancel_scope.cancel()


async def test_it_registers_and_sends_its_load_every_five_seconds(autojump_clock: Any):
    server = StandIn()
    async with present(server) as calls:
        registered = await server.until("/workers/register")
        assert registered == {"id": "w1", "url": URL, "services": ["a", "b"], "load": 0, "type": "http"}
        with calls.counted("a"), calls.counted("b"):
            assert await server.until("/workers/heartbeat") == {"id": "w1", "url": URL, "load": 2}
        assert (await server.until("/workers/heartbeat", 3))["load"] == 0
        began = server.times("/workers/register")[0]
        times = [at - began for at in server.times("/workers/heartbeat")]
        assert times == [pytest.approx(5), pytest.approx(10), pytest.approx(15)]
    assert {headers["authorization"] for headers in server.headers} == {"Bearer secret"}


async def test_a_polling_worker_registers_as_queue_without_a_url(autojump_clock: Any):
    server = StandIn()
    async with present(server, "queue"):
        registered = await server.until("/workers/register")
    assert (registered["type"], registered["url"]) == ("queue", "")


def unreachable(path: str, body: dict[str, Any]) -> Answer:
    raise httpx.ConnectError("nobody listens")


@pytest.mark.parametrize(
    "instead",
    [unreachable, lambda *_: (503, {"error": "later"}), lambda *_: (404, None), lambda *_: (302, None)],
)
async def test_registration_is_retried_with_growing_delay(autojump_clock: Any, instead: Any):
    server = StandIn()
    server.instead = instead
    async with present(server):
        await server.until("/workers/register", 8)
        assert server.gaps("/workers/register") == [0.5, 1, 2, 4, 8, 15, 15]
        server.instead = StandIn().instead
        await server.until("/workers/heartbeat")
    assert len(server.bodies("/workers/register")) == 9


async def test_an_outage_is_logged_once_and_its_end_too(
    autojump_clock: Any, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    server = StandIn()
    async with present(server):
        await server.until("/workers/heartbeat")
        server.instead = unreachable
        await server.until("/workers/heartbeat", 4)
        server.instead = StandIn().instead
        await server.until("/workers/heartbeat", 6)
    assert caplog.text.count("http://server cannot be reached: nobody listens; retrying") == 1
    assert caplog.text.count("http://server is available again") == 1
    assert len(server.bodies("/workers/register")) == 1


async def test_a_worker_registers_again_at_a_server_that_has_forgotten_it(autojump_clock: Any):
    server = StandIn()
    async with present(server):
        await server.until("/workers/heartbeat", 2)
        server.instead = lambda path, body: (
            (404, {"code": "not_found", "message": "who?", "details": {}})
            if path == "/workers/heartbeat"
            else None
        )
        again = await server.until("/workers/register", 2)
        assert again == server.bodies("/workers/register")[0]
        server.instead = StandIn().instead
        await server.until("/workers/heartbeat", 4)
    assert len(server.bodies("/workers/register")) == 2


async def test_a_server_that_never_responds_does_not_delay_the_next_heartbeat(autojump_clock: Any):
    async with open_registry("http://server", "w1", transport=httpx.MockTransport(never)) as registry:
        with (
            trio.fail_after(PATIENCE),
            pytest.raises(Unavailable, match="http://server timed out after 5 s"),
        ):
            await registry.heartbeat(URL, 0)


async def never(request: httpx.Request) -> httpx.Response:
    await trio.sleep_forever()
    raise AssertionError


@pytest.mark.parametrize(
    ("status", "error"), [(401, Unauthorized), (403, Forbidden), (400, Invalid), (422, Invalid)]
)
async def test_a_server_that_refuses_the_worker_stops_it(
    autojump_clock: Any, status: int, error: type[Exception]
):
    server = StandIn()
    server.instead = lambda *_: (status, {"code": "x", "message": "not you", "details": {}})
    with pytest.RaisesGroup(
        pytest.RaisesExc(error, match=f"http://server/api/workers/register returned status {status}: not you")
    ):
        async with present(server):
            await trio.sleep_forever()


async def test_a_refused_heartbeat_is_logged_and_sent_again(
    autojump_clock: Any, caplog: pytest.LogCaptureFixture
):
    server = StandIn()
    async with present(server):
        await server.until("/workers/heartbeat")
        server.instead = lambda *_: (401, {"error": "this token is not valid"})
        await server.until("/workers/heartbeat", 4)
    assert "returned status 401: this token is not valid" in caplog.text


@pytest.mark.parametrize(
    ("url", "mistake"),
    [
        ("ftp://server", "must be like"),
        ("server:8440", "must be like"),
        ("http://", "must be like"),
        ("http://server:x", "is not valid"),
        ("http://me:secret@server", "must not contain a user name or a password"),
        ("http://server?a=b", "must be like"),
    ],
)
async def test_an_invalid_server_url_is_refused(url: str, mistake: str):
    with pytest.raises(Invalid, match=mistake):
        async with open_registry(url, "w1"):
            raise AssertionError


@pytest.mark.parametrize("token", ["", " ", "täst", "a\nb"])
async def test_an_invalid_token_is_refused(token: str):
    with pytest.raises(Invalid, match="token must be printable ASCII"):
        async with open_registry("http://server", "w1", token):
            raise AssertionError


async def test_a_server_url_can_contain_a_path(autojump_clock: Any):
    paths = []

    def handle(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.path)
        return httpx.Response(404)

    async with open_registry(
        "http://server/greenroom/", "w", transport=httpx.MockTransport(handle)
    ) as registry:
        with pytest.raises(NotFound):
            await registry.heartbeat("", 0)
    assert paths == ["/greenroom/api/workers/heartbeat"]
