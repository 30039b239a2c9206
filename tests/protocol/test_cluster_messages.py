"""The messages between nodes: what a node does with those of another version."""

import math
from datetime import UTC, datetime

import msgspec
import pytest

from greenroom.gateway.config import Limits
from greenroom.gateway.websocket.framed import max_node_frame_bytes
from greenroom.protocol import cluster as wire
from greenroom.protocol.codec import JSON, MSGPACK
from greenroom.protocol.commands import Command, ListRuns, SetParams, Submit
from greenroom.protocol.errors import Invalid

DECODE = pytest.mark.parametrize("decode", [wire.from_leader, wire.from_follower])


@pytest.mark.parametrize(
    ("decode", "frame", "message"),
    [
        (wire.from_follower, b'{"type":"beat","sent":1,"seq":2,"new":3}', wire.NodeBeat(sent=1, seq=2)),
        (wire.from_leader, b'{"type":"leaving","new":[{}]}', wire.Leaving()),
    ],
)
def test_unknown_fields_are_ignored(decode, frame, message):
    assert decode(frame) == message


@DECODE
def test_a_message_of_an_unknown_type_has_its_type(decode):
    assert decode(b'{"type":"new","sent":"x"}') == wire.Unknown("new")


@pytest.mark.parametrize(
    ("decode", "frame"),
    [
        (wire.from_follower, b'{"type":"beat"}'),
        (wire.from_leader, b'{"type":"beaten","sent":"x"}'),
    ],
)
def test_a_malformed_message_of_a_known_type_is_refused(decode, frame):
    with pytest.raises(Invalid):
        decode(frame)


@DECODE
@pytest.mark.parametrize("frame", [b"", b"{", b"[]", b"{}", b'{"type":""}', b'{"type":1}', b'{"new":1}'])
def test_what_is_no_message_is_refused(decode, frame):
    with pytest.raises(Invalid):
        decode(frame)


# Forwarded commands.

CLIENT = wire.Principal(name="olga", role="operator")


def received(message: wire.Forward) -> Command:
    """The command that the leader has, after the message was in a frame."""
    forward = wire.from_follower(wire.encoded(message))
    assert isinstance(forward, wire.Forward)
    return wire.command_in(forward)


@pytest.mark.parametrize(
    "command",
    [
        Submit(id=1, job="j", handle="h", params={"a": [1, "\x01", None]}, queue_timeout=math.inf),
        SetParams(
            id="x", handle="h", params=[math.inf, b"x", datetime.now(UTC), {1: 2, None: {(1, "a"): 3}}]
        ),
        SetParams(id=1, handle="h", params={"a": [10**30, -(2**63) - 1]}),
        SetParams(id=2**64, handle="h", params=1),
        ListRuns(id=1, limit=10**30),
    ],
    ids=lambda command: type(command).__name__,
)
def test_the_leader_has_the_command_as_the_client_has_sent_it(command):
    assert received(wire.forward(1, CLIENT, command)) == command


def test_the_leader_has_values_that_only_message_pack_has():
    ext = msgspec.msgpack.Ext(5, b"x")
    command = received(wire.forward(1, CLIENT, SetParams(id=1, handle="h", params=[math.nan, ext])))
    assert isinstance(command, SetParams)
    number, extension = command.params
    assert math.isnan(number)
    assert (extension.code, bytes(extension.data)) == (5, b"x")


def test_a_command_of_an_unknown_codec_is_refused():
    with pytest.raises(Invalid, match=r'codec must be one of msgpack, json \(got "cbor"\)'):
        wire.command_in(wire.Forward(id=1, caller=CLIENT, command=b"x", codec="cbor"))


def test_a_command_that_is_nested_too_deeply_is_refused():
    params: list[object] = []
    for _ in range(100_000):
        params = [params]
    with pytest.raises(Invalid, match="nested too deeply"):
        wire.forward(1, CLIENT, SetParams(id=1, handle="h", params=params))
    while params:  # freeing it must not recurse either
        params = params.pop()  # type: ignore[assignment]


LIMITS = Limits(max_message_bytes=100_000)
DENSE = (
    b"9e15",
    b"1e9",
    b"-0",
    b"-0.0",
    b"1e1",
    b"0",
    b"false",
    b'""',
    b"[]",
    b"{}",
    b"1" * 19,
    b"18446744073709551616",
)
PACKED = (
    b"\xc2",
    b"\xc0",
    b"\xa1\x01",
    b"\xe0",
    b"\x90",
    b"\x80",
    msgspec.msgpack.encode(0.1),
    b"\xca\x80\x80\0\1",
)


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("part", DENSE)
def test_every_json_message_that_a_gateway_accepts_fits_into_a_frame(part, big):
    start, end = (
        b'{"type":"set_params","id":1,"handle":"h","params":[1',
        (b",1%b]}" % (b"0" * 30 if big else b"")),
    )
    count = (LIMITS.max_message_bytes - len(start + end)) // (len(part) + 1)
    message = start + b"".join([b"," + part] * count) + end
    command = JSON.decode(message, Command)
    assert len(wire.encoded(wire.forward(1, CLIENT, command))) < max_node_frame_bytes(LIMITS) - (1 << 19)


@pytest.mark.parametrize("part", PACKED)
def test_every_packed_message_that_a_gateway_accepts_fits_into_a_frame(part):
    count = LIMITS.max_message_bytes // len(part)
    head = msgspec.msgpack.encode({"type": "set_params", "id": 1, "handle": "h", "params": None})[:-1]
    command = MSGPACK.decode(head + b"\xdd" + count.to_bytes(4, "big") + part * count, Command)
    assert len(wire.encoded(wire.forward(1, CLIENT, command))) < max_node_frame_bytes(LIMITS) - (1 << 19)


@pytest.mark.parametrize("character", ['"', "\\", "\n", "\x01", "\x7f", "\u00e9", "\u2028", "\U0001f600"])
def test_every_body_that_a_gateway_accepts_fits_into_a_frame(character):
    body = character * (LIMITS.max_message_bytes // len(character.encode()))
    request = wire.ForwardRequest(
        id=1,
        caller=CLIENT,
        method="POST",
        path="/" + character * (LIMITS.max_head_bytes // 2),
        query={"q": [character] * (LIMITS.max_head_bytes // 10)},
        body=body,
    )
    assert len(wire.encoded(request)) < max_node_frame_bytes(LIMITS) - (1 << 19)
