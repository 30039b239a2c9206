"""Executors and nodes in snapshots and events, under filters and for limited tokens; needs in commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from greenroom.actors.channel import Reply
from greenroom.actors.journal.change import Change
from greenroom.gateway import Role, add_token
from greenroom.gateway.client import connect
from greenroom.gateway.stream.snapshots import filtered
from greenroom.protocol.events import Event, ExecutorChanged, Filter, LeaderChanged, NodeChanged
from greenroom.protocol.fold import Projection, fold
from greenroom.protocol.parts import joined
from greenroom.protocol.records import ExecutorState, Snapshot

from .flowing import WAITS
from .support import House, Refused, house

FILTERS = [
    None,
    Filter(handles=frozenset({"h1"})),
    Filter(lanes=frozenset({"slow"})),
    Filter(runs=frozenset({"none"})),
]
LIMITS: list[dict[str, list[str]]] = [{"handles": ["alice/*"]}, {"lanes": ["images"]}, {"jobs": ["wait"]}]


async def change(home: House, executor: str, status: str = "attached", **fields: Any) -> None:
    """Commit a change of an executor."""
    await commit(home, ExecutorChanged(seq=0, at=0, by="engine", executor=executor, status=status, **fields))


async def commit(home: House, event: Event) -> None:
    reply: Reply[Any] = Reply()
    home.engine._journal.tell(Change((event,), reply=reply))
    await reply.get()


@pytest.mark.parametrize("filter", FILTERS)
async def test_executors_are_shown_under_every_filter_of_a_client(filter: Filter | None) -> None:
    async with house() as home, home.socket() as talk:
        await change(home, "gpu-1", slots=2, labels=("gpu",), jobs=("wait",))
        await change(home, "local-1")
        await talk.call("subscribe", after=0, epoch="another", filter=msgspec.to_builtins(filter))
        before = msgspec.convert(talk.received[1]["snapshot"], Snapshot)
        assert before.executors == {
            "gpu-1": ExecutorState("attached", 2, ("gpu",), ("wait",)),
            "local-1": ExecutorState("attached", None, (), ()),
        }
        await change(home, "gpu-1", "draining", slots=2)
        await change(home, "local-1", "gone")
        await talk.call("set_max_concurrent", limit=5)
        after = fold(before, msgspec.convert(talk.events(), list[Event]))
        assert after == filtered(await home.engine.snapshot(), filter)
        assert list(after.executors) == ["gpu-1"]


@pytest.mark.parametrize("limits", LIMITS)
async def test_a_limited_token_sees_no_executors(tmp_path: Path, limits: dict[str, list[str]]) -> None:
    file = tmp_path / "tokens"
    token = add_token(file, "me", Role.VIEWER, **limits)
    header = {"authorization": f"Bearer {token}"}
    async with house(token_file=str(file)) as home, home.socket(headers=header) as talk:
        await change(home, "gpu-1", slots=2)
        assert (await talk.call("snapshot"))["snapshot"]["executors"] == {}
        assert (await home.http("GET", "/api/state", **header)).json["executors"] == {}
        before = await talk.call("subscribe")
        await change(home, "gpu-1", "draining")
        await home.engine.set_max_concurrent(5)
        while not talk.events():
            await talk.receive()
        assert [event["type"] for event in talk.events()] == ["engine_changed"]
        assert talk.events()[0]["seq"] == before["seq"] + 2


@pytest.mark.parametrize("limits", [None, *LIMITS])
async def test_a_limited_token_sees_no_nodes(tmp_path: Path, limits: dict[str, list[str]] | None) -> None:
    file = tmp_path / "tokens"
    token = add_token(file, "me", Role.VIEWER, **limits or {})
    header = {"authorization": f"Bearer {token}"}
    async with house(token_file=str(file)) as home, home.socket(headers=header) as talk:
        await talk.call("subscribe")
        base: dict[str, Any] = {"seq": 0, "at": 0, "by": "engine", "address": "http://10.0.0.1:8440"}
        await commit(home, LeaderChanged(**base, node="n1", term=3))
        await commit(home, NodeChanged(**base, node="n2", status="joined"))
        await home.engine.set_max_concurrent(5)
        while not talk.events() or talk.events()[-1]["type"] != "engine_changed":
            await talk.receive()
        told = ["leader_changed", "node_changed"] if limits is None else []
        assert [event["type"] for event in talk.events()] == [*told, "engine_changed"]


async def test_many_executors_are_sent_in_parts() -> None:
    async with house() as home, home.socket() as talk:
        for number in range(40):
            await change(home, f"executor {number}", jobs=tuple(f"job {n} of many" for n in range(500)))
        await talk.call("subscribe", after=0, epoch="another")
        parts = [message for message in talk.received if message["type"] == "resync"]
        assert len(parts) > 2
        whole = joined(msgspec.convert(part["snapshot"], Snapshot) for part in parts)
        assert whole == await home.engine.snapshot()
        assert len(whole.executors) == 40


async def test_a_client_in_python_follows_executors() -> None:
    async with house() as home:
        await change(home, "gpu-1", slots=2)
        async with connect(home.gateway.url) as client:
            await change(home, "local-1")
            await client.set_max_concurrent(5)
            assert isinstance(client.state, Projection)
            assert client.state.snapshot() == await home.engine.snapshot()
            assert sorted(client.state.executors) == ["gpu-1", "local-1"]


# Needs.


async def over_socket(home: House, handle: str, needs: Any) -> str:
    async with home.socket() as talk:
        said = await talk.call("submit", job="wait", handle=handle, params={}, needs=needs, request_id=handle)
        return str(said["run_id"])


async def over_http(home: House, handle: str, needs: Any) -> str:
    body = {"job": "wait", "handle": handle, "params": {}, "needs": needs, "request_id": handle}
    response = await home.http("POST", "/api/runs", body)
    return str(response.json["run_id"])


async def by_client(home: House, handle: str, needs: Any) -> str:
    async with connect(home.gateway.url) as client:
        ticket = await client.submit("wait", handle=handle, params={}, needs=needs, request_id=handle)
        return ticket.id


@pytest.mark.parametrize("submit", [over_socket, over_http, by_client])
async def test_a_submission_can_need_labels(submit: Callable[..., Any]) -> None:
    async with house() as home:
        await home.engine.set_max_concurrent(0)
        run = await submit(home, "alice", ["gpu", "big"])
        again = await home.engine.submit(
            "wait", handle="alice", params={}, needs=["big", "gpu"], request_id="alice"
        )
        assert again.id == run, "the needs are a part of the payload"


async def test_needs_are_refused_for_a_flow_and_if_they_are_invalid() -> None:
    async with house() as home, home.socket() as talk:
        await home.engine.flows.publish("flow", WAITS)
        run = {"job": "wait", "handle": "a"}
        for command, fields, message in (
            ("start_flow", {"flow": "flow", "needs": ["gpu"]}, "needs must be empty for a flow"),
            (
                "submit",
                {**run, "needs": ["x", "x"]},
                "needs must contain each label once",
            ),
            ("submit", {**run, "needs": "gpu"}, "needs: expected array, got string"),
        ):
            with pytest.raises(Refused) as refused:
                await talk.call(command, **fields)
            assert refused.value.message.startswith(message)
        assert not (await home.engine.snapshot()).runs
