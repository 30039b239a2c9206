"""Random bytes of clients cause no crash, no hang, no error in the log, and disturb no other client.

`GREENROOM_FUZZ` is the number of clients of each of the five kinds, by default 1000; 100000 is the long form.
A follower gets a tenth of them.
Several clients use the same engine, because starting an engine takes longer than a client.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenroom.gateway import Limits
from greenroom.gateway.tasks.calls import TABLE as TASK_CALLS
from greenroom.gateway.tasks.calls import TaskCall
from greenroom.protocol.codec import JSON
from greenroom.protocol.commandbase import CommandBase
from greenroom.protocol.commands import Command
from tests.protocol.strategies import values_of

from .support import BINARY, CLOSE, PING, PONG, TEXT, House, Raw, client_frame, house

CONTINUATION = 0
RUN = "0" * 32
"""A placeholder for the id of an existing run."""
FLOW = "1" * 32
"""A placeholder for the id of an existing flow."""
TASK = "2" * 32
"""A placeholder for the id of a run of that flow, which waits for work in the queue."""
GRAPH = {
    "start": "q",
    "nodes": {"q": {"kind": "executor", "exec_type": "queue", "service": "s", "on_error": "e"}},
    "edges": [{"from": "q", "action": "e", "to": ""}],
}
CLIENTS = int(os.environ.get("GREENROOM_FUZZ", "1000"))
AT_A_TIME = 10
LIMITS = Limits(max_message_bytes=300, max_head_bytes=500)  # so small that they are met
COMMANDS = [kind for kind in Command.__args__ if kind.__name__ not in ("Auth",)]  # type: ignore[attr-defined]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
field_names = st.sampled_from(
    "type id job handle params lane run_id n limit after epoch filter data message files timeout kind".split()
)
types = st.sampled_from([kind.__struct_config__.tag for kind in COMMANDS] + ["auth", "ok", ""])
loose = st.fixed_dictionaries({"type": types, "id": st.integers(0, 9)}).flatmap(
    lambda base: st.dictionaries(field_names, json_values, max_size=4).map(lambda more: more | base)
)
frames = st.one_of(
    loose.map(lambda message: client_frame(json.dumps(message).encode(errors="replace"))),
    loose.map(lambda message: client_frame(json.dumps(message).encode(errors="replace"), BINARY)),
    st.binary(max_size=40).map(client_frame),
    st.builds(
        client_frame,
        st.binary(max_size=40) | st.sampled_from([b"x" * size for size in (125, 126, 300, 301)]),
        st.sampled_from([CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG]) | st.integers(0, 15),
        fin=st.booleans(),
        reserved=st.sampled_from([0, 0, 0, 1, 2, 4]),
        masked=st.sampled_from([True, True, True, False]),
    ),
    st.binary(max_size=30),
)
AIMED: dict[str, st.SearchStrategy[Any]] = {
    "job": st.just("wait"),
    "handle": st.sampled_from(["h", "i"]),
    "lane": st.sampled_from(["main", "side"]),
    "run_id": st.just(RUN),
    "run_or_handle": st.sampled_from([RUN, "h", "i"]),
    "params": st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
    "flow": st.sampled_from(["f", FLOW]),
    "name": st.sampled_from(["f", "g"]),
    "definition": st.sampled_from([GRAPH, json.dumps(GRAPH), {}]),
    "version": st.sampled_from([None, 0, 1, 2]),
    "worker_id": st.sampled_from(["v", "w"]),
    "services": st.just(["s"]),
    "service": st.just("s"),
    "wait": st.sampled_from([0, 1, 25]),
    "key": st.sampled_from(["k", "a.b"]),
    "id": st.sampled_from(["v", "w", TASK, FLOW, RUN]),
    "flow_id": st.sampled_from(["f", FLOW]),
    "task_id": st.just(TASK),
    "definition_json": st.sampled_from([GRAPH, json.dumps(GRAPH)]),
    "params_json": st.sampled_from(["{}", {}, '{"a":1}', "[]"]),
    "status": st.sampled_from(["", "draft", "published", "running", "failed"]),
    "url": st.sampled_from(["", "http://127.0.0.1:9"]),
    "type": st.sampled_from(["", "http", "queue"]),
}
"""What there is, so that commands are not only about what there is not."""


def aimed(kind: type[msgspec.Struct]) -> st.SearchStrategy[msgspec.Struct]:
    fields = {
        field.name: AIMED.get(field.name, values_of(field.type)) for field in msgspec.structs.fields(kind)
    }
    if issubclass(kind, CommandBase):
        fields["id"] = st.integers(0, 9)
    return st.builds(kind, **fields)


def request(task: TaskCall, api: str, spelled: Any, given: dict[str, Any]) -> bytes:
    """A call of flows or workers, with its fields in the body or in the query."""
    given = {spelled(name): value for name, value in given.items() if value is not None}
    line, body = f"{task.method} {api}{task.path}", b""
    if task.in_query:
        line += "?" + urlencode({name: str(value) for name, value in given.items()}, errors="replace")
    else:
        body = json.dumps(given).encode()
    head = f"{line} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def task_calls(task: TaskCall) -> st.SearchStrategy[bytes]:
    given = st.one_of(
        aimed(task.takes).map(msgspec.to_builtins),
        st.dictionaries(st.sampled_from(task.takes.__struct_fields__), json_values, max_size=4),
    )
    spelled = st.sampled_from([str, str.upper, lambda name: name.replace("_", "")])
    return st.builds(request, st.just(task), st.sampled_from(["", "/api"]), spelled, given)


commands = st.one_of([values_of(kind) for kind in COMMANDS] + [aimed(kind) for kind in COMMANDS]).map(
    JSON.encode
)
LINES = [
    b"GET /healthz HTTP/1.1",
    b"GET /api/state HTTP/1.1",
    b"HEAD /api/runs?limit=1&status=queued&status=x HTTP/1.1",
    b"GET /api/runs/%ff?limit=x HTTP/1.1",
    b"GET /api/events?after=0 HTTP/1.1",
    b"POST /api/runs HTTP/1.1",
    b"PUT /api/max_concurrent HTTP/1.0",
    b"PUT /api/handles/h%2Fi/params HTTP/1.1",
    b"HEAD /healthz HTTP/1.1",
    b"CONNECT /healthz HTTP/1.1",
    b"OPTIONS * HTTP/1.1",
    b"GET /api/state HTTP/1.2",
    b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13",
    b"nonsense",
]
HEADERS = [
    b"Content-Length: 7",
    b"Content-Length: 39",
    b"Transfer-Encoding: chunked",
    b"Content-Type: text/plain",
    b"Expect: 100-continue",
    b"Connection: close",
    b"Host: elsewhere.example",
    b"Origin: http://elsewhere.example",
    b"Authorization: Bearer x",
    b"If-None-Match: *",
    b"Last-Event-ID: x:1",
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    b" folded",
    b"X: " + b"x" * 300,
]
BODIES = [
    b"",
    b'{"n":1}',
    b'{"limit":1}',
    b'7\r\n{"n":1}\r\n0\r\n\r\n',
    b'{"job":"wait","handle":"h","params":{}}',
    b'1\r\n{"',
    b"x" * 301,
]
headers = st.lists(st.sampled_from(HEADERS), max_size=2)
usual = st.sampled_from([[b"Host: localhost", b"Content-Type: application/json"], [b"Host: localhost"], []])
requests = st.builds(
    lambda line, usual, more, body: b"\r\n".join([line, *usual, *more, b"", body]),
    st.sampled_from(LINES),
    usual,
    headers,
    st.sampled_from(BODIES),
)
pieces = st.one_of(
    requests,
    requests,
    st.sampled_from([line + b"\r\n" for line in [*LINES, *HEADERS, b""]] + BODIES),
    st.binary(max_size=20),
)


def clients(piece: st.SearchStrategy[bytes], most: int) -> st.SearchStrategy[list[list[bytes]]]:
    """The data of several clients: each piece separately, or split in another way, or all together."""
    pieces = st.lists(piece, min_size=1, max_size=most)
    data = st.builds(cut, pieces, st.sampled_from([None, None, 29, 10_000]))
    return st.lists(data, min_size=AT_A_TIME, max_size=AT_A_TIME)


def cut(pieces: list[bytes], size: int | None) -> list[bytes]:
    whole = b"".join(pieces)
    return pieces if size is None else [whole[start : start + size] for start in range(0, len(whole), size)]


def play(
    caplog: pytest.LogCaptureFixture, clients: list[list[bytes]], *, upgraded: bool, framed: bool = True
) -> None:
    """Run an engine with a gateway, check that another client is served as usual, and that no error is
    logged."""

    async def main() -> None:
        async with house(limits=LIMITS, listen=False) as home:
            other = await home.memory_socket()
            await other.call("subscribe")
            run_id = (await home.engine.submit("wait", handle="h", params={})).id
            flow_id = (await home.engine.flows.publish("f", GRAPH)).flow
            task_id = (await home.engine.flows.start("f")).id

            def prepared(piece: bytes) -> bytes:
                for name, id in ((RUN, run_id), (FLOW, flow_id), (TASK, task_id)):
                    piece = piece.replace(name.encode(), id.encode())
                return piece if framed else client_frame(piece)

            with trio.fail_after(1000):
                async with trio.open_nursery() as nursery:
                    for data in clients:
                        nursery.start_soon(misbehave, home, [prepared(piece) for piece in data], upgraded)
            await home.engine.set_max_concurrent(3)
            await other.call("set_params", handle="the other's", params="still here")
            assert [event["seq"] for event in other.events()] == list(
                range(1, home.engine.stream.last_seq + 1)
            )

    caplog.clear()
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def misbehave(home: House, data: list[bytes], upgraded: bool) -> None:
    """Send, and read until the server closes the connection."""
    raw = Raw(await home.stream())
    if upgraded:
        await raw.upgrade()
    with trio.move_on_after(100):
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                while await raw.stream.receive_some(65_536):
                    pass

            nursery.start_soon(read)
            for piece in data:
                try:
                    await raw.send(piece)
                except trio.BrokenResourceError:
                    break
                await trio.testing.wait_all_tasks_blocked()
            await raw.stream.send_eof()  # type: ignore[attr-defined]
    await trio.aclose_forcefully(raw.stream)


FEWER = 10
"""The gateway of a follower parses with the same code, so it gets fewer examples."""


def fuzz(node: str, data: st.SearchStrategy[list[list[bytes]]], check: Callable[[Any], None]) -> None:
    """Check examples of the data of clients, at one of the nodes."""
    examples = CLIENTS // AT_A_TIME // (FEWER if node == "follower" else 1)
    healthy = [HealthCheck.too_slow, HealthCheck.data_too_large]

    @settings(max_examples=max(1, examples), suppress_health_check=healthy)
    @given(data=data)
    def examine(data: list[list[bytes]]) -> None:
        check(data)

    examine()


def test_any_frames(caplog: pytest.LogCaptureFixture, node: str):
    fuzz(node, clients(frames, 8), partial(play, caplog, upgraded=True))


def test_any_commands(caplog: pytest.LogCaptureFixture, node: str):
    messages = st.lists(commands, min_size=1, max_size=5)
    data = st.lists(messages, min_size=AT_A_TIME, max_size=AT_A_TIME)
    fuzz(node, data, partial(play, caplog, upgraded=True, framed=False))


def test_any_requests(caplog: pytest.LogCaptureFixture, node: str):
    fuzz(node, clients(pieces, 6), partial(play, caplog, upgraded=False))


def test_any_calls_of_flows_and_workers(caplog: pytest.LogCaptureFixture, node: str):
    calls = st.one_of([task_calls(task) for task in TASK_CALLS])
    fuzz(node, clients(calls, 6), partial(play, caplog, upgraded=False))


def test_any_bytes(caplog: pytest.LogCaptureFixture, node: str):
    fuzz(node, clients(st.binary(min_size=1, max_size=300), 1), partial(play, caplog, upgraded=False))
