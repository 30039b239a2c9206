"""The permissions for the calls of flows and workers: roles, and the exemption of workers on this machine."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom.errors import Invalid
from greenroom.gateway import GatewayConfig, Role, add_token, remove_token
from greenroom.gateway.auth.access import Access
from greenroom.gateway.server import _is_local
from greenroom.gateway.tasks.calls import TABLE, TaskCall

from .flowing import QUEUED, flow_house
from .support import PATIENCE, House, Raw

MAY: dict[str, set[tuple[str, str]]] = {
    "worker": {
        (method, f"{place}/{call}")
        for place in ("/workers", "")
        for method, call in (
            ("POST", "register"),
            ("POST", "heartbeat"),
            ("GET", "list"),
            ("GET", "allocate"),
        )
    }
    | {("POST", f"/queue/{call}") for call in ("poll", "complete", "heartbeat")},
    "viewer": {
        ("GET", path)
        for path in (
            "/workers/list",
            "/list",
            "/workers/allocate",
            "/allocate",
            "/flows",
            "/flows/version",
            "/flows/version/get",
            "/tasks",
            "/tasks/get",
            "/tasks/runs",
        )
    },
    "operator": {
        ("POST", path) for path in ("/flows", "/flows/version", "/tasks", "/tasks/cancel", "/tasks/signal")
    },
}
MAY["operator"] |= MAY["viewer"]
MAY["admin"] = MAY["operator"] | MAY["worker"]
MAY["executor"] = set()

EVERY_CALL = pytest.mark.parametrize("task", TABLE, ids=lambda task: f"{task.method} {task.path}")


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "tokens"
    return {"file": str(file)} | {str(role): add_token(file, f"the-{role}", role) for role in Role}


@pytest.fixture
async def open_home(tokens: dict[str, str]) -> AsyncIterator[House]:
    """A gateway at which workers on this machine need no token."""
    async with flow_house(token_file=tokens["file"], workers_without_token="loopback") as home:
        yield home


@pytest.fixture
async def home(tokens: dict[str, str], caplog: pytest.LogCaptureFixture) -> AsyncIterator[House]:
    async with flow_house(token_file=tokens["file"]) as home:
        yield home
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def status(home: House, task: TaskCall, prefix: str = "/api", **headers: str) -> int:
    """The status of a call without arguments: 400 if it is permitted."""
    body = None if task.method == "GET" else {}
    return (await home.http(task.method, f"{prefix}{task.path}", body, **headers)).status


@EVERY_CALL
async def test_a_role_permits_exactly_its_calls(home, tokens, task):
    for role in Role:
        for prefix in ("", "/api"):
            answered = await status(home, task, prefix, authorization=f"Bearer {tokens[role]}")
            assert (answered != 403) == ((task.method, task.path) in MAY[role]), role


@EVERY_CALL
async def test_with_a_token_file_every_call_requires_a_token(home, task):
    for prefix in ("", "/api"):
        assert await status(home, task, prefix) == 401


@EVERY_CALL
async def test_with_workers_without_token_a_local_program_can_do_the_work_of_workers(open_home, task):
    for prefix in ("", "/api"):
        allowed = (task.method, task.path) in MAY["worker"]
        assert (await status(open_home, task, prefix) != 401) == allowed


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::"])
def test_the_exemption_is_refused_on_a_non_loopback_address(tokens, host):
    with pytest.raises(
        Invalid, match=r"workers_without_token = 'loopback' requires a loopback address \(got host .*\)"
    ):
        Access(GatewayConfig(host=host, token_file=tokens["file"], workers_without_token="loopback"))


async def test_workers_without_token_is_logged_as_a_warning(tokens, caplog):
    async with flow_house(token_file=tokens["file"], workers_without_token="loopback") as home:
        assert "behind a proxy on this machine, so can every client of the proxy" in caplog.text
        home.gateway.reconfigure(GatewayConfig(token_file=tokens["file"]))
        assert (await home.http("POST", "/queue/poll", {})).status == 401


@EVERY_CALL
@pytest.mark.parametrize(
    "header",
    [
        {"origin": "http://localhost:{port}"},
        {"x_forwarded_for": "127.0.0.1"},
        {"x_forwarded_proto": "https"},
        {"x_forwarded_host": "localhost"},
        {"forwarded": "for=127.0.0.1"},
        {"via": "1.1 proxy"},
        {"x_real_ip": "127.0.0.1"},
    ],
    ids=lambda header: next(iter(header)),
)
async def test_pages_and_requests_through_a_proxy_require_a_token_nevertheless(open_home, task, header):
    home = open_home
    [(name, value)] = header.items()
    host = f"localhost:{home.gateway.port}"
    given = {name: value.format(port=home.gateway.port), "host": host}
    assert await status(home, task, **given) == 401


@EVERY_CALL
async def test_an_invalid_token_is_refused_although_none_is_required(open_home, task):
    home = open_home
    assert await status(home, task, authorization="Bearer gr_wrong") == 401
    assert await status(home, task, authorization="Basic eDp5") == 401


async def test_a_request_from_another_machine_or_a_proxy_needs_a_token(autojump_clock, tokens):
    async with flow_house(token_file=tokens["file"], listen=False, workers_without_token="loopback") as home:
        body = {"id": "w", "url": "", "services": ["slow"], "type": "queue"}
        raw = Raw(await home.stream())
        answer = await raw.http("POST", "/register", body)
        assert (answer.status, bool(answer.json["error"])) == (401, True)
        with_token = {"authorization": f"Bearer {tokens['worker']}"}
        assert (await Raw(await home.stream()).http("POST", "/register", body, **with_token)).status == 200


@pytest.mark.parametrize(
    ("peer", "local"),
    [
        (("127.0.0.1", 5), True),
        (("127.8.9.1", 5), True),
        (("::1", 5, 0, 0), True),
        (("::ffff:127.0.0.1", 5, 0, 0), True),
        (("10.0.0.7", 5), False),
        (("::ffff:10.0.0.7", 5, 0, 0), False),
        (("fe80::1%eth0", 5, 0, 2), False),
        (("2001:db8::7", 5, 0, 0), False),
        ("", False),
    ],
)
def test_the_peer_address_decides_whether_a_client_is_local(peer: Any, local: bool):
    assert _is_local(peer) == local


async def test_a_worker_on_this_machine_works_without_a_token_under_the_exemption(open_home):
    home = open_home
    worker = {"id": "w", "url": "", "services": ["slow"], "type": "queue"}
    assert (await home.http("POST", "/register", worker)).status == 200
    await home.engine.flows.publish("f", QUEUED)
    ticket = await home.engine.flows.start("f", params={"n": 1})
    item = (await home.http("POST", "/queue/poll", {"worker_id": "w", "services": ["slow"]})).json
    body = {"queue_id": item["id"], "result": 5, "error": ""}
    assert (await home.http("POST", "/queue/complete", body)).status == 200
    with trio.fail_after(PATIENCE):
        assert await ticket.result() == {"out": 5}


async def test_events_name_the_worker_and_the_operator_who_caused_them(open_home, tokens):
    home = open_home
    seen = home.engine.events()
    for path, role, body in (
        ("/register", None, {"id": "w", "url": "", "services": ["s"], "type": "queue"}),
        ("/register", "worker", {"id": "v", "url": "", "services": ["s"], "type": "queue"}),
        ("/flows", "operator", {"Name": "f"}),
    ):
        header = {} if role is None else {"authorization": f"Bearer {tokens[role]}"}
        assert (await home.http("POST", path, body, **header)).status == 200
    assert [(await anext(seen)).by for _ in range(3)] == ["local", "the-worker", "the-operator"]


async def test_a_worker_can_only_do_its_work_over_a_websocket(home, tokens):
    async with home.socket(headers={"authorization": f"Bearer {tokens['worker']}"}) as talk:
        registered = await talk.call(
            "register_worker", worker_id="w", url="", services=["slow"], kind="queue"
        )
        assert registered["worker"]["status"] == "online"
        await home.engine.flows.publish("f", QUEUED)
        ticket = await home.engine.flows.start("f", params={"n": 1})
        item = (await talk.call("poll_work", worker_id="w", services=["slow"]))["item"]
        await talk.call("complete_work", item_id=item["id"], result=5)
        with trio.fail_after(PATIENCE):
            assert await ticket.result() == {"out": 5}


async def a_poll_waits(home: House) -> None:
    with trio.fail_after(PATIENCE):
        while not home.engine.workers._queue.report()["polls"]:  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_a_waiting_poll_is_refused_when_its_token_is_revoked(home, tokens):
    """The work goes to a worker with a valid token."""
    await home.engine.flows.publish("f", QUEUED)
    raw = await home.raw()
    async with raw.stream:
        body = b'{"worker_id":"w","services":["slow"]}'
        head = (
            "POST /queue/poll HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {tokens['worker']}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        await raw.send(head.encode() + body)
        await a_poll_waits(home)
        remove_token(tokens["file"], "the-worker")
        home.gateway.reconfigure(home.gateway._shared.config)
        await home.engine.flows.start("f", params={"n": 1})
        assert (await raw.answer()).status == 401
    admin = {"authorization": f"Bearer {tokens['admin']}"}
    poll = {"worker_id": "other", "services": ["slow"]}
    assert (await home.http("POST", "/queue/poll", poll, **admin)).status == 200


async def test_a_request_whose_token_is_revoked_before_its_body_arrives_is_refused(home, tokens):
    raw = await home.raw()
    async with raw.stream:
        head = (
            "POST /workers/register HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {tokens['worker']}\r\nContent-Length: 49\r\nExpect: 100-continue\r\n\r\n"
        )
        await raw.send(head.encode())
        assert (await raw.stream.receive_some()).startswith(b"HTTP/1.1 100 ")
        remove_token(tokens["file"], "the-worker")
        home.gateway.reconfigure(home.gateway._shared.config)
        await raw.send(b'{"id":"intruder","services":["s"],"type":"queue"}')
        assert (await raw.answer()).status == 401
    assert not await home.engine.workers.list()


async def test_a_poll_without_a_token_ends_when_the_exemption_does(open_home, tokens):
    raw = await open_home.raw()
    async with raw.stream:
        body = b'{"worker_id":"w","services":["slow"]}'
        head = "POST /queue/poll HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        await raw.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await a_poll_waits(open_home)
        exempting = open_home.gateway._shared.config
        open_home.gateway.reconfigure(exempting)  # this changes nothing, so the poll continues to wait
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert open_home.engine.workers._queue.report()["polls"] == 1
        open_home.gateway.reconfigure(GatewayConfig(token_file=tokens["file"]))
        assert (await raw.answer()).status == 401
