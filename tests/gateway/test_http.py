"""HTTP: methods and paths, the status of each refusal, limits, and ambiguous requests."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from importlib.resources import files

import h11
import pytest
import trio
from trio.testing import lockstep_stream_pair

from greenroom.gateway import Limits, Role, add_token
from greenroom.protocol.fold import Projection
from greenroom.protocol.records import Snapshot

from ..texts import PYTHON
from .support import House, Raw, house

LIMITS = Limits(max_message_bytes=10_000, max_head_bytes=4_000, close_timeout=1)


@pytest.fixture
async def home(caplog: pytest.LogCaptureFixture) -> AsyncIterator[House]:
    async with house(limits=LIMITS) as home:
        yield home
        assert (await home.http("GET", "/healthz")).status == 200  # other clients are always served
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def status_of(home: House, data: bytes) -> int:
    """Send bytes as they are; the status of the first answer."""
    raw = await home.raw()
    async with raw.stream:
        await raw.send(data)
        return (await raw.answer()).status


# The JavaScript client.


CLIENT_FILES = {"greenroom.js": "text/javascript", "greenroom.d.ts": "application/typescript"}


@pytest.mark.parametrize("name", CLIENT_FILES)
async def test_the_javascript_client_and_its_types_need_no_token(name, tmp_path):
    add_token(tmp_path / "tokens", "someone", Role.VIEWER)
    async with house(token_file=str(tmp_path / "tokens")) as home:
        assert (await home.http("GET", "/api/state")).status == 401
        answer = await home.http("GET", f"/{name}")
        source = files("greenroom.gateway").joinpath("console", name).read_bytes()
        assert (answer.status, answer.body) == (200, source)
        assert answer.headers["content-type"] == f"{CLIENT_FILES[name]}; charset=utf-8"
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["x-content-type-options"] == "nosniff"
        head = await home.http("HEAD", f"/{name}")
        assert (head.status, head.body) == (200, b"")
        assert head.headers == answer.headers
        assert (await home.http("POST", f"/{name}")).status == 405


@pytest.mark.parametrize("name", CLIENT_FILES)
async def test_a_cached_javascript_client_is_confirmed_with_304(name, home):
    raw = await home.raw()
    async with raw.stream:
        tag = (await raw.http("GET", f"/{name}")).headers["etag"]
        for known in (tag, f'"other", {tag}', f"W/{tag}", "*"):
            for method in ("GET", "HEAD"):
                answer = await raw.http(method, f"/{name}", if_none_match=known)
                assert (answer.status, answer.body, answer.headers["etag"]) == (304, b"", tag)
                assert "content-length" not in answer.headers
        for unknown in ('"other"', tag[1:-1], ""):
            assert (await raw.http("GET", f"/{name}", if_none_match=unknown)).status == 200


# Methods and paths.


@pytest.mark.parametrize("path", ["/api", "/api/", "/api/runs/", "/api/runs/x/y", "/nothing", "//api/state"])
async def test_an_unknown_path_is_not_found(home, path):
    answer = await home.http("GET", path)
    assert (answer.status, answer.json["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/api/runs", "GET, HEAD, OPTIONS, POST"),
        ("POST", "/api/state", "GET, HEAD, OPTIONS"),
        ("GET", "/api/reset", "OPTIONS, POST"),
        ("POST", "/api/lanes/main", "GET, HEAD, OPTIONS, PUT"),
        ("HEAD", "/api/drain", "OPTIONS, POST"),
        ("BREW", "/metrics", "GET, HEAD, OPTIONS"),
        ("TRACE", "/healthz", "GET, HEAD, OPTIONS"),
    ],
)
async def test_a_method_that_a_path_does_not_support_is_refused_with_the_supported_ones(
    home, method, path, allowed
):
    answer = await home.http(method, path)
    assert answer.status == 405
    assert answer.headers["allow"] == allowed


async def test_head_is_get_without_the_body(home):
    raw = await home.raw()
    async with raw.stream:
        whole = await raw.http("GET", "/api/state")
        head = await raw.http("HEAD", "/api/state")
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == whole.headers["content-length"] == str(len(whole.body))
        assert (await raw.http("HEAD", "/api/runs/none")).status == 404
        assert (await raw.http("HEAD", "/api/events")).status == 200


async def test_options_returns_the_methods_of_a_path(home):
    answer = await home.http("OPTIONS", "/api/runs")
    assert (answer.status, answer.headers["allow"], answer.body) == (204, "GET, HEAD, OPTIONS, POST", b"")
    assert (await home.http("OPTIONS", "*")).status == 204


async def test_every_answer_has_the_headers_that_keep_browsers_careful(home):
    for path in ("/healthz", "/nothing", "/metrics"):
        headers = (await home.http("GET", path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert headers["content-security-policy"].startswith("default-src 'none'")


async def test_a_connection_is_kept_for_further_requests_also_after_a_refusal(home):
    raw = await home.raw()
    async with raw.stream:
        for path, status in (
            ("/healthz", 200),
            ("/nothing", 404),
            ("/api/runs?limit=x", 400),
            ("/healthz", 200),
        ):
            assert (await raw.http("GET", path)).status == status
        assert (await raw.http("POST", "/api/runs", {"job": 1})).status == 400
        assert (await raw.http("PUT", "/api/max_concurrent", {"n": 4})).status == 200


async def test_pipelined_requests_are_answered_in_order(home):
    raw = await home.raw()
    async with raw.stream:
        await raw.send(
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
            b"PUT /api/max_concurrent HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b'Content-Length: 7\r\n\r\n{"n":8}'
            b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        data = await raw.until_closed()
        assert re.findall(rb"HTTP/1.1 (\d+)", data) == [b"200", b"200", b"404"]


async def test_http_1_0_is_answered_and_closed(home):
    raw = await home.raw()
    async with raw.stream:
        await raw.send(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert (await raw.until_closed()).endswith(b'{"status":"ok"}')


async def test_http_1_0_needs_no_host(home):
    assert await status_of(home, b"GET /healthz HTTP/1.0\r\n\r\n") == 200
    assert await status_of(home, b"OPTIONS / HTTP/1.0\r\n\r\n") == 204  # HAProxy's default health check
    assert await status_of(home, b"GET /healthz HTTP/1.0\r\nHost: evil.example\r\n\r\n") == 403
    assert await status_of(home, b"GET /healthz HTTP/1.0\r\nOrigin: http://localhost\r\n\r\n") == 403


UPGRADE = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


async def status_line(home: House, data: bytes) -> bytes:
    """The same for what may become a WebSocket."""
    raw = await home.raw()
    async with raw.stream:
        await raw.send(data)
        return bytes(await raw.stream.receive_some()).partition(b"\r\n")[0]


async def test_upgrade_means_nothing_in_http_1_0(home):
    head = b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n"
    assert await status_line(home, head + UPGRADE) == b"HTTP/1.1 200 OK"
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    assert (await status_line(home, head + UPGRADE)).startswith(b"HTTP/1.1 101")


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"http://localhost/healthz", 200),
        (b"HTTP://localhost:8440/healthz?x=1", 200),
        (b"https://127.0.0.1/healthz", 200),
        (b"http://localhost", 200),
        (b"http://localhost?x=/healthz", 200),
        (b"http://evil.example/healthz", 403),
        (b"http://localhost:x/healthz", 403),
    ],
)
async def test_a_target_can_be_an_absolute_url_whose_host_counts(home, target, status):
    for host in (b"localhost", b"evil.example"):  # it is not looked at where the target names one
        assert await status_of(home, b"GET " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n") == status


async def test_an_absolute_url_without_a_path_requests_the_options_of_the_server(home):
    assert await status_of(home, b"OPTIONS http://localhost HTTP/1.1\r\nHost: localhost\r\n\r\n") == 204


async def test_an_absolute_url_can_be_upgraded_to_a_websocket(home):
    head = b"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n"
    assert (await status_line(home, head + UPGRADE)).startswith(b"HTTP/1.1 101")
    head = b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n"
    assert (await status_line(home, head + UPGRADE)).startswith(b"HTTP/1.1 403")


async def test_a_client_that_expects_100_continue_receives_it(home):
    raw = await home.raw()
    async with raw.stream:
        await raw.send(
            b"PUT /api/max_concurrent HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 7\r\nExpect: 100-continue\r\n\r\n"
        )
        interim = await raw.stream.receive_some()
        assert interim.startswith(b"HTTP/1.1 100")
        await raw.send(b'{"n":8}')
        assert (await raw.answer()).status == 200


# Paths and queries.


async def test_names_in_a_path_can_contain_any_character(home):
    answer = await home.http("PUT", "/api/handles/a%2Fb%20%C3%A4%3F/params", {"params": 1})
    assert answer.status == 200
    assert (await home.engine.snapshot()).handles["a/b ä?"].params == 1


@pytest.mark.parametrize("path", ["/api/handles/%FF/clear", "/api/runs/%C3"])
async def test_a_path_that_is_not_utf8_is_refused(home, path):
    assert (await home.http("POST" if "clear" in path else "GET", path)).status == 400


async def test_the_query_gives_the_arguments_of_a_get(home):
    for number in range(3):
        await home.engine.submit("wait", handle=f"h{number}", params={})
    assert len((await home.http("GET", "/api/runs?limit=2")).json["runs"]) == 2
    assert len((await home.http("GET", "/api/runs?handle=h1&status=running")).json["runs"]) == 1
    assert len((await home.http("GET", "/api/runs?status=failed&status=running")).json["runs"]) == 3
    for query in ("limit=0", "limit=two", "nothing=1", "id=4", "handle=a&handle=b", "status=asleep"):
        answer = await home.http("GET", f"/api/runs?{query}")
        assert (answer.status, answer.json["code"]) == (400, "invalid")


async def test_the_query_gives_the_filters_of_a_list(home):
    for number in range(4):
        tags = {"n": str(number), "text": "a=b &c"}
        await home.engine.submit("wait", handle=f"h{number}", params={}, tags=tags)
    [run] = (await home.http("GET", "/api/runs?tag=n=2&tag=text=a%3Db%20%26c")).json["runs"]
    assert (run["handle"], run["tags"]) == ("h2", {"n": "2", "text": "a=b &c"})
    for query, count in (
        ("tag=text=a=b%20%26c", 4),
        ("tag=n=", 0),
        ("job=wait&since=0.5&until=1e11", 4),
        ("job=other", 0),
        ("since=1e11", 0),
        ("error=a", 0),
        ("parent=null", 0),
        ("flow=a", 0),
        ("tag=n=1&status=running&status=queued&limit=3", 1),
    ):
        answer = await home.http("GET", f"/api/runs?{query}")
        assert (answer.status, len(answer.json["runs"])) == (200, count), query
    for query, message in (
        ("tag=n", "tag must be NAME=VALUE"),
        ("tag=n=1&tag=n=2", "has two values"),
        ("tag==1", "tag: name must not be empty"),
        ("tags=n", "repeat tag=NAME=VALUE"),
        ("since=yesterday", 'since must be a time in Unix seconds (got "yesterday")'),
        ("until=2h", 'until must be a time in Unix seconds (got "2h")'),
        ("since=null", "since must be a number"),
        ("since=2&until=1", "since must not be later"),
        ("error=", "error must not be empty"),
    ):
        answer = await home.http("GET", f"/api/runs?{query}")
        assert (answer.status, answer.json["code"]) == (400, "invalid"), query
        assert message in answer.json["message"]


async def test_a_run_is_submitted_again_and_a_repeated_request_is_answered_with_the_same_run(home):
    ticket = await home.engine.submit("wait", handle="alice", params={"n": 1}, tags={"a": "1"})
    await ticket.cancel()
    await ticket.wait()
    path = f"/api/runs/{ticket.id}/rerun"
    first = await home.http("POST", path, {"request_id": "again"})
    second = await home.http("POST", path, {"request_id": "again"})
    assert (first.status, second.status) == (201, 200)
    assert first.json["run_id"] == second.json["run_id"] != ticket.id
    run = (await home.http("GET", f"/api/runs/{first.json['run_id']}")).json
    assert (run["params"], run["tags"]) == ({"n": 1}, {"a": "1"})
    assert (await home.http("POST", f"/api/runs/{ticket.id}/retry", {})).json["code"] == "conflict"
    assert (await home.http("POST", "/api/runs/nobody/rerun", {})).status == 404


async def test_many_runs_are_cancelled_or_submitted_again(home):
    for number in range(3):
        await home.engine.submit("wait", handle=f"h{number}", params={}, tags={"n": str(number)})
    body = {"tags": {"n": "1"}, "dry_run": True}
    assert (await home.http("POST", "/api/bulk/cancel", body)).json == {
        "matched": 1,
        "done": 0,
        "refused": 0,
        "refusals": [],
    }
    assert (await home.http("POST", "/api/bulk/cancel", {"job": "wait"})).json["done"] == 3
    for number in range(3):
        await home.engine.wait((await home.engine.list_runs(handle=f"h{number}"))[0].id)
    for _ in range(2):
        answer = await home.http("POST", "/api/bulk/rerun", {"job": "wait", "request_id": "again"})
        assert (answer.status, answer.json["done"]) == (200, 3)
    assert len(await home.engine.list_runs()) == 6
    assert (await home.http("POST", "/api/bulk/retry", {"job": "wait"})).json["matched"] == 0
    for body in ({}, {"job": "wait", "limit": 0}, {"status": "failed"}, {"job": "wait", "request_id": ""}):
        assert (await home.http("POST", "/api/bulk/cancel", body)).status == 400
    answer = await home.http("POST", "/api/bulk/cancel", {"job": "wait", "limit": 2})
    assert "more than 2 runs match" in answer.json["message"]


async def test_a_lane_is_shown_and_set_under_its_name(home):
    assert (await home.http("GET", "/api/lanes/slow")).json["limit"] == 1
    assert (await home.http("PUT", "/api/lanes/slow", {"limit": 4})).status == 200
    assert (await home.http("GET", "/api/lanes/slow")).json == {
        "limit": 4,
        "generation": 0,
        "executing": [],
        "queued": [],
    }
    assert (await home.http("PUT", "/api/lanes/slow", {"lane": "main", "limit": 4})).status == 400


async def test_lanes_are_counted_and_shown_without_a_snapshot(home, monkeypatch):
    await home.engine.set_max_concurrent(1)
    for number in range(3):
        await home.engine.submit("wait", handle=f"h{number}", params={})
    ticket = await home.engine.submit("wait", handle="s", params={}, lane="slow")
    expected = await home.engine.snapshot()

    def snapshot(_: Projection) -> Snapshot:
        raise AssertionError("a snapshot is made")

    monkeypatch.setattr(Projection, "snapshot", snapshot)
    counts = (await home.http("GET", "/api/lanes")).json
    assert counts["engine"] == {"max_concurrent": 1, "executing": 1, "queued": 3, "draining": False}
    assert counts["lanes"]["main"] == {"limit": None, "generation": 0, "executing": 1, "queued": 2}
    assert counts["runs"] == {"queued": 3, "running": 1, "suspended": 0, "cancelling": 0}
    main = (await home.http("GET", "/api/lanes/main")).json
    assert main["queued"] == expected.lanes["main"].queued
    assert (await home.http("GET", "/api/lanes/slow")).json["queued"] == [ticket.id]
    assert (await home.http("GET", "/metrics")).status == 200


async def test_a_submission_is_created_and_a_joined_one_is_there_already(home):
    body = {"job": "wait", "handle": "alice", "params": {}, "request_id": "one"}
    first = await home.http("POST", "/api/runs", body)
    second = await home.http("POST", "/api/runs", body)
    assert (first.status, second.status) == (201, 200)
    assert first.json["run_id"] == second.json["run_id"]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/api/runs", {"job": "wait", "handle": "busy", "params": {}}, 409, "conflict"),
        ("/api/handles/busy/params", {"params": 1}, 409, "handle_locked"),
        ("/api/runs/nobody/inject", {"message": 1}, 409, "no_active_run"),
        ("/api/runs/nobody/cancel", {}, 404, "not_found"),
        ("/api/runs", {"job": "wait"}, 400, "invalid"),
    ],
)
async def test_errors_have_the_status_of_their_code(home, path, body, status, code):
    await home.engine.submit("wait", handle="busy", params={})
    answer = await home.http("PUT" if path.endswith("params") else "POST", path, body)
    assert (answer.status, answer.json["code"]) == (status, code)
    assert set(answer.json) == {"code", "message", "details"}


@pytest.mark.at_engine  # a follower is ready as long as it is up to date
async def test_readiness_is_lost_while_draining(home):
    assert (await home.http("GET", "/readyz")).status == 200
    await home.engine.drain()
    answer = await home.http("GET", "/readyz")
    assert (answer.status, answer.json["code"]) == (503, "draining")
    assert "retry-after" in answer.headers
    assert (await home.http("GET", "/healthz")).status == 200


# Bodies.


@pytest.mark.parametrize("body", [b"{", b"[]", b"1", b'"x"', b"\xff", b"", b"null", b'{"n":1}{"n":2}'])
async def test_a_body_that_is_no_json_object_is_refused(home, body):
    answer = await home.http("PUT", "/api/max_concurrent", body)
    assert (answer.status, answer.json["code"]) == (400, "invalid")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"])
async def test_a_body_of_another_type_is_refused(home, kind):
    answer = await home.http("PUT", "/api/max_concurrent", b'{"n":1}', content_type=kind)
    assert answer.status == 415


async def test_the_content_type_can_have_a_character_set(home):
    kind = "application/json; charset=utf-8"
    assert (await home.http("PUT", "/api/max_concurrent", b'{"n":1}', content_type=kind)).status == 200


async def test_a_compressed_body_is_refused(home):
    answer = await home.http("PUT", "/api/max_concurrent", b'{"n":1}', content_encoding="gzip")
    assert answer.status == 415


async def test_a_body_in_chunks_is_read(home):
    raw = await home.raw()
    async with raw.stream:
        await raw.send(
            b"PUT /api/max_concurrent HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b'Transfer-Encoding: chunked\r\n\r\n3\r\n{"n\r\n4\r\n":9}\r\n0\r\n\r\n'
        )
        assert (await raw.answer()).status == 200
        assert (await home.engine.snapshot()).engine.max_concurrent == 9
        assert (await raw.http("GET", "/healthz")).status == 200


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(home):
    head = b"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: %d\r\n\r\n"
    assert await status_of(home, head % 10_001) == 413
    assert await status_of(home, head % 10**18 + b"x" * 100_000) == 413


async def test_the_rest_of_a_refused_body_is_read_so_that_the_client_receives_the_refusal(autojump_clock):
    async with house(limits=LIMITS, listen=False) as home:
        ours, theirs = lockstep_stream_pair()
        home.nursery.start_soon(home.gateway.serve_stream, theirs)
        raw = Raw(ours)
        await raw.send(
            b"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000000\r\n\r\n"
        )
        assert (await raw.answer()).status == 413
        for _ in range(10):
            await raw.send(b"x" * 100_000)
        await trio.sleep(2)
        with pytest.raises(trio.BrokenResourceError):
            await raw.send(b"x")


async def test_a_body_in_chunks_that_grows_too_large_is_refused(home):
    head = b"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunks = b"1000\r\n" + b"x" * 0x1000 + b"\r\n"
    assert await status_of(home, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks * 3) == 413


# Heads.


@pytest.mark.parametrize(
    "data",
    [
        b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 5000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 2000 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000,
    ],
)
async def test_a_head_that_is_too_large_is_refused_with_431(home, data):
    assert await status_of(home, data) == 431


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET  /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET ftp://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http:///healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http:/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://someone@localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.0\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n Host: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX\xff: a\r\n\r\n",
        b"GET /heal\xc3\xa4thz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz?a=%ff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /api/drain HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/drain HTTP/1.1\r\nHost: localhost\r\nContent-Length: +1\r\n\r\nx",
        b"POST /api/drain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1_0\r\n\r\nx",
        b"POST /api/drain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"POST /api/drain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1, 2\r\n\r\nx",
        b"POST /api/drain HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /api/drain HTTP/1.1\r\nHost: localhost\r\n"
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"POST /api/drain HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        b"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}xx0\r\n\r\n",
        b"GET /healthz HTTP/1.1\rHost: localhost\r\r",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\rX: y\r\n\r\n",
        b"\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /api/drain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n 5\r\n\r\nhello",
        b"POST /api/drain HTTP/1.1\r\nHost: localhost\r\nContent-Length: \r\n\r\n",
        b"POST /api/drain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0x0\r\n\r\n",
        b"POST /api/drain HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"0" * 100 + b"\r\n\r\n",
        b"POST /api/drain HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"POST /api/drain HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        b"POST /api/drain HTTP/1.1\r\nHost: localhost\r\n"
        b"X: a\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        *(
            b"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n" + chunks
            for chunks in (
                b"0x2\r\n{}\r\n0\r\n\r\n",
                b"-2\r\n{}\r\n0\r\n\r\n",
                b"2 2\r\n{}\r\n0\r\n\r\n",
                b"2\n{}\n0\n\n",
                b"2;x\n\r\n{}\r\n0\r\n\r\n",
                b"f" * 40 + b"\r\n{}\r\n0\r\n\r\n",
            )
        ),
    ],
)
async def test_an_ambiguous_or_malformed_request_is_refused_and_the_connection_closed(home, data):
    raw = await home.raw()
    async with raw.stream:
        await raw.send(data + b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        got = await raw.until_closed()
        assert re.findall(rb"HTTP/1.1 (\d+) ", got) == [b"400"]
    assert not (await home.engine.snapshot()).engine.draining


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"HEAD healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"HEAD /%ff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (
            b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        (b"HEAD /healthz HTTP/1.2\r\nHost: localhost\r\n\r\n", 505),
        (b"HEAD /?" + b"x" * 4000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
    ],
)
async def test_a_head_request_is_refused_without_a_body(home, data, status):
    raw = await home.raw()
    async with raw.stream:
        await raw.send(data)
        head, _, body = (await raw.until_closed()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status)
        assert body == b""


CHANGE = b"PUT /api/max_concurrent HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "data",
    [
        CHANGE + b'Content-Length: 7\r\nContent-Length: 7\r\n\r\n{"n":9}',
        CHANGE + b'Content-Length: 7, 7\r\n\r\n{"n":9}',
        CHANGE + b'X: a\r\n Content-Length: 999\r\nContent-Length: 7\r\n\r\n{"n":9}',
        CHANGE.replace(b"\r\n", b"\n") + b'Content-Length: 7\n\n{"n":9}',
        CHANGE + b'Transfer-Encoding: ChUnKeD\r\n\r\n7\r\n{"n":9}\r\n0\r\n\r\n',
        CHANGE + b'Transfer-Encoding:\r\n chunked\r\n\r\n7\r\n{"n":9}\r\n0\r\n\r\n',
        CHANGE + b'Transfer-Encoding: chunked\r\n\r\n7;x=y\r\n{"n":9}\r\n0;x\r\nContent-Length: 999\r\n\r\n',
    ],
)
async def test_an_unusual_but_unambiguous_request_is_accepted(home, data):
    raw = await home.raw()
    async with raw.stream:
        await raw.send(data + b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert re.findall(rb"HTTP/1.1 (\d+) ", await raw.until_closed()) == [b"200", b"404"]
    assert (await home.engine.snapshot()).engine.max_concurrent == 9


async def test_another_version_of_http_is_refused(home):
    assert await status_of(home, b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n") == 505


@pytest.mark.parametrize("coding", [b"gzip", b"gzip, chunked", b"chunked, chunked", b"identity", b"xchunked"])
async def test_an_unknown_transfer_coding_is_refused(home, coding):
    head = (
        b"POST /api/drain HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: " + coding + b"\r\n\r\n0\r\n\r\n"
    )
    assert await status_of(home, head) in (400, 501)
    assert not (await home.engine.snapshot()).engine.draining


async def test_a_client_that_disconnects_at_any_point_leaves_no_task_and_no_socket(home):
    whole = (
        b"PUT /api/max_concurrent HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b'Content-Length: 7\r\n\r\n{"n":8}'
    )
    for length in range(0, len(whole), 7):
        raw = await home.raw()
        await raw.send(whole[:length])
        await raw.stream.aclose()


# Slow senders, in mock time.


async def after(raw: Raw, seconds: float) -> bytes:
    """What the server has sent when it closes, which happens after this number of seconds."""
    begun = trio.current_time()
    data = b""
    while more := await raw.stream.receive_some(65_536):
        data += more
    assert trio.current_time() - begun == pytest.approx(seconds, abs=1.01)  # `linger` takes up to a second
    return data


async def test_a_connection_without_a_request_is_closed_without_a_response(autojump_clock):
    async with house(listen=False) as home:
        assert await after(Raw(await home.stream()), 10) == b""


async def test_a_head_that_times_out_is_answered_with_408(autojump_clock):
    async with house(listen=False) as home:
        raw = Raw(await home.stream())
        await raw.send(b"GET /heal")
        assert (await after(raw, 10)).startswith(b"HTTP/1.1 408 ")


async def test_a_head_that_arrives_byte_by_byte_has_the_same_timeout(autojump_clock):
    async with house(listen=False) as home:
        raw = Raw(await home.stream())

        async def trickle() -> None:
            try:
                while True:
                    await raw.send(b"X")
                    await trio.sleep(1)
            except trio.BrokenResourceError:
                return

        home.nursery.start_soon(trickle)
        assert (await after(raw, 10)).startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_times_out_is_answered_with_408(autojump_clock):
    async with house(listen=False) as home:
        raw = Raw(await home.stream())
        await raw.send(
            b"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 10\r\n\r\n{"
        )
        assert (await after(raw, 30)).startswith(b"HTTP/1.1 408 ")


async def test_the_wait_for_the_next_request_is_limited(autojump_clock):
    async with house(listen=False) as home:
        raw = Raw(await home.stream())
        for _ in range(3):
            await trio.sleep(9)
            assert (await raw.http("GET", "/healthz")).status == 200
            await trio.sleep(50)
            assert (await raw.http("GET", "/healthz")).status == 200
            await trio.sleep(45)
        assert await after(raw, 15) == b""


async def test_a_later_head_has_the_same_timeout_from_its_first_byte(autojump_clock):
    async with house(listen=False) as home:
        raw = Raw(await home.stream())
        assert (await raw.http("GET", "/healthz")).status == 200
        await trio.sleep(30)
        await raw.send(b"GET /")
        assert (await after(raw, 10)).startswith(b"HTTP/1.1 408 ")


async def test_a_client_that_does_not_read_its_answer_is_dropped(autojump_clock):
    async with house(listen=False) as home:
        ours, theirs = lockstep_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(home.gateway.serve_stream, theirs)
            request = h11.Connection(h11.CLIENT).send(
                h11.Request(method="GET", target="/metrics", headers=[("host", "localhost")])
            )
            await ours.send_all(request)
            begun = trio.current_time()
        assert trio.current_time() - begun == 20


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        b"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /api/flows/%ed%a0%80/runs HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
async def test_a_malformed_request_is_refused_with_a_clear_message(home, request_bytes):
    raw = await home.raw()
    async with raw.stream:
        await raw.send(request_bytes)
        answer = await raw.answer()
    assert answer.status == 400
    message = answer.json["message"]
    assert not PYTHON.search(message)
    assert "bytearray" not in message
    assert "codec" not in message
