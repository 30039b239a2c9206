"""Parts of the OpenAPI and AsyncAPI documents: JSON schemas of the types of messages."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import cleandoc
from typing import Any

import msgspec

from ...protocol.commands import LIMITING, OLD_NAMES

Json = dict[str, Any]

JSON_TYPE = "application/json"

_REF = "#/components/schemas/{name}"


def asyncapi_head(title: str, version: str, license: str, description: str) -> Json:
    """The beginning of an AsyncAPI 3 document about a WebSocket of a gateway."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": title,
            "version": version,
            "license": {"name": license},
            "description": description,
        },
        "defaultContentType": JSON_TYPE,
        "servers": {
            "local": {
                "host": "127.0.0.1:8440",
                "protocol": "ws",
                "security": [{"$ref": "#/components/securitySchemes/token"}],
            }
        },
    }


def answered(description: str, schema: Json) -> Json:
    """A JSON response."""
    return {"description": description, "content": {JSON_TYPE: {"schema": schema}}}


def parameter(name: str, place: str, schema: Json, required: bool = False) -> Json:
    """A parameter of a request in the path, the query or the headers."""
    found: Json = {"name": name, "in": place, "schema": schema}
    return {**found, "required": True} if required else found


def fields(kind: type[msgspec.Struct]) -> dict[str, tuple[Json, bool]]:
    """The fields of a message, with their schemas and whether they are required."""
    schema = _components([kind])[1][kind.__name__]
    required = set(schema.get("required", ()))
    return {name: (of, name in required) for name, of in schema["properties"].items()}


def properties(kind: type[msgspec.Struct]) -> dict[str, tuple[Json, bool]]:
    """The fields of a message without `id` and `type`, which HTTP does not need."""
    return {name: of for name, of in fields(kind).items() if name not in ("id", "type")}


def without_null(schema: Json) -> Json:
    """The schema of a field that is null only in replies to other commands."""
    several = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    return several[0] if len(several) == 1 else schema


def in_text(schema: Json) -> Json:
    """The schema of a field in a path or a query: a list is repeated parameters, and there is no null."""
    several = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    lists = [one for one in several if one.get("type") == "array"]
    found = dict((lists or several or [schema])[0])
    if len(several) > 1 and not lists:
        found = {"anyOf": several}
    if schema.get("default") is not None:
        found["default"] = schema["default"]
    return found


def or_empty(schema: Json) -> Json:
    """The schema of a field in a query; an empty text for a number counts as absent."""
    if schema.get("type") not in ("integer", "number"):
        return schema
    return {"anyOf": [schema, {"type": "string", "maxLength": 0}]}


def or_null(schema: Json) -> Json:
    """The schema of a field in a body, where null counts as absent."""
    null: Json = {"type": "null"}
    kinds: list[Json] = schema.get("anyOf", [schema])
    return schema if null in kinds else {"anyOf": [*kinds, null]}


def refusals(body: bool) -> Json:
    """The error responses of a request; 413 and 415 only if it has a body."""
    codes = ["400", "401", "403", "404", "409", "429", "500", "503", *(["413", "415"] if body else [])]
    error = {"$ref": "#/components/responses/error"}
    return dict.fromkeys(sorted(codes), error) | {"default": error}


def schemas(kinds: Iterable[Any]) -> Json:
    """The schemas of types and of all their parts, by name."""
    found = _components(kinds)[1]
    return {name: found[name] for name in sorted(found)}


def schema_of(kind: Any) -> Json:
    """The schema of one type, with references to `schemas` for its parts."""
    return _components([kind])[0][0]


def ref(name: str) -> Json:
    """A reference to one of `schemas`."""
    return {"$ref": _REF.format(name=name)}


def tag(kind: type[msgspec.Struct]) -> str:
    """The `type` of a message."""
    return str(kind.__struct_config__.tag)


def message(kind: type[msgspec.Struct]) -> Json:
    """A message of an AsyncAPI document."""
    summary = cleandoc(kind.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    return {"name": tag(kind), "summary": summary, "payload": ref(kind.__name__)}


def named_discriminators(part: Any) -> Any:
    """Replace each discriminator by its property's name: AsyncAPI has no mapping of values."""
    if isinstance(part, list):
        return [named_discriminators(inner) for inner in part]
    if not isinstance(part, dict):
        return part
    named = {name: named_discriminators(inner) for name, inner in part.items()}
    if isinstance(named.get("discriminator"), dict):
        named["discriminator"] = named["discriminator"]["propertyName"]
    return named


def _components(kinds: Iterable[Any]) -> tuple[tuple[Json, ...], Json]:
    types, found = msgspec.json.schema_components(list(kinds), ref_template=_REF)
    for command in LIMITING:  # they also accept former names of fields, which the schema does not show
        if (schema := found.get(command.__name__)) is not None:
            for old, name in OLD_NAMES.items():
                del schema["properties"][old]
                del schema["properties"][name]["default"]
                schema["required"].append(name)
    for schema in found.values():
        if "description" in schema:  # a docstring, which Python 3.13 dedents and older ones do not
            schema["description"] = cleandoc(schema["description"])
    return types, found
