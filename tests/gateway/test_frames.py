"""WebSocket frames: which are accepted, which close the connection, and with which code."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import lockstep_stream_pair, wait_all_tasks_blocked

from greenroom.gateway import Limits

from .support import BINARY, CLOSE, PING, PONG, TEXT, House, Raw, client_frame, house

CONTINUATION = 0
COMMAND = b'{"type":"get_run","id":1,"run_id":"none"}'


@asynccontextmanager
async def connected(home: House) -> AsyncIterator[Raw]:
    raw = await home.raw()
    async with raw.stream:
        await raw.upgrade()
        assert (await raw.message())["type"] == "welcome"
        yield raw


@pytest.fixture
async def raw(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Raw]:
    async with house(limits=Limits(max_message_bytes=10_000, close_timeout=1)) as home:
        async with connected(home) as raw:
            yield raw
        async with connected(home) as other:  # other clients are always served
            await answered(other)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def answered(raw: Raw) -> None:
    """Check that the connection is still open."""
    await raw.send(client_frame(b'{"type":"get_run","id":"still there","run_id":"none"}'))
    while (await raw.message())["id"] != "still there":
        pass


async def closed_with(raw: Raw) -> int:
    """The code with which the server closes; the transport is closed after it."""
    while True:
        opcode, payload = await raw.frame()
        if opcode == CLOSE:
            code: int = struct.unpack("!H", payload[:2])[0]
            payload[2:].decode()
            await raw.send(client_frame(payload, CLOSE))
            assert await raw.until_closed() == b""
            return code


# Valid frames.


async def test_a_message_in_one_frame_is_answered(raw):
    await raw.send(client_frame(COMMAND))
    assert (await raw.message())["code"] == "not_found"


async def test_a_message_in_fragments_is_answered(raw):
    await raw.send(client_frame(COMMAND[:5], fin=False))
    for byte in COMMAND[5:-1]:
        await raw.send(client_frame(bytes((byte,)), CONTINUATION, fin=False))
    await raw.send(client_frame(COMMAND[-1:], CONTINUATION))
    assert (await raw.message())["code"] == "not_found"


async def test_a_message_byte_by_byte_is_answered(raw):
    for byte in client_frame(COMMAND):
        await raw.send(bytes((byte,)))
    assert (await raw.message())["code"] == "not_found"


async def test_a_ping_between_fragments_is_answered_immediately(raw):
    await raw.send(client_frame(COMMAND[:9], fin=False))
    await raw.send(client_frame(b"are you there", PING))
    assert await raw.frame() == (PONG, b"are you there")
    await raw.send(client_frame(COMMAND[9:], CONTINUATION))
    assert (await raw.message())["code"] == "not_found"


async def test_control_frames_are_allowed_between_fragments(raw):
    await raw.send(client_frame(b"", PING) + client_frame(b"", fin=False))
    for byte in COMMAND:
        await raw.send(client_frame(b"p" * 125, PING) + client_frame(b"", PONG))
        await raw.send(client_frame(bytes((byte,)), CONTINUATION, fin=False))
    await raw.send(client_frame(b"", CONTINUATION))
    pongs = [await raw.frame() for _ in range(1 + len(COMMAND))]
    assert pongs == [(PONG, b"")] + [(PONG, b"p" * 125)] * len(COMMAND)
    assert (await raw.message())["code"] == "not_found"


@pytest.mark.parametrize("mask", [bytes(4), b"\xff" * 4, b"\x00\xff\x80\x01"])
async def test_any_mask_is_removed(raw, mask):
    masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(COMMAND))
    await raw.send(bytes((0x81, 0x80 | len(COMMAND))) + mask + masked)
    assert (await raw.message())["code"] == "not_found"


async def test_an_unsolicited_pong_is_ignored(raw):
    await raw.send(client_frame(b"nobody asked", PONG))
    await answered(raw)


async def test_a_character_split_over_fragments_is_decoded(raw):
    text = json.dumps({"type": "get_run", "id": 1, "run_id": "ä€𝄞"}, ensure_ascii=False).encode()
    for position, byte in enumerate(text):
        first, last = position == 0, position == len(text) - 1
        await raw.send(client_frame(bytes((byte,)), TEXT if first else CONTINUATION, fin=last))
    assert "ä€𝄞" in (await raw.message())["message"]


async def test_many_messages_in_one_segment_are_all_answered(raw):
    await raw.send(client_frame(COMMAND) * 50)
    for _ in range(50):
        assert (await raw.message())["code"] == "not_found"


async def test_json_in_a_binary_frame_is_read_as_well(raw):
    await raw.send(client_frame(COMMAND, BINARY))
    assert (await raw.message())["code"] == "not_found"


async def test_frames_right_behind_the_handshake_are_not_lost():
    async with house(listen=False) as home:
        ours, theirs = lockstep_stream_pair()  # the answer to the handshake takes until it is read
        home.nursery.start_soon(home.gateway.serve_stream, theirs)
        raw = Raw(ours)
        head = (
            b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: close, Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        await raw.send(head + client_frame(COMMAND) + client_frame(b"x", PING))
        await wait_all_tasks_blocked()
        while b"\r\n\r\n" not in raw.buffer:
            raw.buffer += await ours.receive_some()
        raw.buffer = raw.buffer.partition(b"\r\n\r\n")[2]
        got = [await raw.frame() for _ in range(3)]
        assert sorted(opcode for opcode, _ in got) == [TEXT, TEXT, PONG]
        await trio.aclose_forcefully(ours)


# Malformed messages: an error, and the connection stays open.


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"nonsense",
        b"[]",
        b"null",
        b'{"type":"submit"}',
        b'{"type":"nothing","id":1}',
        b'{"id":1}',
        b'{"type":"submit","id":1,"job":"x","handle":"y","more":1}',
        b'{"type":"auth","token":"x"}',
        b"[" * 5000,
        b'{"type":"set_params","id":1,"handle":"a","params":' + b"[" * 3000 + b"]" * 3000 + b"}",
        b'{"type":"get_run","id":1,"run_id":"\\ud800"}',
        b'{"type":"set_params","id":1,"handle":"a\\u0000b","params":1}',
        b'{"type":"set_params","id":1,"handle":"","params":1}',
        b'{"type":"submit","id":1,"job":"wait","handle":"h","params":1e999}',
        b'{"type":"set_max_concurrent","id":1,"n":99999999999999999999999999}',
        b'{"type":"subscribe","id":1,"after":-1}',
        b'{"type":"subscribe","id":1,"filter":{"handles":[1]}}',
        b'{"type":"wait","id":1,"run_id":"x","timeout":-1}',
    ],
)
async def test_a_malformed_message_is_refused_and_the_connection_stays_open(raw, payload):
    await raw.send(client_frame(payload))
    assert (await raw.message())["type"] == "error"
    await answered(raw)


async def test_a_refusal_names_the_command_where_it_can_be_read(raw):
    await raw.send(client_frame(b'{"type":"nothing","id":"mine"}'))
    assert (await raw.message())["id"] == "mine"


@pytest.mark.parametrize("payload", [b"\xc1", b"\x81", b"\x80", b"\xdf\xff\xff\xff\xff", b"\x93\x01"])
async def test_malformed_messagepack_is_refused_and_the_connection_stays_open(payload):
    async with house() as home, home.socket("greenroom.v1.msgpack") as talk:
        await talk.socket.send_message(payload)
        assert (await talk.receive_type("error"))["code"] == "invalid"
        await talk.socket.send_message("text")
        assert (await talk.receive_type("error"))["code"] == "invalid"
        await talk.call("snapshot")


# Malformed frames: the connection is closed.


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (client_frame(COMMAND, masked=False), 1002),
        (client_frame(COMMAND, reserved=1), 1002),
        (client_frame(COMMAND, reserved=2), 1002),
        (client_frame(COMMAND, reserved=4), 1002),  # compressed, which was not negotiated
        (client_frame(b"x", PING, reserved=4), 1002),
        (client_frame(COMMAND[:5], fin=False) + client_frame(COMMAND[5:], CONTINUATION, reserved=4), 1002),
        *((client_frame(b"", opcode), 1002) for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)),
        (client_frame(b"x", PING, masked=False), 1002),
        (client_frame(b"x" * 126, PING), 1002),
        (client_frame(b"x" * 126, PONG), 1002),
        (client_frame(b"\x03\xe8" + b"x" * 124, CLOSE), 1002),
        (client_frame(b"x", PING, fin=False), 1002),
        (client_frame(b"\x03\xe8", CLOSE, fin=False), 1002),
        (client_frame(COMMAND) + client_frame(b"", CONTINUATION), 1002),
        (client_frame(b"x", CONTINUATION), 1002),
        (client_frame(b"x", fin=False) + client_frame(b"y"), 1002),
        (client_frame(b"\xff\xfe"), 1007),
        (client_frame(b"\xc3", fin=False) + client_frame(b"\x28", CONTINUATION), 1007),
        (client_frame(b"\xed\xa0\x80"), 1007),
        (client_frame(b"\xc0\xaf"), 1007),
        (client_frame(b"\xf4\x90\x80\x80"), 1007),
        (client_frame(b"\xf0\x9d"), 1007),
        (client_frame(b"\xed", fin=False) + client_frame(b"\xa0\x80", CONTINUATION), 1007),
        (client_frame(b"\xf0\x9d", fin=False) + client_frame(b"", CONTINUATION), 1007),
        (client_frame(b"", fin=False) + client_frame(b"\xff", CONTINUATION, fin=False), 1007),
        (client_frame(b"\x03", CLOSE), 1002),
        *(
            (client_frame(struct.pack("!H", code), CLOSE), 1002)
            for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535)
        ),
        (client_frame(struct.pack("!H", 1000) + b"\xff", CLOSE), 1007),
        (b"\x81\xfe\x00\x05" + bytes(4) + b"hello", 1002),
        (b"\x81\xff" + struct.pack("!Q", 5) + bytes(4) + b"hello", 1002),
        (b"\x81\xff" + struct.pack("!Q", 1 << 63), 1002),
    ],
)
async def test_a_malformed_frame_closes_the_connection_with_the_right_code(raw, frames, code):
    await raw.send(frames)
    assert await closed_with(raw) == code


@pytest.mark.parametrize(
    "frames",
    [
        client_frame(b"x" * 10_001),
        client_frame(b"x" * 10_001) * 2,
        client_frame(b"x" * 10_001) + client_frame(b"", PING),
        client_frame(b"x" * 6_000, fin=False) + client_frame(b"x" * 6_000, CONTINUATION),
        client_frame(b"x" * 100_000, BINARY),
        b"\x82\xff" + struct.pack("!Q", (1 << 63) - 1) + bytes(4) + bytes(20_000),
    ],
)
async def test_a_message_that_is_too_large_closes_the_connection_with_1009(raw, frames):
    await raw.send(frames)
    assert await closed_with(raw) == 1009


async def test_a_malformed_frame_after_good_ones_lets_those_be_answered(raw):
    await raw.send(client_frame(COMMAND) + client_frame(b"", 3))
    codes = [await closed_with(raw)]
    assert codes == [1002]


# The end.


@pytest.mark.parametrize(
    ("payload", "echoed"),
    [
        (b"", b""),
        (struct.pack("!H", 1000), struct.pack("!H", 1000)),
        (struct.pack("!H", 1001) + b"bye", struct.pack("!H", 1001)),
        (struct.pack("!H", 1013), struct.pack("!H", 1013)),
        (struct.pack("!H", 3000) + "ä".encode() * 61, struct.pack("!H", 3000)),
        (struct.pack("!H", 4999), struct.pack("!H", 4999)),
    ],
)
async def test_a_close_is_answered_and_the_server_closes_first(raw, payload, echoed):
    await raw.send(client_frame(payload, CLOSE))
    opcode, answer = await raw.frame()
    assert opcode == CLOSE
    assert answer[:2] == echoed
    assert await raw.until_closed() == b""


async def test_a_close_in_the_middle_of_a_message_is_answered(raw):
    await raw.send(client_frame(COMMAND[:9], fin=False) + client_frame(struct.pack("!H", 1000), CLOSE))
    assert await raw.frame() == (CLOSE, struct.pack("!H", 1000))
    assert await raw.until_closed() == b""


async def test_frames_after_a_closing_frame_are_not_read(raw):
    await raw.send(client_frame(b"", CLOSE) + client_frame(COMMAND))
    assert (await raw.frame())[0] == CLOSE


async def test_a_client_that_disconnects_without_a_close_leaves_no_task_and_no_socket(caplog):
    async with house() as home:
        for _ in range(20):
            async with home.socket() as talk:
                await talk.call("subscribe")
                await talk.post("wait", run_id="none")
                talk.socket._stream.socket.close()
        async with home.socket() as talk:
            await home.engine.set_max_concurrent(3)
            while home.gateway.connections > 1:
                await wait_all_tasks_blocked(0.01)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
