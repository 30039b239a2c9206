"""Schedules over the gateway: filters, limited tokens, HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from greenroom.gateway import Role, add_token
from greenroom.gateway.stream.snapshots import filtered
from greenroom.protocol.events import Event, Filter
from greenroom.protocol.fold import Projection
from greenroom.protocol.records import Snapshot
from tests.support import Bodies

from .support import Refused, house

FILTERS = [
    None,
    Filter(handles=frozenset({"h1"})),
    Filter(lanes=frozenset({"slow"})),
    Filter(runs=frozenset({"none"})),
]


def make_bodies() -> Bodies:
    bodies = Bodies()

    @bodies.jobs.job("quick")
    async def quick(run: Any, params: dict[str, Any]) -> str:
        return "done"

    return bodies


@pytest.mark.parametrize("filter", FILTERS)
async def test_schedules_are_shown_under_every_filter_of_a_client(filter: Filter | None) -> None:
    async with house(make_bodies()) as home, home.socket() as talk:
        await talk.call("put_schedule", name="tick", job="quick", every=3600)
        await talk.call("subscribe", after=0, epoch="another", filter=msgspec.to_builtins(filter))
        [resync] = [message for message in talk.received if message["type"] == "resync"]
        before = msgspec.convert(resync["snapshot"], Snapshot)
        assert list(before.schedules) == ["tick"]
        await talk.call("trigger_schedule", name="tick")
        await talk.call("put_schedule", name="tock", job="quick", every=3600)
        await talk.call("pause_schedule", name="tick")
        await talk.call("set_max_concurrent", limit=5)
        state = Projection.from_snapshot(before)
        for event in msgspec.convert(talk.events(), list[Event]):
            state.seq = event.seq - 1  # events of other runs are left out
            state.apply(event)
        now = filtered(await home.engine.snapshot(), filter)
        assert state.schedules == now.schedules
        assert state.schedules["tick"].paused
        assert [event["type"] for event in talk.events()].count("schedule_fired") == 1


async def test_every_call_over_http() -> None:
    async with house(make_bodies()) as home:
        body = {"job": "quick", "cron": "0 3 * * *", "timezone": "Europe/Berlin", "params": {"a": 1}}
        put = await home.http("PUT", "/api/schedules/my%2Fown", body=body)
        assert (put.status, put.json["name"], put.json["handle"]) == (200, "my/own", "schedule:my/own")
        listed = (await home.http("GET", "/api/schedules")).json
        assert [schedule["name"] for schedule in listed["schedules"]] == ["my/own"]
        assert (await home.http("GET", "/api/schedules/my%2Fown")).json == put.json
        assert (await home.http("POST", "/api/schedules/my%2Fown/pause", body={})).json["paused"] is True
        assert (await home.http("POST", "/api/schedules/my%2Fown/resume", body={})).json["paused"] is False
        path, body = "/api/schedules/my%2Fown/trigger", {"request_id": "1"}
        fired = await home.http("POST", path, body=body)
        assert (fired.status, fired.json["joined"]) == (201, False)
        again = await home.http("POST", path, body=body)
        assert (again.status, again.json["run_id"]) == (200, fired.json["run_id"])
        assert (await home.http("POST", path, body={})).json["run_id"] != fired.json["run_id"]
        assert (await home.engine.get_run(fired.json["run_id"])).params == {"a": 1}
        metrics = (await home.http("GET", "/metrics")).body.decode()
        assert 'greenroom_schedules{state="active"} 1.0' in metrics
        assert (await home.http("DELETE", "/api/schedules/my%2Fown")).status == 200
        assert (await home.http("GET", "/api/schedules/my%2Fown")).status == 404


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({}, "requires either cron or every"),
        ({"cron": "* * *"}, "cron must have five fields"),
        ({"every": 0.1}, "every must be a number of seconds between 1"),
        ({"every": 60, "request_id": "r"}, "unknown field request_id"),
        ({"every": 60, "job": "unknown"}, 'job "unknown" not found'),
        ({"every": 60, "missed": "some"}, "missed must be one of"),
    ],
)
async def test_a_bad_schedule_is_refused(fields: dict[str, Any], complaint: str) -> None:
    async with house(make_bodies()) as home, home.socket() as talk:
        with pytest.raises(Refused) as refused:
            await talk.call("put_schedule", **{"name": "tick", "job": "quick", **fields})
        assert complaint in str(refused.value)
        assert (await talk.call("list_schedules"))["schedules"] == []


@pytest.mark.at_engine
@pytest.mark.parametrize(
    "limits",
    [{"handles": ["alice"]}, {"lanes": ["images"]}, {"jobs": ["quick"]}],
    ids=lambda one: next(iter(one)),
)
async def test_a_limited_token_has_the_schedules_whose_runs_it_can_submit(
    tmp_path: Path, limits: dict[str, list[str]]
) -> None:
    file = tmp_path / "tokens"
    token = add_token(file, "me", Role.OPERATOR, **limits)
    header = {"authorization": f"Bearer {token}"}
    ours = {"job": "quick", "handle": "alice", "lane": "images", "every": 3600}
    theirs = {"job": "wait", "handle": "bob", "lane": "main", "every": 3600}
    async with house(make_bodies(), token_file=str(file)) as home, home.socket(headers=header) as talk:
        await home.engine.schedules.put("theirs", **theirs)
        await talk.call("subscribe")
        await talk.call("put_schedule", name="ours", **ours)
        assert [schedule["name"] for schedule in (await talk.call("list_schedules"))["schedules"]] == ["ours"]
        for command in (
            "get_schedule",
            "pause_schedule",
            "resume_schedule",
            "trigger_schedule",
            "delete_schedule",
        ):
            with pytest.raises(Refused, match='schedule "theirs" not found'):
                await talk.call(command, name="theirs")
        with pytest.raises(Refused, match=r"schedule name .theirs. is taken"):
            await talk.call("put_schedule", name="theirs", **ours)
        with pytest.raises(Refused, match="this token is limited to"):
            await talk.call("put_schedule", name="other", **theirs)
        assert (await talk.call("trigger_schedule", name="ours"))["joined"] is False
        assert (await talk.call("pause_schedule", name="ours"))["schedule"]["paused"] is True
        assert (await talk.call("snapshot"))["snapshot"].get("schedules", {}) == {}
        await talk.call("delete_schedule", name="ours")
        assert not [event for event in talk.events() if event["type"].startswith("schedule_")]
        assert [schedule.name for schedule in await home.engine.schedules.list()] == ["theirs"]


async def test_a_limited_token_without_the_default_handle_must_name_one(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    header = {"authorization": f"Bearer {add_token(file, 'me', Role.OPERATOR, handles=['alice'])}"}
    async with house(make_bodies(), token_file=str(file)) as home, home.socket(headers=header) as talk:
        with pytest.raises(Refused, match=r'limited to the handles alice .got "schedule:tick".'):
            await talk.call("put_schedule", name="tick", job="quick", every=60)


async def test_a_limited_token_cannot_let_a_schedule_replace_foreign_runs(tmp_path: Path) -> None:
    file = str(tmp_path / "tokens")
    header = {"authorization": f"Bearer {add_token(file, 'me', Role.OPERATOR, jobs=['wait'])}"}
    async with house(token_file=file) as home:
        put = home.engine.schedules.put
        await put("replaces", job="wait", handle="h", params={}, every=60, on_conflict="replace", paused=True)
        await put("queues", job="wait", handle="h", params={}, every=60, on_conflict="queue", paused=True)
        async with home.socket(headers=header) as talk:
            for command in ("trigger_schedule", "resume_schedule"):
                with pytest.raises(Refused, match="`replace` cancels any run of a handle"):
                    await talk.call(command, name="replaces")
                await talk.call(command, name="queues")
