"""The calls of existing clients and workers of flows, as OpenAPI describes them: each once, under `/api`."""

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
    or_null,
    parameter,
    passed_over,
    refusals,
    schema_of,
)

TASK_SCHEMAS: tuple[Any, ...] = tuple(task.answers for task in TABLE)
"""The types of the answers."""


def task_requests() -> dict[tuple[str, str], Json]:
    """Every call, by its method and path."""
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
            parameter(name, "query", passed_over(in_text(schema)), required)
            for name, (schema, required) in given.items()
        ]
    else:
        required = [name for name in given if given[name][1]]
        own = {name: schema if needed else or_null(schema) for name, (schema, needed) in given.items()}
        schema: Json = {"type": "object", "properties": own}
        if required:
            schema["required"] = required
        request["requestBody"] = {"required": True, "content": {JSON_TYPE: {"schema": schema}}}
    responses: Json = {"200": answered("Carried out.", schema_of(task.answers))}
    if task.waits:
        responses["204"] = {"description": "There was nothing for as long as the server waits."}
    request["responses"] = {**responses, **refusals("requestBody" in request)}
    return request


def _description(task: TaskCall) -> Iterator[str]:
    yield "Also without `/api`."
    if not task.workers:
        yield f"Needs the role {task.role}."
        return
    role = task.role if task.role is Role.WORKER else f"{task.role} or {Role.WORKER}"
    yield f"Needs the role {role}."
