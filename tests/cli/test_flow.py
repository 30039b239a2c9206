"""The commands about flows and workers, at a real server with real workers."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from greenroom.cli import main
from tests.cli.runner import runner
from tests.cli.served import PATIENCE, Served, Worker

APP = """
from greenroom import Jobs

jobs = Jobs()


@jobs.function("double")
def double(number):
    return 2 * number
"""

ORDER = """
start: size
nodes:
  size: {kind: choice, choice_cases: [{action: large, expr: $params.n gt 3}]}
  double: {kind: local, func: double, prep: {input_key: $params.n}, post: {output_key: n}}
  shout:
    kind: executor
    service: transform
    params: {op: upper}
    prep: {input_key: $params.text}
    post: {output_key: text}
edges:
  - {from: size, action: large, to: double}
  - {from: double, to: shout}
"""

WAIT = """
start: paid
nodes:
  paid: {kind: wait_event, params: {signal_key: $shared.paid}, post: {output_key: received}}
"""

APPROVE = '{"start": "ok", "nodes": {"ok": {"kind": "approval", "params": {"approval_key": "ok"}}}}'

SCRIPT = """
start: cat
nodes:
  cat: {kind: executor, exec_type: local_script, script: [cat], post: {output_map: {seen: params.n}}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all of them, with both kinds of workers."""
    folder = tmp_path_factory.mktemp("server")
    with (
        Served(folder, app=APP) as served,
        Worker(folder, served.url, "--id", "push"),
        Worker(folder, served.url, "--id", "pull", "--queue"),
    ):
        yield served


@pytest.fixture(autouse=True)
def _address(server: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GREENROOM_URL", server.url)
    for variable in ("GREENROOM_TOKEN", "GREENROOM_TOKEN_FILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)


def greenroom(*arguments: object, code: int = 0, stdin: str | None = None) -> Result:
    result = runner().invoke(main, [str(argument) for argument in arguments], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result


def said(*arguments: object, code: int = 0) -> str:
    return greenroom(*arguments, code=code).stdout.strip()


def all_json(*arguments: object, code: int = 0) -> list[Any]:
    return [json.loads(line) for line in greenroom(*arguments, "--json", code=code).stdout.splitlines()]


def published(name: str, text: str) -> str:
    Path(f"{name}.yaml").write_text(text, encoding="utf-8")
    greenroom("flow", "publish", f"{name}.yaml")
    return name


def test_a_flow_is_published_under_its_files_name_version_after_version():
    Path("first.yaml").write_text(ORDER, encoding="utf-8")
    assert said("flow", "publish", "first.yaml") == "first, version 1"
    [version] = all_json("flow", "publish", "first.yaml")
    assert (version["version"], version["status"]) == (2, "published")
    assert said("flow", "publish", "first.yaml", "--name", "second") == "second, version 1"
    assert greenroom("flow", "publish", "-", "--name", "second", stdin=WAIT).stdout == "second, version 2\n"


def test_errors_that_only_the_server_detects_look_like_other_errors():
    Path("script.yaml").write_text(SCRIPT, encoding="utf-8")
    refused = greenroom("flow", "publish", "script.yaml", code=2).stderr.splitlines()
    assert refused[0] == "Error: 1 error in the definition:"
    assert refused[1].startswith(
        "script.yaml: nodes.cat.exec_type: scripts are not allowed: allow_scripts is off"
    )


def test_scripts_run_where_the_server_was_started_with_the_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with Served(tmp_path, "--allow-scripts", app=APP) as other:
        monkeypatch.setenv("GREENROOM_URL", other.url)
        published("script", SCRIPT)
        *_, run = all_json("flow", "run", "script", "-p", '{"n": 7}', "--watch")
        assert run["result"] == {"seen": 7}


def test_flows_are_listed_with_their_latest_version():
    for text in (ORDER, WAIT):
        published("listed", text)
    found = {flow["name"]: flow["version"] for flow in all_json("flow", "list", "--limit", "1000")}
    assert found["listed"] == 2
    header, *rows = said("flow", "list", "--limit", "1000").splitlines()
    assert header.split() == ["flow", "version", "age", "description"]
    assert ["listed", "2"] in [row.split()[:2] for row in rows]
    assert len(all_json("flow", "list", "--limit", "1")) == 1


def test_a_run_is_watched_line_by_line_and_then_its_node_runs_and_its_result_are_printed():
    published("watched", ORDER)
    lines = said("flow", "run", "watched", "-p", '{"n": 5, "text": "hi"}', "--watch").splitlines()
    table = next(number for number, line in enumerate(lines) if line.startswith("node "))
    told = [re.sub(r"^\S+ \S+  \S+  ", "", line) for line in lines[:table]]
    assert [line for line in told if not line.endswith(" started")] == [
        "queued",
        "running",
        "node size: ok → large",
        "node double: ok → default",
        "node shout: ok on push → default",
        "succeeded",
    ]
    header, *rows, result = lines[table:]
    assert header.split() == ["node", "status", "time", "worker", "action", "output", "or", "error"]
    assert [row.split()[:2] for row in rows] == [["size", "ok"], ["double", "ok"], ["shout", "ok"]]
    assert rows[2].split()[-3:] == ["push", "default", '"HI"']
    assert json.loads(result) == {"n": 10, "text": "HI"}


def test_with_json_the_events_are_printed_then_the_node_runs_and_finally_the_run():
    published("in-json", ORDER)
    lines = all_json("flow", "run", "in-json", "-p", '{"n": 5, "text": "hi"}', "--watch")
    events = [line for line in lines if "type" in line]
    rows = [line for line in lines if "number" in line]
    assert lines == [*events, *rows, lines[-1]]
    assert [event["seq"] for event in events] == sorted({event["seq"] for event in events})
    assert [row["node"] for row in rows] == ["size", "double", "shout"]
    assert (lines[-1]["status"], lines[-1]["result"]) == ("succeeded", {"n": 10, "text": "HI"})


def test_watching_a_run_that_fails_exits_with_5():
    published("fails", ORDER)
    result = greenroom("flow", "run", "fails", "-p", '{"n": "no number"}', "--watch")
    assert json.loads(result.stdout.splitlines()[-1]) == {}  # a text is not greater than a number
    result = greenroom("flow", "run", "fails", "-p", '{"n": 5}', "--watch", code=5)
    assert 'node "shout": service_error' in result.stderr
    assert "service_error" in result.stdout.splitlines()[-1]


def test_a_run_is_shown_with_its_shared_data_and_a_signal_ends_its_wait():
    published("waits", WAIT)
    run = said("flow", "run", "waits", "--handle", "alice", "-p", "{}")
    assert said("flow", "signal", "alice", "$shared.paid", '{"amount": 3}') == f"Signal sent to {run}."
    assert said("watch", run).splitlines()[-1] == '{"paid": {"amount": 3}, "received": {"amount": 3}}'
    task, *rows = all_json("flow", "show", run)
    assert (task["run"]["id"], task["flow"]["name"], task["version"]["version"]) == (run, "waits", 1)
    assert task["shared"] == {"paid": {"amount": 3}, "received": {"amount": 3}}
    assert [(row["node"], row["status"]) for row in rows] == [("paid", "ok")]
    shown = said("flow", "show", "alice").splitlines()  # its last run, now that none is active
    fields = dict(re.split(r" {2,}", line, maxsplit=1) for line in shown[:-2])
    assert fields["flow"] == "waits, version 1"
    assert fields["status"] == "succeeded"
    assert json.loads(fields["shared"]) == task["shared"]
    assert shown[-2].split()[0] == "node"
    assert shown[-1].split()[:2] == ["paid", "ok"]


def test_a_handle_with_an_active_run_refuses_a_second_one_unless_on_conflict_permits_it():
    published("held", WAIT)
    [first] = all_json("flow", "run", "held", "--handle", "bob")
    assert first["joined"] is False
    refused = greenroom("flow", "run", "held", "--handle", "bob", code=1).stderr
    assert first["run_id"] in refused
    [again] = all_json("flow", "run", "held", "--handle", "bob", "--on-conflict", "join")
    assert again == {"run_id": first["run_id"], "joined": True}
    greenroom("cancel", first["run_id"])


def test_an_approval_is_answered_like_any_interrupt():
    published("approve", APPROVE)
    run = said("flow", "run", "approve", "--handle", "carol")
    with subprocess.Popen(
        [sys.executable, "-m", "greenroom", "watch", "--json"], stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        for line in watching.stdout:
            event = json.loads(line)
            open_ones = event.get("snapshot", {}).get("interrupts", {}).values()
            if event.get("type") == "interrupt_opened" or run in [one["run"] for one in open_ones]:
                break
        watching.terminate()
    asks = [line for line in said("flow", "show", run).splitlines() if line.startswith("interrupt ")]
    assert "greenroom answer" in asks[0]
    greenroom("answer", "carol", "true")
    assert said("watch", run).splitlines()[-1] == '{"ok": true}'


def test_the_version_and_the_parameters_have_other_forms():
    published("versions", WAIT)
    published("versions", ORDER)
    old = said("flow", "run", "versions", "--version", "1")
    assert all_json("flow", "show", old)[0]["version"]["version"] == 1
    result = greenroom("flow", "run", "versions", "-p", "-", "--watch", stdin='{"n": 1}')
    assert result.stdout.splitlines()[-1] == "{}"
    assert "not valid JSON" in greenroom("flow", "run", "versions", "-p", "{", code=2).stderr
    assert "not found" in greenroom("flow", "run", "nothing", code=1).stderr
    greenroom("cancel", old)


def test_workers_are_listed_with_their_services():
    found = {worker["id"]: worker for worker in all_json("workers")}
    assert found["push"]["services"] == ["transform", "sum", "route"]
    assert (found["push"]["kind"], found["pull"]["kind"]) == ("http", "queue")
    assert found["push"]["url"].startswith("http://127.0.0.1:")
    header, *rows = said("workers", "--service", "sum").splitlines()
    assert header.split() == ["worker", "url", "kind", "services", "status", "load", "heartbeat"]
    assert sorted(row.split()[0] for row in rows) == ["pull", "push"]
    assert {"online"} == {cell for row in rows for cell in row.split() if cell.endswith("line")}
    assert said("workers", "--service", "nothing") == ""


def test_on_a_terminal_the_tree_of_nodes_is_live():
    name = published("live", WAIT.replace("}}\n", "}}\n  next: {kind: choice}\n", 1))
    terminal, inside = pty.openpty()
    command = [sys.executable, "-m", "greenroom", "flow", "run", name, "--handle", "dora", "--watch"]
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "160", "LINES": "20"}
    with subprocess.Popen(command, stdout=inside, env=environment) as watching:
        os.close(inside)
        shown = b""
        while b"waits for a signal: $shared.paid" not in shown:
            shown += os.read(terminal, 65_536)
        said("flow", "signal", "dora", "paid", "true")
        while b'{"paid": true, "received": true}' not in shown:
            shown += os.read(terminal, 65_536)
        assert watching.wait(timeout=PATIENCE) == 0
    os.close(terminal)
    assert "✔".encode() in shown


def test_following_continues_after_a_restart_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with Served(tmp_path, app=APP) as other:
        monkeypatch.setenv("GREENROOM_URL", other.url)
        published("lives", WAIT)
        port = other.url.rpartition(":")[2]
        watching = subprocess.Popen(
            [sys.executable, "-m", "greenroom", "flow", "run", "lives", "-H", "eve", "--watch", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert watching.stdout is not None
        lines = iter(watching.stdout.readline, "")
        while json.loads(next(lines)).get("to") != "suspended":
            pass
    with Served(tmp_path, "--port", port, app=APP):
        greenroom("flow", "signal", "eve", "paid", "true")
        *_, last = map(json.loads, lines)
        assert watching.wait(timeout=PATIENCE) == 0
        assert last["result"] == {"paid": True, "received": True}
        watching.stdout.close()
