"""Access: tokens and roles, hosts and origins, tickets, and clients without a token."""

from __future__ import annotations

import base64
import logging
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom import Jobs
from greenroom.errors import Invalid, NotFound
from greenroom.gateway import GatewayConfig, Role, Tokens, add_token, remove_token
from greenroom.gateway.auth.signed_tickets import SignedTickets
from greenroom.gateway.commands.table import TABLE
from tests.support import open_engine, open_gateway

from .support import Raw, Refused, house


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    """A token of each role, and their file under `file`."""
    file = tmp_path / "tokens"
    return {"file": str(file)} | {str(role): add_token(file, f"the-{role}", role) for role in Role}


def bearer(token: str) -> str:
    return f"Bearer {token}"


# Tokens.


def test_the_file_contains_no_token_and_only_its_owner_can_read_it(tmp_path):
    file = tmp_path / "tokens"
    token = add_token(file, "alice", Role.OPERATOR)
    assert len(base64.urlsafe_b64decode(token[3:] + "=")) == 32
    assert token not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    caller = Tokens.load(file).find(token)
    assert caller is not None
    assert (caller.name, caller.role) == ("alice", Role.OPERATOR)


def test_what_was_in_the_file_stays_when_a_token_is_added(tmp_path):
    file = tmp_path / "tokens"
    first = add_token(file, "alice", Role.VIEWER)
    file.write_text("# ours\n\n" + file.read_text().rstrip("\n"))
    second = add_token(file, "bob", Role.ADMIN)
    loaded = Tokens.load(file)
    assert file.read_text().startswith("# ours\n")
    assert [loaded.find(token).name for token in (first, second)] == ["alice", "bob"]


def test_a_token_is_removed_and_everything_else_stays_in_the_file(tmp_path):
    file = tmp_path / "tokens"
    first = add_token(file, "alice", Role.VIEWER)
    second = add_token(file, "bob", Role.ADMIN)
    third = add_token(file, "alice2", Role.OPERATOR)
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(["# alice may look\n", "\n", lines[0], "#admin alice\n", *lines[1:]]))
    old = file.open()  # a concurrent reader has the complete old file
    remove_token(file, "alice")
    assert file.read_text() == "".join(["# alice may look\n", "\n", "#admin alice\n", *lines[1:]])
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["tokens"]
    with old:
        assert lines[0] in old.read()
    loaded = Tokens.load(file)
    assert loaded.find(first) is None
    assert [caller.name for caller in loaded] == ["bob", "alice2"]
    assert [loaded.find(token).role for token in (second, third)] == [Role.ADMIN, Role.OPERATOR]


def test_removing_an_unknown_token_is_an_error(tmp_path):
    file = tmp_path / "tokens"
    add_token(file, "alice", Role.VIEWER)
    before = file.read_bytes()
    for name in ("bob", "ali", "", "viewer"):
        with pytest.raises(NotFound, match=f"token '{name}' not found"):
            remove_token(file, name)
    assert file.read_bytes() == before
    with pytest.raises(Invalid, match="cannot read token file"):
        remove_token(tmp_path / "none", "alice")


@pytest.mark.parametrize("name", ["", "two words", "line\nbreak", "x" * 300])
def test_a_name_that_the_file_format_does_not_allow_is_refused(tmp_path, name):
    with pytest.raises(Invalid):
        add_token(tmp_path / "tokens", name, Role.VIEWER)


def test_a_name_can_have_only_one_token(tmp_path):
    add_token(tmp_path / "tokens", "alice", Role.VIEWER)
    with pytest.raises(Invalid, match="alice"):
        add_token(tmp_path / "tokens", "alice", Role.ADMIN)


@pytest.mark.parametrize(
    "line", ["admin alice", "king alice " + "0" * 64, "admin alice 0123", "admin alice " + "G" * 64]
)
def test_a_line_that_cannot_be_read_is_named(tmp_path, line):
    file = tmp_path / "tokens"
    file.write_text(f"# one\n{line}\n")
    with pytest.raises(Invalid, match="tokens:2: "):
        Tokens.load(file)


def test_an_unknown_token_is_not_found(tmp_path, tokens):
    loaded = Tokens.load(tokens["file"])
    for token in ("", "gr_", tokens["admin"][:-1], tokens["admin"] + "x", "\ud800", "ä"):
        assert loaded.find(token) is None


# Where it listens.


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
async def test_without_tokens_the_gateway_listens_on_loopback_only(host):
    async with open_engine(Jobs(), "memory:") as engine:
        with pytest.raises(Invalid, match="token_file"):
            async with open_gateway(engine, GatewayConfig(host=host, port=0)):
                pytest.fail("it must not open")


async def test_with_tokens_it_listens_anywhere(tokens):
    async with (
        open_engine(Jobs(), "memory:") as engine,
        open_gateway(engine, GatewayConfig(host="0.0.0.0", port=0, token_file=tokens["file"])) as gateway,
    ):
        assert gateway.port > 0


# Over HTTP.


@pytest.mark.parametrize(
    "header", [{}, {"authorization": "Bearer gr_wrong"}, {"authorization": "Basic eDp5"}]
)
async def test_http_without_a_valid_token_is_unauthorized(tokens, header):
    async with house(token_file=tokens["file"]) as home:
        for path in ("/api/state", "/api/events", "/metrics", "/api/runs"):
            answer = await home.http("GET", path, **header)
            assert (answer.status, answer.json["code"]) == (401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
        assert (await home.http("GET", "/healthz")).status == 200
        assert (await home.http("GET", "/readyz")).status == 200


NEEDED = {entry.wire.__struct_config__.tag: entry.role for entry in TABLE}
MAY = {
    "executor": set(),
    "worker": {"register_worker", "heartbeat_worker", "poll_work", "complete_work", "extend_work"},
    "viewer": {
        "get_run",
        "list_runs",
        "list_files",
        "history",
        "snapshot",
        "wait",
        "subscribe",
        "unsubscribe",
        "ping",
        "check_flow",
        "list_flows",
        "list_flow_versions",
        "get_flow_version",
        "get_task",
        "list_tasks",
        "node_runs",
        "list_workers",
        "allocate_worker",
        "list_jobs",
        "list_executors",
        "list_schedules",
        "get_schedule",
        "get_cluster",
    },
    "operator": {
        "submit",
        "submit_many",
        "rerun",
        "retry",
        "cancel",
        "cancel_many",
        "rerun_many",
        "retry_many",
        "inject",
        "answer",
        "set_params",
        "set_priority",
        "clear_lane",
        "clear_handle",
        "release_handle",
        "signal",
        "create_flow",
        "publish_flow",
        "add_flow_version",
        "start_flow",
        "put_schedule",
        "preview_schedule",
        "pause_schedule",
        "resume_schedule",
        "trigger_schedule",
        "delete_schedule",
        "dead_webhooks",
        "failing_webhooks",
        "redeliver_webhook",
        "drop_webhook",
    },
    "admin": {
        "set_concurrency",
        "pause_lane",
        "resume_lane",
        "set_lane",
        "set_max_concurrent",
        "reset_lanes",
        "drain",
        "resume",
        "drain_executor",
        "step_down",
    },
}
MAY["operator"] |= MAY["viewer"]
MAY["admin"] |= MAY["operator"] | MAY["worker"]
FIELDS: dict[str, dict[str, Any]] = {
    "submit": {"job": "wait", "handle": "h", "params": {}},
    "submit_many": {"runs": [{"job": "wait", "handle": "h", "params": {}}]},
    "inject": {"run_or_handle": "x", "message": 1},
    "answer": {"interrupt_id": "x", "data": 1},
    "redeliver_webhook": {"webhook_id": "x"},
    "drop_webhook": {"webhook_id": "x"},
    "set_params": {"handle": "h2", "params": 1},
    "set_concurrency": {"lane": "l", "n": 1},
    "pause_lane": {"lane": "l"},
    "resume_lane": {"lane": "l"},
    "set_lane": {"lane": "l", "rules": {}},
    "set_priority": {"run_id": "x", "priority": 1},
    "set_max_concurrent": {"n": 1},
    "clear_lane": {"lane": "l"},
    "clear_handle": {"handle": "h"},
    "release_handle": {"handle": "h"},
    "signal": {"run_id": "x", "key": "k", "value": 1},
    "create_flow": {"name": "f"},
    "publish_flow": {"name": "f", "definition": {}},
    "add_flow_version": {"flow": "f", "definition": {}},
    "check_flow": {"definition": {}},
    "list_flow_versions": {"flow": "f"},
    "get_flow_version": {"version_id": "x"},
    "start_flow": {"flow": "f"},
    "allocate_worker": {"service": "s"},
    "register_worker": {"worker_id": "w", "url": "", "services": ["s"], "kind": "queue"},
    "heartbeat_worker": {"worker_id": "w"},
    "poll_work": {"worker_id": "w", "services": ["s"], "wait": 0},
    "complete_work": {"item_id": "x"},
    "extend_work": {"item_id": "x", "worker_id": "w"},
    "drain_executor": {"executor_id": "x"},
    "preview_schedule": {"every": 60},
    "put_schedule": {"name": "s", "job": "wait", "every": 60},
    **{f"{call}_schedule": {"name": "s"} for call in ("get", "pause", "resume", "trigger", "delete")},
}


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.EXECUTOR])
async def test_a_role_permits_exactly_its_commands(tokens, role):
    async with house(token_file=tokens["file"]) as home:
        async with home.socket(headers={"authorization": bearer(tokens[role])}) as talk:
            assert (await talk.receive())["role"] == role
            for type in NEEDED:
                fields = FIELDS.get(type, {})
                if type in (
                    "rerun",
                    "retry",
                    "cancel",
                    "get_run",
                    "list_files",
                    "history",
                    "wait",
                    "get_task",
                    "node_runs",
                ):
                    fields = {"run_id": "x"}
                code = "ok"
                try:
                    await talk.call(type, **fields)
                except Refused as refused:
                    code = refused.code
                assert (code != "forbidden") == (type in MAY[role]), type
        for entry in TABLE:
            if entry.http is None:
                continue
            path = entry.http.path.replace("{", "").replace("}", "")
            answer = await home.http(entry.http.method, path, authorization=bearer(tokens[role]))
            assert (answer.status != 403) == (entry.wire.__struct_config__.tag in MAY[role]), path


async def test_events_name_the_token_that_caused_them(tokens):
    async with house(token_file=tokens["file"]) as home:
        body = {"job": "wait", "handle": "h", "params": {}}
        said = await home.http("POST", "/api/runs", body, authorization=bearer(tokens["operator"]))
        [queued, *_] = await home.engine.history(said.json["run_id"])
        assert queued.by == "the-operator"


# Over WebSocket.


async def test_without_tokens_every_client_is_an_admin():
    async with house() as home, home.socket() as talk:
        welcome = await talk.receive()
        assert welcome["role"] == "admin"
        assert set(welcome) == {"type", "epoch", "seq", "server", "limits", "role"}


async def test_the_first_message_can_contain_the_token(tokens):
    async with house(token_file=tokens["file"]) as home, home.socket() as talk:
        await talk.send(type="auth", token=tokens["viewer"])
        assert (await talk.receive())["role"] == "viewer"
        await talk.call("snapshot")


@pytest.mark.parametrize(
    "message",
    [{"type": "auth", "token": "gr_wrong"}, {"type": "snapshot", "id": 1}, {"type": "nonsense"}, {}],
)
async def test_any_other_first_message_is_refused_and_closes(tokens, message):
    async with house(token_file=tokens["file"]) as home, home.socket() as talk:
        await talk.send(**message)
        assert (await talk.receive())["type"] == "error"
        assert await talk.close_code() == 4401


async def test_nothing_is_sent_before_authentication(tokens, autojump_clock):
    async with house(token_file=tokens["file"], listen=False) as home:
        talk = await home.memory_socket()
        begun = trio.current_time()
        assert await talk.close_code() == 4401
        assert trio.current_time() - begun == pytest.approx(10, abs=0.5)
        assert talk.received == []


async def test_a_header_with_a_wrong_token_is_answered_by_http(tokens):
    async with house(token_file=tokens["file"]) as home:
        raw = await home.raw()
        async with raw.stream:
            await raw.send(upgrade(Authorization="Bearer gr_wrong"))
            assert (await raw.answer()).status == 401


async def test_revoking_a_token_closes_its_connections(tokens):
    async with house(token_file=tokens["file"]) as home:
        async with (
            home.socket(headers={"authorization": bearer(tokens["viewer"])}) as viewer,
            home.socket(headers={"authorization": bearer(tokens["admin"])}) as admin,
        ):
            await viewer.receive()
            await admin.receive()
            remove_token(tokens["file"], "the-viewer")
            home.gateway.reconfigure(GatewayConfig(token_file=tokens["file"]))
            assert await viewer.close_code() == 4401
            await admin.call("drain")
        answer = await home.http("GET", "/api/state", authorization=bearer(tokens["viewer"]))
        assert answer.status == 401


async def test_an_invalid_configuration_changes_nothing(tokens, tmp_path):
    async with house(token_file=tokens["file"]) as home:
        with pytest.raises(Invalid):
            home.gateway.reconfigure(GatewayConfig(token_file=str(tmp_path / "none")))
        answer = await home.http("GET", "/api/state", authorization=bearer(tokens["viewer"]))
        assert answer.status == 200


async def test_no_token_is_logged(tokens, caplog):
    caplog.set_level(logging.DEBUG)
    async with house(token_file=tokens["file"]) as home:
        await home.http("GET", "/api/state", authorization=bearer(tokens["viewer"]))
        await home.http("GET", "/api/state", authorization="Bearer gr_wrong")
        async with home.socket() as talk:
            await talk.send(type="auth", token=tokens["viewer"])
            await talk.receive()
        async with home.socket() as talk:
            await talk.send(type="auth", token="gr_wrong")
            await talk.receive()
    logged = "\n".join(record.getMessage() for record in caplog.records if record.name != "trio-websocket")
    assert tokens["viewer"] not in logged
    assert "gr_wrong" not in logged


# The upgrade itself.


def upgrade(**headers: str | None) -> bytes:
    given: dict[str, str | None] = {
        "Host": "localhost",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value is not None)
    return f"GET / HTTP/1.1\r\n{lines}\r\n".encode("latin-1")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (upgrade(Sec_WebSocket_Version="12"), 426),
        (upgrade(Sec_WebSocket_Version=None), 426),
        (upgrade(Sec_WebSocket_Key=None), 400),
        (upgrade(Sec_WebSocket_Key="short"), 400),
        (upgrade(Sec_WebSocket_Key="!" * 24), 400),
        (upgrade(Sec_WebSocket_Key="\xff" * 24), 400),
        (upgrade(Sec_WebSocket_Protocol="chat, superchat"), 400),
        (upgrade(Host="evil.example"), 403),
        (upgrade(Host="xn--\xff"), 403),
        (upgrade(Origin="https://evil.example"), 403),
        (upgrade(Content_Length="5") + b"hello", 400),
        (upgrade().replace(b"GET", b"POST"), 400),
        (upgrade(Connection="close"), 404),
        (upgrade(Upgrade="h2c"), 404),
    ],
)
async def test_an_invalid_handshake_is_refused(data, status):
    async with house() as home:
        raw = await home.raw()
        async with raw.stream:
            await raw.send(data)
            answer = await raw.answer()
            assert answer.status == status
            if status == 426:
                assert answer.headers["sec-websocket-version"] == "13"


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (None, None),
        ("greenroom.v1.json", "greenroom.v1.json"),
        ("greenroom.v1.msgpack, greenroom.v1.json", "greenroom.v1.msgpack"),
        ("other, greenroom.v1.json", "greenroom.v1.json"),
    ],
)
async def test_the_first_known_subprotocol_is_selected(offered, chosen):
    async with house() as home:
        raw = await home.raw()
        async with raw.stream:
            await raw.send(upgrade(Sec_WebSocket_Protocol=offered))
            answer = (await raw.stream.receive_some()).partition(b"\r\n\r\n")[0].decode().lower()
            assert answer.startswith("http/1.1 101")
            assert (f"sec-websocket-protocol: {chosen}" in answer) == (chosen is not None)


# Hosts and origins.


@pytest.mark.parametrize(
    ("host", "fine"),
    [
        ("localhost", True),
        ("localhost:8440", True),
        ("LOCALHOST", True),
        ("app.localhost:1", True),
        ("127.0.0.1:8440", True),
        ("[::1]:8440", True),
        ("192.0.2.7", True),
        ("green.example", True),
        ("green.example:8440", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("user@localhost", False),
        ("localhost/x", False),
        ("", False),
        ("[::1", False),
        ("localhost:x", False),
    ],
)
async def test_only_hosts_of_the_gateway_are_accepted(host, fine):
    async with house(allowed_hosts=("Green.example",)) as home:
        answer = await home.http("GET", "/api/state", host=host)
        assert answer.status == (200 if fine else 403)


@pytest.mark.parametrize(
    ("origin", "fine"),
    [
        ("http://localhost:8440", True),
        ("HTTP://LOCALHOST:8440", True),
        ("https://friend.example", True),
        ("https://localhost:8440", True),  # a proxy may change the scheme
        ("http://localhost", False),  # another program of this machine serves it
        ("http://localhost:8441", False),
        ("ftp://localhost:8440", False),
        ("http://localhost.evil.example:8440", False),
        ("http://localhost:x", False),
        ("http://user@localhost:8440", False),
        ("http://evil.example", False),
        ("http://friend.example", False),
        ("https://friend.example.evil.example", False),
        ("null", False),
        ("", False),
        ("http://localhost:8440/x", False),
    ],
)
async def test_only_own_and_allowed_pages_can_use_the_gateway(origin, fine):
    async with house(allowed_origins=("https://friend.example",)) as home:
        answer = await home.http("POST", "/api/drain", host="localhost:8440", origin=origin)
        assert answer.status == (200 if fine else 403)
        assert answer.headers.get("access-control-allow-origin") == (origin if fine else None)
        assert (await home.engine.snapshot()).engine.draining == fine


@pytest.mark.parametrize("host", ["runs.example", "runs.example:8443", "RUNS.example:443"])
async def test_a_page_behind_a_proxy_that_terminates_tls_is_allowed(host):
    async with house(allowed_hosts=("runs.example",)) as home:
        for origin in ("https://runs.example", "https://runs.example:8443", "http://runs.example"):
            answer = await home.http("GET", "/api/state", host=host, origin=origin)
            assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, origin)
        for origin in ("https://evil.example", "https://runs.example.evil.example", "https://a.runs.example"):
            assert (await home.http("GET", "/api/state", host=host, origin=origin)).status == 403


@pytest.mark.parametrize("origin", ["https://localhost", "https://localhost:8443", "http://localhost"])
async def test_a_loopback_page_is_allowed_behind_a_proxy_that_drops_the_port(origin):
    async with house() as home:
        assert (await home.http("GET", "/api/state", host="localhost", origin=origin)).status == 200


async def test_a_foreign_name_for_this_address_is_refused_even_if_the_origin_has_the_same_name():
    async with house() as home:
        for origin in ("http://evil.example", "http://evil.example:8440"):
            answer = await home.http("GET", "/api/state", host="evil.example:8440", origin=origin)
            assert answer.status == 403


async def test_a_preflight_of_an_allowed_page_is_answered():
    async with house(allowed_origins=("https://friend.example",)) as home:
        answer = await home.http("OPTIONS", "/api/runs", origin="https://friend.example")
        assert answer.status == 204
        assert "authorization" in answer.headers["access-control-allow-headers"]
        assert (await home.http("OPTIONS", "/api/runs", origin="https://evil.example")).status == 403


# Tickets.


async def test_a_ticket_opens_the_events_once(tokens, autojump_clock):
    async with house(token_file=tokens["file"], listen=False) as home:
        raw = Raw(await home.stream())
        said = await raw.http("POST", "/api/tickets", authorization=bearer(tokens["viewer"]))
        assert said.status == 201
        ticket = said.json["ticket"]
        assert ticket != tokens["viewer"]
        stream = await home.stream()
        await stream.send_all(f"GET /api/events?ticket={ticket} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")
        assert (await raw.http("GET", f"/api/events?ticket={ticket}")).status == 401


async def test_a_ticket_is_valid_for_30_seconds_and_for_events_only(tokens, autojump_clock):
    async with house(token_file=tokens["file"], listen=False) as home:
        if isinstance(tickets := home.gateway._shared.tickets, SignedTickets):
            tickets._wall_clock = trio.current_time
        raw = Raw(await home.stream())
        for wait, status in ((29.5, 200), (30.5, 401)):
            said = await raw.http("POST", "/api/tickets", authorization=bearer(tokens["viewer"]))
            ticket = said.json["ticket"]
            assert (await raw.http("GET", f"/api/state?ticket={ticket}")).status == 401
            await trio.sleep(wait)
            assert (await raw.http("HEAD", f"/api/events?ticket={ticket}")).status == status


async def test_a_ticket_expires_with_the_token_for_which_it_was_issued(tokens):
    async with house(token_file=tokens["file"]) as home:
        mark = {"authorization": bearer(tokens["viewer"])}
        ticket = (await home.http("POST", "/api/tickets", **mark)).json["ticket"]
        remove_token(tokens["file"], "the-viewer")
        home.gateway.reconfigure(home.gateway._shared.config)
        raw = await home.raw()
        async with raw.stream:
            head = f"GET /api/events?ticket={ticket} HTTP/1.1\r\nHost: localhost\r\n"
            await raw.send(f"{head}Last-Event-ID: unknown:1\r\n\r\n".encode())
            assert (await raw.stream.receive_some()).startswith(b"HTTP/1.1 401 ")


async def test_a_token_in_the_url_is_ignored(tokens):
    async with house(token_file=tokens["file"]) as home:
        for name in ("token", "access_token", "ticket"):
            answer = await home.http("GET", f"/api/events?{name}={tokens['admin']}")
            assert answer.status == 401
