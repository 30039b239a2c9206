"""The protocol as AsyncAPI and OpenAPI documents, for tools that read such.

They are made of what the gateway itself goes by: the types of `protocol.commands`, the table of commands, the
errors. `python -m greenroom.gateway.description.documents docs/reference` writes them into a folder.
"""

from __future__ import annotations

import json
import re
import sys
from inspect import cleandoc
from pathlib import Path
from typing import Any, get_args

import msgspec

from ...protocol import commands as wire
from ...protocol.codec import CODECS
from ...protocol.commandbase import CommandBase
from ...protocol.errors import BY_CODE
from ...protocol.events import Event, Filter
from ...protocol.flow import commands as flow_wire
from ...protocol.flow.records import FlowTask, NodeRun, WorkerState
from ...protocol.records import Counts, LaneState, RunRecord, Snapshot
from ..commands.entries import Entry, Http
from ..commands.table import TABLE
from ..http.routes import paths
from ..version import SERVER
from .constraints import LANE, arguments, constrained
from .schemas import (
    JSON_TYPE,
    Json,
    answered,
    in_text,
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

_SHOWN = (Counts, Event, Filter, LaneState, wire.Resync, RunRecord, Snapshot, FlowTask, NodeRun, WorkerState)
_LICENSE = {"name": "MIT", "identifier": "MIT"}
_VERSION = SERVER.partition("/")[2]

ANSWERS: dict[type[CommandBase], tuple[str, ...]] = {
    wire.Submit: ("run_id", "joined"),
    wire.Cancel: ("run",),
    wire.Inject: ("outcome",),
    wire.Answer: ("outcome",),
    wire.Wait: ("run", "ended"),
    wire.GetRun: ("run",),
    wire.ListRuns: ("runs",),
    wire.History: ("events", "next"),
    wire.GetSnapshot: ("snapshot",),
    wire.ClearLane: ("count",),
    wire.ClearHandle: ("count",),
    wire.ReleaseHandle: ("released",),
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
}
"""What the `ok` of a command has, besides `id` and `seq`."""


def asyncapi() -> Json:
    """What goes over a WebSocket, as AsyncAPI 3."""
    commands = [entry.wire for entry in TABLE]
    sent = [wire.Auth, *commands]
    received = list(get_args(wire.ServerMessage))
    messages = {tag(kind): _message(kind) for kind in (*sent, *received)}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Greenroom",
            "version": _VERSION,
            "license": {"name": _LICENSE["name"]},
            "description": "Commands and events of a Greenroom gateway over a WebSocket. The messages are "
            "described in docs/reference/protocol.md, and a client in docs/how-to/write-a-client.md.",
        },
        "defaultContentType": JSON_TYPE,
        "servers": {
            "local": {
                "host": "127.0.0.1:8440",
                "protocol": "ws",
                "security": [{"$ref": "#/components/securitySchemes/token"}],
            }
        },
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
            "told": {
                "action": "receive",
                "channel": {"$ref": "#/channels/gateway"},
                "summary": "What the server sends without being asked.",
                "messages": [_channel_message(name) for name in ("welcome", "events", "resync")],
            },
        },
        "components": {
            "messages": messages,
            "schemas": _named_discriminators(_checked(schemas([*sent, *received]), commands)),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def openapi() -> Json:
    """The same commands over HTTP, as OpenAPI 3.1."""
    described: dict[str, Json] = {}
    for entry in TABLE:
        if entry.http is not None:
            described.setdefault(entry.http.path, {})[entry.http.method.lower()] = _request(entry, entry.http)
    twins = task_requests()
    for (method, path), request in (_own_requests() | twins).items():
        described.setdefault(path, {})[method.lower()] = request
    missing = {(method.lower(), path) for method, path in paths() if (method, f"/api{path}") not in twins}
    missing -= {(method, path) for path, requests in described.items() for method in requests}
    assert not missing, f"not described: {missing}"
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
            "schemas": schemas([*_SHOWN, *TASK_SCHEMAS]) | {"Error": _ERROR},
            "responses": {
                "error": {
                    "description": "Refused. The status is that of the code: "
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
        "error": {"type": "string", "description": "The message, for calls of tasks and workers."},
    },
    "required": ["code", "message", "details"],
}

_SENT: Json = {
    "type": "object",
    "description": "One server-sent event, of which the answer is a sequence.",
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


# Of AsyncAPI.


def _checked(found: Json, commands: list[type[CommandBase]]) -> Json:
    """The schemas, those of commands with all that is checked of their fields."""
    for kind in commands:
        own = found[kind.__name__]["properties"]
        own |= {name: constrained(kind, name, own[name]) for name in own if name not in ("id", "type")}
    return found


def _message(kind: type[msgspec.Struct]) -> Json:
    summary = cleandoc(kind.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    return {"name": tag(kind), "summary": summary, "payload": ref(kind.__name__)}


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
        operation["description"] = f"The `ok` has: {', '.join(has)}."
    roles = {entry.wire: entry.role for entry in TABLE}
    if kind in roles:
        operation["summary"] = f"Needs the role {roles[kind]}."
    return operation


def _channel_message(name: str) -> Json:
    return {"$ref": f"#/channels/gateway/messages/{name}"}


def _named_discriminators(part: Any) -> Any:
    """In AsyncAPI a discriminator is only the property's name; in OpenAPI it also maps its values."""
    if isinstance(part, list):
        return [_named_discriminators(inner) for inner in part]
    if not isinstance(part, dict):
        return part
    named = {name: _named_discriminators(inner) for name, inner in part.items()}
    if isinstance(named.get("discriminator"), dict):
        named["discriminator"] = named["discriminator"]["propertyName"]
    return named


# Of OpenAPI.


def _request(entry: Entry, http: Http) -> Json:
    """One command as a request."""
    in_path = re.findall(r"{(\w+)}", http.path)
    own = arguments(entry.wire)
    parameters = [parameter(name, "path", in_text(own.pop(name)[0]), required=True) for name in in_path]
    request: Json = {
        "operationId": tag(entry.wire),
        "summary": cleandoc(entry.wire.__doc__ or "").replace("\n", " "),
        "description": f"Needs the role {entry.role}.",
    }
    if http.method == "GET":
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
    if parameters:
        request["parameters"] = parameters
    answers = properties(wire.Ok)
    if http.body is not None:
        answer = answers[http.body][0]
    else:
        names = ("seq", *ANSWERS.get(entry.wire, ()))
        answer = {
            "type": "object",
            "properties": {name: without_null(answers[name][0]) for name in names},
            "required": [name for name in names if name != "next"],  # it is there where there are more
        }
    responses = {str(http.status): answered("Carried out.", without_null(answer))}
    if entry.wire in (wire.Submit, flow_wire.StartFlow):
        responses["200"] = answered("It was there before: joined, or sent before.", without_null(answer))
    request["responses"] = {**responses, **refusals("requestBody" in request)}
    return request


def _own_requests() -> dict[tuple[str, str], Json]:
    """What HTTP has for itself."""
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
    figures = {"description": "Figures for Prometheus.", "content": {"text/plain": {"schema": text}}}
    source = {
        "description": "The module.",
        "headers": {"ETag": {"schema": text}},
        "content": {"text/javascript": {"schema": text}},
    }
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
            ("asyncapi", "What goes over a WebSocket, as AsyncAPI."),
        )
    }
    return documents | {
        ("GET", "/api/events"): {
            "operationId": "events",
            "summary": "Follow the events.",
            "description": "Each event's data is one of Event, or of Resync for the event `resync`. "
            "Needs the role viewer.",
            "parameters": follow,
            "responses": {"200": events, **refused},
        },
        ("POST", "/api/tickets"): {
            "operationId": "ticket",
            "summary": "A ticket for `GET /api/events`, in place of a token: good once, and for 30 seconds.",
            "description": "Needs the role viewer.",
            "responses": {"201": answered("The ticket.", ticket), **refused},
        },
        ("GET", "/api/lanes"): {
            "operationId": "lanes",
            "summary": "How many runs every lane has, and the engine.",
            "description": "Needs the role viewer.",
            "responses": {"200": answered("The numbers.", ref("Counts")), **refused},
        },
        ("GET", "/api/lanes/{lane}"): {
            "operationId": "lane",
            "summary": "A lane as it is now.",
            "description": "Needs the role viewer.",
            "parameters": [lane],
            "responses": {"200": answered("The lane.", ref("LaneState")), **refused},
        },
        ("GET", "/greenroom.js"): {
            "operationId": "javascript",
            "summary": "The JavaScript client: a module without dependencies.",
            **open_to_all,
            "parameters": [parameter("If-None-Match", "header", text)],
            "responses": {"200": source, "304": {"description": "It is still the same."}, **public},
        },
        ("GET", "/healthz"): {
            "operationId": "healthz",
            "summary": "Whether the gateway answers.",
            **open_to_all,
            "responses": {"200": answered("It does.", status), **public},
        },
        ("GET", "/readyz"): {
            "operationId": "readyz",
            "summary": "Whether new runs are taken.",
            **open_to_all,
            "responses": {"200": answered("They are.", status), **public, "503": refused["503"]},
        },
        ("GET", "/metrics"): {
            "operationId": "metrics",
            "summary": "Figures for Prometheus.",
            "description": "Needs the role viewer.",
            "responses": {"200": figures, **refused},
        },
    }


def documents() -> dict[str, str]:
    """The documents by their files' names."""
    made = {"asyncapi.json": asyncapi(), "openapi.json": openapi()}
    return {name: json.dumps(made[name], indent=2, ensure_ascii=False) + "\n" for name in made}


def main(folder: str) -> None:
    """Write the documents into a folder."""
    for name, text in documents().items():
        Path(folder, name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
