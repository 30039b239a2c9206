"""`greenroom serve` as a process: its signals, its logs, its exit codes."""

import json
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGUSR1, Signals

import pytest

from greenroom.cli import main
from greenroom.config.mistakes import ConfigMistakes
from greenroom.config.reading import Read, check_together
from greenroom.config.settings import Config
from greenroom.config.sources import Written
from greenroom.gateway import GatewayConfig, Role, add_token
from tests.cli.runner import runner
from tests.cli.served import APP, PATIENCE, Served


def statuses(folder: Path) -> dict[str, str]:
    with closing(sqlite3.connect(folder / "greenroom.db")) as connection:
        return dict(connection.execute("SELECT handle, status FROM runs"))


def test_the_console_can_be_left_out(tmp_path: Path):
    with Served(tmp_path, "--no-console") as server:
        assert server.request("GET", "/") == 404


@pytest.mark.parametrize("number", [SIGTERM, SIGINT])
def test_the_first_signal_drains_and_exits_with_0(tmp_path: Path, number: Signals):
    with Served(tmp_path) as server:
        server.submit("waits", "a")
        assert server.said() == "waits a"
        server.signal(number)
        server.logged("draining")
        assert server.request("GET", "/api/state")["engine"]["draining"] is True
        assert server.request("GET", "/readyz") == 503
        assert server.request("POST", "/api/runs", {"job": "quick", "handle": "b"}) == 503
        assert server.request("POST", "/api/runs/a/inject", {"message": "go on"})["outcome"] == "accepted"
        assert server.ends() == 0
        assert server.messages("error") == []
    assert statuses(tmp_path) == {"a": "succeeded"}


def test_a_run_that_does_not_end_in_time_is_suspended_and_resumes_at_the_next_start(tmp_path: Path):
    with Served(tmp_path, "--shutdown-timeout", "0") as server:
        server.submit("waits", "a")
        assert server.said() == "waits a"
        server.signal(SIGTERM)
        assert server.ends() == 0
    assert statuses(tmp_path) == {"a": "suspended"}
    with Served(tmp_path) as server:
        assert server.said() == "waits a"
        server.request("POST", "/api/runs/a/inject", {"message": "go on"})
        server.signal(SIGTERM)
        assert server.ends() == 0
    assert statuses(tmp_path) == {"a": "succeeded"}


def test_a_run_that_executed_when_the_server_was_killed_resumes_at_the_next_start(tmp_path: Path):
    with Served(tmp_path) as server:
        server.submit("waits", "a")
        assert server.said() == "waits a"
        server.signal(SIGKILL)
        assert server.ends() == -SIGKILL
    with Served(tmp_path) as server:
        assert server.said() == "waits a"


def test_a_body_that_does_not_end_is_logged_and_the_server_exits_with_0(tmp_path: Path):
    with Served(tmp_path, "--shutdown-timeout", "0") as server:
        run = server.submit("stuck", "a")
        assert server.said() == "stuck a"
        server.signal(SIGTERM)
        assert server.ends() == 0
        assert (
            f"body of run {run} did not end within its grace period; exiting without it"
            in server.messages("error")
        )
    assert statuses(tmp_path) == {"a": "cancelled"}  # this is committed


def test_the_second_signal_stops_immediately_with_its_exit_code(tmp_path: Path):
    with Served(tmp_path) as server:
        run = server.submit("endless", "a")
        assert server.said() == "endless a"
        server.signal(SIGTERM)
        server.logged("draining")
        server.signal(SIGTERM)
        assert server.ends() == 128 + SIGTERM
        assert f"body of run {run} has not ended; exiting without it" in server.messages("error")


@pytest.mark.parametrize("beside", [None, "stuck"])
def test_a_server_whose_engine_fails_exits_with_1(tmp_path: Path, beside: str | None):
    with Served(tmp_path, "--shutdown-timeout", "0") as server:
        if beside is not None:
            server.submit(beside, "a")
            assert server.said() == f"{beside} a"
        server.submit("quits", "b")
        assert server.ends() == 1
        assert server.messages("critical" if beside is None else "error")


def test_a_hangup_applies_what_can_change_while_it_runs_and_logs_what_requires_a_restart(tmp_path: Path):
    nightly = "[schedules.nightly]\njob = 'quick'\ncron = '0 3 * * *'"
    with Served(tmp_path, toml=f"[engine]\nmax_concurrent = 1\n{nightly}") as server:
        assert server.request("GET", "/api/state")["schedules"].keys() == {"nightly"}
        add = runner().invoke(
            main, ["token", "add", "me", "--role", "admin", "--tokens", str(tmp_path / "tokens")]
        )
        (tmp_path / "greenroom.toml").write_text(
            "[engine]\nmax_concurrent = 5\nmax_pending = 7\nlanes = { images = 2 }\n"
            "[gateway]\ntoken_file = 'tokens'\n[logs]\nlevel = 'warning'\n"
            "[schedules.weekly]\njob = 'quick'\ncron = '0 3 * * MON'\nparams = {}"
        )
        server.signal(SIGHUP)
        server.logged("engine.max_pending has changed: restart the server to apply it")
        assert server.request("GET", "/api/state") == 401
        state = server.request("GET", "/api/state", token=add.stdout.strip())
        assert state["engine"]["max_concurrent"] == 5
        assert state["lanes"]["images"]["limit"] == 2
        assert state["schedules"].keys() == {"weekly"}


def test_a_hangup_with_errors_in_the_configuration_changes_nothing(tmp_path: Path):
    with Served(tmp_path) as server:
        (tmp_path / "greenroom.toml").write_text(
            "[engine]\nmax_concurrent = 5\nmax_pendin = 7\n[gateway]\nport = 'x'"
        )
        server.signal(SIGHUP)
        assert "greenroom.toml:3: engine.max_pendin is unknown" in server.logged("max_pendin")
        assert server.request("GET", "/api/state")["engine"]["max_concurrent"] == 3


def test_a_hangup_with_a_token_file_that_others_can_read_keeps_the_old_tokens(tmp_path: Path):
    file = tmp_path / "tokens"
    token = add_token(file, "me", Role.ADMIN)
    with Served(tmp_path, toml="[gateway]\ntoken_file = 'tokens'") as server:
        add_token(file, "you", Role.ADMIN)
        file.chmod(0o644)
        server.signal(SIGHUP)
        assert "run `chmod 600 tokens`" in server.logged("is accessible to other users")
        assert server.request("GET", "/api/state", token=token)["engine"]["draining"] is False


def test_a_token_file_that_others_can_read_is_an_error_in_the_configuration(tmp_path: Path):
    add_token(tmp_path / "tokens", "me", Role.ADMIN)
    (tmp_path / "tokens").chmod(0o640)
    config = GatewayConfig(token_file=str(tmp_path / "tokens"))
    with pytest.raises(ConfigMistakes, match="chmod 600"):
        check_together(Read(Config(gateway=config), Written()))


def test_usr1_resets_the_lanes(tmp_path: Path):
    with Served(tmp_path, "--max-concurrent", "1", "--shutdown-timeout", "0") as server:
        server.submit("stuck", "a")
        assert server.said() == "stuck a"
        server.submit("waits", "b")  # has no slot
        server.signal(SIGUSR1)
        assert server.said() == "waits b"
        server.logged("lanes reset")


def test_a_non_loopback_address_is_refused_without_tokens(tmp_path: Path):
    ended = refused(tmp_path, "--host", "0.0.0.0")
    assert ended.returncode == 2
    assert '--host: gateway.host is not valid: host "0.0.0.0" is not a loopback address' in ended.stderr


def refused(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A server that does not start."""
    (folder / "app.py").write_text(APP)
    command = [sys.executable, "-m", "greenroom", "serve", "app:jobs", "--port", "0", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)


def test_with_a_port_in_use_it_exits_with_1(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = refused(tmp_path, "--port", str(port))
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("Error: ")
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in ended.stderr
    assert "choose another host or port" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_with_a_store_in_use_by_another_engine_it_exits_with_1(tmp_path: Path):
    with Served(tmp_path):
        ended = refused(tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("Error: ")
    assert "Traceback" not in ended.stderr


def test_the_jobs_are_named_by_the_argument_the_variable_or_the_file(tmp_path: Path):
    with Served(tmp_path, GREENROOM_JOBS="nonsense:jobs") as server:  # the argument wins
        assert server.request("GET", "/api/state")["engine"]["draining"] is False


def test_without_jobs_it_serves_flows(tmp_path: Path):
    with Served(tmp_path, jobs=None) as server:
        assert server.messages("warning") == [
            "no jobs configured: only flows and the jobs of attached executors can run"
        ]
        timer = {
            "start": "wait",
            "nodes": {"wait": {"kind": "timer", "params": {"delay_ms": 1}}},
            "edges": [],
        }
        flow = server.request("POST", "/api/flows", {"Name": "short"})["id"]
        version = {"FlowID": flow, "Version": 1, "DefinitionJSON": timer, "Status": "published"}
        server.request("POST", "/api/flows/version", version)
        task = server.request("POST", "/api/tasks", {"FlowID": flow})["id"]
        assert server.request("GET", f"/api/tasks/get?id={task}")["flow_name"] == "short"


def test_the_log_is_json_line_by_line(tmp_path: Path):
    with Served(tmp_path) as server:
        server.submit("fails", "a")
        server.logged("failed in attempt 1")
        server.signal(SIGTERM)
        assert server.ends() == 0
        [line] = [line for line in server.log if "failed in attempt 1" in line["message"]]
        assert line["level"] == "error"
        assert line["error"].endswith("ValueError: as it must")
        assert json.dumps(line)
