"""The AsyncAPI and OpenAPI documents agree with the code, and are complete."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from greenroom.gateway.commands.table import TABLE
from greenroom.gateway.description.documents import ANSWERS, asyncapi, documents, openapi

from ..test_docs import REFERENCE, names, rows


@pytest.mark.parametrize("name", list(documents()))
def test_the_document_in_the_reference_is_current(name: str):
    written = (REFERENCE / name).read_text(encoding="utf-8")
    assert written == documents()[name], (
        "renew it: python -m greenroom.gateway.description.documents docs/reference"
    )


@pytest.mark.parametrize(
    "document", [json.loads(text) for text in documents().values()], ids=list(documents())
)
def test_every_reference_leads_somewhere(document: dict[str, Any]):
    found = list(references(document))
    assert found
    for reference in found:
        place = document
        for step in reference.removeprefix("#/").split("/"):
            place = place[step.replace("~1", "/")]


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for inner in part.values():
            yield from references(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from references(inner)


def test_every_command_is_in_both_documents():
    commands = {str(entry.wire.__struct_config__.tag) for entry in TABLE}
    over_websocket = asyncapi()["operations"]
    assert commands <= set(over_websocket)
    over_http = {
        request["operationId"] for requests in openapi()["paths"].values() for request in requests.values()
    }
    need_a_connection = {"subscribe", "unsubscribe", "ping", "wait"}
    said_otherwise = {  # by the calls of tasks and workers
        "create_flow",
        "list_flows",
        "get_flow_version",
        "list_tasks",
        "allocate_worker",
        "register_worker",
        "heartbeat_worker",
        "poll_work",
        "complete_work",
        "extend_work",
    }
    assert commands - over_http == need_a_connection | said_otherwise


def test_the_documented_fields_of_replies_are_those_of_the_protocol():
    told = {
        names(command)[0]: tuple(names(has.partition("(")[0]) + names(has.partition("),")[2]))
        for command, _, has, _ in rows("protocol.md", "command", "arguments", "fields of the `ok`", "role")
    }
    assert told == {str(entry.wire.__struct_config__.tag): ANSWERS.get(entry.wire, ()) for entry in TABLE}
