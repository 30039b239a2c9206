"""Whatever bytes a client sends: no crash, no hang, no error in the log, and no other client disturbed.

A long search: `GREENROOM_FUZZ=20000 python -m pytest tests/gateway/test_fuzz.py`.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenroom.gateway import Limits
from greenroom.protocol.codec import JSON
from greenroom.protocol.commands import Command
from tests.protocol.strategies import values_of

from .support import BINARY, House, Raw, client_frame, house

EXAMPLES = int(os.environ.get("GREENROOM_FUZZ", "150"))
LIMITS = Limits(max_message_bytes=4_000, max_head_bytes=2_000)
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
        st.binary(max_size=200),
        st.integers(0, 15),
        fin=st.booleans(),
        reserved=st.sampled_from([0, 0, 0, 1, 2, 4]),
        masked=st.sampled_from([True, True, True, False]),
    ),
    st.binary(max_size=30),
)
HEADS = [
    b"GET /api/state HTTP/1.1\r\n",
    b"POST /api/runs HTTP/1.1\r\n",
    b"PUT /api/max_concurrent HTTP/1.1\r\n",
    b"GET /api/events?after=0 HTTP/1.1\r\n",
    b"OPTIONS * HTTP/1.1\r\n",
    b"Host: localhost\r\n",
    b"Host: localhost\r\n",
    b"Content-Type: application/json\r\n",
    b"Content-Length: 7\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n",
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
    b"\r\n",
    b"\r\n",
    b'{"n":1}',
    b"7\r\n",
    b'{"job":"wait","handle":"h","params":{}}',
    b"0\r\n\r\n",
]
pieces = st.one_of(st.sampled_from(HEADS), st.sampled_from(HEADS), st.binary(max_size=20))


def play(scenario: Callable[[House], Awaitable[None]]) -> None:
    """One life of an engine with a gateway, in which another client sees that it is served as ever."""

    async def main() -> None:
        async with house(limits=LIMITS, listen=False) as home:
            other = await home.memory_socket()
            await other.call("subscribe")
            with trio.fail_after(1000):
                await scenario(home)
            await home.engine.set_max_concurrent(3)
            await other.call("set_params", handle="the other's", params="still here")
            assert [event["seq"] for event in other.events()] == list(
                range(1, home.engine.stream.last_seq + 1)
            )

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def sends(raw: Raw, data: list[bytes]) -> None:
    """Send, and read whatever comes until the server has had enough."""
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


@pytest.fixture(autouse=True)
def no_errors(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.ERROR)
    yield
    assert not caplog.records


fuzz = settings(
    max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@fuzz
@given(data=st.lists(frames, min_size=1, max_size=8))
def test_any_frames(data: list[bytes]):
    async def scenario(home: House) -> None:
        raw = Raw(await home.stream())
        await raw.upgrade()
        await sends(raw, data)

    play(scenario)


@fuzz
@given(data=st.data())
def test_any_commands(data: st.DataObject):
    messages = [
        client_frame(JSON.encode(data.draw(values_of(data.draw(st.sampled_from(COMMANDS))))))
        for _ in range(5)
    ]

    async def scenario(home: House) -> None:
        raw = Raw(await home.stream())
        await raw.upgrade()
        await sends(raw, messages)

    play(scenario)


@fuzz
@given(data=st.lists(pieces, min_size=1, max_size=12))
def test_any_requests(data: list[bytes]):
    async def scenario(home: House) -> None:
        await sends(Raw(await home.stream()), data)

    play(scenario)


@fuzz
@given(data=st.binary(min_size=1, max_size=300))
def test_any_bytes(data: bytes):
    async def scenario(home: House) -> None:
        await sends(Raw(await home.stream()), [data])

    play(scenario)
