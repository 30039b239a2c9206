"""Existing programs for the compatible API: the exact bytes that they send, and the responses that they need.

Their types accept only integers and strings, so a null or a fraction in the wrong place would break them.
"""

from __future__ import annotations

import json
from typing import Any

import trio

from greenroom.persistence.memory import MemoryStore
from tests.workers.support import read_request, response, serving

from .flowing import QUEUED, flow_house
from .support import Answer, House, Raw

TEXT = "Hello"
GRAPH: dict[str, Any] = {
    "start": "decide",
    "nodes": {
        "decide": {"kind": "executor", "service": "route", "params": {}, "post": {"action_key": "action"}},
        "B": {
            "kind": "executor",
            "service": "transform",
            "params": {"op": "upper"},
            "prep": {"input_key": "$params.text"},
            "post": {"output_key": "result", "action_static": "default"},
        },
        "C": {
            "kind": "executor",
            "service": "transform",
            "params": {"op": "lower"},
            "prep": {"input_key": "$params.text"},
            "post": {"output_key": "result", "action_static": "default"},
        },
    },
    "edges": [
        {"from": "decide", "action": "goB", "to": "B"},
        {"from": "decide", "action": "goC", "to": "C"},
        {"from": "B", "action": "default", "to": ""},
        {"from": "C", "action": "default", "to": ""},
    ],
}
"""A demonstration, whose tasks take one branch or the other."""


async def said(home: House, method: str, path: str, value: Any = None) -> Answer:
    """A request as Go's client writes it."""
    body = b"" if value is None else json.dumps(value, separators=(",", ":")).encode()
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: localhost:{home.gateway.port}",
        "User-Agent: Go-http-client/1.1",
    ]
    if value is not None:
        lines += [f"Content-Length: {len(body)}", "Content-Type: application/json"]
    lines += ["Accept-Encoding: gzip", "", ""]
    raw = await home.raw()
    async with raw.stream:
        await raw.send("\r\n".join(lines).encode() + body)
        return await raw.answer()


async def worker(stream: trio.SocketStream) -> None:
    """A worker with `route` and `transform`."""
    head, body = await read_request(stream)
    if not head:
        return
    asked = json.loads(body)
    if "/exec/route" in head:
        result: Any = {"action": asked["params"].get("action") or "goB"}
    else:
        result = getattr(asked["input"], asked["params"]["op"])()
    await stream.send_all(response(json.dumps({"result": result}).encode() + b"\n"))


async def test_the_demonstration_runs_unchanged_and_a_second_time():
    async with flow_house() as home, serving(worker) as url:
        # {ID, URL, Services, Load, LastHeartbeat} as its worker marshals it, and then a heartbeat
        body = {"id": "worker-17", "url": url, "services": ["transform", "sum", "route"], "load": 0}
        assert (await said(home, "POST", "/register", body | {"lastHeartbeat": 0})).status == 200
        beat = {"id": "worker-17", "load": 0, "url": url}
        assert (await said(home, "POST", "/heartbeat", beat)).status == 200
        listed = (await said(home, "GET", "/list?service=transform")).json
        assert [(one["id"], type(one["load"]), type(one["last_heartbeat"])) for one in listed] == [
            ("worker-17", int, int)
        ]
        assert (await said(home, "GET", "/allocate?service=sum")).json["url"] == url
        for _ in range(2):
            await demonstrate(home)


async def demonstrate(home: House) -> None:
    flow = (await said(home, "POST", "/flows", {"Name": "branch-demo"})).json["id"]  # also of a refusal
    definition = json.dumps(GRAPH, indent=2)
    version = {"FlowID": flow, "Version": 1, "DefinitionJSON": definition, "Status": "published"}
    await said(home, "POST", "/flows/version", version)
    for action, node, result in (("goB", "B", "HELLO"), ("goC", "C", "hello")):
        params = json.dumps({"text": TEXT, "action": action})
        task = (await said(home, "POST", "/tasks", {"FlowID": flow, "ParamsJSON": params})).json["id"]
        with trio.fail_after(60):
            shown = (await said(home, "GET", f"/tasks/get?id={task}")).json
            while shown["status"] not in ("completed", "failed", "canceled"):
                await trio.sleep(0.01)
                shown = (await said(home, "GET", f"/tasks/get?id={task}")).json
        assert (shown["status"], json.loads(shown["shared_json"])["result"]) == ("completed", result)
        runs = (await said(home, "GET", f"/tasks/runs?task_id={task}")).json
        assert [(run["node_key"], run["status"], run["action"], run["worker_id"]) for run in runs] == [
            ("decide", "ok", action, "worker-17"),
            (node, "ok", "default", "worker-17"),
        ]


async def test_the_command_line_runs_the_file_as_it_is_now():
    """It creates a flow with the file's name, sends version 1 again, and starts the version in the
    response."""
    failing: dict[str, Any] = {
        "start": "charge",
        "nodes": {
            "charge": {"kind": "executor", "exec_type": "local_func", "func": "double"},
            "ship": {"kind": "choice", "prep": {"input_map": {"x": "first"}}, "post": {"output_key": "out"}},
        },
        "edges": [{"from": "charge", "action": "default", "to": "ship"}],
    }
    edited = json.loads(json.dumps(failing).replace("first", "second"))
    async with flow_house() as home:
        files = [(failing, "first"), (edited, "second"), (edited, "second"), (failing, "first")]
        for definition, text in files:
            flow = (await said(home, "POST", "/api/flows", {"Name": "order.json"})).json["id"]
            version = {
                "DefinitionJSON": json.dumps(definition, indent=1),
                "FlowID": flow,
                "Status": "published",
                "Version": 1,
            }
            made = (await said(home, "POST", "/api/flows/version", version)).json["id"]
            task = {"FlowID": flow, "FlowVersionID": made, "ParamsJSON": "{}"}
            id = (await said(home, "POST", "/api/tasks", task)).json["id"]
            shown = await ended(home, id)
            # like its own server, it continues after an error
            assert (shown["status"], json.loads(shown["shared_json"])) == ("completed", {"out": {"x": text}})
            runs = (await said(home, "GET", f"/api/tasks/runs?task_id={id}")).json
            assert [f"{run['status']} {run['action']}" for run in runs] == ["error default", "ok default"]
        listed = (await said(home, "GET", f"/api/flows/version?flow_id={flow}")).json
        assert [row["version"] for row in listed] == [2, 1]


async def ended(home: House, task: str) -> Any:
    with trio.fail_after(60):
        shown = (await said(home, "GET", f"/api/tasks/get?id={task}")).json
        while shown["status"] not in ("completed", "failed", "canceled"):
            await trio.sleep(0.01)
            shown = (await said(home, "GET", f"/api/tasks/get?id={task}")).json
    return shown


async def test_a_worker_is_listed_with_the_type_and_the_url_that_it_sent():
    store = MemoryStore()
    sent = [
        {"id": "a", "url": "queue", "services": ["s"], "type": "async"},
        {"id": "b", "url": "", "services": ["s"], "type": "queue"},
        {"id": "c", "url": "http://127.0.0.1:9", "services": ["s"], "type": ""},
        {"id": "d", "url": "queue", "services": ["s"], "type": "queue"},
    ]
    expected = [
        ("a", "async", "queue"),
        ("b", "queue", ""),
        ("c", "http", "http://127.0.0.1:9"),
        ("d", "queue", "queue"),
    ]

    async def listed(home: House) -> list[tuple[str, str, str]]:
        rows = (await said(home, "GET", "/api/workers/list?service=s")).json
        return sorted((row["id"], row["type"], row["url"]) for row in rows)

    async with flow_house(store=store) as home:
        for worker in sent:
            assert (await said(home, "POST", "/api/register", worker)).status == 200
        assert await listed(home) == expected
        native = (await said(home, "GET", "/api/workers")).json["workers"]
        assert [(row["kind"], row["url"]) for row in native if row["id"] == "a"] == [("queue", "")]
    async with flow_house(store=store) as home:
        assert await listed(home) == expected


async def test_an_empty_foreach_and_an_approval_by_truth_values():
    definition = {
        "start": "each",
        "nodes": {
            "each": {
                "kind": "foreach",
                "service": "nobody",
                "prep": {"input_key": "$params.items"},
                "post": {"output_key": "mapped", "action_static": "next"},
            },
            "ask": {
                "kind": "approval",
                "params": {"approval_key": "$shared.approval"},
                "post": {"action_key": "approval"},
            },
            "yes": {"kind": "choice", "prep": {"input_map": {"x": "yes"}}, "post": {"output_key": "out"}},
            "no": {"kind": "choice", "prep": {"input_map": {"x": "no"}}, "post": {"output_key": "out"}},
        },
        "edges": [
            {"from": "each", "action": "next", "to": "ask"},
            {"from": "ask", "action": "approved", "to": "yes"},
            {"from": "ask", "action": "rejected", "to": "no"},
        ],
    }
    async with flow_house() as home:
        flow = (await said(home, "POST", "/api/flows", {"Name": "f"})).json["id"]
        version = {"FlowID": flow, "Version": 1, "DefinitionJSON": json.dumps(definition)}
        assert (await said(home, "POST", "/api/flows/version", version)).status == 200
        for value, text in ((True, "yes"), (False, "no")):
            body = {"FlowID": flow, "ParamsJSON": '{"items": []}'}
            task = (await said(home, "POST", "/api/tasks", body)).json["id"]
            signal = {"task_id": task, "key": "approval", "value": value}
            assert (await said(home, "POST", "/api/tasks/signal", signal)).status == 200
            shared = json.loads((await ended(home, task))["shared_json"])
            assert shared == {"mapped": [], "approval": value, "out": {"x": text}}


async def test_a_worker_that_polls_works_unchanged():
    async with flow_house() as home:
        await home.engine.flows.publish("f", QUEUED)
        registered = {
            "id": "async-host-1",
            "url": "queue",
            "services": ["slow"],
            "load": 0,
            "lastHeartbeat": 0,
            "type": "async",
        }
        assert (await said(home, "POST", "/api/register", registered)).status == 200
        beat = {"id": "async-host-1", "load": 0, "url": "queue"}
        assert (await said(home, "POST", "/api/heartbeat", beat)).status == 200
        ticket = await home.engine.flows.start("f", params={"n": 1})
        poll = {"services": ["slow"], "worker_id": "async-host-1"}
        item = (await said(home, "POST", "/api/queue/poll", poll)).json
        assert all(type(item[name]) is str for name in ("id", "task_id", "node_key", "service", "input_json"))
        assert json.loads(item["input_json"])["input"] == 1
        done = {"queue_id": item["id"], "result": "DONE", "error": "", "log_path": "/var/log/x"}
        assert (await said(home, "POST", "/api/queue/complete", done)).status == 200
        assert await ticket.result() == {"out": "DONE"}
        # it also reports that it has started, and ignores the response
        assert (await said(home, "POST", "/api/queue/update_run", {"run_id": "x"})).status == 404


async def test_an_unregistered_worker_can_poll():
    async with flow_house() as home:
        await home.engine.flows.publish("f", QUEUED)
        await home.engine.flows.start("f", params={"n": 1})
        poll = {"services": ["slow"], "worker_id": "async-host-2"}
        assert (await said(home, "POST", "/api/queue/poll", poll)).status == 200


async def test_requests_of_one_connection_are_answered_in_turn_around_a_poll():
    async with flow_house() as home:
        raw = Raw(await trio.open_tcp_stream("127.0.0.1", home.gateway.port))
        async with raw.stream:
            assert (await raw.http("POST", "/api/flows", {"Name": "f"})).status == 200
            version = {"FlowID": "f", "DefinitionJSON": QUEUED}
            assert (await raw.http("POST", "/api/flows/version", version)).status == 200
            assert (await raw.http("POST", "/api/tasks", {"FlowID": "f", "ParamsJSON": "{}"})).status == 200
            poll = {"worker_id": "w", "services": ["slow"]}
            item = (await raw.http("POST", "/api/queue/poll", poll)).json
            done = {"queue_id": item["id"], "result": None, "error": ""}
            assert (await raw.http("POST", "/api/queue/complete", done)).status == 200
