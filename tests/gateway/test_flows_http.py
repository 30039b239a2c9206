"""The HTTP API of existing clients and workers of flows: every call, as bytes on a real socket."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing

from greenroom.gateway.tasks.calls import TABLE
from greenroom.persistence.memory import MemoryStore

from .flowing import DOUBLES, HANGS, QUEUED, WAITS, flow_house, until_run
from .support import Answer, House, Raw, Refused

CONTINUE = {"unhandled_errors": "continue"}
"""What is written into definitions that come over these calls."""

WORKER = {"id": "w1", "url": "http://127.0.0.1:9", "services": ["sum", "route"], "load": 2, "type": "http"}


@pytest.fixture(params=["", "/api"], ids=["bare", "api"])
def prefix(request: pytest.FixtureRequest) -> str:
    text: str = request.param
    return text


@pytest.fixture
async def home(caplog: pytest.LogCaptureFixture) -> AsyncIterator[House]:
    async with flow_house() as home:
        yield home
    gateways = [record for record in caplog.records if record.name.startswith("greenroom.gateway")]
    assert not [record for record in gateways if record.levelno >= logging.ERROR]


def done(answer: Answer) -> bool:
    return (answer.status, answer.json) == (200, {"ok": "1"})


def refused(answer: Answer) -> tuple[int, str]:
    """The status and the code; the text is in the field `error`."""
    body = answer.json
    assert body["error"] == body["message"]
    assert body["error"]
    return answer.status, body["code"]


async def make_flow(home: House, definition: dict[str, Any], name: str = "f") -> str:
    """A flow with one published version; its id."""
    flow: str = (await home.http("POST", "/api/flows", {"Name": name})).json["id"]
    body = {"FlowID": flow, "Version": 1, "DefinitionJSON": json.dumps(definition), "Status": "published"}
    assert (await home.http("POST", "/api/flows/version", body)).status == 200
    return flow


async def make_task(home: House, definition: dict[str, Any], name: str = "f", **params: Any) -> str:
    flow = await make_flow(home, definition, name)
    body = {"FlowID": flow, "ParamsJSON": json.dumps(params)}
    task: str = (await home.http("POST", "/api/tasks", body)).json["id"]
    return task


async def make_item(home: House, name: str = "f", n: int = 7) -> dict[str, Any]:
    """A piece of work that the worker `w` has taken from the queue."""
    await make_task(home, QUEUED, name, n=n)
    item: dict[str, Any] = (
        await home.http("POST", "/queue/poll", {"worker_id": "w", "services": ["slow"]})
    ).json
    return item


# Workers.


@pytest.mark.parametrize("place", ["/workers", ""])
async def test_a_worker_registers_sends_heartbeats_and_is_listed(home, prefix, place):
    at = f"{prefix}{place}"
    assert done(await home.http("POST", f"{at}/register", WORKER))
    assert done(await home.http("POST", f"{at}/heartbeat", {"id": "w1", "url": WORKER["url"], "load": 5}))
    [listed] = (await home.http("GET", f"{at}/list?service=&ttl=")).json
    received = listed.pop("last_heartbeat")
    assert type(received) is int
    assert abs(received - (await home.engine.workers.list())[0].last_heartbeat) < 1
    assert listed == WORKER | {"load": 5, "status": "online"}
    assert type(listed["load"]) is int
    assert (await home.http("GET", f"{at}/allocate?service=sum")).json == listed | {
        "last_heartbeat": received
    }


async def test_the_least_busy_worker_is_allocated_and_those_of_a_service_are_listed(home, prefix):
    for name, services, load in (("a", ["sum"], 3), ("b", ["sum"], 1.5), ("c", ["route"], 0)):
        body = WORKER | {"id": name, "services": services, "load": load}
        assert done(await home.http("POST", f"{prefix}/workers/register", body))
    best = (await home.http("GET", f"{prefix}/workers/allocate?service=sum")).json
    assert (best["id"], best["load"]) == ("b", 1.5)
    listed = (await home.http("GET", f"{prefix}/workers/list?service=sum&ttl=10")).json
    assert {worker["id"] for worker in listed} == {"a", "b"}


@pytest.mark.parametrize("url", ["http://10.0.0.7:80", "http://169.254.169.254", "http://[::ffff:a00:7]"])
async def test_a_worker_with_a_forbidden_url_cannot_register(home, prefix, url):
    for body in ({"type": "http"}, {"type": ""}, {}):
        answer = await home.http("POST", f"{prefix}/register", WORKER | {"url": url} | body)
        assert refused(answer) == (400, "invalid")
    async with home.socket() as talk:
        with pytest.raises(Refused) as caught:
            await talk.call("register_worker", worker_id="w", url=url, services=["sum"])
        assert caught.value.code == "invalid"
    assert (await home.http("GET", "/list")).json == []


async def test_without_a_worker_none_is_allocated(home, prefix):
    answer = await home.http("GET", f"{prefix}/allocate?service=sum")
    assert refused(answer) == (503, "unavailable")
    await home.http("POST", "/register", WORKER | {"type": "queue"})
    assert (await home.http("GET", f"{prefix}/allocate?service=sum")).status == 503


async def test_a_heartbeat_of_an_unknown_worker_is_not_found(home, prefix):
    answer = await home.http("POST", f"{prefix}/heartbeat", {"id": "w1", "url": "", "load": 0})
    assert refused(answer) == (404, "not_found")


@pytest.mark.parametrize(
    ("type", "url", "kind"),
    [
        ({}, "http://127.0.0.1:9", "http"),
        ({"type": ""}, "http://127.0.0.1:9", "http"),
        ({"type": None}, "http://127.0.0.1:9", "http"),
        ({"type": "queue"}, "", "queue"),
        ({"Type": "async"}, "queue", "async"),
        ({"Type": "async"}, "", "async"),
        ({"type": "queue"}, "queue", "queue"),
        ({"type": "queue"}, "http://10.0.0.7:9/", "queue"),
        ({"type": "http"}, "http://127.0.0.1:9/", "http"),
    ],
)
async def test_a_worker_is_listed_with_the_words_that_it_sent(home, type, url, kind):
    body = {"ID": "w1", "URL": url, "Services": ["sum"], "lastHeartbeat": 0, **type}
    assert done(await home.http("POST", "/register", body))
    [worker] = (await home.http("GET", "/list")).json
    assert (worker["type"], worker["url"]) == (kind, url)


# Flows and versions.


async def test_flows_are_made_and_listed_the_newest_first(home, prefix):
    ids = [
        (await home.http("POST", f"{prefix}/flows", {"Name": f"f{n}", "Description": "d"})).json["id"]
        for n in range(5)
    ]
    page = (await home.http("GET", f"{prefix}/flows?page=1&page_size=2")).json
    made = [row.pop("created_at") for row in page["data"]]
    assert all(type(at) is int for at in made)
    assert page == {
        "data": [{"id": ids[n], "name": f"f{n}", "description": "d"} for n in (4, 3)],
        "total": 5,
        "page": 1,
        "size": 2,
    }
    last = (await home.http("GET", f"{prefix}/flows?page=3&page_size=2")).json
    assert [row["id"] for row in last["data"]] == [ids[0]]
    for beyond in (4, 1_000):
        assert (await home.http("GET", f"{prefix}/flows?page={beyond}&page_size=2")).json["data"] == []
    usual = (await home.http("GET", f"{prefix}/flows")).json
    assert (usual["page"], usual["size"], len(usual["data"])) == (1, 10, 5)
    odd = (await home.http("GET", f"{prefix}/flows?page=0&page_size=-1")).json
    assert odd == usual


async def test_an_existing_flow_is_a_conflict_that_contains_its_id(home):
    first = (await home.http("POST", "/flows", {"Name": "f"})).json["id"]
    again = await home.http("POST", "/flows", {"Name": "f"})
    assert refused(again) == (409, "conflict")
    assert again.json["id"] == first


YAML = """
start: a
nodes:
  a: {kind: local, func: double, prep: {input_key: $params.n}, post: {output_key: out}}
edges: []
"""


@pytest.mark.parametrize(
    "written",
    [
        {"DefinitionJSON": json.dumps(DOUBLES)},
        {"DefinitionJSON": DOUBLES},
        {"DefinitionYAML": YAML, "DefinitionJSON": ""},
    ],
    ids=["text", "object", "yaml"],
)
async def test_a_version_is_published_and_shown(home, prefix, written):
    flow = (await home.http("POST", f"{prefix}/flows", {"Name": "f"})).json["id"]
    body = {"FlowID": flow, "Version": 0, "Status": "published", **written}
    made = await home.http("POST", f"{prefix}/flows/version", body)
    assert (made.status, list(made.json)) == (200, ["id"])
    version = (await home.http("GET", f"{prefix}/flows/version/get?id={made.json['id']}")).json
    assert json.loads(version.pop("definition_json")) == DOUBLES | CONTINUE
    assert version == {"id": made.json["id"], "flow_id": flow, "version": 1, "status": "published"}


async def test_versions_of_a_flow_are_listed_with_their_definitions_the_newest_first(home, prefix):
    flow = await make_flow(home, DOUBLES)
    body = {"FlowID": flow, "DefinitionJSON": json.dumps(WAITS), "Status": "draft"}
    await home.http("POST", f"{prefix}/flows/version", body)
    listed = (await home.http("GET", f"{prefix}/flows/version?flow_id={flow}")).json
    assert [(row["version"], row["status"]) for row in listed] == [(2, "draft"), (1, "published")]
    assert [json.loads(row["definition_json"]) for row in listed] == [WAITS | CONTINUE, DOUBLES | CONTINUE]
    assert {frozenset(row) for row in listed} == {
        frozenset({"id", "flow_id", "version", "definition_json", "status"})
    }


async def test_a_definition_is_refused_with_all_of_its_errors(home, prefix):
    flow = (await home.http("POST", "/flows", {"Name": "f"})).json["id"]
    wrong = {"start": "nowhere", "nodes": {"a": {"kind": "magic"}, "b": {"kind": "timer", "x": 1}}}
    body = {"FlowID": flow, "DefinitionJSON": json.dumps(wrong)}
    answer = await home.http("POST", f"{prefix}/flows/version", body)
    assert refused(answer) == (400, "invalid")
    for place in ("start", "nodes.a.kind", "nodes.b.x"):
        assert place in answer.json["error"]
        assert any(mistake.startswith(place) for mistake in answer.json["details"]["errors"])


async def versions_of(home: House, flow: str) -> list[tuple[int, str, Any]]:
    listed = (await home.http("GET", f"/flows/version?flow_id={flow}")).json
    return [(row["version"], row["id"], json.loads(row["definition_json"])) for row in reversed(listed)]


async def put(home: House, flow: str, definition: Any, **fields: Any) -> str:
    body = {"FlowID": flow, "Version": 1, "DefinitionJSON": json.dumps(definition), "Status": "published"}
    answer = await home.http("POST", "/flows/version", body | fields)
    assert answer.status == 200, answer.json
    return str(answer.json["id"])


class Counting(MemoryStore):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    async def version(self, id: str) -> Any:
        self.asked += 1
        return await super().version(id)

    async def versions(self, ids: Any) -> Any:
        self.asked += 1
        return await super().versions(ids)


async def test_a_page_of_versions_needs_one_query(prefix):
    store = Counting()
    async with flow_house(store=store) as home:
        flow = (await home.http("POST", "/flows", {"Name": "f"})).json["id"]
        for n in range(5):
            await put(home, flow, {"start": "a", "nodes": {"a": {"kind": "timer", "wait_ms": n}}}, Version=0)

        async def numbers(query: str) -> list[int]:
            answer = await home.http("GET", f"{prefix}/flows/version?flow_id={flow}{query}")
            assert answer.status == 200
            return [row["version"] for row in answer.json]

        store.asked = 0
        assert await numbers("") == [5, 4, 3, 2, 1]
        assert store.asked == 1
        assert await numbers("&page=1&page_size=2") == [5, 4]
        assert await numbers("&page=2&page_size=2") == [3, 2]
        assert await numbers("&page=3&page_size=2") == [1]
        assert await numbers("&page=4&page_size=2") == []


async def test_a_page_is_bounded_in_bytes(home, monkeypatch):
    monkeypatch.setattr("greenroom.persistence.flows.PAGE_BYTES", 900)
    flow = (await home.http("POST", "/flows", {"Name": "f"})).json["id"]
    for n in range(3):
        params = {"text": f"{n}" * 300, "delay_ms": 0}
        await put(home, flow, {"start": "a", "nodes": {"a": {"kind": "timer", "params": params}}}, Version=0)
    listed = (await home.http("GET", f"/flows/version?flow_id={flow}")).json
    assert [row["version"] for row in listed] == [3, 2]
    for query in ("&page_size=3", "&page=1"):
        answer = await home.http("GET", f"/flows/version?flow_id={flow}{query}")
        assert refused(answer) == (413, "too_large")
    assert "page_size" in answer.json["error"]
    for page, number in ((1, 3), (2, 2), (3, 1)):
        listed = (await home.http("GET", f"/flows/version?flow_id={flow}&page_size=1&page={page}")).json
        assert [row["version"] for row in listed] == [number]


async def test_a_page_of_tasks_is_bounded_in_bytes(home, monkeypatch):
    flow = await make_flow(home, WAITS)
    body = {"FlowID": flow, "ParamsJSON": json.dumps({"text": "x" * 2000})}
    tasks = [(await home.http("POST", "/tasks", body)).json["id"] for _ in range(4)]
    monkeypatch.setattr("greenroom.persistence.flows.PAGE_BYTES", 9000)
    for query in ("", "?page_size=4", "?page=1"):
        answer = await home.http("GET", f"/tasks{query}")
        assert refused(answer) == (413, "too_large")
        assert "page_size" in answer.json["error"]
    for page, ids in ((1, [3, 2]), (2, [1, 0]), (3, [])):
        listed = (await home.http("GET", f"/tasks?page_size=2&page={page}")).json
        assert [tasks.index(task["id"]) for task in listed["data"]] == ids
        assert listed["total"] == 4


EACH: dict[str, Any] = {
    "start": "f",
    "nodes": {
        "f": {
            "kind": "foreach",
            "exec_type": "local",
            "func": "double",
            "prep": {"input_key": "$params.items"},
        }
    },
}
"""Doubles items."""


async def test_node_runs_have_pages(home, prefix, monkeypatch):
    task = await make_task(home, EACH, items=list(range(9)))
    await until_run(home, task, "succeeded")

    async def branches(query: str) -> list[str]:
        answer = await home.http("GET", f"{prefix}/tasks/runs?task_id={task}{query}")
        assert answer.status == 200, answer.json
        return [row["branch_id"] for row in answer.json]

    every = [str(number) for number in range(9)]
    assert await branches("") == [*every, ""]
    rows = (await home.http("GET", f"{prefix}/tasks/runs?task_id={task}")).json
    assert [row["sub_status"] for row in rows] == ["branch_complete"] * 9 + [""]
    assert await branches("&page_size=4") == every[:4]
    assert await branches("&page_size=4&page=2") == every[4:8]
    assert await branches("&page_size=4&page=3") == [every[8], ""]
    assert await branches("&page_size=4&page=4") == []
    monkeypatch.setattr("greenroom.persistence.flows.PAGE_BYTES", 1000)
    assert 1 <= len(await branches("")) < 9
    for query in ("&page_size=9", "&page=1"):
        answer = await home.http("GET", f"/tasks/runs?task_id={task}{query}")
        assert refused(answer) == (413, "too_large")
    assert await branches("&page_size=1&page=9") == ["8"]
    rows, last = [], 0
    while page := (await home.http("GET", f"/api/runs/{task}/nodes?after={last}&limit=9")).json["node_runs"]:
        rows += page
        last = page[-1]["number"]
    assert [row["number"] for row in rows] == list(range(1, 11))


async def test_a_published_version_never_changes_and_another_definition_becomes_the_next_version(home):
    flow = (await home.http("POST", "/flows", {"Name": "f"})).json["id"]
    first = await put(home, flow, DOUBLES)
    second = await put(home, flow, WAITS)
    third = await put(home, flow, QUEUED, Version=2)
    assert await versions_of(home, flow) == [
        (1, first, DOUBLES | CONTINUE),
        (2, second, WAITS | CONTINUE),
        (3, third, QUEUED | CONTINUE),
    ]
    task = (await home.http("POST", "/tasks", {"FlowID": flow, "ParamsJSON": '{"n": 1}'})).json["id"]
    assert (await home.http("GET", f"/tasks/get?id={task}")).json["flow_version"] == 3


async def test_the_same_definition_again_is_the_same_version(home):
    flow = (await home.http("POST", "/flows", {"Name": "f"})).json["id"]
    first = await put(home, flow, DOUBLES)
    assert await put(home, flow, DOUBLES) == first
    again = dict(reversed(DOUBLES.items()))
    assert await put(home, flow, None, DefinitionJSON=json.dumps(again, indent=3)) == first
    second = await put(home, flow, WAITS)
    assert await put(home, flow, WAITS) == second  # under the number 1, as it was sent before
    assert await put(home, flow, WAITS, Version=2) == second
    assert await put(home, flow, DOUBLES) == first
    assert [version for version, _, _ in await versions_of(home, flow)] == [1, 2]


async def test_a_task_can_be_created_by_the_id_of_a_version(home):
    flow = (await home.http("POST", "/flows", {"Name": "f"})).json["id"]
    first = await put(home, flow, WAITS)
    await put(home, flow, QUEUED)
    body = {"FlowVersionID": first, "FlowID": flow, "ParamsJSON": "{}"}
    task = (await home.http("POST", "/tasks", body)).json["id"]
    assert (await home.http("GET", f"/tasks/get?id={task}")).json["flow_version_id"] == first
    body = {"FlowVersionID": "nope", "FlowID": flow}
    assert refused(await home.http("POST", "/tasks", body)) == (404, "not_found")
    answer = await home.http("POST", "/tasks", {"ParamsJSON": "{}"})
    assert refused(answer) == (400, "invalid")
    assert "flow_id" in answer.json["error"]


async def test_a_draft_can_be_replaced_and_published(home):
    flow = (await home.http("POST", "/flows", {"Name": "f"})).json["id"]
    await put(home, flow, DOUBLES)
    draft = await put(home, flow, WAITS, Status="draft")
    assert await put(home, flow, QUEUED, Status="draft") == draft
    assert await put(home, flow, QUEUED) == draft
    listed = (await home.http("GET", f"/flows/version?flow_id={flow}")).json
    assert [(row["version"], row["status"]) for row in listed] == [(2, "published"), (1, "published")]


async def test_versions_of_a_server_before_are_compared_too():
    store = MemoryStore()
    async with flow_house(store=store) as home:
        flow = (await home.http("POST", "/flows", {"Name": "f"})).json["id"]
        first, second = await put(home, flow, DOUBLES), await put(home, flow, WAITS)
    async with flow_house(store=store) as home:
        assert await put(home, flow, WAITS) == second
        assert await put(home, flow, DOUBLES) == first
        await put(home, flow, QUEUED)
        assert [version for version, _, _ in await versions_of(home, flow)] == [1, 2, 3]


async def test_simultaneous_requests_with_the_same_definition_create_one_version(home):
    flow = (await home.http("POST", "/flows", {"Name": "f"})).json["id"]
    await put(home, flow, DOUBLES)
    made: set[str] = set()

    async def send() -> None:
        made.add(await put(home, flow, WAITS))

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(send)
    assert len(made) == 1
    assert [version for version, _, _ in await versions_of(home, flow)] == [1, 2]


async def test_the_error_handling_of_a_definition_is_kept(home):
    flow = (await home.http("POST", "/flows", {"Name": "f"})).json["id"]
    await put(home, flow, DOUBLES | {"unhandled_errors": "fail"})
    [(_, _, definition)] = await versions_of(home, flow)
    assert definition == DOUBLES | {"unhandled_errors": "fail"}


# Tasks.

TASK = {
    "id": str,
    "flow_version_id": str,
    "flow_id": str,
    "flow_name": str,
    "flow_version": int,
    "status": str,
    "params_json": str,
    "shared_json": str,
    "current_node_key": str,
    "last_action": str,
    "step_count": int,
    "retry_state_json": str,
    "lease_owner": str,
    "lease_expiry": int,
    "request_id": str,
    "created_at": int,
    "updated_at": int,
}


async def test_a_task_is_started_and_shown(home, prefix):
    flow = await make_flow(home, WAITS, "order")
    body = {"FlowID": flow, "Version": 0, "ParamsJSON": '{"n": 4}', "RequestID": "once"}
    made = await home.http("POST", f"{prefix}/tasks", body)
    assert (made.status, list(made.json)) == (200, ["id"])
    id = made.json["id"]
    await until_run(home, id, "suspended")
    task = (await home.http("GET", f"{prefix}/tasks/get?id={id}")).json
    assert {name: type(value) for name, value in task.items()} == TASK
    [version] = (await home.http("GET", f"{prefix}/flows/version?flow_id={flow}")).json
    run = await home.engine.get_run(id)
    assert (run.handle, run.lane) == (f"task:{id}", "main")
    assert task == task | {
        "id": id,
        "flow_id": flow,
        "flow_name": "order",
        "flow_version": 1,
        "flow_version_id": version["id"],
        "status": "running",
        "current_node_key": "w",
        "request_id": "once",
        "created_at": int(run.created_at),
        "updated_at": int(run.updated_at),
    }
    assert json.loads(task["params_json"]) == {"n": 4}
    assert "_rt.we:w" in json.loads(task["shared_json"])


async def test_a_task_that_is_sent_twice_under_one_request_id_is_one(home, prefix):
    flow = await make_flow(home, WAITS)
    body = {"FlowID": flow, "ParamsJSON": "{}", "RequestID": "once"}
    first, second = [await home.http("POST", f"{prefix}/tasks", body) for _ in range(2)]
    assert first.json == second.json
    other = await home.http("POST", f"{prefix}/tasks", body | {"ParamsJSON": '{"n": 1}'})
    assert refused(other) == (409, "conflict")
    assert (await home.http("GET", f"{prefix}/tasks")).json["total"] == 1


@pytest.mark.parametrize(
    ("written", "params"),
    [
        ({"ParamsJSON": '{"n": 2}'}, {"n": 2}),
        ({"ParamsJSON": {"n": 2}}, {"n": 2}),
        ({"ParamsJSON": ""}, {}),
        ({"ParamsJSON": "null"}, {}),
        ({"ParamsJSON": None}, {}),
        ({}, {}),
    ],
)
async def test_parameters_are_a_text_or_an_object_or_nothing(home, written, params):
    flow = await make_flow(home, WAITS)
    id = (await home.http("POST", "/tasks", {"FlowID": flow, **written})).json["id"]
    assert json.loads((await home.http("GET", f"/tasks/get?id={id}")).json["params_json"]) == params


async def test_a_version_is_taken_by_its_number_and_must_be_published(home):
    flow = await make_flow(home, DOUBLES)
    body = {"FlowID": flow, "DefinitionJSON": json.dumps(WAITS)}
    await home.http("POST", "/flows/version", body)
    await home.http("POST", "/flows/version", body | {"Status": "draft"})

    async def start(number: int) -> Answer:
        return await home.http("POST", "/tasks", {"FlowID": flow, "Version": number, "ParamsJSON": '{"n":1}'})

    for number, version in ((0, 2), (1, 1), (2, 2)):
        id = (await start(number)).json["id"]
        assert (await home.http("GET", f"/tasks/get?id={id}")).json["flow_version"] == version
    assert refused(await start(3)) == (409, "conflict")
    assert refused(await start(4)) == (404, "not_found")
    assert refused(await home.http("POST", "/tasks", {"FlowID": "nope"})) == (404, "not_found")


async def test_tasks_are_listed_by_the_name_of_their_status(home, prefix):
    engine = home.engine
    completed = await make_task(home, DOUBLES, "completed", n=1)
    failed = await make_task(home, DOUBLES, "failed", n={})
    waiting = await make_task(home, WAITS, "waiting")
    ended_waiting = await make_task(home, WAITS, "canceled")
    hanging = await make_task(home, HANGS, "hanging")
    canceling = await make_task(home, HANGS, "canceling")
    late = (await engine.flows.start("waiting", deadline=0.05)).id
    for run, status in (
        (completed, "succeeded"),
        (failed, "failed"),
        (waiting, "suspended"),
        (ended_waiting, "suspended"),
        (hanging, "running"),
        (canceling, "running"),
        (late, "timed_out"),
    ):
        await until_run(home, run, status)
    for run in (ended_waiting, canceling):
        assert done(await home.http("POST", f"{prefix}/tasks/cancel?id={run}"))
    await engine.set_max_concurrent(0)
    pending = await make_task(home, WAITS, "pending")
    expected = {
        "pending": {pending},
        "running": {waiting, hanging},
        "completed": {completed},
        "failed": {failed, late},
        "canceling": {canceling},
        "canceled": {ended_waiting},
    }
    for status, ids in expected.items():
        found = (await home.http("GET", f"{prefix}/tasks?status={status}")).json
        assert ({task["id"] for task in found["data"]}, found["total"]) == (ids, len(ids)), status
        for id in ids:
            assert (await home.http("GET", f"{prefix}/tasks/get?id={id}")).json["status"] == status
    everything = (await home.http("GET", f"{prefix}/tasks?status=&page_size=3&page=2")).json
    assert (everything["total"], everything["size"], everything["page"]) == (8, 3, 2)
    assert [task["id"] for task in everything["data"]] == [hanging, ended_waiting, waiting]
    version = (await engine.flows.task(waiting)).version.id
    found = (await home.http("GET", f"{prefix}/tasks?flow_version_id={version}")).json
    assert {task["id"] for task in found["data"]} == {waiting, late}
    assert refused(await home.http("GET", f"{prefix}/tasks?status=happy")) == (400, "invalid")


async def test_a_signal_resumes_a_task(home, prefix):
    id = await make_task(home, WAITS)
    await until_run(home, id, "suspended")
    body = {"task_id": id, "key": "flag", "value": {"by": "alice"}}
    assert done(await home.http("POST", f"{prefix}/tasks/signal", body))
    await until_run(home, id, "succeeded")
    task = (await home.http("GET", f"{prefix}/tasks/get?id={id}")).json
    assert task["status"] == "completed"
    assert json.loads(task["shared_json"])["got"] == {"by": "alice"}
    assert refused(await home.http("POST", f"{prefix}/tasks/signal", body)) == (409, "no_active_run")


RUN = {
    "id": str,
    "task_id": str,
    "node_key": str,
    "attempt_no": int,
    "status": str,
    "sub_status": str,
    "branch_id": str,
    "prep_json": str,
    "exec_input_json": str,
    "exec_output_json": str,
    "error_text": str,
    "action": str,
    "started_at": int,
    "finished_at": int,
    "worker_id": str,
    "worker_url": str,
    "log_path": str,
}


async def test_node_runs_contain_every_attempt(home, prefix):
    task = await make_task(home, DOUBLES, n=4)
    await until_run(home, task, "succeeded")
    [run] = (await home.http("GET", f"{prefix}/tasks/runs?task_id={task}")).json
    assert {name: type(value) for name, value in run.items()} == RUN
    assert (run["task_id"], run["node_key"], run["attempt_no"], run["status"]) == (task, "a", 1, "ok")
    assert (run["prep_json"], run["exec_input_json"], run["exec_output_json"]) == ("4", "4", "8")
    assert (run["branch_id"], run["sub_status"], run["log_path"]) == ("", "", "")
    failing = await make_task(home, DOUBLES, "failing", n=None)
    await until_run(home, failing, "failed")
    [run] = (await home.http("GET", f"{prefix}/tasks/runs?task_id={failing}")).json
    assert (run["status"], run["exec_output_json"]) == ("error", "null")
    assert "TypeError" in run["error_text"]


async def test_an_unknown_task_is_not_found(home, prefix):
    job = (await home.engine.submit("wait", handle="alice", params={})).id
    for id in ("nobody", job):
        for method, path, body in (
            ("GET", f"/tasks/get?id={id}", None),
            ("GET", f"/tasks/runs?task_id={id}", None),
            ("POST", f"/tasks/cancel?id={id}", None),
            ("POST", "/tasks/signal", {"task_id": id, "key": "k", "value": 1}),
        ):
            assert refused(await home.http(method, f"{prefix}{path}", body)) == (404, "not_found")
    assert (await home.engine.get_run(job)).status == "running"
    for path in ("/flows/version?flow_id=x", "/flows/version/get?id=x"):
        assert refused(await home.http("GET", f"{prefix}{path}")) == (404, "not_found")


async def test_a_task_that_has_ended_can_not_be_cancelled(home):
    id = await make_task(home, DOUBLES, n=1)
    await until_run(home, id, "succeeded")
    answer = await home.http("POST", f"/tasks/cancel?id={id}")
    assert refused(answer) == (409, "conflict")
    assert answer.json["details"]["run"]["status"] == "succeeded"


# The queue.


async def test_work_is_taken_kept_and_completed_once(home, prefix):
    task = await make_task(home, QUEUED, n=7)
    polled = await home.http("POST", f"{prefix}/queue/poll", {"worker_id": "w", "services": ["slow", "sum"]})
    item = polled.json
    assert polled.status == 200
    assert json.loads(item.pop("input_json")) == {"input": 7, "params": {"by": 3, "n": 7}}
    id = item.pop("id")
    assert item == {
        "task_id": task,
        "node_key": "q",
        "service": "slow",
        "idempotency_key": f"{task}:q:1:",
        "visible_for": 60,
    }
    keep = {"queue_id": id, "worker_id": "w"}
    assert done(await home.http("POST", f"{prefix}/queue/heartbeat", keep))
    other = await home.http("POST", f"{prefix}/queue/heartbeat", keep | {"worker_id": "v"})
    assert refused(other) == (409, "conflict")
    body = {"queue_id": id, "result": {"sum": 10}, "error": ""}
    assert done(await home.http("POST", f"{prefix}/queue/complete", body))
    assert refused(await home.http("POST", f"{prefix}/queue/complete", body)) == (409, "conflict")
    assert refused(await home.http("POST", f"{prefix}/queue/heartbeat", keep)) == (409, "conflict")
    [run] = (await home.http("GET", f"{prefix}/tasks/runs?task_id={task}")).json
    assert (run["status"], run["worker_id"], run["exec_output_json"]) == ("ok", "w", '{"sum":10}')


async def test_work_that_failed_fails_its_node(home):
    item = await make_item(home)
    body = {"queue_id": item["id"], "result": None, "error": "no more paper", "log_path": "", "run_id": ""}
    assert done(await home.http("POST", "/queue/complete", body))
    [run] = (await home.http("GET", f"/tasks/runs?task_id={item['task_id']}")).json
    assert run["status"] == "error"
    assert "no more paper" in run["error_text"]


async def test_work_of_a_task_that_was_cancelled_is_refused(home):
    item = await make_item(home)
    await home.http("POST", f"/tasks/cancel?id={item['task_id']}")
    await until_run(home, item["task_id"], "cancelled")
    body = {"queue_id": item["id"], "result": 1, "error": ""}
    assert refused(await home.http("POST", "/queue/complete", body)) == (409, "conflict")


async def test_a_poll_waits_until_there_is_work(home, prefix):
    raw = await home.raw()
    async with raw.stream:
        await raw.send(POLLING.replace(b"/api", prefix.encode()))
        task = await make_task(home, QUEUED, n=1)
        assert (await raw.answer()).json["task_id"] == task
        assert (await raw.http("GET", "/healthz")).status == 200  # the connection stays open


async def test_a_poll_without_work_is_answered_with_204_after_25_seconds(autojump_clock):
    async with flow_house(listen=False) as home:
        raw = Raw(await home.stream())
        began = trio.current_time()
        answer = await raw.http("POST", "/queue/poll", {"worker_id": "w", "services": ["slow"]})
        assert (answer.status, answer.body) == (204, b"")
        assert trio.current_time() - began == 25
        assert "content-length" not in answer.headers


POLL = b'{"worker_id":"w","services":["slow"]}'
POLLING = (
    b"POST /api/queue/poll HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n" % len(POLL)
) + POLL


async def test_a_poller_that_disconnects_gets_nothing(autojump_clock):
    async with flow_house(listen=False) as home:
        raw = Raw(await home.stream())
        await raw.send(POLLING)
        await trio.testing.wait_all_tasks_blocked()
        assert home.engine.workers._queue.report()["polls"] == 1
        await trio.aclose_forcefully(raw.stream)
        await trio.testing.wait_all_tasks_blocked()
        assert home.engine.workers._queue.report() | {"polls": 0, "leased": 0} == (
            home.engine.workers._queue.report()
        )


async def test_work_of_a_disconnected_poller_goes_to_another_one(autojump_clock):
    async with flow_house(listen=False) as home:
        await home.engine.flows.publish("f", QUEUED)
        gone = Raw(await home.stream())
        await gone.send(POLLING)
        await trio.testing.wait_all_tasks_blocked()
        await trio.aclose_forcefully(gone.stream)
        await taken_by_another(home)


async def test_work_that_cannot_be_sent_to_its_worker_goes_to_another(autojump_clock):
    async with flow_house(listen=False) as home:
        await home.engine.flows.publish("f", QUEUED)
        deaf = Raw(await home.stream())
        await deaf.send(POLLING)
        await trio.testing.wait_all_tasks_blocked()
        deaf.stream.receive_stream.close()  # type: ignore[attr-defined]  # what is sent to it fails
        await taken_by_another(home)


async def test_work_goes_to_another_worker_if_the_first_disconnects_at_the_same_moment(
    autojump_clock, monkeypatch
):
    async with flow_house(listen=False) as home:
        await home.engine.flows.publish("f", QUEUED)
        gone = Raw(await home.stream())
        await gone.send(POLLING)
        await trio.testing.wait_all_tasks_blocked()
        queue = home.engine.workers._queue
        assign = queue._assign

        def assign_and_go(item: Any, poll: Any) -> None:
            assign(item, poll)
            gone.stream.send_stream.close()  # type: ignore[attr-defined]
            monkeypatch.undo()

        monkeypatch.setattr(queue, "_assign", assign_and_go)
        await taken_by_another(home)


async def taken_by_another(home: House) -> None:
    """Start a run whose work the poller does not receive: another poller receives it immediately."""
    ticket = await home.engine.flows.start("f", params={"n": 1})
    await trio.testing.wait_all_tasks_blocked()
    began = trio.current_time()
    item = await home.engine.workers.poll("v", ["slow"])
    assert item is not None
    assert (item.run, trio.current_time()) == (ticket.id, began)


async def test_a_client_can_send_its_next_request_while_it_waits(autojump_clock):
    async with flow_house(listen=False) as home:
        raw = Raw(await home.stream())
        await raw.send(POLLING)
        await trio.testing.wait_all_tasks_blocked()
        await raw.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await raw.answer()).status == 204
        assert (await raw.answer()).json == {"status": "ok"}


async def test_a_newer_poll_of_the_same_worker_ends_the_older(autojump_clock):
    async with flow_house(listen=False) as home:
        first, second = Raw(await home.stream()), Raw(await home.stream())
        await first.send(POLLING)
        await trio.testing.wait_all_tasks_blocked()
        await second.send(POLLING)
        began = trio.current_time()
        assert ((await first.answer()).status, trio.current_time()) == (204, began)
        assert ((await second.answer()).status, trio.current_time()) == (204, began + 25)


async def test_a_gateway_that_closes_ends_polls_immediately(autojump_clock):
    async with flow_house(listen=False) as home:
        raw = Raw(await home.stream())
        await raw.send(POLLING)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(home.gateway._close)
            answer = await raw.answer()
        assert refused(answer) == (503, "unavailable")
        assert answer.headers["connection"] == "close"
        assert trio.current_time() - began <= 1


# Notation of requests.

REGISTERED = [
    {"id": "w1", "url": "http://127.0.0.1:9", "services": ["sum"], "load": 1},
    {"ID": "w1", "URL": "http://127.0.0.1:9", "Services": ["sum"], "Load": 1, "Type": "http"},
    {"I_D": "w1", "u_r_l": "http://127.0.0.1:9", "SERVICES": ["sum"], "_load": 1, "unknown": {}},
]


@pytest.mark.parametrize("body", REGISTERED)
async def test_keys_are_matched_without_regard_to_case_and_underscores(home, body):
    assert done(await home.http("POST", "/register", body))
    [worker] = (await home.http("GET", "/list")).json
    assert (worker["id"], worker["services"], worker["load"]) == ("w1", ["sum"], 1)


async def test_so_are_names_in_a_query(home):
    flow = await make_flow(home, WAITS)
    task = (await home.http("POST", "/tasks", {"flow_id": flow, "params_json": {}})).json["id"]
    for path in (f"/flows/version?FlowID={flow}", f"/tasks/get?ID={task}", "/tasks?PageSize=1&Page=1"):
        assert (await home.http("GET", path)).status == 200
    assert len((await home.http("GET", f"/tasks/runs?TaskID={task}")).json) == 0
    assert done(await home.http("POST", f"/tasks/cancel?Id={task}"))


async def test_fields_of_the_query_can_be_in_the_body(home):
    task = await make_task(home, WAITS)
    assert done(await home.http("POST", "/tasks/cancel", {"id": task}))


@pytest.mark.parametrize(
    "task", [task for task in TABLE if task.method == "POST"], ids=lambda task: task.path
)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"id":"x","ID":"y","name":1,"flow_id":1,"task_id":1,"queue_id":1,"worker_id":1}',
        b"{}",
        b"\xff\xfe",
        b"[" * 5000,
        b'{"id":' + b"[" * 2000,
    ],
    ids=["nothing", "null", "list", "cut", "wrong", "empty", "no UTF-8", "deep", "deep inside"],
)
async def test_a_body_of_another_form_is_refused_with_a_text(home, task, body):
    answer = await home.http("POST", f"/api{task.path}", body)
    assert refused(answer) == (400, "invalid")


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        ("/register", {"id": "w", "url": "ftp://x", "services": ["s"]}, "url"),
        ("/register", {"id": "w", "url": "http://x:1", "services": "s"}, "services"),
        ("/register", {"id": "w", "url": "http://x:1", "services": []}, "services"),
        ("/register", {"id": "w", "url": "http://x:1", "services": ["s"], "type": "odd"}, "type"),
        ("/register", {"id": "w", "url": "http://x:1", "services": ["s"], "load": -1}, "load"),
        ("/flows", {"Name": " "}, "name"),
        ("/flows/version", {"FlowID": "f"}, "definition_json"),
        ("/flows/version", {"FlowID": "f", "DefinitionJSON": 5}, "definition_json"),
        ("/flows/version", {"FlowID": "f", "DefinitionJSON": WAITS, "Version": -1}, "version"),
        ("/flows/version", {"FlowID": "f", "DefinitionJSON": WAITS, "Version": 10**30}, "version"),
        ("/flows/version", {"FlowID": "f", "DefinitionJSON": WAITS, "Version": "1"}, "version"),
        ("/flows/version", {"FlowID": "f", "DefinitionJSON": WAITS, "Status": "final"}, "status"),
        ("/tasks", {"FlowID": "f", "ParamsJSON": "[1]"}, "params_json"),
        ("/tasks", {"FlowID": "f", "ParamsJSON": "{"}, "params_json"),
        ("/tasks", {"FlowID": "f", "Version": -1}, "version"),
        ("/tasks", {"FlowID": "f", "RequestID": "x" * 1000}, "request_id"),
        ("/tasks/signal", {"task_id": "t", "value": 1}, "key"),
        ("/queue/poll", {"worker_id": "", "services": ["s"]}, "worker_id"),
        ("/queue/poll", {"worker_id": "w", "services": [1]}, "services"),
        ("/queue/complete", {"queue_id": "q", "error": 5}, "error"),
    ],
)
async def test_a_wrong_value_is_named(home, path, body, where):
    answer = await home.http("POST", path, body)
    assert refused(answer) == (400, "invalid")
    assert where in answer.json["error"]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/flows?page_size=1001", "page_size"),
        ("/tasks?page_size=5000", "page_size"),
        ("/flows/version?flow_id=f&page_size=1001", "page_size"),
        ("/tasks/runs?task_id=t&page_size=1001", "page_size"),
        ("/flows?page=99999999999", "page"),
        ("/tasks?page=2000001", "page"),
        ("/flows?page=x", "page"),
        ("/list?ttl=-1", "ttl"),
        ("/list?ttl=nan", "ttl"),
        ("/list?ttl=x", "ttl"),
        ("/list?ttl=null", "ttl"),
        ("/list?service=%00", "service"),
        ("/tasks?flow_version_id=%00", "flow_version_id"),
        ("/flows/version?flow_id=%00", "flow_id"),
        ("/flows/version/get?id=%00", "id"),
        ("/tasks/get?id=%00", "id"),
        ("/tasks/runs?task_id=%00", "task_id"),
    ],
)
async def test_errors_name_the_field_of_the_query_as_the_client_wrote_it(home, path, field):
    answer = await home.http("GET", path)
    assert refused(answer) == (400, "invalid")
    in_words_of_the_caller(answer, field)


def in_words_of_the_caller(answer: Answer, field: str) -> None:
    text = answer.json["error"]
    assert text.startswith((f"{field}:", f"{field} ", f"{field}.", f"{field}[")), text
    found = re.findall(r"\b(limit|offset|math|inf|None|str|int|float|bool|dict|list|run_id|params)\b", text)
    assert found == [], text


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/tasks", {"FlowID": "f", "ParamsJSON": "[1]"}, "params_json"),
        ("/tasks", {"FlowID": "f", "ParamsJSON": '"text"'}, "params_json"),
        ("/tasks", {"FlowID": "f", "ParamsJSON": 5}, "params_json"),
        ("/tasks", {"FlowID": "f", "Version": "1"}, "version"),
        ("/tasks", {"FlowID": "f", "Version": -1}, "version"),
        ("/tasks", {"FlowID": 5}, "flow_id"),
        ("/tasks", {"FlowVersionID": "\0"}, "flow_version_id"),
        ("/flows", {"Name": 5}, "name"),
        ("/flows/version", {"FlowID": "\0", "DefinitionJSON": WAITS}, "flow_id"),
        ("/flows/version", {"FlowID": "f", "DefinitionJSON": True}, "definition_json"),
        ("/register", {"id": "w", "url": "http://x:1", "services": "s"}, "services"),
        ("/register", {"id": "w", "url": "http://x:1", "services": ["s"], "load": "x"}, "load"),
        ("/register", {"id": "w", "url": "\0", "services": ["s"], "type": "async"}, "url"),
        ("/tasks/cancel?id=%00", {}, "id"),
        ("/tasks/signal", {"task_id": "\0", "key": "k"}, "task_id"),
        ("/queue/complete", {"queue_id": "q", "error": 5}, "error"),
    ],
)
async def test_errors_name_the_field_of_the_body_as_the_client_wrote_it(home, path, body, field):
    answer = await home.http("POST", path, body)
    assert refused(answer) == (400, "invalid")
    in_words_of_the_caller(answer, field)


@pytest.mark.parametrize("key", ["$params.x", "_rt.x", "a[", "$shared"])
async def test_a_key_that_can_not_be_written_is_named(home, key):
    task = await make_task(home, WAITS)
    answer = await home.http("POST", "/tasks/signal", {"task_id": task, "key": key, "value": 1})
    assert refused(answer) == (400, "invalid")
    assert answer.json["error"].startswith("key: ")


async def test_parameters_that_are_too_large_are_named(home):
    flow = await make_flow(home, WAITS)
    body = {"FlowID": flow, "ParamsJSON": json.dumps({"text": "x" * 1_100_000})}
    answer = await home.http("POST", "/tasks", body)
    assert answer.json["code"] == "too_large"
    in_words_of_the_caller(answer, "params_json")


@pytest.mark.parametrize("kind", [None, "", "text/plain", "application/x-www-form-urlencoded", "text/json"])
async def test_a_body_needs_no_content_type(home, prefix, kind):
    lines = "" if kind is None else f"Content-Type: {kind}\r\n"
    answer = await posted(home, f"{prefix}/flows", lines)
    assert (answer.status, list(answer.json)) == (200, ["id"])


@pytest.mark.parametrize(
    "lines",
    [
        "Origin: http://elsewhere.example\r\n",
        "Origin: null\r\n",
        "Origin: http://localhost\r\n",  # an allowed page can send any content type
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
    ],
)
async def test_a_request_of_a_page_needs_a_content_type(home, lines):
    answer = await posted(home, "/flows", f"{lines}Content-Type: text/plain\r\n")
    assert answer.status in (403, 415)
    assert answer.json["error"] == answer.json["message"]
    assert (await home.http("GET", "/api/flows")).json["total"] == 0


async def test_a_body_of_a_command_needs_a_content_type(home):
    answer = await posted(home, "/api/runs", "Content-Type: text/plain\r\n")
    assert answer.status == 415


async def posted(home: House, path: str, lines: str) -> Answer:
    """The answer to a body with these lines in the head."""
    body = b'{"Name":"f"}'
    raw = await home.raw()
    async with raw.stream:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{lines}\r\n"
        await raw.send(head.encode() + body)
        return await raw.answer()


@pytest.mark.parametrize(
    "path",
    [
        "/flows?page=x",
        "/flows?page_size=1001",
        "/flows?page=99999999999999999999",
        "/tasks?page=1&page=2",
        "/tasks?page=1&Page=2",
        "/tasks/get",
        "/tasks/get?id=",
        "/flows/version",
        "/allocate",
        "/list?ttl=x",
        "/list?ttl=nan",
        "/list?ttl=-1",
    ],
)
async def test_a_wrong_query_is_refused(home, path):
    assert refused(await home.http("GET", path)) == (400, "invalid")


async def test_every_refusal_of_these_calls_has_its_text_under_error(home):
    body = b'{"Name":"f"}'
    for status, headers in (
        (415, {"content_encoding": "gzip"}),
        (413, {"content_length": "99999999"}),
        (403, {"origin": "http://elsewhere.example"}),
        (403, {"host": "elsewhere.example"}),
    ):
        raw = await home.raw()
        async with raw.stream:
            given = {
                "Host": "localhost",
                "Content-Type": "application/json",
                "Content-Length": str(len(body)),
            }
            given |= {"-".join(w.title() for w in name.split("_")): value for name, value in headers.items()}
            lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
            await raw.send(f"POST /flows HTTP/1.1\r\n{lines}\r\n".encode() + body)
            answer = await raw.answer()
            assert answer.status == status
            assert answer.json["error"] == answer.json["message"]
    assert (await home.http("GET", "/api/flows")).json["total"] == 0
    wrong = await home.http("PUT", "/flows")
    assert (wrong.status, wrong.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST")
    assert wrong.json["error"]
    assert "error" not in (await home.http("GET", "/api/runs/nobody")).json


async def test_head_and_options_work_as_everywhere(home):
    whole = await home.http("GET", "/api/flows")
    head = await home.http("HEAD", "/api/flows")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"]
    assert (await home.http("OPTIONS", "/queue/poll")).headers["allow"] == "OPTIONS, POST"
