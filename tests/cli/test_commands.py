"""The commands for a running server: their effects, output and exit codes."""

import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from greenroom.cli import main
from tests.cli.reference import commands
from tests.cli.runner import runner
from tests.cli.served import PATIENCE, Served


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests; each test has its own handles."""
    toml = "[engine]\nmax_concurrent = 100\nshutdown_timeout = 0\n"
    with Served(tmp_path_factory.mktemp("server"), toml=toml) as served:
        yield served


@pytest.fixture(autouse=True)
def _address(server: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GREENROOM_URL", server.url)
    for variable in ("GREENROOM_TOKEN", "GREENROOM_TOKEN_FILE", "GREENROOM_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def handle(request: pytest.FixtureRequest) -> str:
    """A handle that no other test has."""
    return re.sub(r"\W+", "-", request.node.name)[:80]


def greenroom(*arguments: object, code: int = 0, stdin: str | None = None) -> Result:
    result = runner().invoke(main, [str(argument) for argument in arguments], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result


def said(*arguments: object, code: int = 0) -> str:
    return greenroom(*arguments, code=code).stdout.strip()


def as_json(*arguments: object, code: int = 0) -> Any:
    """The one JSON value that a command prints."""
    [value] = all_json(*arguments, code=code)
    return value


def all_json(*arguments: object, code: int = 0) -> list[Any]:
    return [json.loads(line) for line in greenroom(*arguments, "--json", code=code).stdout.splitlines()]


def refusal(*arguments: object, code: int = 1) -> str:
    """The error message of a command."""
    result = greenroom(*arguments, code=code)
    return result.stderr.splitlines()[-1].removeprefix("Error: ")


# Runs.


def test_submit_prints_the_id_and_the_run_can_be_shown_by_it_or_by_its_handle(handle: str, server: Served):
    run = said("submit", "waits", "--handle", handle)
    assert server.said() == f"waits {handle}"
    for named in (run, handle):
        assert as_json("show", named)["id"] == run
    shown = dict(re.split(r" {2,}", line, maxsplit=1) for line in said("show", handle).splitlines())
    assert (shown["run"], shown["status"], shown["job"]) == (run, "running", "waits")
    assert said("inject", handle, '{"go": "on"}') == "accepted"
    assert said("watch", run) == '{"go": "on"}'
    assert as_json("show", handle)["result"] == {"go": "on"}  # its last run, now that none is active


def test_parameters_can_be_single_json_or_on_standard_input(handle: str):
    pairs = ("--param", "n=3", "-p", "text=so so", "-p", "list=[1, null]")
    given = {"n": 3, "text": "so so", "list": [1, None]}
    assert json.loads(said("submit", "quick", "-H", handle, *pairs, "--wait")) == given
    assert json.loads(said("submit", "quick", "-H", handle, "--params", json.dumps(given), "--wait")) == given
    result = greenroom("submit", "quick", "-H", handle, "--params", "-", "--wait", stdin=json.dumps(given))
    assert json.loads(result.stdout) == given
    for wrong, reason in (("{", "unexpected end of input"), ("{]", "object keys must be strings (byte 1)")):
        refused = refusal("submit", "quick", "-H", handle, "--params", wrong, code=2)
        assert f"--params is not valid JSON: {reason}" in refused
    assert "NAME=VALUE" in refusal("submit", "quick", "-H", handle, "-p", "n", code=2)
    assert "cannot be combined with" in refusal(
        "submit", "quick", "-H", handle, "-p", "n=1", "--params", "{}", code=2
    )


def test_submit_can_delay_a_run(handle: str):
    run = said("submit", "waits", "-H", handle, "--delay", "10m")
    record = as_json("show", run)
    assert 595 < record["not_before"] - record["created_at"] <= 600
    shown = said("show", run)
    assert re.search(r"^status +queued \(not before \d{4}-.*\)$", shown, re.MULTILINE)
    assert re.search(r"^not before +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", shown, re.MULTILINE)
    assert "not before" in said("runs", "-H", handle)
    said("cancel", run)


@pytest.mark.parametrize(
    ("written", "unix"),
    [
        ("2096-12-01T08:00+01:00", 4005183600),
        ("2096-12-01 07:00:00Z", 4005183600),
        ("2096-12-01T07:00", None),
    ],
)
def test_submit_can_start_a_run_at_a_time(handle: str, written: str, unix: int | None):
    run = said("submit", "waits", "-H", handle, "--start-at", written, "--reserve")
    expected = datetime(2096, 12, 1, 7).timestamp() if unix is None else unix
    assert as_json("show", run)["not_before"] == expected
    assert run in refusal("submit", "waits", "-H", handle)
    said("cancel", run)
    assert "'soon' is not a time: use 2026" in refusal(
        "submit", "waits", "-H", handle, "--start-at", "soon", code=2
    )


def test_submit_with_wait_exits_with_5_if_the_run_fails(handle: str):
    assert "failed: ValueError: as it must" in refusal("submit", "fails", "-H", handle, "--wait", code=5)
    run = as_json("submit", "fails", "-H", handle, "--wait", code=5)
    assert (run["status"], run["error"]) == ("failed", "ValueError: as it must")
    assert "failed: ValueError" in refusal("watch", run["id"], code=5)


def test_runs_of_a_file_are_submitted_together_in_their_order(handle: str, tmp_path: Path):
    lines = [json.dumps({"job": "quick", "handle": f"{handle} {n}", "params": {"n": n}}) for n in range(3)]
    (tmp_path / "runs.jsonl").write_text("\n".join([lines[0], "", *lines[1:]]) + "\n")
    for argument, stdin in (("runs.jsonl", None), ("-", "\n".join(lines))):
        ids = greenroom("submit-many", argument, stdin=stdin).stdout.split()
        assert [as_json("show", id)["handle"] for id in ids] == [f"{handle} {n}" for n in range(3)]
        for id in ids:
            greenroom("watch", id)


def test_one_refused_run_of_a_file_refuses_all_unless_each_is_submitted(
    handle: str, tmp_path: Path, server: Served
):
    run = json.dumps({"job": "waits", "handle": handle, "queue_timeout": "none"})
    (tmp_path / "runs.jsonl").write_text(f"{run}\n\n{run}\n")
    assert refusal("submit-many", "runs.jsonl").startswith(f'line 3: handle "{handle}" is taken by line 1: ')
    assert "no handle of this name" in refusal("show", handle)
    result = greenroom("submit-many", "runs.jsonl", "--each", code=1)
    assert server.said() == f"waits {handle}"
    active = as_json("show", handle)["id"]
    assert result.stdout.split() == [active]
    first, last = result.stderr.splitlines()
    assert first.startswith(f'line 3: handle "{handle}" is taken by run {active}')
    assert last == "Error: 1 of 2 runs refused"
    both = all_json("submit-many", "runs.jsonl", "--each", code=1)
    assert [outcome["error"]["code"] for outcome in both] == ["conflict", "conflict"]
    greenroom("inject", handle, "{}")
    greenroom("watch", active)


def test_a_line_that_is_no_run_is_named(tmp_path: Path):
    unknown = 'line 2: run: object contains unknown field handel: did you mean "handle"?'
    wrong = {
        "{": "line 2 is not valid JSON: unexpected end of input",
        '{"job": "quick", "handel": "a"}': unknown,
        '{"job": "quick", "handle": 1}': "line 2: handle: expected string, got integer",
    }
    for line, message in wrong.items():
        (tmp_path / "runs.jsonl").write_text(f'{{"job": "quick", "handle": "unused"}}\n{line}\n')
        assert message in refusal("submit-many", "runs.jsonl", code=2)
    for text, message in (
        (b'{"job": "\xff"}', "line 2 is not valid JSON: "),
        (b'"\\ud800"', "line 2 is not valid JSON: "),
        (b"[" * 100_000, "line 2 is nested too deeply: reduce the nesting"),
    ):
        (tmp_path / "runs.jsonl").write_bytes(b'{"job": "quick", "handle": "unused"}\n' + text)
        assert message in refusal("submit-many", "runs.jsonl", code=2)
    assert "no handle of this name" in refusal("show", "unused")


def test_a_value_that_is_nested_too_deeply_is_refused():
    deep = "[" * 100_000
    assert "--params is nested too deeply" in refusal("submit", "quick", "-H", "a", "--params", deep, code=2)
    assert "the value is nested too deeply" in refusal(
        "submit", "quick", "-H", "a", "-p", f"n={deep}", code=2
    )
    assert "nested too deeply" in refusal("handles", "params", "a", deep, code=2)


def test_a_second_start_is_refused_unless_on_conflict_permits_it(handle: str, server: Served):
    run = said("submit", "waits", "-H", handle)
    assert server.said() == f"waits {handle}"
    assert run in refusal("submit", "waits", "-H", handle)
    assert as_json("submit", "waits", "-H", handle, "--on-conflict", "join") == {
        "run_id": run,
        "joined": True,
    }
    queued = said("submit", "quick", "-H", handle, "--on-conflict", "queue")
    assert as_json("handles", "clear", handle) == {"count": 1}
    assert as_json("show", queued)["status"] == "cancelled"
    assert said("cancel", handle) == f"{run} is cancelling."
    assert "cancelled" in refusal("watch", run, code=5)
    assert "no active run" in refusal("cancel", handle)


def test_a_request_id_twice_is_one_run(handle: str):
    first = as_json("submit", "quick", "-H", handle, "-p", "n=1", "--request-id", f"r-{handle}")
    again = as_json("submit", "quick", "-H", handle, "-p", "n=1", "--request-id", f"r-{handle}")
    assert (again["run_id"], again["joined"]) == (first["run_id"], True)


def test_runs_are_listed_newest_first_and_by_status(handle: str):
    ids = [as_json("submit", "fails", "-H", handle, "--wait", code=5)["id"]]
    ids.append(as_json("submit", "quick", "-H", handle, "-p", "n=1", "--wait")["id"])
    assert [run["id"] for run in all_json("runs", "--handle", handle)] == ids[::-1]
    assert [run["id"] for run in all_json("runs", "--handle", handle, "--status", "failed")] == ids[:1]
    assert [run["id"] for run in all_json("runs", "--handle", handle, "--before", ids[1])] == ids[:1]
    header, first, second = said("runs", "--handle", handle).splitlines()
    assert header.split() == ["run", "handle", "job", "lane", "status", "age", "error"]
    assert first.startswith(ids[1])
    assert second.endswith("ValueError: as it must")


def test_an_interrupt_is_shown_and_answered_by_its_id_its_run_or_its_handle(handle: str):
    run = said("submit", "asks", "-H", handle)
    [asked] = [line for line in _until_asked(run) if line.startswith("interrupt ")]
    interrupt = re.search(r"greenroom answer (\S+) …", asked)
    assert interrupt is not None
    assert interrupt[1] in said("state")
    assert as_json("answer", handle, '{"approved": true}') == {"outcome": "resolved"}
    assert json.loads(said("watch", run)) == {"approved": True}
    assert "already closed" in refusal("answer", interrupt[1], "yes")
    assert "nothing.1 not found" in refusal("answer", "nothing.1", "yes")


def test_an_interrupt_is_answered_by_its_key(handle: str):
    run = said("submit", "asks", "-H", handle)
    _until_asked(run)
    assert "not found: it is neither an interrupt nor a run or handle with an open one" in refusal(
        "answer", handle, "1", "--key", "another"
    )
    assert as_json("answer", handle, "true", "--key", "1") == {"outcome": "resolved"}
    assert said("watch", run) == "true"
    refused = refusal("answer", handle, "1", "--key", "1")
    assert "is neither a pending run nor a handle with an active run" in refused


def _until_asked(run: str) -> list[str]:
    """The output of `show` after the run has opened its interrupt, which an event reports."""
    command = [sys.executable, "-m", "greenroom", "watch", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        for line in watching.stdout:
            event = json.loads(line)
            asked = event.get("snapshot", {}).get("interrupts", {}).values()
            if event.get("type") == "interrupt_opened" or run in [one["run"] for one in asked]:
                break
        watching.terminate()
    return said("show", run).splitlines()


def test_the_history_of_a_run_is_its_events_in_order(handle: str):
    run = as_json("submit", "quick", "-H", handle, "-p", "n=1", "--wait")["id"]
    record, *events = all_json("show", run, "--history")
    assert record["id"] == run
    assert [event["to"] for event in events] == ["queued", "running", "succeeded"]
    assert said("show", run, "--history").splitlines()[-1].endswith("succeeded")


def test_watch_prints_every_event_of_a_run_and_finally_the_run(handle: str, server: Served):
    run = said("submit", "waits", "-H", handle)
    assert server.said() == f"waits {handle}"
    release = threading.Timer(0, greenroom, ("inject", handle, "go on"))
    with subprocess.Popen(
        [sys.executable, "-m", "greenroom", "watch", run, "--json"], stdout=subprocess.PIPE, text=True
    ) as watching:
        release.start()
        out, _ = watching.communicate(timeout=PATIENCE)
    release.join()
    *events, last = map(json.loads, out.splitlines())
    assert watching.returncode == 0
    assert {event["run"] for event in events} <= {run}
    assert (last["id"], last["status"], last["result"]) == (run, "succeeded", "go on")


def test_watch_without_a_run_starts_with_a_snapshot_and_ctrl_c_exits_with_130(handle: str):
    with subprocess.Popen(
        [sys.executable, "-m", "greenroom", "watch", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as watching:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        assert first["type"] == "resync"
        run = said("submit", "quick", "-H", handle, "-p", "n=1")
        events = [json.loads(watching.stdout.readline()) for _ in range(3)]
        assert [event["to"] for event in events if event["run"] == run] == ["queued", "running", "succeeded"]
        watching.send_signal(2)
        assert watching.communicate(timeout=PATIENCE)[1] == ""
    assert watching.returncode == 130


def test_on_a_terminal_watch_is_a_live_table(handle: str, server: Served):
    run = said("submit", "waits", "-H", handle)
    assert server.said() == f"waits {handle}"
    terminal, inside = pty.openpty()
    command = [sys.executable, "-m", "greenroom", "watch", run]
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "160", "LINES": "20"}
    with subprocess.Popen(command, stdout=inside, env=environment) as watching:
        os.close(inside)
        shown = b""
        while b"1/4" not in shown:
            shown += os.read(terminal, 65_536)
        said("inject", run, "go on")
        while b"succeeded" not in shown:
            shown += os.read(terminal, 65_536)
        assert watching.wait(timeout=PATIENCE) == 0
    os.close(terminal)
    assert "━━━━".encode() in shown


# Lanes, handles, the engine.


def test_limits_are_set_and_listed():
    assert as_json("lanes", "set", "images", 4) == {"lane": "images", "limit": 4}
    assert as_json("lanes", "max-concurrent", 99) == {"max_concurrent": 99}
    lanes = {lane["lane"]: lane for lane in all_json("lanes", "list")}
    assert lanes["images"]["limit"] == 4
    rows = {line.split()[0]: line.split()[1] for line in said("lanes", "list").splitlines()}
    assert (rows["all"], rows["images"], rows["main"]) == ("99", "4", "none")
    greenroom("lanes", "set", "images", "none")
    assert {lane["lane"]: lane["limit"] for lane in all_json("lanes", "list")}["images"] is None
    assert "use an integer, or none" in refusal("lanes", "set", "images", "many", code=2)
    rules = as_json("lanes", "rules", "ruled", "--age", "10m", "--priority", 3, "--weight", "gold=3")["rules"]
    assert rules == {"weights": {"gold": 3}, "age": 600, "priority": 3}
    assert said("lanes", "rules", "ruled", "--age", "60", "--priority", "none", "--weight", "none") == (
        "ruled: no rules."
    )
    rated = ("lanes", "rules", "ruled", "--rate", "5/s")
    assert as_json(*rated, "--burst", 3, "--rate-per", "key")["rules"] == {
        "rate": "5/s",
        "burst": 3,
        "rate_per": "key",
    }
    assert as_json(*rated, "--burst", "none", "--rate-per", "none")["rules"] == {"rate": "5/s"}
    assert "burst" in refusal(*rated, "--burst", 0)
    greenroom("lanes", "rules", "ruled", "--rate", "none")
    assert "use seconds, 10m, 1h, or none" in refusal("lanes", "rules", "ruled", "--age", "soon", code=2)
    assert "use an integer, or none" in refusal("lanes", "rules", "ruled", "--priority", "high", code=2)


def test_a_lane_is_cleared_and_reset(handle: str):
    greenroom("lanes", "set", "paused", 0)
    run = said("submit", "quick", "-H", handle, "-p", "n=1", "--lane", "paused")
    assert said("lanes", "clear", "paused") == "1 run cancelled."
    assert as_json("show", run)["reason"] == "lane_cleared"
    assert as_json("lanes", "reset") == {}


def test_a_handle_keeps_parameters_until_they_are_removed(handle: str):
    assert said("handles", "params", handle) == "No draft parameters."
    greenroom("handles", "params", handle, '{"n": 3}')
    assert as_json("handles", "params", handle) == {"n": 3}
    assert json.loads(said("submit", "quick", "-H", handle, "--wait")) == {"n": 3}
    assert {one["handle"]: one["params"] for one in all_json("handles", "list")}[handle] == {"n": 3}
    assert any(line.startswith(handle) for line in said("handles", "list").splitlines())
    greenroom("handles", "params", handle, "null")
    assert as_json("handles", "params", handle) is None
    assert "the argument JSON is not valid JSON" in refusal("handles", "params", handle, "{n}", code=2)


def test_a_handle_is_released_from_an_abandoned_body(handle: str, server: Served):
    assert "not locked by an abandoned body" in refusal("handles", "release", handle)
    run = said("submit", "stuck", "-H", handle)
    assert server.said() == f"stuck {handle}"
    greenroom("cancel", run)
    assert "cancelled" in refusal("watch", run, code=5)
    assert as_json("handles", "release", handle) == {"released": True}


def test_the_state_is_the_whole_snapshot_or_a_summary():
    assert set(as_json("state")) >= {"epoch", "seq", "engine", "lanes", "handles", "interrupts", "runs"}
    assert said("state").startswith("server     http://127.0.0.1:")


# Permissions and errors.


def test_without_a_server_a_command_exits_with_3(monkeypatch: pytest.MonkeyPatch):
    assert "connection to ws://127.0.0.1:1 failed" in refusal("state", "--url", "http://127.0.0.1:1", code=3)
    assert refusal("state", "--url", "nonsense", code=2)


def test_of_several_urls_a_command_uses_one_that_works(server: Served, monkeypatch: pytest.MonkeyPatch):
    several = f"{server.url} , http://127.0.0.1:1"
    used = said("state", "--url", several).splitlines()[0]
    assert used.split() == ["server", server.url]
    monkeypatch.setenv("GREENROOM_URL", several)
    assert as_json("state")["epoch"]


def test_of_several_urls_that_fail_each_is_named():
    text = refusal("state", "--url", "http://127.0.0.1:1,http://127.0.0.1:2", code=3)
    assert "connection to every address failed" in text
    assert "ws://127.0.0.1:1: " in text
    assert "ws://127.0.0.1:2: " in text
    assert "got 'nonsense'" in refusal("state", "--url", "http://127.0.0.1:1,nonsense", code=2)


def test_the_error_of_a_command_is_printed_as_json(handle: str, server: Served):
    def error(*arguments: object, code: int) -> tuple[str, Any]:
        result = greenroom(*arguments, "--json", code=code)
        error = json.loads(result.stderr)
        assert error["message"] == refusal(*arguments, code=code)
        return error["code"], error["details"]

    run = said("submit", "waits", "-H", handle)
    assert server.said() == f"waits {handle}"
    assert error("submit", "waits", "-H", handle, code=1) == ("conflict", {"active_run": run})
    assert error("show", "nothing", code=1) == ("not_found", {"value": "nothing"})
    unknown = 'run "nothing" not found: no run has this id, and no handle of this name has a run'
    assert unknown in refusal("show", "nothing")
    assert error("state", "--url", "http://127.0.0.1:1", code=3) == ("unreachable", {})
    assert error("state", "--token-file", "absent", code=1) == ("failed", {})
    said("cancel", run)
    assert error("watch", run, code=5) == ("run_not_succeeded", {})


def test_without_a_token_or_the_required_role_a_command_exits_with_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("GREENROOM_URL")
    viewer = said("token", "add", "eve", "--role", "viewer", "--tokens", tmp_path / "tokens")
    with Served(tmp_path, "--tokens", "tokens") as guarded:
        text = refusal("state", "--url", guarded.url, code=4)
        assert text.endswith("token required: set GREENROOM_TOKEN, or use --token-file")
        monkeypatch.setenv("GREENROOM_TOKEN", "")
        assert refusal("state", "--url", guarded.url, code=4) == text, "an empty variable is no token"
        monkeypatch.setenv("GREENROOM_TOKEN", "wrong")
        refusal("state", "--url", guarded.url, code=4)
        (tmp_path / "mine").write_text(viewer + "\n")
        greenroom("state", "--url", guarded.url, "--token-file", tmp_path / "mine")
        assert "viewer" in refusal("drain", "--url", guarded.url, "--token-file", tmp_path / "mine", code=4)
        refusal("state", "--url", guarded.url, "--token-file", "absent", code=1)
        (tmp_path / "empty").write_text("\n")
        assert "empty is empty: write" in refusal("state", "--token-file", tmp_path / "empty", code=1)


def test_executors_and_workers_without_a_token_name_the_remedy(tmp_path: Path):
    said("token", "add", "eve", "--role", "viewer", "--tokens", tmp_path / "tokens")
    with Served(tmp_path, "--tokens", "tokens") as guarded:
        for command in (["executor", "app:jobs", "--url"], ["worker", "--queue", "--server"]):
            ended = subprocess.run(
                [sys.executable, "-m", "greenroom", *command, guarded.url],
                cwd=tmp_path,
                env=os.environ | {"GREENROOM_TOKEN": ""},
                stderr=subprocess.PIPE,
                text=True,
            )
            assert ended.returncode == 4
            assert ended.stderr.endswith("Error: token required: set GREENROOM_TOKEN, or use --token-file\n")


def test_watching_runs_outside_the_limits_of_the_token_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("GREENROOM_URL")
    token = said(
        "token", "add", "eve", "--role", "viewer", "--handle", "eve", "--tokens", tmp_path / "tokens"
    )
    with Served(tmp_path, "--tokens", "tokens") as guarded:
        monkeypatch.setenv("GREENROOM_TOKEN", token)
        assert "limited to the handles eve" in refusal("watch", "-H", "bob", "--url", guarded.url, code=4)


def test_draining_refuses_runs_until_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with Served(tmp_path) as other:
        monkeypatch.setenv("GREENROOM_URL", other.url)
        run = said("submit", "waits", "-H", "a")
        assert other.said() == "waits a"
        assert "runs still execute" in refusal("drain", "--wait", "--timeout", "0.01")
        assert "draining" in refusal("submit", "quick", "-H", "b", "-p", "n=1")
        said("inject", run, "go on")
        assert as_json("drain", "--wait") == {"draining": True, "drained": True}
        assert as_json("resume") == {"draining": False}
        assert said("submit", "quick", "-H", "b", "-p", "n=1", "--wait") == '{"n": 1}'


# Help.


@pytest.mark.parametrize("path", [path for path, _ in commands(main)], ids=" ".join)
def test_every_command_has_a_help_text_with_an_example(path: tuple[str, ...]):
    shown = said(*path, "--help")
    assert "Example" in shown
    assert f"greenroom {' '.join(path)}" in shown
    assert shown.splitlines()[2].strip()
