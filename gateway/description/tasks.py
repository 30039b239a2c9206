"""The compatible API for tasks and workers in the OpenAPI document: each call once, under `/api`."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

from ..auth.tokens import Role
from ..tasks.calls import TABLE, TaskCall
from .constraints import of_task_calls
from .schemas import (
    JSON_TYPE,
    Json,
    answered,
    fields,
    in_text,
    or_empty,
    or_null,
    parameter,
    refusals,
    schema_of,
)

TASK_SCHEMAS: tuple[Any, ...] = tuple(task.answers for task in TABLE)
"""The types of the responses."""


def task_requests() -> dict[tuple[str, str], Json]:
    """The description of each call, by method and path."""
    return {(task.method, f"/api{task.path}"): _request(task) for task in TABLE}


def _request(task: TaskCall) -> Json:
    given = {
        name: (of_task_calls(task.takes, name, schema), required)
        for name, (schema, required) in fields(task.takes).items()
    }
    request: Json = {
        "operationId": "_".join([task.method.lower(), *task.path.split("/")[1:]]),
        "summary": cleandoc(task.act.__doc__ or "").replace("\n", " "),
        "description": " ".join(_description(task)),
    }
    if task.in_query:
        request["parameters"] = [
            parameter(name, "query", or_empty(in_text(schema)), required)
            for name, (schema, required) in given.items()
        ]
    else:
        required = [name for name in given if given[name][1]]
        own = {name: schema if needed else or_null(schema) for name, (schema, needed) in given.items()}
        schema: Json = {"type": "object", "properties": own}
        if required:
            schema["required"] = required
        request["requestBody"] = {"required": True, "content": {JSON_TYPE: {"schema": schema}}}
    responses: Json = {"200": answered("The call was executed.", schema_of(task.answers))}
    if task.waits:
        responses["204"] = {"description": "No work was available while the server waited."}
    request["responses"] = {**responses, **refusals("requestBody" in request)}
    return request


def _description(task: TaskCall) -> Iterator[str]:
    yield "The path without `/api` is the same call."
    if not task.workers:
        yield f"Requires the role {task.role}."
        return
    role = task.role if task.role is Role.WORKER else f"{task.role} or {Role.WORKER}"
    yield f"Requires the role {role}."
