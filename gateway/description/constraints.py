"""JSON schemas for the values that the engine accepts in each field.

The types of messages define only the type of a field. The engine checks the rest, such as the length of a
name or the words of an enumeration; this module states these checks as schemas. A test sends valid and
invalid requests, generated from these schemas, to a server.
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from ...protocol import commands as wire
from ...protocol.batches import MAX_RUNS
from ...protocol.bulk import BULK_STATUSES, HIGHEST_LIMIT, MAX_BULK_REQUEST_ID
from ...protocol.commandbase import CommandBase
from ...protocol.delays import LATEST
from ...protocol.flow import commands as flow_wire
from ...protocol.flow.records import WorkerKind
from ...protocol.lane_settings import HIGHEST_PRIORITY, LOWEST_PRIORITY, MOST_WEIGHT
from ...protocol.lanes import RatePer
from ...protocol.names import MAX_NAME
from ...protocol.notify import TYPES
from ...protocol.schedule_commands import (
    DeleteSchedule,
    GetSchedule,
    PauseSchedule,
    PreviewSchedule,
    PutSchedule,
    ResumeSchedule,
    TriggerSchedule,
)
from ...protocol.schedules import MAX_SCHEDULE_NAME, Missed
from ...protocol.states import Status
from ...protocol.submission import NewRun, OnConflict, OnConflictOfMany
from ...protocol.urls import MAX_URL
from ...protocol.validation import (
    HIGHEST_SEQ,
    HIGHEST_TIME,
    LONGEST_POLL,
    MAX_LABELS,
    MAX_SERVICES,
    MAX_TAG_VALUE,
    MAX_TAGS,
    FilesFate,
)
from ...protocol.webhook_commands import DeadWebhooks, DropWebhook, FailingWebhooks, RedeliverWebhook
from ..tasks.forms import STATUSES
from ..tasks.input import (
    MAX_PAGE,
    MAX_PAGE_SIZE,
    FindTasks,
    FindWorkers,
    NewVersion,
    PollQueue,
    RegisterWorker,
)
from .schemas import Json, properties, ref

_HIGHEST = 2**31 - 1

_UNPRINTABLE = r"\u0000-\u001f\u007f-\u00a0\u00ad\u2028\u2029"
_ANY, _VISIBLE = f"[^{_UNPRINTABLE}]", rf"[^{_UNPRINTABLE}\u0020]"

NAME: Json = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_NAME,
    "pattern": f"^{_ANY}*{_VISIBLE}{_ANY}*$",
    "description": "Printable characters, at least one of them visible.",
}
TEXT: Json = {"type": "string", "pattern": r"^[^\u0000]*$", "description": "Text without NUL."}
LANE: Json = {
    "type": "string",
    "pattern": rf"^\s*({_VISIBLE}({_ANY}{{0,{MAX_NAME - 2}}}{_VISIBLE})?)?\s*$",
    "description": "A name. Surrounding space is removed; an empty name means `main`.",
}
LIMIT: Json = {"type": "integer", "minimum": 0, "maximum": _HIGHEST}
PAGE: Json = {"type": "integer", "minimum": 1, "maximum": 1000}
_TAG_NAME: Json = {
    "type": "string",
    "maxLength": MAX_NAME,
    "pattern": f"^[^={_UNPRINTABLE}]*[^={_UNPRINTABLE}\\u0020][^={_UNPRINTABLE}]*$",
}
TAGS: Json = {
    "type": "object",
    "maxProperties": MAX_TAGS,
    "propertyNames": _TAG_NAME,
    "additionalProperties": {"type": "string", "maxLength": MAX_TAG_VALUE, "pattern": r"^[^\u0000]*$"},
    "description": "Values by name.",
}
NOTIFY_URL: Json = {
    "type": "string",
    "maxLength": MAX_URL,
    "pattern": r"^https?://[A-Za-z][A-Za-z0-9]{0,62}(\.[A-Za-z][A-Za-z0-9]{0,62})*(/[A-Za-z0-9_.~/?=&%-]*)?$",
}
NOTIFY: Json = {
    "anyOf": [
        NOTIFY_URL,
        {
            "type": "object",
            "properties": {
                "url": NOTIFY_URL,
                "types": {"type": "array", "minItems": 1, "items": {"enum": list(TYPES)}},
            },
            "required": ["url"],
            "additionalProperties": False,
        },
    ],
    "description": "Where events of the run are delivered, and their types.",
}
PAIRS: Json = {
    "type": "array",
    "maxItems": MAX_TAGS,
    "items": {
        "type": "string",
        "pattern": f"^[^={_UNPRINTABLE}]{{0,127}}[^={_UNPRINTABLE}\\u0020][^={_UNPRINTABLE}]{{0,128}}"
        rf"=[^\u0000]{{0,{MAX_TAG_VALUE}}}$",
    },
    "description": "Tags, each as NAME=VALUE; repeat the parameter.",
}
_TIME: Json = {"type": "number", "minimum": -HIGHEST_TIME, "maximum": HIGHEST_TIME}
VALUE: Json = {
    "description": "Any JSON value with at most 100 levels of nesting; integers from -2^63 to 2^64-1.",
}


def _words(*words: str) -> Json:
    return {"type": "string", "enum": list(words)}


_STATUS = _words(*Status)
_STATUSES: Json = {"anyOf": [_STATUS, {"type": "array", "items": _STATUS}]}


def _bulk(kind: str) -> dict[str, Json]:
    """The fields of a bulk operation."""
    status = _words(*(status for status in Status if status in BULK_STATUSES[kind]))
    return {
        **_SELECTING,
        "limit": {"type": "integer", "minimum": 1, "maximum": HIGHEST_LIMIT},
        "request_id": {**NAME, "maxLength": MAX_BULK_REQUEST_ID},
        "status": {"anyOf": [status, {"type": "array", "items": status}]},
    }


_SERVICES: Json = {"type": "array", "items": NAME, "minItems": 1, "maxItems": MAX_SERVICES}

_TIMES_OF_SCHEDULE: dict[str, Json] = {
    "cron": {"type": "string", "description": "Minute, hour, day of month, month, day of week."},
    "every": {"type": "number", "minimum": 1, "maximum": 366 * 86_400},
    "timezone": {"type": "string", "description": "A name of the IANA database."},
}
_SELECTING: dict[str, Json] = {"handle": TEXT, "lane": TEXT, "job": TEXT}
_SEQ: Json = {"type": "integer", "minimum": 0, "maximum": HIGHEST_SEQ}
_FIELDS: dict[str, Json] = {
    "after": _SEQ,
    "before": TEXT,
    "data": VALUE,
    "delay": {"type": "number", "minimum": 0, "maximum": LATEST, "description": "Seconds from now."},
    "description": TEXT,
    "error": {**TEXT, "minLength": 1},
    "executor_id": TEXT,
    "files": _words(*get_args(FilesFate)),
    "flow": TEXT,
    "handle": NAME,
    "interrupt_id": TEXT,
    "item_id": TEXT,
    "job": NAME,
    "key": {
        "type": "string",
        "minLength": 1,
        "maxLength": 1000,
        "description": "A path in the run's shared data: `approved`, `order.items[0]`, `$shared.approved`.",
    },
    "kind": _words("start", "continue"),
    "lane": LANE,
    "limit": PAGE,
    "load": {"type": "number", "minimum": 0, "maximum": 1e15},
    "message": VALUE,
    "priority": {"type": "integer", "minimum": LOWEST_PRIORITY, "maximum": HIGHEST_PRIORITY},
    "name": NAME,
    "notify": NOTIFY,
    "needs": {"type": "array", "items": NAME, "maxItems": MAX_LABELS, "uniqueItems": True},
    "offset": LIMIT,
    "on_conflict": _words(*get_args(OnConflict)),
    "params": VALUE,
    "parent": TEXT,
    "request_id": {
        **NAME,
        "description": "A name that does not begin with `schedule:`, nor with the id of a run and a dot.",
    },
    "result": VALUE,
    "run_id": TEXT,
    "run_or_handle": TEXT,
    "service": TEXT,
    "services": _SERVICES,
    "start_at": {"type": "number", "minimum": 0, "maximum": LATEST, "description": "Unix seconds."},
    "since": _TIME,
    "tags": TAGS,
    "until": _TIME,
    "url": {"type": "string", "maxLength": 2048},
    "value": VALUE,
    "version": LIMIT,
    "version_id": TEXT,
    "wait": {"type": "number", "minimum": 0, "maximum": LONGEST_POLL},
    "worker_id": TEXT,
}
_WEBHOOK: Json = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
_SCHEDULE: Json = {**NAME, "maxLength": MAX_SCHEDULE_NAME}
_OF_VERSIONS: dict[str, Json] = {"status": _words("draft", "published")}
_COUNT: Json = {"type": "integer", "minimum": 1, "maximum": 2**31 - 1}
_RULES: dict[str, Json] = {
    "fair_by": {"type": ["string", "null"], "minLength": 1},
    "weights": {"type": "object", "additionalProperties": _COUNT | {"maximum": MOST_WEIGHT}},
    "limit_per_key": _COUNT | {"type": ["integer", "null"]},
    "rate": {"type": ["string", "null"], "description": "A count per period: `100/min`, `5/s`, `1/10s`."},
    "burst": _COUNT,
    "rate_per": _words(*get_args(RatePer)),
    "age": {"type": ["number", "null"], "exclusiveMinimum": 0},
    "notify": {"anyOf": [*NOTIFY["anyOf"], {"type": "null"}]},
}
_ON_CONFLICT_OF_MANY = _words(*get_args(OnConflictOfMany))
_OF_COMMANDS: dict[type[msgspec.Struct], dict[str, Json]] = {
    NewRun: {"on_conflict": _ON_CONFLICT_OF_MANY},
    wire.SubmitMany: {"runs": {"type": "array", "items": ref(NewRun.__name__), "maxItems": MAX_RUNS}},
    wire.Answer: {"key": NAME},
    wire.SetConcurrency: {"limit": LIMIT},
    wire.SetMaxConcurrent: {"limit": LIMIT},
    wire.SetLane: {"rules": {"type": "object", "properties": _RULES, "additionalProperties": False}},
    wire.ListRuns: {**_SELECTING, "status": _STATUSES},
    wire.History: {"before": _SEQ},
    wire.CancelMany: _bulk("cancel_many"),
    wire.RerunMany: _bulk("rerun_many"),
    wire.RetryMany: _bulk("retry_many"),
    flow_wire.NodeRuns: {"after": LIMIT},
    flow_wire.ListTasks: {"version": TEXT, "status": _STATUSES},
    flow_wire.PublishFlow: _OF_VERSIONS,
    flow_wire.AddFlowVersion: _OF_VERSIONS,
    flow_wire.StartFlow: {
        "params": {"type": "object"},
        "on_conflict": _ON_CONFLICT_OF_MANY,
        "needs": {"type": "array", "maxItems": 0, "description": "Must be empty."},
    },
    flow_wire.RegisterWorker: {"kind": _words(*get_args(WorkerKind)), "worker_id": NAME},
    flow_wire.PollWork: {"worker_id": NAME},
    PreviewSchedule: _TIMES_OF_SCHEDULE,
    PutSchedule: {
        "name": _SCHEDULE,
        **_TIMES_OF_SCHEDULE,
        "jitter": {"type": "number", "minimum": 0, "maximum": 86_400},
        "missed": _words(*get_args(Missed)),
        "missed_limit": {"type": "integer", "minimum": 1, "maximum": 1000},
    },
    DeadWebhooks: {"after": _WEBHOOK},
    FailingWebhooks: {"after": _WEBHOOK},
    RedeliverWebhook: {"webhook_id": _WEBHOOK},
    DropWebhook: {"webhook_id": _WEBHOOK},
    **{
        command: {"name": _SCHEDULE}
        for command in (GetSchedule, PauseSchedule, ResumeSchedule, TriggerSchedule, DeleteSchedule)
    },
}


def constrained(kind: type[msgspec.Struct], name: str, schema: Json) -> Json:
    """The schema of a field of a command, or of a run of a batch, with all checks."""
    known = _OF_COMMANDS.get(kind, {}).get(name)
    return _narrowed(schema, known or _FIELDS.get(name))


def _narrowed(schema: Json, known: Json | None) -> Json:
    """The schema `known`, with the default of `schema`, and null if `schema` allows it."""
    if known is None:
        return schema
    found = dict(known)
    parts: list[Any] = schema.get("anyOf", [])
    if {"type": "null"} in parts:
        found = {"anyOf": [*found.get("anyOf", [found]), {"type": "null"}]}
    if "default" in schema:
        found["default"] = schema["default"]
    return found


_REQUIRED: Json = {**TEXT, "minLength": 1}
_OF_TASK_CALLS: dict[str, Json] = {
    "flow_id": _REQUIRED,
    "flow_version_id": TEXT,
    "id": _REQUIRED,
    "key": _FIELDS["key"],
    "load": _FIELDS["load"],
    "name": NAME,
    "description": TEXT,
    "page": {"type": "integer", "maximum": MAX_PAGE},
    "page_size": {"type": "integer", "maximum": MAX_PAGE_SIZE},
    "queue_id": _REQUIRED,
    "request_id": {"anyOf": [{"type": "string", "maxLength": 0}, NAME]},
    "service": _REQUIRED,
    "services": _SERVICES,
    "task_id": _REQUIRED,
    "ttl": {"type": "number", "minimum": 0},
    "value": VALUE,
    "version": LIMIT,
    "worker_id": _REQUIRED,
}
_OF_TASK_CALL: dict[type[msgspec.Struct], dict[str, Json]] = {
    FindWorkers: {"service": TEXT},
    FindTasks: {"status": _words("", *dict.fromkeys(STATUSES.values()))},
    NewVersion: {"status": _words("", "draft", "published")},
    PollQueue: {"worker_id": NAME},
    RegisterWorker: {"id": NAME, "type": _words("", "http", "queue", "async")},
}
"""Fields of single calls of the compatible API. These calls also accept fields in other spellings, and ignore
unknown fields; the schemas do not describe that."""


def of_task_calls(kind: type[msgspec.Struct], name: str, schema: Json) -> Json:
    """The schema of a field of a call of the compatible API, with all checks."""
    known = _OF_TASK_CALL.get(kind, {}).get(name)
    return _narrowed(schema, known or _OF_TASK_CALLS.get(name))


def arguments(kind: type[CommandBase]) -> dict[str, tuple[Json, bool]]:
    """The fields of a command in HTTP requests, with their schemas and whether they are required."""
    return {
        name: (constrained(kind, name, schema), required)
        for name, (schema, required) in properties(kind).items()
    }
