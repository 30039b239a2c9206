"""`greenroom serve --cluster --executors N`: the child processes of a node execute bodies."""

from __future__ import annotations

import os
import re
from pathlib import Path
from signal import SIGKILL, SIGTERM

from tests.servers import Server, postgresql

from .processes import Cluster, exists, until

__all__ = ["postgresql"]


def pid_in(mark: str) -> int:
    found = re.search(r"pid=(\d+)", mark)
    assert found is not None
    return int(found[1])


def test_bodies_execute_in_the_children_of_each_node(tmp_path: Path, postgresql: Server):
    with Cluster(tmp_path, postgresql) as cluster:
        leader = cluster.start("--executors", "2").leads()
        follower = cluster.start("--executors", "1").follows()
        until(lambda: len(leader.executors()) == 3)
        assert {each["status"] for each in leader.executors().values()} == {"attached"}
        pids = leader.children() | follower.children()
        assert len(pids) == 3
        for number in range(6):
            run = follower.submit("quick", f"h{number}")
            assert leader.ended(run)["result"] in pids
        for node in (follower, leader):
            node.signal(SIGTERM)
            assert node.ends() == 0
            assert node.messages("error", "critical") == []
    assert not any(exists(pid) for pid in pids)


def test_bodies_in_children_continue_when_the_leader_is_killed(tmp_path: Path, postgresql: Server):
    with Cluster(tmp_path, postgresql) as cluster:
        leader = cluster.start("--executors", "0").leads()
        follower = cluster.start("--executors", "2").follows()
        other = cluster.start("--executors", "0").follows()
        until(lambda: len(leader.executors()) == 2)
        runs = [leader.submit("waits", f"h{number}") for number in range(2)]
        for number in range(2):
            cluster.marked(f"h{number}", "begins")
        leader.signal(SIGKILL)
        leader.ends()
        node = until(lambda: next((n for n in (follower, other) if n.cluster()["role"] == "leader"), None))
        until(lambda: all(each["bodies"] == 1 for each in node.executors().values()))
        for number, run in enumerate(runs):
            answer = node.request("POST", f"/api/runs/h{number}/inject", {"message": "go on"})
            assert answer["outcome"] == "accepted"
            assert node.ended(run)["result"] == "go on"
            begins, ends = cluster.marks(f"h{number}")
            assert (begins.split()[0], ends.split()[0]) == ("begins", "ends")
            assert "attempt=1" in begins
            assert "attempt=1" in ends


def test_a_killed_child_affects_only_its_run_and_is_replaced(tmp_path: Path, postgresql: Server):
    with Cluster(tmp_path, postgresql) as cluster:
        cluster.variables["GREENROOM_EXECUTOR_TTL"] = "600"  # which the runs do not wait for
        leader = cluster.start("--executors", "0").leads()
        follower = cluster.start("--executors", "2").follows()
        until(lambda: len(leader.executors()) == 2)
        runs = {handle: leader.submit("asks_again", handle) for handle in ("a", "b")}
        killed, other = (pid_in(cluster.marked(handle, "begins")[0]) for handle in runs)
        assert killed != other
        before = set(leader.executors())
        os.kill(killed, SIGKILL)
        again = cluster.marked("a", "begins", 2)[1]
        assert "attempt=2" in again
        assert pid_in(again) != killed
        until(lambda: len(leader.executors()) == 2)
        assert len(set(leader.executors()) & before) == 1
        follower.logged(r"executor .* \(pid \d+\) was killed by SIGKILL; it restarts now")
        leader.logged(f"executor .* was killed by SIGKILL; it executed .* {runs['a']}")
        assert len(follower.children()) == 2
        for handle, run in runs.items():
            leader.request("POST", f"/api/runs/{handle}/inject", {"message": 1})
            assert leader.ended(run)["status"] == "succeeded"
        assert len(cluster.marks("b")) == 1


def test_the_children_of_a_killed_node_end(tmp_path: Path, postgresql: Server):
    with Cluster(tmp_path, postgresql) as cluster:
        node = cluster.start("--executors", "2").leads()
        until(lambda: len(node.executors()) == 2)
        node.submit("waits", "a")
        cluster.marked("a", "begins")
        pids = node.children()
        assert len(pids) == 2
        node.signal(SIGKILL)
        assert node.ends() == -SIGKILL
        until(lambda: not any(exists(pid) for pid in pids))


def test_a_node_without_executors_leaves_bodies_to_the_others(tmp_path: Path, postgresql: Server):
    with Cluster(tmp_path, postgresql) as cluster:
        leader = cluster.start("--executors", "0").leads()
        run = leader.submit("quick", "a")
        follower = cluster.start().follows()
        assert leader.ended(run)["result"] == follower.process.pid
        leader.signal(SIGTERM)
        assert leader.ends() == 0


def test_jobs_that_a_child_cannot_import_stop_the_start(tmp_path: Path, postgresql: Server):
    with Cluster(tmp_path, postgresql) as cluster:
        app = tmp_path / "app.py"
        in_a_child = (
            "import multiprocessing\nassert multiprocessing.current_process().name == 'MainProcess'\n"
        )
        app.write_text(in_a_child + app.read_text())
        node = cluster.start("--executors", "1")
        assert node.ends() == 1
        assert re.search(r"Error: executor .* cannot import app:jobs", node.messages()[-1])
        assert not node.children() if exists(node.process.pid) else True
