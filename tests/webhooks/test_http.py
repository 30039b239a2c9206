"""Deliveries over real connections: misbehaving receivers, addresses that are refused, and signatures that
other programs verify."""

from __future__ import annotations

import json
import shutil
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom import Engine, open_engine
from greenroom.actors.webhooks import deliveries
from greenroom.actors.workers import connections
from greenroom.persistence.memory import MemoryStore
from greenroom.protocol import webhooks
from tests.webhooks.receiving import SECRET, some_jobs
from tests.workers.support import read_request, response, serving

PATIENCE = 60.0
LOOPBACK = ["127.0.0.0/8", "::1/128"]
ALL = ["queued", "running", "succeeded"]
OK = b"HTTP/1.1 204 No Content\r\n\r\n"

Misbehave = Callable[[trio.SocketStream], Awaitable[object]]


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real time passes here."""
    monkeypatch.setattr(deliveries, "_TIMEOUT", 1.5)
    monkeypatch.setattr(webhooks, "_FIRST_PAUSE", 0.02)


class Receiver:
    """A receiver whose first response is a given one; it responds to all others with success."""

    def __init__(self, misbehave: Misbehave | None = None) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.changed = trio.Event()
        self._misbehave = misbehave

    async def serve(self, stream: trio.SocketStream) -> None:
        while (request := await read_request(stream))[0]:
            line, *lines = request[0].split("\r\n")
            assert line == "POST /hooks?tenant=1 HTTP/1.1"
            self.requests.append(
                (
                    {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)},
                    request[1],
                )
            )
            self.changed.set()
            if self._misbehave is not None:
                misbehave, self._misbehave = self._misbehave, None
                await misbehave(stream)
                return
            await stream.send_all(OK)

    @property
    def states(self) -> list[str]:
        return [json.loads(body)["to"] for _, body in self.requests]

    async def until(self, count: int) -> None:
        """Wait for so many requests."""
        while len(self.requests) < count:
            self.changed = trio.Event()
            await self.changed.wait()


@asynccontextmanager
async def delivering(**options: Any) -> AsyncIterator[Engine]:
    given = {"webhook_secret": SECRET, "webhook_networks": LOOPBACK, "store": MemoryStore()}
    with trio.fail_after(PATIENCE):
        async with open_engine(some_jobs(), shutdown_timeout=0, **given | options) as engine:
            yield engine


async def run(engine: Engine, url: str) -> str:
    ticket = await engine.submit("quick", handle="a", params={}, notify=f"{url}/hooks?tenant=1")
    await ticket.result()
    return ticket.id


def sends(data: bytes) -> Misbehave:
    return lambda stream: stream.send_all(data)


async def hangs(stream: trio.SocketStream) -> None:
    await stream.receive_some()


async def closes(stream: trio.SocketStream) -> None:
    pass


def endless(head: bytes, chunk: bytes) -> Misbehave:
    async def misbehave(stream: trio.SocketStream) -> None:
        await stream.send_all(head)
        while True:
            await stream.send_all(chunk)

    return misbehave


def slowly(data: bytes) -> Misbehave:
    async def misbehave(stream: trio.SocketStream) -> None:
        await stream.send_all(data)
        while True:
            await stream.send_all(b" ")
            await trio.sleep(0.01)

    return misbehave


FAILURES: dict[str, Misbehave] = {
    "it never responds": hangs,
    "it closes the connection": closes,
    "garbage": sends(b"\x00\xff\x16garbage\r\n\r\n"),
    "part of a head": sends(b"HTTP/1.1 200"),
    "an error": sends(response(b"no", "500 Internal Server Error")),
    "an endless error": endless(b"HTTP/1.1 500 No\r\nContent-Length: 1000000000\r\n\r\n", b"x" * 65536),
    "a redirect": sends(response(b"", "307 Temporary Redirect", "Location: http://127.0.0.1:1/")),
    "endless headers": endless(b"HTTP/1.1 200 OK\r\n", b"X-More: " + b"x" * 1000 + b"\r\n"),
    "endless interim responses": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "an upgrade": sends(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
}

SUCCESSES: dict[str, Misbehave] = {
    "an endless body": endless(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n", b"x" * 65536),
    "endless chunks": endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"5\r\nhello\r\n"),
    "a compressed body": sends(response(b"\x1f\x8b", "200 OK", "Content-Encoding: gzip")),
    "a body that breaks off": sends(b"HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\nabc"),
    "chunks that are not valid": sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
    "a slow body": slowly(b"HTTP/1.1 202 Accepted\r\nContent-Length: 1000000\r\n\r\n"),
    "no length": sends(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nthank you"),
}


@pytest.mark.parametrize("what", FAILURES)
async def test_a_delivery_without_success_is_repeated(what: str) -> None:
    receiver = Receiver(FAILURES[what])
    async with serving(receiver.serve) as url, delivering() as engine:
        await run(engine, url)
        await receiver.until(4)
    assert receiver.states == ["queued", *ALL]
    deliveries = [headers["greenroom-delivery"] for headers, _ in receiver.requests]
    assert deliveries[0] == deliveries[1]


@pytest.mark.parametrize("what", SUCCESSES)
async def test_only_the_status_of_a_response_matters(what: str) -> None:
    receiver = Receiver(SUCCESSES[what])
    async with serving(receiver.serve) as url, delivering() as engine:
        await run(engine, url)
        await receiver.until(3)
    assert receiver.states == ALL


async def test_a_body_that_does_not_end_cannot_make_a_delivery_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_SKIPPING", 3.0)  # longer than a delivery may take
    receiver = Receiver(slowly(b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n"))
    async with serving(receiver.serve) as url, delivering() as engine:
        await run(engine, url)
        await receiver.until(3)
    assert receiver.states == ALL


async def test_a_body_that_does_not_end_is_not_waited_for(autojump_clock: object) -> None:
    class Endless:
        closed = False

        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"a"
            await trio.sleep_forever()

        async def aclose(self) -> None:
            self.closed = True

    body = Endless()
    began = trio.current_time()
    await connections._skip(body)
    assert body.closed
    assert trio.current_time() - began < deliveries.PATIENCE / 5, "it counts as time for the response"


async def test_a_redirect_is_not_followed() -> None:
    other = Receiver()
    async with serving(other.serve) as elsewhere:
        location = f"Location: {elsewhere}/hooks?tenant=1"
        receiver = Receiver(sends(response(b"", "308 Permanent Redirect", location)))
        async with serving(receiver.serve) as url, delivering() as engine:
            await run(engine, url)
            await receiver.until(4)
    assert len(receiver.requests) == 4
    assert other.requests == []


async def error_of(engine: Engine) -> str:
    """The error of the first delivery that fails."""
    error = None
    while error is None:
        await trio.sleep(0.01)
        [due] = await engine._store.due_webhooks(1, [], [])
        error = due.webhook.error
    return error


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f000001", "0"])
async def test_a_name_of_an_internal_address_is_not_called(host: str) -> None:
    receiver = Receiver()
    async with serving(receiver.serve) as url, delivering(webhook_networks=None) as engine:
        port = url.rpartition(":")[2]
        await run(engine, f"http://{host}:{port}")
        error = await error_of(engine)
        assert ("is never called" if host == "0" else "in none of the webhook_networks") in error
    assert receiver.requests == []


class Rebinding(trio.abc.HostnameResolver):
    """A name whose address changes with each query: first a public one, then one of the loopback."""

    def __init__(self) -> None:
        self.queries = 0
        self.enough = trio.Event()

    async def getaddrinfo(self, host: Any, port: Any, family: int = 0, *more: Any, **named: Any) -> Any:
        self.queries += 1
        if self.queries == 4:
            self.enough.set()
        address = "192.0.2.1" if self.queries == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise NotImplementedError


async def test_a_name_whose_address_changes_is_checked_at_each_connection() -> None:
    resolver = Rebinding()
    trio.socket.set_custom_hostname_resolver(resolver)
    receiver = Receiver()
    async with serving(receiver.serve) as url, delivering(webhook_networks=["192.0.2.0/24"]) as engine:
        port = url.rpartition(":")[2]
        ticket = await engine.submit("quick", handle="a", params={}, notify=f"http://rebinds.example:{port}/")
        await ticket.result()
        await resolver.enough.wait()
        assert "127.0.0.1 is not public" in await error_of(engine)
    assert receiver.requests == []


# Signatures.

NODE = """
import { createHmac, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { isGenuine } from "./genuine.mjs";
const { headers, body, secret } = JSON.parse(readFileSync("request.json", "utf8"));
const other = Buffer.from(body, "utf8");
other[other.length - 2] ^= 1;
console.log(isGenuine(secret, headers, Buffer.from(body, "utf8")), isGenuine(secret, headers, other),
  isGenuine("another secret of the tests", headers, Buffer.from(body, "utf8")),
  isGenuine(secret, { ...headers, "greenroom-timestamp": "1" }, Buffer.from(body, "utf8")));
for (const malformed of JSON.parse(readFileSync("malformed.json", "utf8")))
  console.log(isGenuine(secret, { ...headers, ...malformed }, Buffer.from(body, "utf8")),
    isGenuine(secret, malformed, Buffer.from(body, "utf8")));
"""

NOW = str(int(time.time()))
MALFORMED = [
    *(
        {"greenroom-timestamp": text}
        for text in ("", "x", "1e9", "-1", "9" * 5000, "\u0661", f"{NOW}, {NOW}")
    ),
    *({"greenroom-signature": text} for text in ("", "v1=", "v1=é", "v1=" + "0" * 64, "v1=\x00")),
    {"greenroom-timestamp": NOW, "greenroom-signature": "v1=é"},
    {"greenroom-timestamp": "1700000000"},
]
"""Headers that a stranger may send instead of the genuine ones."""


def snippet(language: str) -> str:
    """The code for verifying signatures in the documentation."""
    page = (Path(__file__).parents[2] / "docs/how-to/webhooks.md").read_text(encoding="utf-8")
    section = page.partition("## Verifying the signature")[2]
    return section.partition(f"```{language}\n")[2].partition("```")[0]


async def one_request() -> tuple[dict[str, str], bytes]:
    receiver = Receiver()
    async with serving(receiver.serve) as url, delivering() as engine:
        ticket = await engine.submit(
            "quick", handle="a", params={"text": "ünïcödé 漢字 🦊"}, notify=f"{url}/hooks?tenant=1"
        )
        await ticket.result()
        await receiver.until(3)
    return receiver.requests[-1]


async def test_the_documented_functions_verify_a_request(tmp_path: Path) -> None:
    headers, body = await one_request()
    assert "漢字" in body.decode()
    named = {name.title(): value for name, value in headers.items()}
    python: dict[str, Any] = {}
    exec(snippet("python"), python)
    assert python["is_genuine"](SECRET, named, body)
    assert not python["is_genuine"](SECRET, named, body + b" ")
    assert not python["is_genuine"]("another secret of the tests", named, body)
    for each in MALFORMED:
        malformed = {name.title(): value for name, value in each.items()}
        assert python["is_genuine"](SECRET, named | malformed, body) is False
        assert python["is_genuine"](SECRET, malformed, body) is False

    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed")
    (tmp_path / "genuine.mjs").write_text(snippet("javascript"))
    (tmp_path / "check.mjs").write_text(NODE)
    request = {"headers": headers, "body": body.decode(), "secret": SECRET}
    (tmp_path / "request.json").write_text(json.dumps(request))
    (tmp_path / "malformed.json").write_text(json.dumps(MALFORMED))
    done = await trio.run_process(["node", "check.mjs"], cwd=tmp_path, capture_stdout=True)
    assert done.stdout.split() == [b"true", b"false", b"false", b"false", *[b"false"] * 2 * len(MALFORMED)]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
async def test_openssl_computes_the_same_signature() -> None:
    headers, body = await one_request()
    done = await trio.run_process(
        ["openssl", "dgst", "-sha256", "-hmac", SECRET],
        stdin=headers["greenroom-timestamp"].encode() + b"." + body,
        capture_stdout=True,
    )
    assert headers["greenroom-signature"] == "v1=" + done.stdout.split()[-1].decode()
