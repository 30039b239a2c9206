"""`greenroom serve --executors`: a server whose bodies execute in child processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from signal import SIGKILL, SIGTERM

from greenroom.persistence.executor_lock import ExecutorLock
from tests.cli.served import APP, Served
from tests.cli.test_serve import statuses
from tests.executors.test_children import exists

WITH_PID = (
    APP
    + """

@jobs.job
async def pid(run: Run) -> None:
    import logging
    import os

    print(os.getpid(), flush=True)
    logging.getLogger("app").warning("in the body")
"""
)


def children(server: Served) -> set[int]:
    """The processes of the server's executors."""
    tasks = Path(f"/proc/{server._process.pid}/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


def test_bodies_execute_in_children_and_log_with_their_id(tmp_path: Path):
    with Served(tmp_path, "--executors", "2", app=WITH_PID) as server:
        assert any("child processes: 2 executors are attached" in line["message"] for line in server.log)
        assert server.request("GET", "/readyz")
        server.submit("pid", "a")
        assert int(server.said()) in children(server)
        server.logged("in the body")
        assert server.log[-1]["executor"] in ("local-1", "local-2")
        server.signal(SIGTERM)
        assert server.ends() == 0


def test_sigterm_lets_the_bodies_of_children_finish(tmp_path: Path):
    with Served(tmp_path, "--executors", "2") as server:
        server.submit("waits", "a")
        assert server.said() == "waits a"
        server.signal(SIGTERM)
        server.logged("draining: 1 run has 30 s to finish")
        assert server.request("POST", "/api/runs/a/inject", {"message": "go on"})["outcome"] == "accepted"
        assert server.ends() == 0
        assert server.messages("error") == []
    assert statuses(tmp_path) == {"a": "succeeded"}


def test_a_body_that_does_not_finish_in_time_is_suspended_and_resumes_at_the_next_start(tmp_path: Path):
    with Served(tmp_path, "--executors", "2", "--shutdown-timeout", "0") as server:
        server.submit("waits", "a")
        assert server.said() == "waits a"
        server.signal(SIGTERM)
        assert server.ends() == 0
    assert statuses(tmp_path) == {"a": "suspended"}
    with Served(tmp_path, "--executors", "1") as server:
        assert server.said() == "waits a"


def test_a_killed_server_leaves_no_children(tmp_path: Path):
    with Served(tmp_path, "--executors", "2") as server:
        server.submit("waits", "a")
        assert server.said() == "waits a"
        pids = children(server)
        assert len(pids) == 2
        server.signal(SIGKILL)
        assert server.ends() == -SIGKILL
    with Served(tmp_path, "--executors", "2") as server:
        assert server.said() == "waits a"
        assert not any(exists(pid) for pid in pids)
        assert not ExecutorLock(tmp_path / "greenroom.db.executors.lock").is_free()


def test_a_body_that_does_not_end_is_killed_with_its_child(tmp_path: Path):
    with Served(tmp_path, "--executors", "1", "--shutdown-timeout", "0") as server:
        server.submit("stuck", "a")
        assert server.said() == "stuck a"
        server.signal(SIGTERM)
        assert server.ends() == 0


def test_bodies_in_attached_executors_are_not_waited_for(tmp_path: Path):
    with Served(tmp_path, "--executors", "0") as server:
        command = [sys.executable, "-m", "greenroom", "executor", "app:jobs", "--url", server.url]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as executor:
            assert executor.stdout is not None
            server.submit("waits", "a")
            assert executor.stdout.readline() == "waits a\n"
            server.signal(SIGTERM)
            server.logged("no run executes here; 1 run has a body that continues in an attached executor")
            assert server.ends() == 0
            executor.kill()
    assert statuses(tmp_path) == {"a": "running"}
