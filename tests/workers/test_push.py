"""Calls over real connections: each misbehaviour of a worker is a named failure and leaves nothing behind."""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import trio

from greenroom import Jobs
from greenroom.actors.workers.connections import MAX_ANSWER
from greenroom.actors.workers.dispatch import Dispatch
from greenroom.actors.workers.push import HttpPush, PushFailed
from greenroom.actors.workers.states import WorkFailed
from tests.support import open_engine
from tests.workers.support import Handler, dispatch_of, read_request, response, serving, work

PATIENCE = 60.0


@asynccontextmanager
async def pushing() -> AsyncIterator[HttpPush]:
    push = HttpPush()
    try:
        with trio.fail_after(PATIENCE):
            yield push
    finally:
        await push.aclose()


@asynccontextmanager
async def called(handler: Handler) -> AsyncIterator[tuple[Dispatch, str]]:
    """A dispatch, and a worker that serves `sum` with this handler."""
    async with serving(handler) as url, pushing() as push, open_engine(Jobs()) as engine:
        await engine.workers.register("w", url, ["sum"])
        yield dispatch_of(engine, push), url


async def failure(handler: Handler, **about: Any) -> WorkFailed:
    async with called(handler) as (dispatch, url):
        with pytest.raises(WorkFailed) as failed:
            await dispatch.push(work(**about))
        assert (failed.value.worker, failed.value.worker_url) == ("w", url)
        return failed.value


async def test_a_worker_is_called_with_json_and_responds_with_json():
    requests: list[tuple[str, bytes]] = []

    async def worker(stream: trio.SocketStream) -> None:
        requests.append(await read_request(stream))
        await stream.send_all(response(b'{"result": [3], "error": ""}'))

    async with called(worker) as (dispatch, url):
        worked = await dispatch.push(work(input=[1, 2], params={"op": "add"}, key="r:n:1:0"))
        assert (worked.result, worked.worker, worked.worker_url) == ([3], "w", url)
    [(head, body)] = requests
    line, *headers = head.split("\r\n")
    sent = {name.lower(): value for name, _, value in (header.partition(": ") for header in headers)}
    assert line == "POST /exec/sum HTTP/1.1"
    assert sent["host"] == url.removeprefix("http://")
    assert sent["content-type"] == "application/json"
    assert sent["idempotency-key"] == "r:n:1:0"
    assert sent["accept-encoding"] == "identity"
    assert body == b'{"input":[1,2],"params":{"op":"add"}}'


async def test_a_call_waits_for_a_late_response():
    answered = trio.Event()

    async def worker(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await answered.wait()
        for byte in response(b'{"result": 7}'):
            await stream.send_all(bytes([byte]))

    async with called(worker) as (dispatch, _), trio.open_nursery() as nursery:
        nursery.start_soon(trio.testing.wait_all_tasks_blocked, 0.05)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(lambda: _set(answered))
        assert (await dispatch.push(work())).result == 7


async def _set(event: trio.Event) -> None:
    event.set()


async def test_a_worker_that_never_responds_is_a_timeout_and_its_connection_is_closed():
    hung_up = trio.Event()

    async def worker(stream: trio.SocketStream) -> None:
        await read_request(stream)
        assert not await stream.receive_some()
        hung_up.set()

    async with called(worker) as (dispatch, _):
        with pytest.raises(WorkFailed, match=r"no response within 1 s") as failed:
            await dispatch.push(work(timeout=1))
        assert failed.value.code == "timeout"
        await hung_up.wait()


async def test_a_worker_that_never_reads_the_request_is_a_timeout():
    async def worker(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    failed = await failure(worker, input="x" * 1_000_000, timeout=0.2)
    assert failed.code == "timeout"


async def test_a_worker_that_responds_too_slowly_is_a_timeout():
    async def worker(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            await stream.send_all(b" ")
            await trio.sleep(0.01)

    assert (await failure(worker, timeout=0.2)).code == "timeout"


async def test_a_cancelled_call_closes_its_connection_immediately():
    began, hung_up = trio.Event(), trio.Event()

    async def worker(stream: trio.SocketStream) -> None:
        await read_request(stream)
        began.set()
        assert not await stream.receive_some()
        hung_up.set()

    async with called(worker) as (dispatch, _), trio.open_nursery() as nursery:
        nursery.start_soon(dispatch.push, work())
        await began.wait()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True), trio.fail_after(30):
            await hung_up.wait()


async def test_a_closed_port_is_unreachable():
    async with serving(lambda stream: stream.aclose()) as url:
        pass  # the port is free again
    async with pushing() as push, open_engine(Jobs()) as engine:
        await engine.workers.register("w", url, ["sum"])
        with pytest.raises(WorkFailed, match="connection failed: ") as failed:
            await dispatch_of(engine, push).push(work())
        assert (failed.value.code, failed.value.workers_fault) == ("unreachable", True)


async def test_an_unknown_host_name_is_unreachable():
    async with pushing() as push:
        with pytest.raises(PushFailed) as failed:
            await push.post("http://nobody.invalid/exec/sum", b"{}", {})
        assert failed.value.code == "unreachable"


@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [
        (b"", "reset", "connection lost before the response was complete"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "reset", "connection lost before"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"result":', "reset", "connection lost before"),
        (
            b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"res',
            "reset",
            "connection lost before",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "bad_http", "is not valid HTTP"),
        (bytes(range(256)) * 10, "bad_http", "is not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000, "bad_http", "is not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "bad_http", "is not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n", "bad_http", "is not valid HTTP"),
        (response(b"\x1f\x8b", "200 OK", "Content-Encoding: gzip"), "bad_http", 'encoded as "gzip"'),
        (response(b"oops", "500 Internal Server Error"), "bad_status", 'status 500: "oops"'),
        (
            response(b"", "307 Temporary Redirect", "Location: http://127.0.0.1:1/"),
            "bad_status",
            "status 307; redirects are not followed",
        ),
        (response(b"hello"), "bad_json", '"hello"'),
        (response(b'{"error": "no"}'), "service_error", "no"),
    ],
)
async def test_any_other_response_is_a_named_failure(sent, code, said):
    async def worker(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(sent)

    failed = await failure(worker)
    assert failed.code == code
    assert said in failed.message
    assert "bytearray" not in failed.message
    assert len(failed.message) < 1000


async def test_a_connection_reset_is_a_named_failure():
    async def worker(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"result":')
        stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # RST at close

    assert (await failure(worker)).code == "reset"


@pytest.mark.parametrize("announced", [True, False])
async def test_reading_a_huge_response_stops_and_closes_the_connection(announced):
    size = 100_000_000
    sent = 0
    hung_up = trio.Event()

    async def worker(stream: trio.SocketStream) -> None:
        nonlocal sent
        await read_request(stream)
        length = f"Content-Length: {size}" if announced else "Connection: close"
        await stream.send_all(f"HTTP/1.1 200 OK\r\n{length}\r\n\r\n".encode())
        try:
            while sent < size:
                await stream.send_all(b"x" * 100_000)
                sent += 100_000
        finally:
            hung_up.set()

    async with called(worker) as (dispatch, _):
        with pytest.raises(WorkFailed, match=r"100,000,000|more than 16,777,216") as failed:
            await dispatch.push(work())
        assert failed.value.code == "too_large"
        await hung_up.wait()
    assert sent < MAX_ANSWER + 20_000_000  # plus the buffers of both ends


async def test_a_huge_error_response_is_not_read_completely():
    sent = 0

    async def worker(stream: trio.SocketStream) -> None:
        nonlocal sent
        await read_request(stream)
        await stream.send_all(b"HTTP/1.1 500 Oh\r\nContent-Length: 100000000\r\n\r\n")
        while sent < 100_000_000:
            await stream.send_all(b"x" * 100_000)
            sent += 100_000

    assert (await failure(worker)).code == "bad_status"
    assert sent < 20_000_000


async def test_connections_are_reused():
    connections = 0

    async def worker(stream: trio.SocketStream) -> None:
        nonlocal connections
        connections += 1
        while (await read_request(stream))[0]:
            await stream.send_all(response(b'{"result": 1}'))

    async with called(worker) as (dispatch, _):
        for _ in range(5):
            await dispatch.push(work())
    assert connections == 1


async def test_an_idle_connection_that_the_worker_closed_is_replaced():
    requests = 0

    async def worker(stream: trio.SocketStream) -> None:
        nonlocal requests
        await read_request(stream)
        await stream.send_all(response(b'{"result": 1}'))
        if (await read_request(stream))[0]:  # it arrives while the connection is being closed
            requests += 1

    async with called(worker) as (dispatch, _):
        for _ in range(3):
            assert (await dispatch.push(work())).result == 1
    assert requests == 2


async def test_a_request_is_not_repeated_once_its_response_has_begun():
    requests = 0

    async def worker(stream: trio.SocketStream) -> None:
        nonlocal requests
        await read_request(stream)
        await stream.send_all(response(b'{"result": 1}'))
        await read_request(stream)
        requests += 1
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")

    async with called(worker) as (dispatch, _):
        await dispatch.push(work())
        with pytest.raises(WorkFailed, match="connection lost before") as failed:
            await dispatch.push(work())
        assert (failed.value.code, requests) == ("reset", 1)


async def test_a_request_that_a_new_connection_loses_is_not_repeated():
    requests = 0

    async def worker(stream: trio.SocketStream) -> None:
        nonlocal requests
        await read_request(stream)
        requests += 1

    assert (await failure(worker)).code == "reset"
    assert requests == 1


async def test_calls_that_fail_or_are_cancelled_leave_the_pool_as_it_was():
    async def worker(stream: trio.SocketStream) -> None:
        while (request := await read_request(stream))[0]:
            if b"hang" in request[1]:
                await trio.sleep_forever()
            if b"drop" in request[1]:
                return
            await stream.send_all(response(b'{"result": 1}'))

    async with called(worker) as (dispatch, _):

        async def call(what: str) -> None:
            with pytest.raises(WorkFailed):
                await dispatch.push(work(input=what, timeout=0.3))

        async with trio.open_nursery() as nursery:
            for number in range(300):  # three times the limit of connections
                nursery.start_soon(call, "hang" if number % 2 else "drop")
        for _ in range(5):
            assert (await dispatch.push(work(timeout=30))).result == 1


async def test_proxies_of_the_environment_are_not_used(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)

    async def worker(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(response(b'{"result": 1}'))

    async with called(worker) as (dispatch, _):
        assert (await dispatch.push(work())).result == 1


async def test_cookies_of_a_worker_are_ignored():
    heads: list[str] = []

    async def worker(stream: trio.SocketStream) -> None:
        while (request := await read_request(stream))[0]:
            heads.append(request[0])
            await stream.send_all(response(b'{"result": 1}', "200 OK", "Set-Cookie: a=b"))

    async with called(worker) as (dispatch, _):
        await dispatch.push(work())
        await dispatch.push(work())
    assert not any("cookie" in head.lower() for head in heads)


async def test_an_engine_closes_its_connections_at_its_end():
    hung_up = trio.Event()

    async def worker(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(response(b'{"result": 1}'))
        assert not (await read_request(stream))[0]
        hung_up.set()

    async with serving(worker) as url:
        push = HttpPush()
        assert await push.post(f"{url}/exec/sum", b"{}", {}) == (200, b'{"result": 1}')
        await push.aclose()
        with trio.fail_after(30):
            await hung_up.wait()


async def test_an_engine_without_calls_does_not_load_the_http_client():
    program = "import sys, greenroom.actors.engine.open; print('httpx' in sys.modules)"
    done = await trio.run_process([sys.executable, "-c", program], capture_stdout=True)
    assert done.stdout.strip() == b"False"


class _Worker(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b'{"result": "from another server"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


async def test_a_worker_with_another_http_server_is_called():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Worker)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        async with pushing() as push, open_engine(Jobs()) as engine:
            await engine.workers.register("w", f"http://127.0.0.1:{server.server_port}", ["sum"])
            dispatch = dispatch_of(engine, push)
            for _ in range(3):
                assert (await dispatch.push(work())).result == "from another server"
    finally:
        await trio.to_thread.run_sync(server.shutdown)
        thread.join()
        server.server_close()
