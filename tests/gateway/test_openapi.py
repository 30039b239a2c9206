"""The OpenAPI document, tried by schemathesis against a live gateway: requests made from it, right and wrong
ones, are answered as it says. And the documents are served."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom.gateway import Role, add_token
from greenroom.gateway.description.documents import documents, openapi

from .support import house

SEED = 1
EXAMPLES = 5
PATIENCE = 120  # it takes ten seconds, but not on each machine

CONFIGURATION = r"""
[generation]
codec = "ascii"   # what a character set counts as printable is beyond patterns
allow-x00 = false # no header and no path can carry it

# Existing clients and workers spell fields as they like, send unknown ones, and null or nothing for what they
# leave out, which no schema says. That a worker's address is needed, or none, depends on its type.
[[operations]]
include-path-regex = "^/api/(workers/|queue/|tasks|register$|heartbeat$|list$|allocate$|flows$|flows/version)"
[operations.checks]
negative_data_rejection.enabled = false
positive_data_acceptance.enabled = false

# The same, and 503 is how the lack of a worker is said there.
[[operations]]
include-path-regex = "/allocate$"
[operations.checks]
negative_data_rejection.enabled = false
positive_data_acceptance.enabled = false
not_a_server_error.enabled = false

# A definition, and the key of a signal, are small languages with checks of their own.
[[operations]]
include-path-regex = "^/api/(flows/publish|flows/[{]flow[}]/versions|runs/[{]run_id[}]/signal)$"
[operations.checks]
positive_data_acceptance.enabled = false

# Which jobs there are is the server's own.
[[operations]]
include-path = "/api/runs"
include-method = "POST"
[operations.checks]
positive_data_acceptance.enabled = false
"""
ENDLESS = ("/api/events", "/api/queue/poll")
"""Answers that don't end, or only after 25 seconds."""


async def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    token = add_token(tmp_path / "tokens", "tester", Role.ADMIN)
    (tmp_path / "schemathesis.toml").write_text(CONFIGURATION)
    async with house(token_file=str(tmp_path / "tokens")) as home:
        command = [
            *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{home.gateway.url}/openapi.json"),
            *("--url", home.gateway.url, "--header", f"Authorization: Bearer {token}"),
            *("--phases", "examples,coverage,fuzzing,stateful"),
            *("--seed", str(SEED), "--max-examples", str(EXAMPLES)),
            *(f"--exclude-path={path}" for path in ENDLESS),
            "--no-color",
        ]
        with trio.fail_after(PATIENCE):
            done = await trio.run_process(
                command, capture_stdout=True, capture_stderr=True, check=False, cwd=tmp_path
            )
        said = (done.stdout + done.stderr).decode()
        assert done.returncode == 0, said
        for phase in ("Coverage", "Fuzzing", "Stateful"):
            assert f"✅ {phase}" in said, said
        counted = re.findall(r"(?:Selected|Tested): (\d+)", said)
        tried = len(requests()) - len(ENDLESS) - 1  # it leaves out the request for the document itself
        assert counted == [str(tried)] * 2, said


@pytest.mark.parametrize("name", ["openapi.json", "asyncapi.json"])
async def test_the_documents_are_served_to_everyone(name: str, tmp_path: Path) -> None:
    add_token(tmp_path / "tokens", "someone", Role.VIEWER)
    async with house(token_file=str(tmp_path / "tokens")) as home:
        answer = await home.http("GET", f"/{name}")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.body.decode() == documents()[name]
        assert (await home.http("POST", f"/{name}")).headers["allow"] == "GET, HEAD, OPTIONS"


def requests() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, request)
        for path, methods in openapi()["paths"].items()
        for method, request in methods.items()
    ]


def test_bodies_take_no_more_than_they_say() -> None:
    for _, path, request in requests():
        if "requestBody" in request and "Also without" not in request["description"]:
            schema = request["requestBody"]["content"]["application/json"]["schema"]
            assert schema["additionalProperties"] is False, path


def test_every_request_says_how_it_may_be_refused() -> None:
    for method, path, request in requests():
        given = set(request["responses"])
        assert {"429", "default"} <= given, path
        if request.get("security") != []:
            assert {"400", "401", "403", "404", "503"} <= given, path
        assert ({"413", "415"} <= given) == ("requestBody" in request), path
        assert method in ("get", "post", "put")


def test_what_the_engine_checks_stands_in_the_schemas() -> None:
    paths = openapi()["paths"]

    def body(path: str, method: str = "post") -> Any:
        return paths[path][method]["requestBody"]["content"]["application/json"]["schema"]["properties"]

    submit = body("/api/runs")
    assert (submit["handle"]["minLength"], submit["handle"]["maxLength"]) == (1, 256)
    assert submit["on_conflict"]["enum"] == ["reject", "queue", "replace", "join"]
    assert submit["kind"] == {"type": "string", "enum": ["start", "continue"], "default": "start"}
    assert body("/api/runs/{run_id}/cancel")["files"]["enum"] == ["keep", "delete"]
    assert body("/api/max_concurrent", "put")["max_concurrent"]["maximum"] == 2**31 - 1
    [limit] = [one for one in paths["/api/runs"]["get"]["parameters"] if one["name"] == "limit"]
    assert (limit["schema"]["minimum"], limit["schema"]["maximum"]) == (1, 1000)
    assert "null" not in json.dumps(paths["/api/runs"]["get"]["parameters"])
    tasks = {one["name"]: one["schema"] for one in paths["/api/tasks"]["get"]["parameters"]}
    assert "2000000" in json.dumps(tasks["page"])
    assert {"", "running", "canceled"} <= set(tasks["status"]["enum"])
    assert body("/api/flows/version")["status"]["enum"] == ["", "draft", "published"]
    assert body("/api/register")["type"]["enum"] == ["", "http", "queue", "async"]


async def test_a_query_of_null_is_no_number_and_a_whole_number_may_have_a_point() -> None:
    async with house() as home:
        for path in ("/api/runs?limit=null", "/api/workers?ttl=null"):
            answer = await home.http("GET", path)
            assert answer.status == 400
            assert "expected a number" in answer.json["message"]
        assert (await home.http("GET", "/api/runs?handle=null")).status == 200
        for body in (b'{"max_concurrent":7.0}', b'{"n":7.0}'):
            assert (await home.http("PUT", "/api/max_concurrent", body)).status == 200
        assert (await home.http("PUT", "/api/lanes/x", b'{"limit":2.0}')).status == 200
        assert (await home.http("PUT", "/api/max_concurrent", b'{"n":7.5}')).status == 400
        snapshot = await home.engine.snapshot()
        assert (snapshot.engine.max_concurrent, snapshot.lanes["x"].limit) == (7, 2)
