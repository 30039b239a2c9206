"""Push calls: `POST /exec/<service>` on real sockets; long waits in memory and on mock time."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import trio
import trio.testing

from greenroom import Services
from greenroom.errors import Invalid
from greenroom.worker.calls import MAX_BYTES, Calls
from greenroom.worker.listening import listen
from greenroom.worker.push import LIMITS, Push

PATIENCE = 20.0
"""Seconds that a test on real sockets waits for what should arrive immediately."""


class Shop:
    """Services that the test controls, behind a listener."""

    def __init__(self, limit: int) -> None:
        self.calls = Calls(limit)
        self._begun = 0
        self._begins = trio.Event()
        self.cancelled = trio.Event()
        self.go_on = trio.Event()
        self.let_thread_go = threading.Event()
        self.token = trio.lowlevel.current_trio_token()
        self.services = Services()
        self.services.service("echo")(lambda input, params: [input, params])
        self.services.service("fail")(lambda input: 1 // 0)
        self.services.service("wait")(self._wait)
        self.services.service("thread")(self._thread)
        self.services.service("big")(lambda size: "x" * size)
        self.push: Push
        self.url = ""
        self.streams: list[trio.SocketStream] = []

    async def _wait(self, input: Any) -> Any:
        self._begin()
        try:
            await self.go_on.wait()
        except trio.Cancelled:
            self.cancelled.set()
            raise
        return input

    def _thread(self, input: Any) -> None:
        trio.from_thread.run_sync(self._begin)
        try:
            while not self.let_thread_go.wait(0.01):
                trio.from_thread.check_cancelled()
        except trio.Cancelled:
            trio.from_thread.run_sync(self.cancelled.set, trio_token=self.token)
            self.let_thread_go.wait(PATIENCE)
            raise

    def _begin(self) -> None:
        self._begun += 1
        self._begins.set()
        self._begins = trio.Event()

    async def begun(self, count: int = 1) -> None:
        """Wait until this number of calls of `wait` and `thread` has started."""
        while self._begun < count:
            await self._begins.wait()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def connect(self) -> trio.SocketStream:
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        self.streams.append(stream)
        return stream


@asynccontextmanager
async def shop(limit: int = 100) -> AsyncIterator[Shop]:
    one = Shop(limit)
    listeners, one.url = await listen("http://127.0.0.1:0")
    one.push = Push(listeners, one.calls, one.services)
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.push.run)
            yield one
            one.let_thread_go.set()
            for stream in one.streams:
                await stream.aclose()
            nursery.cancel_scope.cancel()


def request(service: str, body: Any = None, *headers: str) -> bytes:
    data = json.dumps(body or {}).encode()
    lines = [f"POST /exec/{service} HTTP/1.1", "Host: localhost", f"Content-Length: {len(data)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + data


async def answered(stream: trio.abc.Stream) -> tuple[int, dict[str, str], Any]:
    """The next response on a connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = await stream.receive_some()
        assert more, "the connection ended"
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    while len(body) < int(headers["content-length"]):
        body += await stream.receive_some()
    return int(first.split()[1]), headers, json.loads(body)


async def ended(stream: trio.abc.Stream) -> bool:
    try:
        return not await stream.receive_some()
    except trio.BrokenResourceError:
        return True


async def test_a_service_responds_with_its_result():
    async with shop() as one, httpx.AsyncClient() as client:
        answer = await client.post(f"{one.url}/exec/echo", json={"input": [1], "params": {"a": 2}})
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == {"result": [[1], {"a": 2}], "error": ""}


async def test_a_service_that_raises_responds_with_the_error_in_the_body():
    async with shop() as one, httpx.AsyncClient() as client:
        answer = await client.post(f"{one.url}/exec/fail", json={"input": 1})
        assert answer.status_code == 200
        assert answer.json()["result"] is None
        assert answer.json()["error"].startswith("ZeroDivisionError: ")


async def test_a_service_name_can_be_percent_encoded():
    async with shop() as one, httpx.AsyncClient() as client:
        one.services.service("größe/1")(len)
        answer = await client.post(f"{one.url}/exec/gr%C3%B6%C3%9Fe%2F1", json={"input": "abc"})
        assert answer.json()["result"] == 3


@pytest.mark.parametrize(
    ("method", "path", "content", "headers", "status", "error"),
    [
        ("POST", "/exec/nope", b"{}", {}, 404, "service 'nope' not found; this worker serves echo, fail"),
        ("POST", "/other", b"{}", {}, 404, "/other not found"),
        ("GET", "/exec/echo", b"", {}, 405, "the method of a call must be POST"),
        ("POST", "/exec/echo", b"{", {}, 400, "the body is not valid"),
        ("POST", "/exec/echo", b"", {}, 400, "the body is not valid"),
        ("POST", "/exec/echo", b"[]", {}, 400, "the body is not valid: message: expected object"),
        (
            "POST",
            "/exec/echo",
            b'{"params": 1}',
            {},
            400,
            "the body is not valid: params: expected",
        ),
        ("POST", "/exec/echo", b'{"input": NaN}', {}, 400, "the body is not valid"),
        ("POST", "/exec/echo", b"\xff", {}, 400, "the body is not valid"),
        ("POST", "/exec/echo", b'{"input":' + b"[" * 100_000, {}, 400, "the body is not valid"),
        ("POST", "/exec/echo", b"{}", {"Origin": "http://x.example"}, 403, "requests of web pages are not"),
        ("POST", "/exec/echo", b"{}", {"Content-Encoding": "gzip"}, 415, "the body must not be compressed"),
        ("POST", "/exec/echo", b" " * (MAX_BYTES + 1), {}, 413, f"the body has {MAX_BYTES + 1} bytes"),
    ],
)
async def test_an_invalid_request_is_refused_with_an_error_in_json(
    method: str, path: str, content: bytes, headers: dict[str, str], status: int, error: str
):
    async with shop() as one, httpx.AsyncClient() as client:
        answer = await client.request(method, one.url + path, content=content, headers=headers)
        assert answer.status_code == status
        assert answer.json()["error"].startswith(error)
        assert answer.json()["result"] is None
        assert one.calls.load == 0


async def test_reading_a_body_without_a_length_stops_at_the_limit():
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(2 * MAX_BYTES // 65_536):
            yield b" " * 65_536

    async with shop() as one, httpx.AsyncClient() as client:
        try:
            answer = await client.post(f"{one.url}/exec/echo", content=endless())
        except httpx.WriteError:
            return  # the worker stopped reading before all was sent
        assert answer.status_code == 413


async def test_the_largest_body_is_accepted_and_the_largest_result_is_sent():
    async with shop() as one, httpx.AsyncClient(timeout=PATIENCE) as client:
        body = b'{"input": "' + b"x" * (MAX_BYTES - 13) + b'"}'
        assert len(body) == MAX_BYTES
        one.go_on.set()
        answer = await client.post(f"{one.url}/exec/wait", content=body)
        assert len(answer.json()["result"]) == MAX_BYTES - 13


async def test_invalid_http_gets_400_and_disturbs_no_other_client():
    async with shop() as one, httpx.AsyncClient() as client:
        stream = await one.connect()
        await stream.send_all(b"\x16\x03\x01 what?\r\n\r\n")
        assert (await answered(stream))[0] == 400
        assert (await client.post(f"{one.url}/exec/echo", json={})).status_code == 200


async def test_a_connection_is_kept_for_further_calls_also_after_an_error():
    async with shop() as one:
        stream = await one.connect()
        for service, body in (("echo", {"input": 1}), ("fail", {}), ("echo", {"params": 1}), ("echo", {})):
            await stream.send_all(request(service, body))
            _, headers, _ = await answered(stream)
            assert "connection" not in headers


async def test_pipelined_calls_are_answered_in_order():
    async with shop() as one:
        stream = await one.connect()
        await stream.send_all(request("wait", {"input": 1}))
        await one.begun()
        await stream.send_all(request("wait", {"input": 2}))
        await trio.testing.wait_all_tasks_blocked()
        one.go_on.set()
        assert (await answered(stream))[2]["result"] == 1
        assert (await answered(stream))[2]["result"] == 2


async def test_a_client_that_closes_its_connection_cancels_its_call():
    async with shop(limit=1) as one:
        stream = await one.connect()
        await stream.send_all(request("wait"))
        await one.begun()
        assert one.calls.load == 1
        await stream.aclose()
        await one.cancelled.wait()
        await one.calls.room()
        assert one.calls.load == 0


async def test_a_thread_counts_as_a_call_until_it_ends_although_the_client_left():
    async with shop(limit=1) as one:
        stream = await one.connect()
        await stream.send_all(request("thread"))
        await one.begun()
        await stream.aclose()
        await one.cancelled.wait()
        assert one.calls.load == 1
        one.let_thread_go.set()
        await one.calls.room()
        assert one.calls.load == 0


async def test_calls_over_the_limit_get_503():
    async with shop(limit=2) as one, httpx.AsyncClient() as client:
        for _ in range(2):
            await (await one.connect()).send_all(request("wait"))
        await one.begun(2)
        answer = await client.post(f"{one.url}/exec/echo", json={})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "5"
        assert answer.json()["error"].startswith("the limit of 2 concurrent calls")
        one.go_on.set()
        await one.calls.room()
        assert (await client.post(f"{one.url}/exec/echo", json={})).status_code == 200


async def test_after_stop_it_answers_calls_in_progress_and_refuses_new_ones():
    async with shop() as one:
        busy, idle = await one.connect(), await one.connect()
        await idle.send_all(request("echo"))
        await answered(idle)
        await busy.send_all(request("wait", {"input": 1}))
        await one.begun()
        one.push.stop()
        assert await ended(idle)
        with pytest.raises(OSError, match="all attempts to connect"):
            await one.connect()
        one.go_on.set()
        status, headers, body = await answered(busy)
        assert (status, headers["connection"], body["result"]) == (200, "close", 1)
        assert await ended(busy)


@asynccontextmanager
async def in_memory() -> AsyncIterator[tuple[Shop, trio.abc.Stream]]:
    """A connection without a socket, for mock time."""
    one = Shop(1)
    one.push = Push([], one.calls, one.services)
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.push.serve_stream, theirs)
        yield one, ours
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [
        (b"POST /exec/echo HT", LIMITS.head_timeout),
        (b"POST /exec/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{", LIMITS.body_timeout),
    ],
)
async def test_a_client_that_sends_too_slowly_gets_an_error_and_is_disconnected(
    autojump_clock: Any, sent: bytes, seconds: float
):
    async with in_memory() as (one, stream):
        began = trio.current_time()
        await stream.send_all(sent)
        assert (await answered(stream))[0] == 408
        assert trio.current_time() == pytest.approx(began + seconds)
        assert await ended(stream)
        assert one.calls.load == 0


async def test_a_connection_without_calls_is_closed_after_a_while(autojump_clock: Any):
    async with in_memory() as (_, stream):
        await stream.send_all(request("echo"))
        await answered(stream)
        began = trio.current_time()
        assert await ended(stream)
        assert trio.current_time() == pytest.approx(began + LIMITS.keep_alive)


async def test_a_client_that_does_not_read_its_response_is_disconnected(autojump_clock: Any):
    one = Shop(1)
    push = Push([], one.calls, one.services)
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(push.serve_stream, theirs)
        await ours.send_all(request("big", {"input": 1_000_000}))
        began = trio.current_time()
    assert trio.current_time() == pytest.approx(began + LIMITS.stall_timeout)


async def test_a_port_in_use_is_replaced_by_a_free_one(caplog: pytest.LogCaptureFixture):
    async with shop() as first:
        listeners, url = await listen(first.url)
        for listener in listeners:
            await listener.aclose()
    assert url.startswith("http://127.0.0.1:")
    assert url != first.url
    assert f"port {first.port} is already in use" in caplog.text


async def test_a_host_name_is_kept_in_the_url():
    listeners, url = await listen("http://localhost:0")
    ports = {listener.socket.getsockname()[1] for listener in listeners}
    for listener in listeners:
        await listener.aclose()
    assert [url] == [f"http://localhost:{port}" for port in ports]


@pytest.mark.parametrize(
    ("url", "mistake"),
    [
        ("https://127.0.0.1:8080", "must begin with http://"),
        ("http://127.0.0.1:8080/base", "must be a host and a port"),
        ("http://:8080", "must be like"),
        ("127.0.0.1:8080", "must be like"),
        ("http://127.0.0.1:99999", "is not valid"),
        ("http://me:secret@127.0.0.1:8080", "must not contain a user name or a password"),
    ],
)
async def test_a_url_that_no_worker_can_have_is_refused(url: str, mistake: str):
    with pytest.raises(Invalid, match=mistake):
        await listen(url)


async def test_an_address_of_another_machine_is_refused_with_the_url():
    with pytest.raises(OSError, match=r"cannot listen at the worker's URL http://192\.0\.2\.1:8080"):
        await listen("http://192.0.2.1:8080")
