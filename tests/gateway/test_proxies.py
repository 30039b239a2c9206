"""The gateway behind nginx and HAProxy, configured as in docs/how-to/operating.md: requests pass completely
and without delay, and no client gets more rights through a proxy."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio_websocket import open_websocket_url

from greenroom import connect
from greenroom.gateway import GatewayConfig, Limits, Role, add_token
from greenroom.gateway.tasks.calls import TABLE as TASK_CALLS

from .flowing import QUEUED, flow_house
from .proxies import NAMES, Proxy, proxied, shown
from .support import Answer, House, Raw, Talk

PATIENCE = 60.0

pytestmark = [
    pytest.mark.parametrize("name", NAMES),
    pytest.mark.at_engine,  # it takes long, and a proxy does not know what is behind the port
]


class Site:
    """A gateway behind a proxy, and a token of each role."""

    def __init__(self, home: House, proxy: Proxy, tokens: dict[str, str], certificate: Path) -> None:
        self.home = home
        self.proxy = proxy
        self.tokens = tokens
        self.certificate = certificate

    async def http(self, method: str, path: str, body: Any = None, role: str = "", **headers: str) -> Answer:
        """One request over TLS, as `runs.example`."""
        given = {"host": "runs.example"} | headers
        if role:
            given["authorization"] = f"Bearer {self.tokens[role]}"
        stream = await self.proxy.connect()
        try:
            return await Raw(stream).http(method, path, body, **given)
        finally:
            await trio.aclose_forcefully(stream)

    @asynccontextmanager
    async def socket(self, path: str = "/", **headers: str) -> AsyncIterator[Talk]:
        """A WebSocket over TLS."""
        bearer = {"Authorization": f"Bearer {self.tokens['admin']}"}
        given = [(key.encode(), value.encode()) for key, value in (bearer | headers).items()]
        host = f"runs.example:{self.proxy.port}"
        with _resolving():
            async with open_websocket_url(
                f"wss://{host}{path}", ssl_context=self.proxy.tls, extra_headers=given
            ) as socket:
                yield Talk(socket)


class _Here(trio.abc.HostnameResolver):
    """A name server for which everything is on this machine."""

    async def getaddrinfo(self, host: Any, port: Any, *args: Any, **kwargs: Any) -> list[Any]:
        return [(trio.socket.AF_INET, trio.socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        raise NotImplementedError


class _resolving:
    def __enter__(self) -> None:
        self._before = trio.socket.set_custom_hostname_resolver(_Here())

    def __exit__(self, *raised: object) -> None:
        trio.socket.set_custom_hostname_resolver(self._before)


@asynccontextmanager
async def site(name: str, folder: Path, limits: Limits | None = None, **times: str) -> AsyncIterator[Site]:
    [settings] = [tomllib.loads(block)["gateway"] for block in shown("toml") if "allowed_hosts" in block]
    settings["token_file"] = str(folder / "tokens")
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    tokens = {str(role): add_token(folder / "tokens", f"the-{role}", role) for role in Role}
    with trio.fail_after(PATIENCE):
        async with (
            flow_house(limits=limits, **settings) as home,
            proxied(name, home.gateway.port, folder, **times) as proxy,
        ):
            yield Site(home, proxy, tokens, folder / "certificate.pem")


async def test_requests_get_through_with_their_tokens_and_prefixes(name, tmp_path):
    async with site(name, tmp_path) as here:
        for prefix in ("", "/greenroom"):
            assert (await here.http("GET", f"{prefix}/readyz")).status == 200
            assert (await here.http("GET", f"{prefix}/api/state")).status == 401
            assert (await here.http("GET", f"{prefix}/api/state", role="viewer")).status == 200
            said = await here.http(
                "POST",
                f"{prefix}/api/runs",
                {"job": "wait", "handle": f"a{prefix}", "params": {}},
                "operator",
            )
            assert said.status == 201
            run = said.json["run_id"]
            assert (await here.http("GET", f"{prefix}/api/runs/{run}", role="viewer")).json[
                "handle"
            ] == f"a{prefix}"
        assert (await here.http("GET", "/api/runs/a%2Fb", role="viewer")).status == 404


async def test_clients_of_the_proxy_need_a_token_for_the_calls_of_workers(name, tmp_path):
    async with site(name, tmp_path) as here:
        for task in TASK_CALLS:
            for prefix in ("", "/api", "/greenroom"):
                body = None if task.method == "GET" else {}
                assert (await here.http(task.method, f"{prefix}{task.path}", body)).status == 401, task.path
                forged = {
                    "x_forwarded_for": "127.0.0.1",
                    "x_real_ip": "127.0.0.1",
                    "forwarded": "for=127.0.0.1",
                }
                assert (await here.http(task.method, f"{prefix}{task.path}", body, **forged)).status == 401


async def test_a_worker_with_a_token_does_its_work_through_the_proxy(name, tmp_path):
    async with site(name, tmp_path) as here:
        worker = {"id": "w", "url": "", "services": ["slow"], "type": "queue"}
        assert (await here.http("POST", "/api/workers/register", worker, "worker")).status == 200
        await here.home.engine.flows.publish("f", QUEUED)
        ticket = await here.home.engine.flows.start("f", params={"n": 1})
        item = (
            await here.http("POST", "/api/queue/poll", {"worker_id": "w", "services": ["slow"]}, "worker")
        ).json
        body = {"queue_id": item["id"], "result": 5, "error": ""}
        assert (await here.http("POST", "/api/queue/complete", body, "worker")).status == 200
        assert await ticket.result() == {"out": 5}


@pytest.mark.parametrize("path", ["/", "/greenroom/", "/greenroom"])
async def test_a_websocket_gets_through(name, tmp_path, path):
    async with site(name, tmp_path) as here, here.socket(path) as talk:
        assert (await talk.receive())["role"] == "admin"
        await talk.call("subscribe")
        await talk.call("set_params", handle="h", params={"x": "y" * 100_000})
        assert talk.events()[-1]["type"] == "handle_changed"


async def test_the_client_of_the_library_gets_through_under_a_prefix(name, tmp_path):
    async with site(name, tmp_path) as here:
        with _resolving():
            url = f"https://runs.example:{here.proxy.port}/greenroom/"
            async with connect(url, token=here.tokens["admin"], ca_file=str(here.certificate)) as client:
                ticket = await client.submit("wait", handle="h", params={})
                assert (await client.get_run(ticket.id)).handle == "h"


async def test_a_websocket_that_is_quiet_for_longer_than_the_proxy_waits_stays(name, tmp_path):
    limits = Limits(ping_interval=0.4)
    async with site(name, tmp_path, limits, **{"75s": "4s"}) as here, here.socket() as talk:
        await talk.receive()
        with trio.move_on_after(6):
            await talk.receive()
        assert (await talk.call("snapshot"))["snapshot"]["epoch"]


def test_pings_are_more_frequent_than_the_timeout_of_the_proxy(name):
    [block, *_] = shown(name)
    waits = [
        int(found) for found in re.findall(r"(?:read_timeout|timeout (?:server|tunnel|client)) (\d+)s", block)
    ]
    kept = [int(found) for found in re.findall(r"keep-?alive(?:_timeout)? (\d+)s", block)]
    limits = GatewayConfig().limits
    assert waits
    assert min(waits) > max(limits.ping_interval, 15.0, 25.0)
    assert kept
    assert max(kept) < limits.keep_alive


async def test_events_are_not_delayed(name, tmp_path):
    async with site(name, tmp_path) as here:
        stream = await here.proxy.connect()
        try:
            head = f"Host: runs.example\r\nAuthorization: Bearer {here.tokens['viewer']}\r\n"
            await stream.send_all(f"GET /api/events HTTP/1.1\r\n{head}\r\n".encode())
            received = b""
            for number in range(3):
                while b"id: " not in received and number == 0:
                    received += await stream.receive_some()
                await here.home.engine.set_params("h", {"number": number})
                with trio.fail_after(10):  # less than between two keep-alives
                    while f'"number":{number}'.encode() not in received:
                        received += await stream.receive_some()
        finally:
            await trio.aclose_forcefully(stream)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "runs.example:443"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "runs.example.evil.example"}, 403),
        ({"origin": "https://runs.example"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example", "origin": "https://evil.example"}, 403),
        ({"host": "evil.example", "x_forwarded_host": "runs.example"}, 403),
        ({"origin": "https://evil.example", "x_forwarded_host": "evil.example"}, 403),
    ],
)
async def test_hosts_and_origins_are_judged_as_without_a_proxy(name, tmp_path, headers, status):
    async with site(name, tmp_path) as here:
        answer = await here.http("GET", "/api/state", role="viewer", **headers)
        assert answer.status == status


async def test_a_page_of_another_origin_gets_no_websocket(name, tmp_path):
    async with site(name, tmp_path) as here:
        async with here.socket(Origin="https://runs.example") as talk:
            await talk.receive()
        answer = await here.http(
            "GET",
            "/",
            upgrade="websocket",
            connection="Upgrade",
            sec_websocket_version="13",
            sec_websocket_key="AAAAAAAAAAAAAAAAAAAAAA==",
            origin="https://evil.example",
        )
        assert answer.status == 403


async def test_bodies_pass_up_to_the_limit_of_the_gateway(name, tmp_path):
    async with site(name, tmp_path) as here:
        for size, status in ((900_000, 200), (3_000_000, 413)):
            body = json.dumps({"params": {"x": "y" * size}}).encode()
            answer = await here.http("PUT", "/api/handles/h/params", body, "operator")
            assert answer.status == status


async def test_the_proxy_detects_a_server_that_drains(name, tmp_path):
    async with site(name, tmp_path, **{"inter 2s": "inter 50ms"}) as here:
        await here.home.engine.drain()
        await becomes_ready(here, 503)
        await here.home.engine.resume()
        await becomes_ready(here, 200)


async def becomes_ready(here: Site, status: int) -> None:
    for _ in range(200):
        if (await here.http("GET", "/readyz")).status == status:
            return
        await trio.sleep(0.05)
    pytest.fail(f"/readyz is not answered with {status}")
