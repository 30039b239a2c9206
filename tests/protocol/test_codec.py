"""The two codecs: values survive both of them, and invalid messages are refused."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol.codec import CODECS, JSON, MSGPACK
from greenroom.protocol.commands import Command, ServerMessage
from greenroom.protocol.errors import Invalid
from greenroom.protocol.events import EngineChanged, Event, RunStateChanged
from greenroom.protocol.records import Snapshot
from greenroom.protocol.states import Status

from .strategies import json_values, values_of

codecs = pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)

EXAMPLE = EngineChanged(seq=7, at=1.5, by="ops", max_concurrent=3, draining=False)


def refusal(codec, data, kind):
    with pytest.raises(Invalid) as refused:
        codec.decode(data, kind)
    return refused.value


def answer(codec, data, kind):
    """Return the decoded value, or the error, which must itself be encodable."""
    try:
        return codec.decode(data, kind)
    except Invalid as refused:
        return codec.encode([refused.message, refused.details])


def test_the_codecs_are_found_by_their_subprotocols():
    assert CODECS == {"greenroom.v1.json": JSON, "greenroom.v1.msgpack": MSGPACK}
    assert [(codec.name, codec.binary) for codec in CODECS.values()] == [("json", False), ("msgpack", True)]
    assert all(codec.subprotocol == name for name, codec in CODECS.items())


@codecs
@pytest.mark.parametrize("kind", get_args(Event), ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_event_is_decoded_unchanged(codec, kind, data):
    event = data.draw(values_of(kind))
    decoded = codec.decode(codec.encode(event), Event)
    assert type(decoded) is kind
    assert decoded == event


@codecs
@given(snapshot=values_of(Snapshot))
def test_every_snapshot_is_decoded_unchanged(codec, snapshot):
    assert codec.decode(codec.encode(snapshot), Snapshot) == snapshot


@codecs
@given(value=json_values)
def test_every_json_value_is_decoded_unchanged(codec, value):
    assert codec.decode(codec.encode(value), Any) == value


@given(values_of(Event))
def test_both_codecs_represent_the_same_values(event):
    as_json, as_msgpack = (
        msgspec.json.decode(JSON.encode(event)),
        msgspec.msgpack.decode(MSGPACK.encode(event)),
    )
    assert as_json == as_msgpack


def test_the_types_of_events_are_those_of_the_design():
    assert [kind.__struct_config__.tag for kind in get_args(Event)] == [
        "run_state_changed",
        "run_changed",
        "run_progress",
        "run_log",
        "run_waiting",
        "run_message",
        "run_signal",
        "node_started",
        "node_ran",
        "interrupt_opened",
        "interrupt_closed",
        "lane_changed",
        "handle_changed",
        "engine_changed",
        "flow_changed",
        "node_worker_changed",
        "executor_changed",
        "node_changed",
        "leader_changed",
        "schedule_changed",
        "schedule_fired",
        "schedule_missed",
        "webhook_changed",
    ]


def test_an_event_is_written_with_its_type_first_and_without_what_is_absent():
    event = RunStateChanged(
        seq=1,
        at=2.0,
        by="alice",
        run="r1",
        handle="h",
        lane="main",
        from_=Status.QUEUED,
        to=Status.RUNNING,
        attempt=1,
        reason=None,
        place=4,
    )
    assert JSON.encode(event) == (
        b'{"type":"run_state_changed","seq":1,"at":2.0,"by":"alice","run":"r1","handle":"h","lane":"main",'
        b'"from":"queued","to":"running","attempt":1,"reason":null,"place":4}'
    )


def test_json_is_read_from_text_as_well_as_from_bytes():
    encoded = JSON.encode(EXAMPLE)
    assert JSON.decode(encoded.decode(), Event) == JSON.decode(encoded, Event) == EXAMPLE


def test_a_text_message_under_the_messagepack_codec_is_refused():
    message = "greenroom.v1.msgpack requires binary messages (got a text message)"
    assert refusal(MSGPACK, "[]", Any).message == message


@codecs
@pytest.mark.parametrize("kind", [Any, Event, Snapshot, Command, ServerMessage, dict, int])
@given(garbage=st.binary(max_size=60))
def test_garbage_is_refused_with_invalid_and_nothing_else(codec, kind, garbage):
    answer(codec, garbage, kind)


@given(garbage=st.text(max_size=60))
def test_garbage_text_is_refused_with_invalid_and_nothing_else(garbage):
    answer(JSON, garbage, Any)


@codecs
@given(snapshot=values_of(Snapshot), data=st.data())
def test_a_damaged_message_is_refused_with_invalid_or_decoded_as_a_valid_one(codec, snapshot, data):
    encoded = bytearray(codec.encode(snapshot))
    place = data.draw(st.integers(0, len(encoded) - 1))
    encoded[place] = data.draw(st.integers(0, 255))
    assert isinstance(answer(codec, bytes(encoded), Snapshot), Snapshot | bytes)


@codecs
@given(event=values_of(Event), data=st.data())
def test_a_truncated_message_is_refused(codec, event, data):
    encoded = codec.encode(event)
    refusal(codec, encoded[: data.draw(st.integers(0, len(encoded) - 1))], Event)


@pytest.mark.parametrize("kind", [Any, dict, Snapshot], ids=str)
@pytest.mark.parametrize(
    ("codec", "bomb"),
    [
        (JSON, b"[" * 200_000),
        (JSON, b"[" * 200_000 + b"]" * 200_000),
        (JSON, b'{"a":' * 200_000),
        (JSON, b'{"runs":' + b"[" * 200_000),
        (MSGPACK, b"\x91" * 200_000),
        (MSGPACK, b"\x81\xa1a" * 200_000),
        (MSGPACK, b"\x81" * 200_000),
        (MSGPACK, b"\x81\xa4runs" + b"\x91" * 200_000),
        (MSGPACK, b"\xdd\xff\xff\xff\xff"),
        (MSGPACK, b"\xdf\xff\xff\xff\xff"),
        (MSGPACK, b"\xc6\xff\xff\xff\xff"),
    ],
    ids=range(11),
)
def test_extreme_nesting_or_announced_length_is_refused(codec, bomb, kind):
    refusal(codec, bomb, kind)


@pytest.mark.parametrize(
    ("codec", "data", "message"),
    [
        (JSON, b"", "message: input data was truncated"),
        (JSON, b"[1", "message: input data was truncated"),
        (JSON, b"{]", "message: JSON is malformed: object keys must be strings (byte 1)"),
        (JSON, b"NaN", "message: JSON is malformed: invalid character (byte 0)"),
        (JSON, b'"\xff"', "message: invalid UTF-8 ("),
        (JSON, '"\ud800"', "message: invalid UTF-8 ("),
        (JSON, b"[" * 10_000, "message: nested too deeply; reduce the nesting"),
        (MSGPACK, b"", "message: input data was truncated"),
        (MSGPACK, b"\xa1\xff", "message: invalid UTF-8 ("),
        (MSGPACK, b"\xc1", "message: MessagePack data is malformed: invalid opcode"),
        (MSGPACK, b"\x01\x02", "message: MessagePack data is malformed: trailing characters (byte 1)"),
    ],
)
def test_an_unreadable_message_is_refused_with_the_reason(codec, data, message):
    assert refusal(codec, data, Any).message.startswith(message)


@codecs
@pytest.mark.parametrize(
    ("changes", "path", "reason"),
    [
        ({"seq": "7"}, "seq", "expected integer, got string"),
        ({"seq": 7.5}, "seq", "expected integer, got number"),
        ({"draining": 0}, "draining", "expected boolean, got integer"),
        ({"type": "engine_exploded"}, "type", 'invalid value "engine_exploded"'),
    ],
)
def test_the_error_for_an_invalid_field_contains_its_name(codec, changes, path, reason):
    error = refusal(codec, codec.encode({**msgspec.to_builtins(EXAMPLE), **changes}), Event)
    assert error.message == f"{path}: {reason}"
    assert error.details == {"path": path}


@codecs
def test_the_error_for_a_nested_field_contains_its_path(codec):
    data = codec.encode({"a": [{"b": 1}, {"b": "x"}]})
    assert (
        refusal(codec, data, dict[str, list[dict[str, int]]]).message
        == "[...][1][...]: expected integer, got string"
    )


@codecs
def test_an_invalid_key_is_distinguished_from_an_invalid_value(codec):
    data = codec.encode({"a": {"one": 1}})
    error = refusal(codec, data, dict[str, dict[int, int]])
    assert error.message == "[...]: a key is invalid: expected integer, got string"


@codecs
def test_a_message_without_its_type_is_refused(codec):
    assert (
        refusal(codec, codec.encode({"seq": 1}), Event).message
        == "message: object missing required field type"
    )


@codecs
def test_an_error_quotes_only_a_short_part_of_the_message(codec):
    assert len(refusal(codec, codec.encode({"type": "x" * 100_000}), Event).message) < 400


@codecs
def test_fields_that_a_later_version_adds_to_an_event_are_ignored(codec):
    data = codec.encode({**msgspec.to_builtins(EXAMPLE), "colour": "green"})
    assert codec.decode(data, Event) == EXAMPLE
