"""The protocol as AsyncAPI and OpenAPI documents.

They are generated from the types of `protocol.commands`, the command table and the errors.
`python -m greenroom.gateway.description.documents docs/reference` writes them into a folder.
"""

from __future__ import annotations

import json
import re
import sys
from inspect import cleandoc
from pathlib import Path
from typing import get_args

import msgspec

from ...protocol import commands as wire
from ...protocol import schedule_commands as schedule_wire
from ...protocol import webhook_commands as webhook_wire
from ...protocol.batches import Submitted
from ...protocol.codec import CODECS
from ...protocol.commandbase import CommandBase
from ...protocol.errors import BY_CODE
from ...protocol.events import Event, Filter
from ...protocol.flow import commands as flow_wire
from ...protocol.flow.records import FlowTask, NodeRun, WorkerState
from ...protocol.records import (
    BulkResult,
    ClusterInfo,
    Counts,
    ExecutorInfo,
    JobInfo,
    LaneState,
    RunFile,
    RunRecord,
    Snapshot,
)
from ...protocol.schedules import ScheduleRecord
from ...protocol.submission import TRACE, NewRun, SubmitCommand
from ...protocol.webhooks import Webhook
from ..commands.entries import Entry, Http
from ..commands.table import TABLE
from ..http.routes import paths
from ..version import SERVER
from .constraints import LANE, PAIRS, arguments, constrained
from .executors import executor_asyncapi
from .schemas import (
    JSON_TYPE,
    Json,
    answered,
    asyncapi_head,
    in_text,
    message,
    named_discriminators,
    parameter,
    properties,
    ref,
    refusals,
    schema_of,
    schemas,
    tag,
    without_null,
)
from .tasks import TASK_SCHEMAS, task_requests

_SHOWN = (
    ClusterInfo,
    Counts,
    Event,
    ExecutorInfo,
    Filter,
    JobInfo,
    LaneState,
    NewRun,
    BulkResult,
    wire.Resync,
    RunFile,
    RunRecord,
    ScheduleRecord,
    Snapshot,
    Submitted,
    FlowTask,
    NodeRun,
    Webhook,
    WorkerState,
)
_LICENSE = {"name": "MIT", "identifier": "MIT"}
_VERSION = SERVER.partition("/")[2]

ANSWERS: dict[type[CommandBase], tuple[str, ...]] = {
    wire.Submit: ("run_id", "joined"),
    wire.SubmitMany: ("submitted",),
    wire.Rerun: ("run_id", "joined"),
    wire.Retry: ("run_id", "joined"),
    wire.Cancel: ("run",),
    wire.CancelMany: ("bulk",),
    wire.RerunMany: ("bulk",),
    wire.RetryMany: ("bulk",),
    wire.Inject: ("outcome",),
    wire.Answer: ("outcome",),
    wire.Wait: ("run", "ended"),
    wire.GetRun: ("run",),
    wire.SetPriority: ("run",),
    wire.SetLane: ("rules",),
    wire.ListRuns: ("runs",),
    wire.ListFiles: ("files",),
    wire.History: ("events", "next"),
    wire.GetSnapshot: ("snapshot",),
    wire.ClearLane: ("count",),
    wire.ClearHandle: ("count",),
    wire.ReleaseHandle: ("released",),
    wire.ListJobs: ("jobs",),
    wire.ListExecutors: ("executors",),
    wire.GetCluster: ("cluster",),
    flow_wire.CreateFlow: ("flow",),
    flow_wire.PublishFlow: ("version",),
    flow_wire.AddFlowVersion: ("version",),
    flow_wire.CheckFlow: ("errors", "warnings"),
    flow_wire.ListFlows: ("flows", "total"),
    flow_wire.ListFlowVersions: ("versions",),
    flow_wire.GetFlowVersion: ("version",),
    flow_wire.StartFlow: ("run_id", "joined"),
    flow_wire.GetTask: ("task",),
    flow_wire.ListTasks: ("tasks", "total"),
    flow_wire.NodeRuns: ("node_runs",),
    flow_wire.ListWorkers: ("workers",),
    flow_wire.AllocateWorker: ("worker",),
    flow_wire.RegisterWorker: ("worker",),
    flow_wire.PollWork: ("item",),
    schedule_wire.PutSchedule: ("schedule",),
    schedule_wire.PreviewSchedule: ("times",),
    schedule_wire.ListSchedules: ("schedules",),
    schedule_wire.GetSchedule: ("schedule",),
    schedule_wire.PauseSchedule: ("schedule",),
    schedule_wire.ResumeSchedule: ("schedule",),
    schedule_wire.TriggerSchedule: ("run_id", "joined"),
    webhook_wire.DeadWebhooks: ("webhooks",),
    webhook_wire.FailingWebhooks: ("webhooks",),
    webhook_wire.RedeliverWebhook: ("webhook",),
    webhook_wire.DropWebhook: ("webhook",),
}
"""The fields of the `ok` of a command, in addition to `id` and `seq`."""


def asyncapi() -> Json:
    """The WebSocket protocol, as AsyncAPI 3."""
    commands = [entry.wire for entry in TABLE]
    sent = [wire.Auth, *commands]
    received = list(get_args(wire.ServerMessage))
    messages = {tag(kind): message(kind) for kind in (*sent, *received)}
    return {
        **asyncapi_head(
            "Greenroom",
            _VERSION,
            _LICENSE["name"],
            "Commands and events of a Greenroom gateway over a WebSocket. The messages are described in "
            "docs/reference/protocol.md, and a client in docs/how-to/write-a-client.md.",
        ),
        "channels": {
            "gateway": {
                "address": "/",
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
                "bindings": {
                    "ws": {
                        "method": "GET",
                        "headers": {
                            "type": "object",
                            "properties": {
                                "Sec-WebSocket-Protocol": {"type": "string", "enum": list(CODECS)}
                            },
                        },
                    }
                },
            }
        },
        "operations": {
            **{tag(kind): _operation(kind) for kind in commands},
            "auth": _operation(wire.Auth, ("welcome", "error")),
            "receive": {
                "action": "receive",
                "channel": {"$ref": "#/channels/gateway"},
                "summary": "Messages that the server sends without a command.",
                "messages": [_channel_message(name) for name in ("welcome", "events", "resync")],
            },
        },
        "components": {
            "messages": messages,
            "schemas": named_discriminators(_checked(schemas([*sent, *received]), [*commands, NewRun])),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def openapi() -> Json:
    """The HTTP API, as OpenAPI 3.1."""
    described: dict[str, Json] = {}
    for entry in TABLE:
        if entry.http is not None:
            described.setdefault(entry.http.path, {})[entry.http.method.lower()] = _request(entry, entry.http)
    twins = task_requests()
    for (method, path), request in (_own_requests() | twins).items():
        described.setdefault(path, {})[method.lower()] = request
    missing = {(method.lower(), path) for method, path in paths() if (method, f"/api{path}") not in twins}
    missing -= {(method, path) for path, requests in described.items() for method in requests}
    assert not missing, f"routes without a description: {missing}"
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Greenroom",
            "version": _VERSION,
            "license": _LICENSE,
            "description": "Commands and events of a Greenroom gateway over HTTP; "
            "see docs/reference/protocol.md.",
        },
        "servers": [{"url": "/", "description": "The gateway that serves this document."}],
        "security": [{"token": []}],
        "paths": {path: described[path] for path in sorted(described)},
        "components": {
            "schemas": _checked(schemas([*_SHOWN, *TASK_SCHEMAS]), [NewRun]) | {"Error": _ERROR},
            "responses": {
                "error": {
                    "description": "An error. Each code has its status: "
                    + ", ".join(f"{code} {error.http_status}" for code, error in BY_CODE.items()),
                    "content": {JSON_TYPE: {"schema": ref("Error")}},
                }
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


_ERROR: Json = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "enum": list(BY_CODE)},
        "message": {"type": "string"},
        "details": {"type": "object"},
        "error": {
            "type": "string",
            "description": "The same text as `message`; only in the compatible API for tasks and workers.",
        },
    },
    "required": ["code", "message", "details"],
}

_SENT: Json = {
    "type": "object",
    "description": "One server-sent event; the response is a sequence of these.",
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string"},
        "data": {
            "type": "string",
            "contentMediaType": JSON_TYPE,
            "contentSchema": {"anyOf": [schema_of(Event), ref("Resync")]},
        },
    },
    "required": ["data"],
}


# AsyncAPI


def _checked(found: Json, kinds: list[type[msgspec.Struct]]) -> Json:
    """The schemas; those of `kinds`, commands and their parts, with all checks of their fields."""
    for kind in kinds:
        own = found[kind.__name__]["properties"]
        own |= {name: constrained(kind, name, own[name]) for name in own if name not in ("id", "type")}
    return found


def _operation(kind: type[msgspec.Struct], replies: tuple[str, ...] = ("ok", "error")) -> Json:
    has = ANSWERS.get(kind, ()) if issubclass(kind, CommandBase) else ()
    operation: Json = {
        "action": "send",
        "channel": {"$ref": "#/channels/gateway"},
        "messages": [_channel_message(tag(kind))],
        "reply": {
            "channel": {"$ref": "#/channels/gateway"},
            "messages": [_channel_message(name) for name in replies],
        },
    }
    if has:
        operation["description"] = f"Fields of the `ok`: {', '.join(has)}."
    roles = {entry.wire: entry.role for entry in TABLE}
    if kind in roles:
        operation["summary"] = f"Requires the role {roles[kind]}."
    return operation


def _channel_message(name: str) -> Json:
    return {"$ref": f"#/channels/gateway/messages/{name}"}


# OpenAPI


def _request(entry: Entry, http: Http) -> Json:
    """The description of a command's request."""
    in_path = re.findall(r"{(\w+)}", http.path)
    own = arguments(entry.wire)
    parameters = [parameter(name, "path", in_text(own.pop(name)[0]), required=True) for name in in_path]
    request: Json = {
        "operationId": tag(entry.wire),
        "summary": cleandoc(entry.wire.__doc__ or "").replace("\n", " "),
        "description": f"Requires the role {entry.role}.",
    }
    if http.method == "GET":
        for name, field in http.pairs.items():
            del own[field]
            parameters.append(parameter(name, "query", PAIRS))
        parameters += [parameter(name, "query", in_text(of), needed) for name, (of, needed) in own.items()]
    elif own:
        required = [name for name in own if own[name][1]]
        schema: Json = {
            "type": "object",
            "properties": {name: own[name][0] for name in own},
            "additionalProperties": False,
        }
        if required:
            schema["required"] = required
        request["requestBody"] = {"required": bool(required), "content": {JSON_TYPE: {"schema": schema}}}
    if issubclass(entry.wire, SubmitCommand | wire.SubmitMany):
        parameters += [parameter(name, "header", {"type": "string"}) for name in TRACE]
    if parameters:
        request["parameters"] = parameters
    answers = properties(wire.Ok)
    names = ("seq", *ANSWERS.get(entry.wire, ()))
    if http.body is not None:
        answer = answers[http.body][0]
    else:
        answer = {
            "type": "object",
            "properties": {name: without_null(answers[name][0]) for name in names},
            "required": [name for name in names if name != "next"],  # only present if there are more pages
        }
    responses = {str(http.status): answered("The command was executed.", without_null(answer))}
    if "joined" in names:
        responses["200"] = answered(
            "An existing run: joined, or submitted before with the same `request_id`.", without_null(answer)
        )
    request["responses"] = {**responses, **refusals("requestBody" in request)}
    return request


def _own_requests() -> dict[tuple[str, str], Json]:
    """The requests that are not commands."""
    text: Json = {"type": "string"}
    status: Json = {"type": "object", "properties": {"status": text}, "required": ["status"]}
    ticket: Json = {"type": "object", "properties": {"ticket": text}, "required": ["ticket"]}
    names: Json = {"type": "array", "items": text, "maxItems": 1000}
    follow = [
        *(parameter(name, "query", names) for name in ("handle", "lane", "run", "type")),
        parameter("after", "query", {"type": "integer", "minimum": 0}),
        parameter("epoch", "query", text),
        parameter("last_event_id", "query", text),
        parameter("ticket", "query", text),
        parameter("Last-Event-ID", "header", text),
    ]
    refused = refusals(body=False)
    public = {name: refused[name] for name in ("429", "default")}
    lane = parameter("lane", "path", in_text(LANE), required=True)
    events = {"description": "Server-sent events.", "content": {"text/event-stream": {"schema": _SENT}}}
    figures = {"description": "Metrics for Prometheus.", "content": {"text/plain": {"schema": text}}}
    open_to_all: Json = {"security": []}
    described: Json = {"description": "The document.", "content": {JSON_TYPE: {"schema": {"type": "object"}}}}
    documents = {
        ("GET", f"/{name}.json"): {
            "operationId": name,
            "summary": summary,
            **open_to_all,
            "responses": {"200": described, **public},
        }
        for name, summary in (
            ("openapi", "This document."),
            ("asyncapi", "The WebSocket protocol, as AsyncAPI."),
            ("asyncapi-executor", "The WebSocket protocol of executors, as AsyncAPI."),
        )
    }
    documents |= {
        ("GET", f"/greenroom.{suffix}"): {
            "operationId": name,
            "summary": summary,
            **open_to_all,
            "parameters": [parameter("If-None-Match", "header", text)],
            "responses": {
                "200": {
                    "description": "The file.",
                    "headers": {"ETag": {"schema": text}},
                    "content": {media_type: {"schema": text}},
                },
                "304": {"description": "The file has not changed."},
                **public,
            },
        }
        for suffix, name, media_type, summary in (
            ("js", "javascript", "text/javascript", "The JavaScript client: a module without dependencies."),
            ("d.ts", "typescript", "application/typescript", "The types of the JavaScript client."),
        )
    }
    return documents | {
        ("GET", "/api/events"): {
            "operationId": "events",
            "summary": "Follow the events.",
            "description": "The data of each event is an Event; of the event `resync` a Resync. "
            "Requires the role viewer.",
            "parameters": follow,
            "responses": {"200": events, **refused},
        },
        ("POST", "/api/tickets"): {
            "operationId": "ticket",
            "summary": "Create a ticket, which replaces the token once, within 30 seconds.",
            "description": "For `GET /api/events` and downloads. Requires the role viewer.",
            "responses": {"201": answered("The ticket.", ticket), **refused},
        },
        ("GET", "/api/runs/{run_id}/files/{path}"): {
            "operationId": "run_file",
            "summary": "Download a finished file of a run.",
            "description": "A ticket in the query can replace the token. Requires the role viewer.",
            "parameters": [
                *(parameter(name, "path", text, required=True) for name in ("run_id", "path")),
                parameter("ticket", "query", text),
            ],
            "responses": {
                "200": {"description": "The file.", "content": {"application/octet-stream": {"schema": {}}}},
                **refused,
            },
        },
        ("GET", "/api/lanes"): {
            "operationId": "lanes",
            "summary": "The number of runs of the engine and of each lane.",
            "description": "Requires the role viewer.",
            "responses": {"200": answered("The counts.", ref("Counts")), **refused},
        },
        ("GET", "/api/lanes/{lane}"): {
            "operationId": "lane",
            "summary": "The current state of a lane.",
            "description": "Requires the role viewer.",
            "parameters": [lane],
            "responses": {"200": answered("The lane.", ref("LaneState")), **refused},
        },
        ("GET", "/healthz"): {
            "operationId": "healthz",
            "summary": "Check that the gateway responds.",
            **open_to_all,
            "responses": {"200": answered("The gateway responds.", status), **public},
        },
        ("GET", "/readyz"): {
            "operationId": "readyz",
            "summary": "Check that the engine accepts new runs.",
            **open_to_all,
            "responses": {
                "200": answered("The engine accepts new runs.", status),
                **public,
                "503": refused["503"],
            },
        },
        ("GET", "/metrics"): {
            "operationId": "metrics",
            "summary": "Metrics for Prometheus.",
            "description": "Requires the role viewer.",
            "responses": {"200": figures, **refused},
        },
    }


def documents() -> dict[str, str]:
    """The documents by file name."""
    made = {
        "asyncapi.json": asyncapi(),
        "asyncapi-executor.json": executor_asyncapi(version=_VERSION, license=_LICENSE["name"]),
        "openapi.json": openapi(),
    }
    return {name: json.dumps(made[name], indent=2, ensure_ascii=False) + "\n" for name in made}


def main(folder: str) -> None:
    """Write the documents into a folder."""
    for name, text in documents().items():
        Path(folder, name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
