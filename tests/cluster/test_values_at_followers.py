"""Values of clients at a follower: the answers are those of the leader, and no value ends the connection."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import trio

from greenroom.gateway.commands.table import TABLE
from greenroom.protocol.commandbase import Timeout
from tests.gateway.clustered import cluster
from tests.gateway.flowing import DOUBLES
from tests.gateway.support import House, Refused, Talk
from tests.support import Bodies

from .support import Pair, pair
from .test_gateway import at_leader
from .test_resuming import gateway_of

MSGPACK = "greenroom.v1.msgpack"


@asynccontextmanager
async def nodes() -> AsyncIterator[tuple[Pair, list[House]]]:
    """The gateways of a leader and of its follower."""
    async with pair(Bodies()) as here, gateway_of(here) as gateway:
        yield here, [at_leader(here), House(here.bodies, here.engine, gateway, here.nursery)]


async def answer(talk: Talk, type: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The answer to a command, without what differs between two commands."""
    try:
        ok = await talk.call(type, **fields)
    except Refused as refused:
        return {"code": refused.code, "message": refused.message, "details": refused.details}
    return {name: value for name, value in ok.items() if name not in ("id", "seq", "run_id")}


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


COMMANDS: dict[str, tuple[dict[str, Any], str]] = {
    "submit": ({"job": "wait", "handle": "h"}, "params"),
    "start_flow": ({"flow": "f"}, "params"),
    "inject": ({"run_or_handle": "h"}, "message"),
    "answer": ({"interrupt_id": "i"}, "data"),
    "signal": ({"run_id": "h", "key": "$shared.a"}, "value"),
    "set_params": ({"handle": "h"}, "params"),
    "publish_flow": ({"name": "f"}, "definition"),
    "add_flow_version": ({"flow": "f"}, "definition"),
    "check_flow": ({}, "definition"),
    "complete_work": ({"item_id": "i"}, "result"),
}
BAD: dict[str, Any] = {
    "nan": math.nan,
    "infinity": -math.inf,
    "bytes": b"x",
    "datetime": datetime(2026, 1, 1, tzinfo=UTC),
    "integer key": {1: 2},
    "null key": {None: 2},
    "ext": msgspec.msgpack.Ext(5, b"x"),
    "deep": nested(101),
    "control characters": "\x01" * 250_000,
    "many numbers": [127] * 300_000,
    "many values": [False] * 1_500_000,
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("command", COMMANDS)
async def test_a_bad_value_has_the_same_answer_at_a_follower_as_at_the_leader(autojump_clock, command, bad):
    fields, name = COMMANDS[command]
    value = {**DOUBLES, "x": BAD[bad]} if name == "definition" else {"x": BAD[bad]}
    async with nodes() as (here, houses):
        await here.engine.flows.publish("f", DOUBLES)
        await here.caught_up()
        before = here.engine.stream.last_seq
        answers = []
        for home in houses:
            talk = await home.memory_socket(subprotocol=MSGPACK)
            answers.append(await answer(talk, command, fields | {name: value}))
        at_leader, at_follower = answers
        assert at_follower == at_leader
        assert at_leader.get("code") in ("invalid", "too_large", "conflict") or at_leader["errors"]
        assert here.engine.stream.last_seq == before


BAD_NUMBERS = {"nan": math.nan, "infinity": math.inf, "large": 1e300}
NUMBERS = [
    (entry.wire.__struct_config__.tag, field.name)
    for entry in TABLE
    for field in msgspec.structs.fields(entry.wire)
    if field.type is float or float in getattr(field.type, "__args__", ()) or field.type == Timeout
]
GIVEN: dict[str, dict[str, Any]] = {
    "submit": {"job": "wait", "handle": "h", "on_conflict": "join"},
    "start_flow": {"flow": "f", "handle": "t", "on_conflict": "join"},
    "wait": {"run_id": "done"},
    "list_runs": {},
    "cancel_many": {},
    "rerun_many": {},
    "retry_many": {},
    "preview_schedule": {"every": 60},
    "put_schedule": {"name": "s", "job": "wait", "every": 60},
    "list_workers": {},
    "register_worker": {"worker_id": "w", "url": "", "services": ["s"], "kind": "queue"},
    "heartbeat_worker": {"worker_id": "w"},
    "poll_work": {"worker_id": "w", "services": ["s"]},
}


@pytest.mark.parametrize("bad", BAD_NUMBERS)
@pytest.mark.parametrize(("command", "name"), NUMBERS)
async def test_a_number_has_the_same_answer_at_a_follower_as_at_the_leader(
    autojump_clock, command, name, bad
):
    async with nodes() as (here, houses):
        await here.engine.set_max_concurrent(0)
        await here.engine.flows.publish("f", DOUBLES)
        await here.engine.submit("wait", handle="done", params={})
        await here.engine.cancel("done")
        answers: list[Any] = []
        for home in houses:
            await here.caught_up()
            talk = await home.memory_socket(subprotocol=MSGPACK)
            with trio.move_on_after(100) as waiting:
                answers.append(await answer(talk, command, GIVEN[command] | {name: BAD_NUMBERS[bad]}))
            if waiting.cancelled_caught:
                answers.append("waits")
        for made in answers:
            if isinstance(made, dict):
                made.pop("joined", None)
        assert answers[0] == answers[1]


@pytest.mark.parametrize("result", [math.nan, [127] * 300_000], ids=["invalid", "too large"])
async def test_work_with_a_bad_result_fails_also_when_it_is_completed_at_a_follower(autojump_clock, result):
    node = {"kind": "executor", "service": "s", "exec_type": "queue"}
    flow: dict[str, Any] = {"start": "a", "nodes": {"a": node}, "edges": []}
    async with nodes() as (here, houses):
        engine = here.engine
        await engine.flows.publish("f", flow)
        await engine.workers.register("w", "", ["s"], kind="queue")
        ended = []
        for home in houses:
            ticket = await engine.flows.start("f")
            item = await engine.workers.poll("w", ["s"])
            assert item is not None
            talk = await home.memory_socket(subprotocol=MSGPACK)
            refused = await answer(talk, "complete_work", {"item_id": item.id, "result": result})
            again = await answer(talk, "complete_work", {"item_id": item.id, "result": 1})
            assert again["code"] == "conflict"
            await ticket.wait()
            run = await engine.get_run(ticket.id)
            ended.append((refused, run.status, run.error))
        assert ended[0] == ended[1]
        assert ended[0][1] == "failed"


@pytest.mark.parametrize("path", ["/api/runs", "/api/tasks"])
@pytest.mark.parametrize("value", ["1e9", "9e15", '"\\u0001\\u0001\\u0001\\u0001"', '"\\"\\"\\"\\""'])
async def test_a_body_that_grows_when_it_is_forwarded_is_refused_as_at_the_leader(tmp_path, path, value):
    body = b'{"job":"wait","handle":"evil","params":{"x":[%s]}}'
    if path == "/api/tasks":
        body = b'{"flow_id":"f","params_json":{"x":[%s]}}'
    count = (2 << 20) // (len(value) + 1) - 100
    body %= ",".join([value] * count).encode()
    async with cluster(tmp_path) as [leader, follower]:
        await leader.engine.flows.publish("f", DOUBLES)
        link = follower.node.router.following
        expected = await leader.http("POST", path, body)
        refused = await follower.http("POST", path, body)
        assert (refused.status, refused.json) == (expected.status, expected.json)
        assert refused.status == 413
        done = await follower.http("POST", "/api/runs", {"job": "wait", "handle": "good", "params": {}})
        assert done.status == 201
        assert follower.node.router.following is link


async def test_a_body_that_fills_the_limit_of_the_gateway_is_forwarded(tmp_path):
    async with cluster(tmp_path) as [_, follower]:
        link = follower.node.router.following
        for character in ('\\"', "\\\\", "\\u0001"):
            text = character * ((2_000_000) // len(character))
            body = b'{"queue_id":"q","worker_id":"w","result":"%s"}' % text.encode()
            refused = await follower.http("POST", "/queue/complete", body)
            assert refused.json["code"] in ("conflict", "too_large")
        assert follower.node.router.following is link
