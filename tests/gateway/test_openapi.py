"""The OpenAPI document, tested with schemathesis against a running gateway: valid and invalid requests that
are generated from it are answered as documented. And the documents are served.

`GREENROOM_SCHEMATHESIS` is the number of requests of each kind, by default 5. With more, clients of every
role send them; 100 is the long form.
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, get_args

import msgspec
import pytest
import trio

from greenroom import Run
from greenroom.actors.channel import Channel
from greenroom.actors.workers.api import Workers
from greenroom.gateway import Limits, Role, add_token
from greenroom.gateway.description.documents import documents, openapi
from greenroom.gateway.http.sse import _Following
from greenroom.protocol.executors import EngineSends, ToExecutor
from tests.support import Bodies

from .support import house

SEED = 1
EXAMPLES = int(os.environ.get("GREENROOM_SCHEMATHESIS", "5"))
SMALL_ROLES = (Role.OPERATOR, Role.VIEWER, Role.WORKER)
PHASES = ("Coverage", "Fuzzing", "Stateful")  # without the phase of examples: there are none
LIMITS = Limits(stranger_frames=10**9, stranger_bytes=10**12, stranger_time=1e9)  # they answer 429 by chance
PATIENCE = 120.0 + 10 * EXAMPLES  # it takes ten seconds on a fast machine

CONFIGURATION = r"""
[generation]
codec = "latin-1" # which characters beyond can be printed is more than a pattern can say

# The jobs of the server: which ones there are no document says.
[dictionaries.jobs]
values = ["add", "wait"]
[[operations]]
include-path = "/api/runs"
include-method = "POST"
[operations.parameters]
"body.job" = { dictionary = "jobs", probability = 1.0 }

# 503 is how the lack of a worker is said.
[[operations]]
include-path-regex = "/allocate$"
[operations.checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 503]

# A thousand names and more may be too long for the head of a request.
[[operations]]
include-path = "/api/events"
[operations.checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 409, 429, 431]

# Definitions, keys of signals, and parameters in a text are small languages with checks of their own.
# Whether a worker needs a URL depends on its type, and whether a task needs a flow on what else it names.
[[operations]]
include-method = "POST"
include-path = [
  "/api/flows/publish", "/api/flows/version", "/api/flows/{flow}/versions",
  "/api/runs/{run_id}/signal", "/api/tasks/signal", "/api/tasks",
  "/api/register", "/api/workers/register",
]
[operations.checks]
positive_data_acceptance.enabled = false

# At least one filter is required, `since` must not be later than `until`, and a burst requires a rate.
[[operations]]
include-operation-id = ["cancel_many", "rerun_many", "retry_many", "list_runs", "set_lane"]
[operations.checks]
positive_data_acceptance.enabled = false

# Cron expressions and time zones, too, and a schedule has one of `cron` and `every`.
[[operations]]
include-path = "/api/schedule_times"
[operations.checks]
positive_data_acceptance.enabled = false

[[operations]]
include-method = "PUT"
include-path = "/api/schedules/{name}"
[operations.checks]
positive_data_acceptance.enabled = false
"""


class NeverWoken(Channel):
    """Ends a response when it would wait for the next event."""

    async def receive_all(self) -> NoReturn:
        raise trio.ClosedResourceError


@pytest.fixture
def _nothing_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Server-sent events end immediately, and so does the wait for work."""
    follow = _Following.run

    async def briefly(self: _Following) -> None:
        self._woken = NeverWoken()
        with suppress(trio.ClosedResourceError):
            await follow(self)

    monkeypatch.setattr(_Following, "run", briefly)
    monkeypatch.setattr(Workers.poll, "__defaults__", (0,))


@pytest.mark.at_engine  # it takes long, and `test_fuzz` sends such requests to a follower, too
@pytest.mark.usefixtures("_nothing_lasts")
@pytest.mark.parametrize("role", [Role.ADMIN, None, *(() if EXAMPLES == 5 else SMALL_ROLES)])
async def test_schemathesis_finds_nothing(role: Role | None, tmp_path: Path) -> None:
    token = add_token(tmp_path / "tokens", "tester", role or Role.VIEWER)
    (tmp_path / "schemathesis.toml").write_text(CONFIGURATION)
    bodies = Bodies()

    @bodies.jobs.job("add")
    async def add(run: Run, params: Any) -> str:
        return repr(params)

    phases = PHASES if role is not None else ("Fuzzing",)
    async with house(bodies, LIMITS, token_file=str(tmp_path / "tokens")) as home:
        command = [
            *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{home.gateway.url}/openapi.json"),
            *(() if role is None else ("--header", f"Authorization: Bearer {token}")),
            *("--phases", ",".join(phase.lower() for phase in phases)),
            *("--seed", str(SEED), "--max-examples", str(EXAMPLES)),
            *("--continue-on-failure", "--no-color"),
        ]
        with trio.fail_after(PATIENCE):
            done = await trio.run_process(
                command, capture_stdout=True, capture_stderr=True, check=False, cwd=tmp_path
            )
        said = (done.stdout + done.stderr).decode()
        assert done.returncode == 0, said
        assert all(f"✅ {phase}" in said for phase in phases), said
        counted = re.findall(r"(?:Selected|Tested): (\d+)", said)
        tried = len(requests()) - 1  # without the request for the document itself
        assert counted == [str(tried)] * 2, said


@pytest.mark.parametrize("name", ["openapi.json", "asyncapi.json", "asyncapi-executor.json"])
async def test_the_documents_are_served_to_everyone(name: str, tmp_path: Path) -> None:
    add_token(tmp_path / "tokens", "someone", Role.VIEWER)
    async with house(token_file=str(tmp_path / "tokens")) as home:
        answer = await home.http("GET", f"/{name}")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.body.decode() == documents()[name]
        assert (await home.http("POST", f"/{name}")).headers["allow"] == "GET, HEAD, OPTIONS"


def test_a_field_that_the_engine_omits_for_executors_is_null_false_zero_or_empty() -> None:
    for message in (*get_args(EngineSends), *get_args(ToExecutor)):
        for field in msgspec.structs.fields(message):
            assert field.default is msgspec.NODEFAULT or not field.default, f"{message.__name__}.{field.name}"


def requests() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, request)
        for path, methods in openapi()["paths"].items()
        for method, request in methods.items()
    ]


def test_request_schemas_refuse_unknown_fields() -> None:
    for _, path, request in requests():
        if "requestBody" in request and "without `/api`" not in request["description"]:
            schema = request["requestBody"]["content"]["application/json"]["schema"]
            assert schema["additionalProperties"] is False, path


def test_every_request_documents_its_errors() -> None:
    for method, path, request in requests():
        given = set(request["responses"])
        assert {"429", "default"} <= given, path
        if request.get("security") != []:
            assert {"400", "401", "403", "404", "503"} <= given, path
        assert ({"413", "415"} <= given) == ("requestBody" in request), path
        assert method in ("get", "post", "put", "delete")


def test_the_schemas_contain_the_checks_of_the_engine() -> None:
    paths = openapi()["paths"]

    def body(path: str, method: str = "post") -> Any:
        return paths[path][method]["requestBody"]["content"]["application/json"]["schema"]["properties"]

    submit = body("/api/runs")
    assert (submit["handle"]["minLength"], submit["handle"]["maxLength"]) == (1, 256)
    assert submit["on_conflict"]["enum"] == ["reject", "queue", "replace", "join", "coalesce"]
    assert submit["kind"] == {"type": "string", "enum": ["start", "continue"], "default": "start"}
    assert body("/api/runs/{run_id}/cancel")["files"]["enum"] == ["keep", "delete"]
    assert body("/api/max_concurrent", "put")["limit"]["maximum"] == 2**31 - 1
    [limit] = [one for one in paths["/api/runs"]["get"]["parameters"] if one["name"] == "limit"]
    assert (limit["schema"]["minimum"], limit["schema"]["maximum"]) == (1, 1000)
    assert "null" not in json.dumps(paths["/api/runs"]["get"]["parameters"])
    tasks = {one["name"]: one["schema"] for one in paths["/api/tasks"]["get"]["parameters"]}
    assert "2000000" in json.dumps(tasks["page"])
    assert {"", "running", "canceled"} <= set(tasks["status"]["enum"])
    assert body("/api/flows/version")["status"]["anyOf"][0]["enum"] == ["", "draft", "published"]
    assert body("/api/register")["type"]["anyOf"][0]["enum"] == ["", "http", "queue", "async"]


async def test_null_in_a_query_is_not_a_number_and_an_integer_can_have_a_point() -> None:
    async with house() as home:
        for path in ("/api/runs?limit=null", "/api/workers?ttl=null"):
            answer = await home.http("GET", path)
            assert answer.status == 400
            assert "must be a number" in answer.json["message"]
        assert (await home.http("GET", "/api/runs?handle=null")).status == 200
        for body in (b'{"max_concurrent":7.0}', b'{"n":7.0}'):
            assert (await home.http("PUT", "/api/max_concurrent", body)).status == 200
        assert (await home.http("PUT", "/api/lanes/x", b'{"limit":2.0}')).status == 200
        assert (await home.http("PUT", "/api/max_concurrent", b'{"n":7.5}')).status == 400
        snapshot = await home.engine.snapshot()
        assert (snapshot.engine.max_concurrent, snapshot.lanes["x"].limit) == (7, 2)
