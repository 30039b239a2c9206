"""Clusters whose leader holds its lease in Redis, with real processes, PostgreSQL and Redis."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.persistence.test_lease import HOLD
from tests.redis_servers import Redis
from tests.redis_servers import redis as redis
from tests.redis_servers import redis_server as redis_server
from tests.servers import PostgreSQL
from tests.servers import postgresql as postgresql

from .processes import PATIENCE, Cluster, Node, until


@pytest.fixture
def cluster(tmp_path: Path, postgresql: PostgreSQL, redis: Redis):
    with Cluster(tmp_path, postgresql) as cluster:
        cluster.variables["GREENROOM_CLUSTER_LEASE"] = redis.url("0")
        yield cluster


def leader_of(*nodes: Node) -> Node:
    """The node that leads, when all of these know it."""

    def found() -> list[Node]:
        known = [node.cluster()["leader"] for node in nodes]
        addresses = {leader["address"] for leader in known if leader is not None}
        return [node for node in nodes if addresses == {node.url}] if None not in known else []

    [leader] = until(found)
    return leader


def test_the_next_leader_is_elected_in_redis_with_a_higher_term(cluster: Cluster):
    nodes = [cluster.start().leads(), cluster.start().follows(), cluster.start().follows()]
    leader = leader_of(*nodes)
    term = leader.cluster()["leader"]["term"]
    leader.signal(signal.SIGKILL)
    others = [node for node in nodes if node is not leader]
    next_one = leader_of(*others)
    assert next_one.cluster()["leader"]["term"] > term
    assert others[1].ended(others[0].submit("quick", "b"))["status"] == "succeeded"


def test_a_redis_that_lost_its_data_costs_the_leader_its_lease_and_nothing_else(
    cluster: Cluster, redis: Redis
):
    nodes = [cluster.start().leads(), cluster.start().follows()]
    term = nodes[0].cluster()["leader"]["term"]
    before = nodes[1].submit("waits", "a")
    cluster.marked("a", "begins")
    redis.execute("FLUSHALL")
    until(lambda: (nodes[0].cluster()["leader"] or {"term": 0})["term"] > term)
    leader = leader_of(*nodes)
    leader.request("POST", "/api/runs/a/inject", {"message": "on"})
    assert nodes[0].ended(before)["attempt"] == 1
    assert len(cluster.marks("a")) == 2  # the body continued
    assert nodes[1].ended(nodes[1].submit("quick", "b"))["status"] == "succeeded"


def test_a_node_ends_while_an_engine_outside_the_cluster_has_the_store(cluster: Cluster):
    command = [sys.executable, "-c", HOLD, cluster.store, "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as single:
        assert single.stdout is not None
        assert single.stdout.readline() == b"held\n"
        node = cluster.start()
        node.logged("the store is in use by an engine that is not a node of a cluster")
        assert node.process.wait(PATIENCE) != 0
        assert single.poll() is None
        single.kill()


def stop_and_start(redis: Redis, leader: Node) -> None:
    redis.stop()
    leader.logged("could not be renewed")
    redis.start()


def freeze(redis: Redis, leader: Node) -> None:
    with redis.paused():
        leader.logged("could not be renewed")


@pytest.mark.parametrize("fault", [stop_and_start, freeze])
def test_a_cluster_continues_when_redis_is_back(
    cluster: Cluster, redis: Redis, fault: Callable[[Redis, Node], None]
):
    nodes = [cluster.start().leads(), cluster.start().follows()]
    before = nodes[1].submit("waits", "a")
    cluster.marked("a", "begins")
    fault(redis, nodes[0])
    leader_of(*nodes).request("POST", "/api/runs/a/inject", {"message": "on"})
    assert nodes[0].ended(before)["attempt"] == 1
    assert len(cluster.marks("a")) == 2
