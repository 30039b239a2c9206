"""The process of a node: its start, its signals, and its end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGUSR1

import pytest

from tests.servers import Server, postgresql

from .processes import Cluster, Node, free_port, until

__all__ = ["postgresql"]


def is_quiet(node: Node) -> bool:
    """Whether a node has logged no errors."""
    return node.messages("error", "critical") == []


# The first signal.


def test_a_follower_drains_and_its_resumable_bodies_continue_elsewhere(tmp_path: Path, postgresql: Server):
    with Cluster(tmp_path, postgresql) as cluster:
        leader = cluster.start("--executors", "0").leads()
        follower = cluster.start("--shutdown-timeout", "0.5").follows()
        run = leader.submit("waits", "a")
        cluster.marked("a", "begins")
        other = cluster.start().follows()
        follower.signal(SIGTERM)
        assert follower.ends() == 0
        assert is_quiet(follower)
        again = cluster.marked("a", "begins", 2)[1]
        assert again.endswith(f"pid={other.process.pid}")
        until(lambda: len(leader.cluster()["nodes"]) == 2)
        leader.request("POST", "/api/runs/a/inject", {"message": "go on"})
        assert leader.ended(run)["result"] == "go on"
        assert is_quiet(leader)


def test_bodies_can_finish_while_a_node_drains(tmp_path: Path, postgresql: Server):
    with Cluster(tmp_path, postgresql) as cluster:
        leader = cluster.start("--executors", "0").leads()
        follower = cluster.start().follows()
        run = leader.submit("waits", "a")
        cluster.marked("a", "begins")
        follower.signal(SIGTERM)
        follower.logged("exiting: 1 bodies have 30 s to finish")
        assert follower.request("GET", f"/api/runs/{run}")["status"] == "running"
        assert follower.request("POST", "/api/runs/a/inject", {"message": 1})["outcome"] == "accepted"
        assert follower.ends() == 0
        assert leader.ended(run)["status"] == "succeeded"
        assert len(cluster.marks("a")) == 2


@pytest.mark.parametrize("executors", [(), ("--executors", "1")])
def test_a_leader_hands_over_and_its_bodies_continue_elsewhere(
    tmp_path: Path, postgresql: Server, executors: tuple[str, ...]
):
    with Cluster(tmp_path, postgresql) as cluster:
        leader = cluster.start("--shutdown-timeout", "0.5", *executors).leads()
        run = leader.submit("waits", "a")
        cluster.marked("a", "begins")
        follower = cluster.start().follows()
        leader.signal(SIGTERM)
        follower.leads()
        assert leader.ends() == 0
        assert is_quiet(leader)
        cluster.marked("a", "begins", 2)
        follower.request("POST", "/api/runs/a/inject", {"message": "go on"})
        assert follower.ended(run)["result"] == "go on"
        assert follower.cluster()["leader"]["address"] == follower.url
        assert is_quiet(follower)


def test_a_lone_leader_suspends_its_bodies_and_frees_the_lease(tmp_path: Path, postgresql: Server):
    with Cluster(tmp_path, postgresql) as cluster:
        leader = cluster.start("--shutdown-timeout", "0").leads()
        run = leader.submit("waits", "a")
        cluster.marked("a", "begins")
        leader.signal(SIGTERM)
        assert leader.ends() == 0
        assert is_quiet(leader)
        again = cluster.start().leads()
        cluster.marked("a", "begins", 2)
        again.request("POST", "/api/runs/a/inject", {"message": 1})
        assert again.ended(run)["status"] == "succeeded"


@pytest.mark.parametrize("executors", [(), ("--executors", "1")])
@pytest.mark.parametrize("leads", [True, False])
def test_a_body_that_ignores_its_cancellation_is_named_and_ends_with_the_process(
    tmp_path: Path, postgresql: Server, executors: tuple[str, ...], leads: bool
):
    with Cluster(tmp_path, postgresql) as cluster:
        arguments = ("--shutdown-timeout", "0", *executors)
        if leads:
            node = cluster.start(*arguments).leads()
        else:
            leader = cluster.start("--executors", "0").leads()
            node = cluster.start(*arguments).follows()
        run = node.submit("stuck", "a")
        cluster.marked("a", "begins")
        node.signal(SIGTERM)
        assert node.ends() == 0
        assert node.logged(f"body of run {run} has not ended; exiting without it")
        if not leads:
            assert leader.ended(run)["reason"] == "abandoned"


# The second signal.


@pytest.mark.parametrize("executors", [(), ("--executors", "1")])
@pytest.mark.parametrize("number", [SIGTERM, SIGINT])
def test_the_second_signal_stops_immediately(
    tmp_path: Path, postgresql: Server, executors: tuple[str, ...], number: signal.Signals
):
    with Cluster(tmp_path, postgresql) as cluster:
        node = cluster.start("--shutdown-timeout", "600", *executors).leads()
        node.submit("waits", "a")
        cluster.marked("a", "begins")
        node.signal(number)
        node.logged("draining this node")
        node.signal(number)
        assert node.ends() == 128 + number
        assert node.logged("received a second signal: stopping immediately")
        assert not any("Traceback" in message for message in node.messages())


def test_the_second_signal_does_not_wait_for_a_stuck_body(tmp_path: Path, postgresql: Server):
    with Cluster(tmp_path, postgresql) as cluster:
        node = cluster.start("--shutdown-timeout", "600").leads()
        run = node.submit("stuck", "a")
        cluster.marked("a", "begins")
        node.signal(SIGTERM)
        node.logged("draining this node")
        node.signal(SIGTERM)
        assert node.ends() == 128 + SIGTERM
        assert node.logged(f"body of run {run} has not ended; exiting without it")


# Other signals.


def test_sighup_reloads_the_configuration_of_each_node(tmp_path: Path, postgresql: Server):
    with Cluster(tmp_path, postgresql) as cluster:
        leader = cluster.start().leads()
        follower = cluster.start().follows()
        (tmp_path / "greenroom.toml").write_text("[engine]\nmax_concurrent = 17\n")
        follower.signal(SIGHUP)
        follower.logged("configuration reloaded")
        assert leader.request("GET", "/api/state")["engine"]["max_concurrent"] == 3
        leader.signal(SIGHUP)
        leader.logged("configuration reloaded")
        assert leader.request("GET", "/api/state")["engine"]["max_concurrent"] == 17


@pytest.mark.parametrize("leads", [True, False])
def test_sigusr1_resets_the_lanes_at_the_leader(tmp_path: Path, postgresql: Server, leads: bool):
    with Cluster(tmp_path, postgresql) as cluster:
        leader = cluster.start("--max-concurrent", "1").leads()
        node = leader if leads else cluster.start("--executors", "0").follows()
        leader.submit("stuck", "a")
        cluster.marked("a", "begins")
        waiting = leader.submit("quick", "b")
        node.signal(SIGUSR1)
        node.logged("lanes reset")
        assert leader.ended(waiting)["status"] == "succeeded"


# The start.


def test_a_node_waits_for_a_store_that_is_down(tmp_path: Path, postgresql: Server):
    with Cluster(tmp_path, postgresql) as cluster:
        postgresql.stop()
        node = cluster.start()
        node.logged("waiting for the store: the store is unavailable")
        postgresql.start()
        node.leads()
        assert node.ended(node.submit("quick", "a"))["status"] == "succeeded"


def test_a_node_that_waits_for_its_store_can_be_stopped(tmp_path: Path, postgresql: Server):
    with Cluster(tmp_path, postgresql) as cluster:
        postgresql.stop()
        node = cluster.start()
        node.logged("waiting for the store: the store is unavailable")
        node.signal(SIGTERM)
        assert node.ends() == 0
        postgresql.start()


def test_tables_that_are_not_migrated_end_the_start_with_the_remedy(tmp_path: Path, postgresql: Server):
    with Cluster(tmp_path, postgresql, migrated=False) as cluster:
        node = cluster.start()
        assert node.ends() == 1
        assert node.messages()[-1].endswith("run greenroom db upgrade")


def test_a_port_in_use_ends_the_start_with_the_remedy(tmp_path: Path, postgresql: Server):
    with Cluster(tmp_path, postgresql) as cluster, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        node = cluster.start(port=port)
        assert node.ends() == 1
        assert f"cannot listen on 127.0.0.1 port {port}" in node.messages()[-1]
        assert node.messages()[-1].endswith("choose another host or port")


def test_an_address_at_which_the_node_is_not_reached_is_logged(tmp_path: Path, postgresql: Server):
    address = f"http://127.0.0.1:{free_port()}"
    with Cluster(tmp_path, postgresql) as cluster:
        node = cluster.start(GREENROOM_CLUSTER_ADVERTISE=address)
        message = node.logged("cannot be reached at its address")
        assert address in message
        assert "set cluster.advertise" in message


@pytest.mark.parametrize("of_the_leader", [True, False])
def test_an_id_that_another_node_has_is_refused(tmp_path: Path, postgresql: Server, of_the_leader: bool):
    with Cluster(tmp_path, postgresql) as cluster:
        leader = cluster.start(GREENROOM_CLUSTER_NODE="one").leads()
        follower = cluster.start(GREENROOM_CLUSTER_NODE="two").follows()
        node = cluster.start(GREENROOM_CLUSTER_NODE="one" if of_the_leader else "two")
        assert node.ends() == 1
        taken = leader if of_the_leader else follower
        assert re.search(
            f"refuses this node: .* has this id .*{taken.port}.*: set cluster.node", node.messages()[-1]
        ), node.messages()
        nodes = {each["id"]: each["address"] for each in leader.cluster()["nodes"]}
        assert nodes == {"one": leader.url, "two": follower.url}
        assert not any("no longer following" in message for message in follower.messages())


def test_a_node_that_was_killed_takes_its_id_again(tmp_path: Path, postgresql: Server):
    with Cluster(tmp_path, postgresql) as cluster:
        leader = cluster.start(GREENROOM_CLUSTER_NODE="one").leads()
        follower = cluster.start(GREENROOM_CLUSTER_NODE="two").follows()
        follower.signal(SIGKILL)
        follower.ends()
        cluster.start(GREENROOM_CLUSTER_NODE="two", port=follower.port).follows()
        assert {each["id"] for each in leader.cluster()["nodes"]} == {"one", "two"}


# While it runs.


def test_a_leader_continues_after_an_outage_of_the_store_that_is_longer_than_the_lease(
    tmp_path: Path, postgresql: Server
):
    with Cluster(tmp_path, postgresql) as cluster:
        node = cluster.start("--executors", "1").leads()
        run = node.submit("waits", "a")
        cluster.marked("a", "begins")
        postgresql.stop()
        node.logged("lease on the store is about to expire")
        postgresql.start()
        until(lambda: isinstance(node.request("GET", "/readyz"), dict))
        until(lambda: isinstance(node.request("POST", "/api/runs/a/inject", {"message": 1}), dict))
        assert node.ended(run)["result"] == 1
        assert node.cluster()["role"] == "leader"


def test_a_body_that_raises_what_ends_the_process_ends_the_node(tmp_path: Path, postgresql: Server):
    with Cluster(tmp_path, postgresql) as cluster:
        node = cluster.start().leads()
        run = node.submit("quits", "a")
        assert node.ends() == 1
        assert node.logged(f"the node has failed: body of run {run} of job 'quits' raised SystemExit")


def test_a_node_whose_executor_was_drained_continues_without_it(tmp_path: Path, postgresql: Server):
    with Cluster(tmp_path, postgresql) as cluster:
        node = cluster.start().leads()
        [executor] = until(node.executors)
        node.request("POST", f"/api/executors/{executor}/drain", {})
        node.logged("this node executes no more bodies until it restarts")
        assert node.cluster()["role"] == "leader"
        node.signal(SIGTERM)
        assert node.ends() == 0
        assert is_quiet(node)


def test_ctrl_c_before_the_start_is_plain(tmp_path: Path):
    (tmp_path / "app.py").write_text(
        "import os, signal\nfrom greenroom import Jobs\njobs = Jobs()\nos.kill(os.getpid(), signal.SIGINT)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "greenroom", "serve", "app:jobs", "--cluster", "--port", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (130, "")


@pytest.mark.skipif(os.name != "posix", reason="only POSIX has these modes")
def test_a_weak_secret_is_logged_at_the_start(tmp_path: Path, postgresql: Server):
    with Cluster(tmp_path, postgresql) as cluster:
        secret = tmp_path / "secret"
        secret.write_text("guess me")
        secret.chmod(0o644)
        node = cluster.start("--executors", "0").leads()
        accessible, short = (text for text in node.messages("warning") if "cluster.secret_file" in text)
        assert "is accessible to other users (mode 0644)" in accessible
        assert f"run `chmod 600 {secret}`" in accessible
        assert "is short (8 characters)" in short
