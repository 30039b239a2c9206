"""Batches over WebSocket and HTTP: replies, order, rates, sizes, roles and limited tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom.errors import Conflict
from greenroom.gateway import Limits, Role, add_token
from greenroom.protocol.batches import MAX_RUNS

from .support import Raw, Refused, Talk, house


def wait(handle: str, **options: Any) -> dict[str, Any]:
    return {"job": "wait", "handle": handle, "params": {}, **options}


def header(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def submitted(talk: Talk, runs: list[Any], **fields: Any) -> list[dict[str, Any]]:
    """The outcomes in all parts of the reply."""
    id = await talk.post("submit_many", runs=runs, **fields)
    outcomes: list[dict[str, Any]] = []
    more = True
    while more:
        talk.received.clear()
        reply = await talk.reply(id)
        outcomes += reply["submitted"]
        more = reply.get("more", False)
    return outcomes


async def test_the_reply_has_the_outcome_of_each_run_in_order():
    async with house() as home, home.socket() as talk:
        await talk.call("subscribe")
        reply = await talk.call("submit_many", runs=[wait("a"), wait("b"), wait("a", on_conflict="join")])
        created = [event["run"] for event in talk.events() if event.get("from", "") is None]
        assert reply["submitted"] == [
            {"run_id": created[0], "joined": False},
            {"run_id": created[1], "joined": False},
            {"run_id": created[0], "joined": True},
        ]
        assert talk.received[-1] is reply
        assert talk.received[-2]["to"] == reply["seq"]  # what it reports has arrived before it


async def test_each_run_for_itself_has_its_error_in_its_place():
    async with house() as home, home.socket() as talk:
        runs = [wait("a"), wait("a"), wait(" "), wait("b", kind="again"), wait("c")]
        reply = await talk.call("submit_many", runs=runs, all_or_nothing=False)
        first, conflict, nameless, kind, last = reply["submitted"]
        assert conflict["error"]["code"] == "conflict"
        assert conflict["error"]["details"] == {"active_run": first["run_id"]}
        assert nameless["error"]["message"] == 'handle must not be empty (got " ")'
        assert kind["error"]["code"] == "invalid"
        assert "run_id" in last


async def test_one_refusal_refuses_all():
    async with house() as home, home.socket() as talk:
        before = (await home.engine.snapshot()).seq
        with pytest.raises(Refused) as refused:
            await talk.call("submit_many", runs=[wait("a"), wait("b"), wait("b", request_id="x")])
        assert (refused.value.code, refused.value.details["index"]) == ("conflict", 2)
        assert refused.value.message.startswith('runs[2]: handle "b" is taken by run')
        assert (await home.engine.snapshot()).seq == before


@pytest.mark.parametrize(
    ("fields", "code", "message", "path"),
    [
        ({}, "invalid", "message: object missing required field runs", ""),
        ({"runs": {}}, "invalid", "runs: expected array, got object", "runs"),
        (
            {"runs": [wait("a"), {"job": "wait"}]},
            "invalid",
            "runs[1]: object missing required field handle",
            "runs[1]",
        ),
        (
            {"runs": [wait("a"), {"job": "wait", "handel": "a"}]},
            "invalid",
            'runs[1]: object contains unknown field handel: did you mean "handle"?',
            "runs[1]",
        ),
        (
            {"runs": [wait("a")], "all_or_nothing": 1},
            "invalid",
            "all_or_nothing: expected boolean, got integer",
            "all_or_nothing",
        ),
        (
            {"runs": [wait("a")] * (MAX_RUNS + 1)},
            "too_large",
            "runs must have at most 10000 entries (got 10001): divide them among several calls",
            None,
        ),
    ],
)
async def test_a_malformed_batch_is_refused_and_changes_nothing(
    fields: dict[str, Any], code: str, message: str, path: str | None
):
    async with house(limits=Limits(burst=20_000)) as home, home.socket() as talk:
        with pytest.raises(Refused) as refused:
            await talk.call("submit_many", **fields)
        assert (refused.value.code, refused.value.message) == (code, message)
        assert refused.value.details.get("path") == path
        assert not (await home.engine.snapshot()).runs


async def test_ten_thousand_runs_fit_into_one_message_and_their_outcomes_arrive_in_parts():
    async with house() as home, home.socket() as talk:
        await home.engine.set_max_concurrent(0)
        outcomes = await submitted(talk, [wait(f"handle {number}") for number in range(MAX_RUNS)])
        snapshot = await home.engine.snapshot()
        assert snapshot.lanes["main"].queued == [outcome["run_id"] for outcome in outcomes]
        assert len(outcomes) == MAX_RUNS


async def test_commands_behind_a_batch_are_executed_after_it():
    async with house() as home, home.socket() as talk:
        await home.engine.set_max_concurrent(0)
        many = await talk.post("submit_many", runs=[wait(f"handle {number}") for number in range(300)])
        last = await talk.post("submit", **wait("the last"))
        reply, single = await talk.reply(many), await talk.reply(last)
        queued = (await home.engine.snapshot()).lanes["main"].queued
        assert queued == [*(outcome["run_id"] for outcome in reply["submitted"]), single["run_id"]]


async def test_http_submits_a_batch():
    async with house() as home:
        answer = await home.http("POST", "/api/runs/batch", {"runs": [wait("a"), wait("b")]})
        assert answer.status == 200
        first, second = answer.json["submitted"]
        assert (await home.engine.get_run(first["run_id"])).handle == "a"
        assert (await home.engine.get_run(second["run_id"])).handle == "b"
        assert answer.json["seq"] >= 2
        answer = await home.http("POST", "/api/runs/batch", {"runs": [wait("c"), wait("a")]})
        assert (answer.status, answer.json["code"]) == (409, "conflict")
        assert answer.json["details"]["index"] == 1
        each = {"runs": [wait("c"), wait("a")], "all_or_nothing": False}
        accepted, refused = (await home.http("POST", "/api/runs/batch", each)).json["submitted"]
        assert (accepted["joined"], refused["error"]["code"]) == (False, "conflict")
        large = await home.http("POST", "/api/runs/batch", {"runs": [wait("d")] * (MAX_RUNS + 1)})
        assert large.status in (413, 429)


# Rates.


async def test_each_run_of_a_batch_counts_for_the_rate(autojump_clock):
    async with house(limits=Limits(rate=10, burst=20), listen=False) as home:
        await home.engine.set_max_concurrent(0)
        talk = await home.memory_socket()
        await talk.receive()
        await talk.call("submit_many", runs=[wait(f"a{number}") for number in range(15)])
        with pytest.raises(Refused) as refused:
            await talk.call("submit_many", runs=[wait(f"b{number}") for number in range(10)])
        assert refused.value.code == "rate_limited"
        assert refused.value.message == (
            "rate limit exceeded: at most 10 messages per second, and each run of a batch counts (got 10): "
            "retry in 0.5 seconds, or submit fewer runs together"
        )
        await trio.sleep(refused.value.details["retry_after"] + 0.1)
        await talk.call("submit_many", runs=[wait(f"b{number}") for number in range(10)])


async def test_a_batch_above_the_burst_is_accepted_and_owes_the_rest(autojump_clock):
    async with house(limits=Limits(rate=10, burst=20), listen=False) as home:
        await home.engine.set_max_concurrent(0)
        talk = await home.memory_socket()
        await talk.receive()
        await talk.call("submit_many", runs=[wait(f"a{number}") for number in range(50)])
        await trio.sleep(2.9)
        with pytest.raises(Refused, match="rate_limited"):
            await talk.call("snapshot")
        await trio.sleep(0.3)
        await talk.call("snapshot")


async def test_each_run_of_a_batch_counts_for_the_rate_of_requests(autojump_clock):
    async with house(limits=Limits(rate=10, burst=20), listen=False) as home:
        await home.engine.set_max_concurrent(0)
        raw = Raw(await home.stream())
        batches = [{"runs": [wait(f"{name}{number}") for number in range(15)]} for name in "ab"]
        statuses = [(await raw.http("POST", "/api/runs/batch", batch)).status for batch in batches]
        assert statuses == [200, 429]


# Roles and limited tokens.


async def test_a_viewer_cannot_submit_a_batch(tmp_path: Path):
    token = add_token(tmp_path / "tokens", "eve", Role.VIEWER)
    async with house(token_file=str(tmp_path / "tokens")) as home:
        async with home.socket(headers=header(token)) as talk:
            with pytest.raises(Refused, match="submit_many requires the role operator"):
                await talk.call("submit_many", runs=[wait("a")])
        answer = await home.http("POST", "/api/runs/batch", {"runs": []}, **header(token))
        assert answer.status == 403


async def test_a_limited_token_is_checked_for_each_run(tmp_path: Path):
    limits = {"handles": ["alice/*"], "lanes": ["images"]}
    token = add_token(tmp_path / "tokens", "alice", Role.OPERATOR, **limits)
    async with (
        house(token_file=str(tmp_path / "tokens")) as home,
        home.socket(headers=header(token)) as talk,
    ):
        mine, other = wait("alice/1", lane="images"), wait("bob", lane="images")
        with pytest.raises(Refused) as refused:
            await talk.call("submit_many", runs=[mine, other])
        assert refused.value.code == "forbidden"
        assert refused.value.message.startswith("runs[1]: ")
        assert not (await home.engine.snapshot()).runs
        reply = await talk.call("submit_many", runs=[mine, other, wait("alice/2")], all_or_nothing=False)
        codes = [outcome.get("error", {}).get("code") for outcome in reply["submitted"]]
        assert codes == [None, "forbidden", "forbidden"]
        assert [run.handle for run in (await home.engine.snapshot()).runs.values()] == ["alice/1"]


@pytest.mark.parametrize("all_or_nothing", [True, False])
async def test_a_conflict_does_not_reveal_a_run_that_the_token_cannot_see(
    all_or_nothing: bool, tmp_path: Path
):
    token = add_token(tmp_path / "tokens", "alice", Role.OPERATOR, handles=["alice"], lanes=["images"])
    async with (
        house(token_file=str(tmp_path / "tokens")) as home,
        home.socket(headers=header(token)) as talk,
    ):
        used = {"handle": "alice", "params": {}, "request_id": "once"}
        await home.engine.submit("wait", lane="secret", **used)
        with pytest.raises(Conflict):
            await home.engine.submit("wait", lane="images", **used)
        runs = [wait("alice", lane="images", request_id="once")]
        if all_or_nothing:
            with pytest.raises(Refused) as refused:
                await talk.call("submit_many", runs=runs)
            details = refused.value.details
            assert details.pop("index") == 0
        else:
            reply = await talk.call("submit_many", runs=runs, all_or_nothing=False)
            details = reply["submitted"][0]["error"]["details"]
        assert details == {}
