"""The commands of a client and the messages of the server on the wire."""

import math
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol.codec import CODECS, JSON
from greenroom.protocol.commandbase import timeout_from_wire, timeout_to_wire
from greenroom.protocol.commands import (
    Auth,
    Command,
    Error,
    Events,
    GetSnapshot,
    Ok,
    Resync,
    ServerMessage,
    Submit,
    Subscribe,
    Wait,
    Welcome,
)
from greenroom.protocol.decoding import decode_command
from greenroom.protocol.errors import Invalid
from greenroom.protocol.events import EngineChanged, Filter
from greenroom.protocol.records import EngineState, Snapshot

from .strategies import values_of

COMMANDS = """submit submit_many rerun retry cancel cancel_many rerun_many retry_many
    inject answer wait get_run list_runs list_files history snapshot subscribe unsubscribe ping
    set_params set_concurrency pause_lane resume_lane set_lane
    set_priority set_max_concurrent clear_lane clear_handle release_handle reset_lanes drain
    resume list_jobs list_executors drain_executor get_cluster step_down signal create_flow publish_flow
    add_flow_version check_flow list_flows list_flow_versions get_flow_version start_flow get_task list_tasks
    node_runs list_workers allocate_worker register_worker heartbeat_worker poll_work complete_work
    extend_work put_schedule preview_schedule list_schedules get_schedule pause_schedule resume_schedule
    trigger_schedule delete_schedule dead_webhooks failing_webhooks redeliver_webhook drop_webhook
    auth""".split()
MESSAGES = "welcome ok error events resync".split()


def kinds(union):
    return {kind.__struct_config__.tag: kind for kind in get_args(union)}


def read(text):
    return decode_command(JSON, text)


def test_the_commands_are_those_of_the_design():
    assert list(kinds(Command)) == COMMANDS


def test_the_messages_of_the_server_are_those_of_the_design():
    assert list(kinds(ServerMessage)) == MESSAGES


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
@pytest.mark.parametrize(
    ("union", "kind"),
    [(union, kind) for union in (Command, ServerMessage) for kind in get_args(union)],
    ids=lambda value: getattr(value, "__name__", ""),
)
@given(data=st.data())
def test_every_message_is_decoded_unchanged(codec, union, kind, data):
    message = data.draw(values_of(kind))
    decoded = codec.decode(codec.encode(message), union)
    assert type(decoded) is kind
    assert decoded == message


@pytest.mark.parametrize("kind", get_args(Command), ids=lambda kind: kind.__name__)
def test_a_command_is_immutable_and_refuses_unknown_fields(kind):
    config = kind.__struct_config__
    assert (config.frozen, config.forbid_unknown_fields, config.tag_field) == (True, True, "type")


@pytest.mark.parametrize("kind", [kind for kind in get_args(Command) if kind is not Auth])
@given(data=st.data())
def test_a_command_requires_an_id(kind, data):
    message = msgspec.to_builtins(data.draw(values_of(kind)))
    del message["id"]
    with pytest.raises(Invalid, match=r"^message: object missing required field id$"):
        read(JSON.encode(message))


@pytest.mark.parametrize("id", [1, -1, 0, "a", ""])
def test_an_id_is_a_number_or_a_string(id):
    assert read(JSON.encode({"type": "snapshot", "id": id})) == GetSnapshot(id=id)


@pytest.mark.parametrize("id", [None, 1.5, True, [], {}])
def test_an_id_is_nothing_else(id):
    with pytest.raises(Invalid, match=r"^id: expected integer \| string, got"):
        read(JSON.encode({"type": "snapshot", "id": id}))


def test_auth_requires_no_id():
    assert read('{"type":"auth","token":"t"}') == Auth(token="t")


def test_a_submission_requires_only_a_job_and_a_handle():
    command = read('{"type":"submit","id":1,"job":"mirror","handle":"alice"}')
    assert command == Submit(id=1, job="mirror", handle="alice")
    assert (command.params, command.kind, command.on_conflict) == (None, "start", "reject")
    assert JSON.encode(command) == b'{"type":"submit","id":1,"job":"mirror","handle":"alice"}'


def test_a_subscription_can_have_a_start_and_a_filter():
    command = read(
        '{"type":"subscribe","id":1,"after":7,"epoch":"e","filter":{"handles":["a","b"],"types":["run_log"]}}'
    )
    wanted = Filter(handles=frozenset("ab"), types=frozenset({"run_log"}))
    assert command == Subscribe(id=1, after=7, epoch="e", filter=wanted)


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({"type": "list_run", "id": 1}, 'unknown command "list_run": did you mean "list_runs"?'),
        ({"type": "frobnicate", "id": 1}, 'unknown command "frobnicate"'),
        ({"type": 7, "id": 1}, "type: expected string"),
        ({"id": 1}, "message: object missing required field type"),
        ({"type": "drain", "id": 1, "now": True}, "message: object contains unknown field now"),
        (
            {"type": "cancel", "id": 1, "run_id": "r", "fils": "keep"},
            'message: object contains unknown field fils: did you mean "files"?',
        ),
        (
            {"type": "cancel", "id": 1, "run_id": "r", "now": True},
            "message: object contains unknown field now: expected one of run_id, files",
        ),
        ({"type": "cancel", "id": 1}, "message: object missing required field run_id"),
        ({"type": "cancel", "id": 1, "run_id": 7}, "run_id: expected string, got integer"),
        ({"type": "list_runs", "id": 1, "limit": 0}, "limit: expected integer >= 1"),
        ({"type": "set_max_concurrent", "id": 1, "limit": -1}, "limit: expected integer >= 0"),
        ({"type": "set_max_concurrent", "id": 1, "n": -1}, "n: expected integer >= 0"),
        (
            {"type": "subscribe", "id": 1, "filter": {"handels": []}},
            'filter: object contains unknown field handels: did you mean "handles"?',
        ),
        ({"type": "subscribe", "id": 1, "after": -1}, "after: expected integer >= 0"),
        ({"type": "wait", "id": 1, "run_id": "r", "timeout": -1}, "timeout: expected number >= 0.0"),
        (
            {"type": "wait", "id": 1, "run_id": "r", "timeout": "inf"},
            'timeout: expected "none"',
        ),
    ],
)
def test_a_malformed_command_is_refused_with_the_field_and_the_reason(message, complaint):
    with pytest.raises(Invalid) as refused:
        read(JSON.encode(message))
    assert refused.value.message == complaint


@pytest.mark.parametrize(
    ("wire", "timeout"), [("null", None), ("1.5", 1.5), ("3", 3.0), ("0", 0.0), ('"none"', math.inf)]
)
def test_a_timeout_is_a_number_null_or_none(wire, timeout):
    command = read(f'{{"type":"wait","id":1,"run_id":"r","timeout":{wire}}}')
    assert timeout_from_wire(command.timeout) == timeout
    assert read(JSON.encode(Wait(id=1, run_id="r", timeout=timeout_to_wire(timeout)))) == command


def test_nan_is_not_a_valid_timeout():
    codec = CODECS["greenroom.v1.msgpack"]
    data = codec.encode({"type": "wait", "id": 1, "run_id": "r", "timeout": math.nan})
    with pytest.raises(Invalid, match=r"^timeout: expected number >= 0.0$"):
        codec.decode(data, Command)


@given(st.none() | st.floats(0, allow_nan=False))
def test_every_timeout_survives_the_wire(timeout):
    assert timeout_from_wire(timeout_to_wire(timeout)) == timeout


SNAPSHOT = Snapshot(
    epoch="e", seq=3, engine=EngineState(3, 0, 0, False), lanes={}, handles={}, interrupts={}, runs={}
)


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (
            Welcome(
                epoch="e", seq=3, server="greenroom 0.1", limits={"max_value_bytes": 1048576}, role="admin"
            ),
            {
                "type": "welcome",
                "epoch": "e",
                "seq": 3,
                "server": "greenroom 0.1",
                "limits": {"max_value_bytes": 1048576},
                "role": "admin",
            },
        ),
        (Ok(id=1, seq=3), {"type": "ok", "id": 1, "seq": 3}),
        (
            Ok(id="a", seq=3, run_id="r1", joined=False),
            {"type": "ok", "id": "a", "seq": 3, "run_id": "r1", "joined": False},
        ),
        (
            Error(id=None, code="invalid", message="no", details={}),
            {"type": "error", "id": None, "code": "invalid", "message": "no", "details": {}},
        ),
        (
            Events(
                from_=3,
                to=4,
                events=[EngineChanged(seq=4, at=1.0, by="a", max_concurrent=1, draining=True)],
            ),
            {
                "type": "events",
                "from": 3,
                "to": 4,
                "events": [
                    {
                        "type": "engine_changed",
                        "seq": 4,
                        "at": 1.0,
                        "by": "a",
                        "max_concurrent": 1,
                        "draining": True,
                    }
                ],
            },
        ),
        (Resync(snapshot=SNAPSHOT), {"type": "resync", "snapshot": msgspec.to_builtins(SNAPSHOT)}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_message_of_the_server_has_the_form_of_the_design(message, wire):
    assert msgspec.json.decode(JSON.encode(message)) == wire
