"""Tokens that are limited to handles, lanes and jobs: what their callers can do and see, and what is
hidden."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from greenroom import Engine
from greenroom.errors import Invalid
from greenroom.gateway import Role, Tokens, add_token, remove_token
from greenroom.gateway.cluster.replica import Replica
from greenroom.gateway.commands.table import TABLE
from greenroom.gateway.tasks.calls import TABLE as TASK_CALLS
from greenroom.protocol.events import Event
from greenroom.protocol.fold import Projection
from greenroom.protocol.records import RunRecord, Snapshot
from tests.support import Bodies, until

from .flowing import WAITS, flow_house
from .support import PATIENCE, House, Refused, Talk, house

NEITHER = "no run has this id, and no handle of this name has a run"

MAKE: dict[str, dict[str, list[str]]] = {
    "alice": {"handles": ["alice", "alice/*"]},
    "bob": {"handles": ["bob/*"]},
    "images": {"lanes": ["images"]},
    "mirror": {"jobs": ["quick"]},
    "narrow": {"handles": ["alice/*"], "lanes": ["images"], "jobs": ["wait"]},
}


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "tokens"
    made = {name: add_token(file, name, Role.ADMIN, **limits) for name, limits in MAKE.items()}
    return {"file": str(file), "all": add_token(file, "all", Role.ADMIN)} | made


@pytest.fixture
async def home(tokens: dict[str, str]) -> AsyncIterator[House]:
    bodies = Bodies()

    @bodies.jobs.job("quick")
    async def quick(run: Any, params: dict) -> str:
        return "done"

    @bodies.jobs.job("ask")
    async def ask(run: Any, params: dict) -> None:
        await run.interrupt("may I?")

    async with house(bodies, token_file=tokens["file"]) as home:
        await home.engine.set_max_concurrent(100)
        yield home


def header(tokens: dict[str, str], name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {tokens[name]}"}


async def refusal(talk: Talk, type: str, **fields: Any) -> str:
    with pytest.raises(Refused) as refused:
        await talk.call(type, **fields)
    return f"{refused.value.code}: {refused.value.message}"


# The file.


def test_limits_are_in_the_file_and_are_read_again(tmp_path):
    file = tmp_path / "tokens"
    token = add_token(
        file, "me", Role.OPERATOR, handles=["al ice/*", "50%"], lanes=["main"], jobs=["a", "b*"]
    )
    assert "handle=50%25 handle=al%20ice/* lane=main job=a job=b*" in file.read_text()
    caller = Tokens.load(file).find(token)
    assert caller is not None
    assert caller.scope is not None
    assert str(caller.scope) == "handles 50%, al ice/*, lanes main, jobs a, b*"
    assert caller.scope.holds("al ice/x", "main", "bee")
    for run in (
        ("alice/x", "main", "a"),
        ("50%x", "main", "a"),
        ("50%", "images", "a"),
        ("50%", "main", "c"),
    ):
        assert not caller.scope.holds(*run)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ("handle=a*b", "at the end"),
        ("shape=round", "limit must be"),
        ("handle", "limit must be"),
        ("handle=", "empty"),
    ],
)
def test_a_malformed_limit_is_reported_with_its_line(tmp_path, limits, said):
    file = tmp_path / "tokens"
    file.touch(0o600)
    file.write_text(f"admin a {'0' * 64} {limits}\n")
    with pytest.raises(Invalid, match=f"tokens:1: .*{said}"):
        Tokens.load(file)


def test_a_workers_token_is_never_limited(tmp_path):
    with pytest.raises(Invalid, match="token of role worker cannot be limited"):
        add_token(tmp_path / "tokens", "w", Role.WORKER, handles=["a"])
    assert not (tmp_path / "tokens").exists()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o602])
async def test_a_file_that_others_can_access_is_refused_and_the_old_tokens_stay_valid(tmp_path, mode):
    file = tmp_path / "tokens"
    token = add_token(file, "me", Role.ADMIN)
    async with house(token_file=str(file)) as home:
        file.chmod(mode)
        with pytest.raises(Invalid, match=f"{mode:04o}.*run `chmod 600 "):
            Tokens.load(file)
        with pytest.raises(Invalid, match="chmod 600"):
            home.gateway.reconfigure(home.gateway._shared.config)
        answer = await home.http("GET", "/api/state", authorization=f"Bearer {token}")
        assert answer.status == 200
    add_token(file, "you", Role.VIEWER)
    assert len(list(Tokens.load(file))) == 2


# Permitted commands.


async def test_runs_of_other_handles_are_as_ones_that_do_not_exist(home, tokens):
    theirs = await home.engine.submit("ask", handle="bob/1", params={})
    [interrupt] = (await until(home.engine, lambda now: now.interrupts)).interrupts
    async with home.socket(headers=header(tokens, "alice")) as talk:
        for id in (theirs.id, "0" * 32):
            no_run = f'not_found: run "{id}" not found: {NEITHER}'
            for type in ("get_run", "history", "cancel", "wait", "rerun", "retry"):
                assert await refusal(talk, type, run_id=id) == no_run
            assert await refusal(talk, "signal", run_id=id, key="k", value=1) == no_run
            for type in ("get_task", "node_runs"):
                assert await refusal(talk, type, run_id=id) == f'not_found: flow run "{id}" not found'
            said = await refusal(talk, "inject", run_or_handle=id, message=1)
            assert said == f'forbidden: this token is limited to the handles alice, alice/* (got "{id}")'
        for id in (interrupt, f"{'0' * 32}.x"):
            assert (await talk.call("answer", interrupt_id=id, data=1))["outcome"] == "not_found"
    run = await home.engine.get_run(theirs.id)
    assert (run.status, len((await home.engine.snapshot()).interrupts)) == ("running", 1)


async def test_runs_of_other_handles_are_not_found_by_their_handles_either(home, tokens):
    theirs = await home.engine.submit("ask", handle="bob/1", params={})
    await until(home.engine, lambda now: now.interrupts)
    ended = await home.engine.submit("quick", handle="bob/2", params={})
    await ended.result()
    async with home.socket(headers=header(tokens, "alice")) as talk:
        for handle in ("bob/1", "bob/2", "bob/3"):
            for type in ("get_run", "history", "cancel", "wait"):
                assert await refusal(talk, type, run_id=handle) == (
                    f'not_found: run "{handle}" not found: {NEITHER}'
                )
            assert (await talk.call("answer", interrupt_id=handle, data=1))["outcome"] == "not_found"
            refused = await refusal(talk, "answer", interrupt_id=handle, data=1, key="1")
            neither = "is neither a pending run nor a handle with an active run"
            assert refused == f'no_active_run: "{handle}" {neither}'
        assert await refusal(talk, "get_task", run_id="bob/1") == ('not_found: flow run "bob/1" not found')
    assert (await home.engine.get_run(theirs.id)).status == "running"


async def test_permitted_runs_can_be_named_by_their_handles(home, tokens):
    ours = await home.engine.submit("ask", handle="alice/1", params={})
    [key] = [one.key for one in (await until(home.engine, lambda now: now.interrupts)).interrupts.values()]
    async with home.socket(headers=header(tokens, "alice")) as talk:
        assert (await talk.call("get_run", run_id="alice/1"))["run"]["id"] == ours.id
        said = await talk.call("answer", interrupt_id="alice/1", data=1, key=key)
        assert said["outcome"] == "resolved"
        await ours.result()
        assert "has no active run" in await refusal(talk, "cancel", run_id="alice/1")


async def test_a_name_outside_the_limits_is_forbidden_with_what_the_token_lacks(home, tokens):
    async with home.socket(headers=header(tokens, "alice")) as talk:
        lacks = 'forbidden: this token is limited to the handles alice, alice/* (got "bob/1")'
        for type, fields in (
            ("submit", {"job": "wait", "handle": "bob/1"}),
            ("start_flow", {"flow": "f", "handle": "bob/1"}),
            ("set_params", {"handle": "bob/1", "params": 1}),
            ("list_runs", {"handle": "bob/1"}),
            ("cancel_many", {"handle": "bob/1"}),
            ("rerun_many", {"handle": "bob/1"}),
            ("retry_many", {"handle": "bob/1", "dry_run": True}),
            ("clear_handle", {"handle": "bob/1"}),
            ("release_handle", {"handle": "bob/1"}),
            ("inject", {"run_or_handle": "bob/1", "message": 1}),
            ("subscribe", {"filter": {"handles": ["alice", "bob/1"]}}),
        ):
            assert await refusal(talk, type, **fields) == lacks, type
        assert '(got "task:")' in await refusal(talk, "start_flow", flow="f")
    async with home.socket(headers=header(tokens, "images")) as talk:
        lacks = 'forbidden: this token is limited to the lanes images (got "main")'
        assert await refusal(talk, "submit", job="wait", handle="h") == lacks
        assert await refusal(talk, "submit", job="wait", handle="h", lane=" ") == lacks
        assert await refusal(talk, "clear_lane", lane="main") == lacks
        assert await refusal(talk, "list_runs", lane="main") == lacks
        assert (await talk.call("clear_lane", lane="images"))["count"] == 0
    async with home.socket(headers=header(tokens, "mirror")) as talk:
        lacks = 'forbidden: this token is limited to the jobs quick (got "wait")'
        assert await refusal(talk, "submit", job="wait", handle="h") == lacks
        assert 'jobs quick (got "flow")' in await refusal(talk, "list_flows")
        for type in ("list_runs", "cancel_many", "rerun_many", "retry_many"):
            assert await refusal(talk, type, job="wait") == lacks
            assert 'jobs quick (got "flow")' in await refusal(talk, type, flow="nightly")


async def test_commands_for_the_whole_engine_require_a_token_without_limits(home, tokens):
    for name in MAKE:
        async with home.socket(headers=header(tokens, name)) as talk:
            for type, fields in (
                ("drain", {}),
                ("resume", {}),
                ("reset_lanes", {}),
                ("set_max_concurrent", {"n": 1}),
                ("set_concurrency", {"lane": "images", "n": 1}),
                ("publish_flow", {"name": "f", "definition": {}}),
                ("create_flow", {"name": "f"}),
                ("list_workers", {}),
                ("list_executors", {}),
                ("drain_executor", {"executor_id": "x"}),
                ("get_cluster", {}),
                ("step_down", {}),
                ("allocate_worker", {"service": "s"}),
                ("register_worker", {"worker_id": "w", "url": "", "services": ["s"], "kind": "queue"}),
                ("poll_work", {"worker_id": "w", "services": ["s"], "wait": 0}),
                ("complete_work", {"item_id": "x"}),
            ):
                said = await refusal(talk, type, **fields)
                assert said.startswith("forbidden: requires a token without limits; this token is"), type
        for path in ("/metrics", "/api/lanes/images"):
            assert (await home.http("GET", path, **header(tokens, name))).status == 403
    assert (await home.engine.snapshot()).engine.draining is False


async def test_every_command_over_http_respects_the_limits(home, tokens):
    ticket = await home.engine.submit("wait", handle="bob/1", params={})
    allowed = {("GET", "/api/runs"), ("GET", "/api/state"), ("POST", "/api/flows/check")}
    allowed |= {("GET", "/api/schedules"), ("GET", "/api/jobs")}
    for entry in TABLE:
        if entry.http is None or (entry.http.method, entry.http.path) in allowed:
            continue
        path = entry.http.path
        for name, value in {
            "run_id": ticket.id,
            "run_or_handle": ticket.id,
            "interrupt_id": f"{ticket.id}.x",
            "handle": "bob%2F1",
            "lane": "main",
        }.items():
            path = path.replace(f"{{{name}}}", value)
        body = {"job": "wait", "handle": "bob/1", "params": {}, "n": 1, "message": 1, "data": 1}
        fields = {field.name for field in msgspec.structs.fields(entry.wire)} - {"id"}
        given = {
            key: value for key, value in body.items() if key in fields and f"{{{key}}}" not in entry.http.path
        }
        answer = await home.http(
            entry.http.method, path, None if entry.http.method == "GET" else given, **header(tokens, "alice")
        )
        outcome = answer.json.get("outcome") if answer.status == 200 else None
        assert (
            answer.status in (400, 403, 404)
            or outcome == "not_found"
            or ("flows" in path and answer.status == 200)
        ), (path, answer.body)
    assert (await home.engine.get_run(ticket.id)).status == "running"


async def test_the_compatible_api_respects_the_limits(tokens):
    async with flow_house(token_file=tokens["file"]) as home:
        await home.engine.flows.publish("f", WAITS)
        theirs = await home.engine.flows.start("f", handle="bob/1")
        mine = await home.engine.flows.start("f", handle="alice/1")
        await until(home.engine, lambda now: now.runs[theirs.id].status == "suspended")
        mark = header(tokens, "alice")
        listed = (await home.http("GET", "/tasks", **mark)).json
        assert ([task["id"] for task in listed["data"]], listed["total"]) == ([mine.id], 1)
        [flow] = (await home.http("GET", "/flows", **mark)).json["data"]
        assert (await home.http("GET", f"/tasks/get?id={mine.id}", **mark)).status == 200
        [version] = (await home.http("GET", f"/flows/version?flow_id={flow['id']}&page_size=1", **mark)).json
        assert version["version"] == 1
        again = {"FlowID": flow["id"], "Version": 1, "DefinitionJSON": WAITS}
        assert (await home.http("POST", "/flows/version", again, **mark)).status == 403
        for method, path, body in (
            ("GET", f"/tasks/get?id={theirs.id}", None),
            ("GET", f"/tasks/runs?task_id={theirs.id}", None),
            ("POST", f"/tasks/cancel?id={theirs.id}", {}),
            ("POST", "/tasks/signal", {"task_id": theirs.id, "key": "flag", "value": 1}),
        ):
            assert (await home.http(method, path, body, **mark)).status == 404, path
        assert (await home.http("POST", "/tasks", {"flow_id": flow["id"]}, **mark)).status == 403
        for task in TASK_CALLS:
            if task.workers:
                body = None if task.method == "GET" else {}
                status = (await home.http(task.method, task.path, body, **mark)).status
                assert status in (400, 403), task.path
        assert (await home.engine.get_run(theirs.id)).status == "suspended"


async def test_own_runs_are_started_and_steered_as_without_limits(home, tokens):
    async with home.socket(headers=header(tokens, "narrow")) as talk:
        run = (await talk.call("submit", job="wait", handle="alice/1", lane="images", params={}))["run_id"]
        assert (await talk.call("get_run", run_id=run))["run"]["handle"] == "alice/1"
        assert "handles only" in await refusal(
            talk, "submit", job="wait", handle="alice/1", lane="images", on_conflict="replace"
        )
        assert "handles only" in await refusal(talk, "inject", run_or_handle="alice/1", message=1)
        given = {"job": "wait", "handle": "alice/1", "lane": "images", "on_conflict": "coalesce"}
        waits = (await talk.call("submit", params={"n": 1}, **given))["run_id"]
        again = await talk.call("submit", params={"n": 2}, **given)
        assert (again["run_id"], again["joined"]) == (waits, True)
        assert (await talk.call("cancel", run_id=waits))["run"]["params"] == {"n": 2}
        await talk.call("set_params", handle="alice/2", params={"a": 1})
        assert (await talk.call("cancel", run_id=run))["run"]["id"] == run
        assert [one["id"] for one in (await talk.call("list_runs"))["runs"]] == [waits, run]
        await talk.call("wait", run_id=run)


async def test_the_jobs_that_can_be_submitted_are_listed(home, tokens):
    found = {}
    for name in ("all", "alice", "images", "mirror", "narrow"):
        async with home.socket(headers=header(tokens, name)) as talk:
            found[name] = [job["name"] for job in (await talk.call("list_jobs"))["jobs"]]
    everything = found["all"]
    assert {"ask", "quick", "wait"} <= set(everything)
    assert found == {
        "all": everything,
        "alice": everything,
        "images": everything,  # each can be submitted in the lane
        "mirror": ["quick"],
        "narrow": ["wait"],
    }


async def test_a_pattern_that_fits_the_ids_of_runs_opens_no_way_to_runs_of_others(home, tokens):
    """A message goes to a run or to a handle; an id that matches a token's handles is still an id."""
    token = add_token(tokens["file"], "digits", Role.OPERATOR, handles=["0*"])
    home.gateway.reconfigure(home.gateway._shared.config)
    theirs = await home.engine.submit("wait", handle="bob/1", params={})
    ended = await home.engine.submit("quick", handle="bob/2", params={})
    await ended.wait()
    mine = await home.engine.submit("wait", handle="01", params={})
    await until(home.engine, lambda now: now.runs[mine.id].status == "running")
    async with home.socket(headers={"authorization": f"Bearer {token}"}) as talk:
        for id in (theirs.id, ended.id, "0" * 32):
            said = await refusal(talk, "inject", run_or_handle=id, message=1)
            assert said == f'no_active_run: "{id}" is neither a pending run nor a handle with an active run'
        for name in (mine.id, "01"):
            assert (await talk.call("inject", run_or_handle=name, message=1))["outcome"] == "accepted"
    assert "run_message" not in {event.type for event in await home.engine.history(theirs.id)}


async def test_a_conflict_does_not_reveal_a_run_of_another_job(home, tokens):
    first = await home.engine.submit("wait", handle="h", params={"secret": 1}, request_id="r")
    async with home.socket(headers=header(tokens, "mirror")) as talk:
        with pytest.raises(Refused) as refused:
            await talk.call("submit", job="quick", handle="h", params={}, request_id="r")
        assert refused.value.code == "conflict"
        assert "run" not in refused.value.details
        assert "secret" not in str(refused.value.details)
    await home.engine.cancel(first.id)


# Visible runs.


async def populate(home: House) -> None:
    """Create runs of several handles, lanes and jobs; some have ended."""
    for handle in ("alice/1", "alice/2", "bob/1", "carol"):
        await home.engine.set_params(handle, {"of": handle})
    for handle in ("alice/1", "bob/1"):
        await home.engine.submit("wait", handle=handle, lane="images", params={})
        await home.engine.submit("quick", handle=handle, params={}, on_conflict="queue")
        ended = await home.engine.submit("quick", handle=f"{handle}/ended", params={})
        await ended.wait()
    await home.engine.submit("wait", handle="alice/2", params={}, tags={"kind": "odd"})
    await home.engine.submit("wait", handle="alice/3", lane="images", params={}, tags={"kind": "odd"})


FITS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "alice": lambda run: run["handle"].startswith("alice/"),
    "bob": lambda run: run["handle"].startswith("bob/"),
    "images": lambda run: run["lane"] == "images",
    "mirror": lambda run: run["job"] == "quick",
    "narrow": lambda run: (
        run["handle"].startswith("alice/") and run["lane"] == "images" and run["job"] == "wait"
    ),
}


def permits(name: str, run: RunRecord) -> bool:
    """Whether the token of this name permits a run."""
    return FITS[name](msgspec.structs.asdict(run))


@pytest.mark.parametrize("name", list(MAKE))
async def test_state_snapshots_and_lists_contain_only_permitted_runs(home, tokens, name):
    await populate(home)
    everything = msgspec.json.decode(msgspec.json.encode(await home.engine.snapshot()))
    expected = {id: run for id, run in everything["runs"].items() if FITS[name](run)}
    assert expected
    state = (await home.http("GET", "/api/state", **header(tokens, name))).json
    assert state["runs"] == expected
    for lane in state["lanes"].values():
        assert {*lane["executing"], *lane["queued"]} <= set(expected)
    for handle in state["handles"].values():
        assert {*handle["waiting"], *filter(None, [handle["active_run"]])} <= set(expected)
    assert state["engine"]["executing"] == sum(len(lane["executing"]) for lane in state["lanes"].values())
    if "handles" in MAKE[name]:
        assert all(handle.startswith(("alice/", "bob/")) for handle in state["handles"])
        assert "carol" not in state["handles"]
    async with home.socket(headers=header(tokens, name)) as talk:
        assert (await talk.call("snapshot"))["snapshot"] == state
        newest_first = sorted(expected, reverse=True)
        assert [run["id"] for run in (await talk.call("list_runs"))["runs"]] == newest_first
        pages: list[str] = []
        while page := (await talk.call("list_runs", limit=1, before=pages[-1] if pages else None))["runs"]:
            pages += [run["id"] for run in page]
        assert pages == newest_first


@pytest.mark.parametrize("name", list(MAKE))
async def test_filters_select_only_permitted_runs(home, tokens, name):
    await populate(home)
    every = [run for run in await home.engine.list_runs() if permits(name, run)]
    since = sorted(run.created_at for run in every)[len(every) // 2]
    async with home.socket(headers=header(tokens, name)) as talk:
        for filter, expected in (
            ({"since": since}, [run for run in every if run.created_at >= since]),
            ({"until": since}, [run for run in every if run.created_at < since]),
            ({"tags": {"kind": "odd"}}, [run for run in every if run.tags.get("kind") == "odd"]),
            ({"status": ["queued", "running"]}, [run for run in every if not run.ended]),
            ({"error": "e"}, []),
        ):
            found = (await talk.call("list_runs", **filter))["runs"]
            assert [run["id"] for run in found] == [run.id for run in expected], filter


@pytest.mark.parametrize("name", list(MAKE))
async def test_bulk_operations_work_on_permitted_runs_only(home, tokens, name):
    await populate(home)
    every = await home.engine.list_runs()
    pending = [run for run in every if not run.ended and permits(name, run)]
    others = [run for run in every if not permits(name, run)]
    async with home.socket(headers=header(tokens, name)) as talk:
        for fields, done in (({"dry_run": True}, 0), ({}, len(pending)), ({}, 0)):
            bulk = (await talk.call("cancel_many", since=0, **fields))["bulk"]
            matched = done if fields == {} else len(pending)
            assert (bulk["matched"], bulk["done"], bulk["refused"]) == (matched, done, 0)
        for run in pending:
            await home.engine.wait(run.id)
        ended = [run for run in await home.engine.list_runs() if run.ended and permits(name, run)]
        bulk = (await talk.call("rerun_many", since=0, request_id="r"))["bulk"]
        assert (bulk["matched"], bulk["done"]) == (len(ended), len(ended))
    for run in others:
        assert (await home.engine.get_run(run.id)).status not in ("cancelling", "cancelled")
    made = [run for run in await home.engine.list_runs() if run.id > every[0].id]
    assert (len(made), all(permits(name, run) for run in made)) == (len(ended), True)


@pytest.mark.parametrize("name", list(MAKE))
async def test_folding_the_events_gives_the_snapshot_and_contains_no_other_runs(home, tokens, name):
    async with home.socket(headers=header(tokens, name)) as talk:
        before = msgspec.convert((await talk.call("snapshot"))["snapshot"], Snapshot)
        await talk.call("subscribe", after=before.seq, epoch=before.epoch)
        await populate(home)
        for run in (await home.engine.snapshot()).runs.values():
            if not run.ended and run.handle != "alice/3":
                await home.engine.cancel(run.id)
        after = (await talk.call("snapshot"))["snapshot"]
        events = [event for event in talk.events() if event["seq"] <= after["seq"]]
    projection = Projection.from_snapshot(before)
    for event in msgspec.convert(events, list[Event]):
        projection.seq = event.seq - 1  # other runs are excluded
        projection.apply(event)
    projection.seq = after["seq"]
    folded = projection.snapshot()
    assert msgspec.json.decode(msgspec.json.encode(folded)) == after
    runs = msgspec.json.decode(msgspec.json.encode(await home.engine.snapshot()))["runs"]
    for event in events:
        if "run" in event:
            assert FITS[name](runs[event["run"]]), event


async def test_server_sent_events_contain_only_permitted_runs(home, tokens):
    await populate(home)
    raw = await home.raw()
    async with raw.stream:
        await raw.send(
            f"GET /api/events?last_event_id=old:1 HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {tokens['alice']}\r\n\r\n".encode()
        )
        await home.engine.submit("wait", handle="bob/9", params={})
        await home.engine.submit("wait", handle="alice/9", params={})
        text = b""
        with trio.fail_after(PATIENCE):
            while b"alice/9" not in text:
                text += await raw.stream.receive_some()
    assert b"event: resync" in text
    assert b"alice/1" in text
    assert b"bob" not in text
    assert b"carol" not in text


async def test_limits_that_change_end_the_connections(home, tokens):
    async with home.socket(headers=header(tokens, "alice")) as talk:
        await talk.receive()
        remove_token(tokens["file"], "alice")
        line = f"admin alice {hashlib.sha256(tokens['alice'].encode()).hexdigest()} handle=alice/2\n"
        with open(tokens["file"], "a") as file:  # noqa: ASYNC230
            file.write(line)
        home.gateway.reconfigure(home.gateway._shared.config)
        assert await talk.close_code() == 4401


async def test_a_subscriber_too_far_behind_to_know_the_jobs_of_runs_receives_a_snapshot(
    home, tokens, monkeypatch
):
    async with home.socket(headers=header(tokens, "mirror")) as talk:
        for kind in (Engine, Replica):
            monkeypatch.setattr(kind, "job_of", lambda state, run: None)
        await talk.call("subscribe")
        await (await home.engine.submit("quick", handle="h", params={})).wait()
        await (await home.engine.submit("wait", handle="i", params={})).cancel()
        resync = await talk.receive_type("resync")
        assert {run["job"] for run in resync["snapshot"]["runs"].values()} == {"quick"}


async def test_a_filter_for_no_runs_differs_from_no_filter(home, tokens):
    async with (
        home.socket(headers=header(tokens, "alice")) as all_of_mine,
        home.socket(headers=header(tokens, "alice")) as none,
    ):
        await all_of_mine.call("subscribe")
        await none.call("subscribe", filter={"runs": []})
        await (await home.engine.submit("quick", handle="alice/1", params={})).wait()
        for talk in (all_of_mine, none):
            await talk.call("snapshot")
        assert {event["handle"] for event in all_of_mine.events()} == {"alice/1"}
        assert none.events() == []


async def test_server_sent_events_end_when_the_token_is_revoked_or_limited(home, tokens):
    raw = await home.raw()
    async with raw.stream:
        head = f"Host: localhost\r\nAuthorization: Bearer {tokens['alice']}\r\n"
        await raw.send(f"GET /api/events HTTP/1.1\r\n{head}\r\n".encode())
        with trio.fail_after(PATIENCE):
            while b"retry" not in await raw.stream.receive_some():
                pass
        remove_token(tokens["file"], "alice")
        home.gateway.reconfigure(home.gateway._shared.config)
        await home.engine.submit("wait", handle="alice/9", params={})
        rest = b""
        with trio.fail_after(PATIENCE):
            while not rest.endswith(b"0\r\n\r\n"):
                rest += await raw.stream.receive_some()
        assert b"alice/9" not in rest


async def test_server_sent_events_end_immediately_also_for_a_slow_client(home, tokens):
    """Hundreds of events are pending when its token is revoked, and it receives none of them."""
    raw = await home.raw()
    async with raw.stream:
        raw.stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, 4096)
        head = f"Host: localhost\r\nAuthorization: Bearer {tokens['alice']}\r\n"
        await raw.send(f"GET /api/events HTTP/1.1\r\n{head}\r\n".encode())
        with trio.fail_after(PATIENCE):
            while b"retry" not in await raw.stream.receive_some():
                pass
        for number in range(200):
            params = {"number": number, "much": "x" * 100_000}
            await (await home.engine.submit("quick", handle=f"alice/{number}", params=params)).wait()
        remove_token(tokens["file"], "alice")
        home.gateway.reconfigure(home.gateway._shared.config)
        received = 0
        with trio.fail_after(PATIENCE):
            while data := await raw.stream.receive_some():
                received += len(data)
        assert received < 15_000_000
