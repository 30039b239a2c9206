"""Clusters in the simulation: nodes that are partitioned, paused, killed and drained, on one store."""

from typing import Any

import pytest
import trio

from greenroom import Jobs, Run
from greenroom.simulation import World, simulate
from greenroom.simulation.scenarios.nodes import nodes
from greenroom.simulation.world.cluster.cluster import SimulatedCluster
from greenroom.simulation.world.cluster.node import SimulatedNode

jobs = Jobs()


@jobs.job("works", resumable=True, grace=2)
async def works(run: Run, params: dict[str, Any]) -> int:
    await trio.sleep(params["seconds"])
    return run.attempt


@jobs.job("reports", resumable=True, grace=2)
async def reports(run: Run) -> None:
    for number in range(10):
        await run.progress(number)
        await trio.sleep(0.1)


async def three_nodes(world: World) -> SimulatedCluster:
    """A cluster with a leader, which is known as its `leader`."""
    cluster = await world.cluster(jobs, lease_ttl=6.0, executor_ttl=12.0)
    for name in ("n1", "n2", "n3"):
        cluster.add(name)
    await trio.sleep(1)
    return cluster


def leader_of(cluster: SimulatedCluster) -> SimulatedNode:
    assert cluster.leader is not None, "a node leads"
    return cluster.leader


def follower_of(cluster: SimulatedCluster) -> SimulatedNode:
    return next(node for node in cluster.nodes.values() if node is not cluster.leader)


@pytest.mark.parametrize("seed", [1, 9, 10, 15, 20, 92, 128, 129])
def test_no_rule_is_broken_in_a_cluster(seed: int):
    simulate(seed, nodes)


def test_the_same_seed_gives_the_same_trace():
    first, second = simulate(7, nodes), simulate(7, nodes)
    assert first.trace.text() == second.trace.text()


def test_a_leader_that_does_not_reach_the_store_is_replaced_although_the_others_reach_it():
    async def scenario(world: World) -> None:
        cluster = await three_nodes(world)
        first = leader_of(cluster)
        assert first.life is not None
        cluster.disk.cut_off.add(first.life)
        await trio.sleep(15)
        world.check(cluster.leader not in (first, None), "no other node leads")

    simulate(1, scenario)


async def let_open_and_pause(cluster: SimulatedCluster, node: SimulatedNode) -> None:
    """Pause a node while it opens its engine: its stream has continued, but nothing is committed."""
    assert node.life is not None
    assert node.life.node is not None
    cluster.disk.delay = (0.2, 0.2)
    seq = node.shown_seq
    lead = await cluster.next_lead()
    assert lead.life is node.life
    if cluster.disk.rules.model.seq > seq:
        await node.life.node.stream.wait_beyond(seq)
    node.pause()
    cluster.disk.repair()


def test_a_node_that_is_overtaken_while_it_opens_its_engine_follows():
    async def scenario(world: World) -> None:
        cluster = await three_nodes(world)
        first, second = leader_of(cluster), follower_of(cluster)
        [third] = [node for node in cluster.nodes.values() if node not in (first, second)]
        third.kill()
        first.kill()
        await let_open_and_pause(cluster, second)
        third.start()
        await trio.sleep(20)
        world.check(cluster.leader is third, "the other node does not lead")
        second.go_on()
        await trio.sleep(5)
        world.check(second.running, "the node has ended")
        world.check(second.shown_seq == third.shown_seq, "the node does not follow")

    simulate(1, scenario)


def test_a_node_whose_replica_was_behind_when_its_engine_failed_follows():
    async def scenario(world: World) -> None:
        cluster = await three_nodes(world)
        first, second = leader_of(cluster), follower_of(cluster)
        [third] = [node for node in cluster.nodes.values() if node not in (first, second)]
        cluster.wires.cut_off([second.name], [first.name, third.name])
        await trio.sleep(1)
        async with world.connect("ann", first) as ann:
            await ann.submit("works", handle="h", params={"seconds": 0})
        third.kill()
        first.kill()
        await let_open_and_pause(cluster, second)
        cluster.wires.free()
        third.start()
        await trio.sleep(20)
        world.check(cluster.leader is third, "the other node does not lead")
        second.go_on()
        await trio.sleep(10)
        world.check(second.shown_seq == third.shown_seq, "the node does not follow")
        world.check(third.shown_seq < 100, "the node joined again and again until its state was replaced")

    simulate(1, scenario)


def test_clients_of_a_node_that_takes_over_with_an_old_state_get_one_snapshot():
    async def scenario(world: World) -> None:
        cluster = await three_nodes(world)
        first, second = leader_of(cluster), follower_of(cluster)
        [third] = [node for node in cluster.nodes.values() if node not in (first, second)]
        async with world.connect("bob", second) as bob:
            cluster.wires.cut_off([second.name], [first.name, third.name])
            await trio.sleep(1)
            async with world.connect("ann", first) as ann:
                await (await ann.submit("reports", handle="h")).result()  # progress is not in the store
            first.kill()
            third.kill()
            cluster.disk.delay = (0.5, 0.5)
            with trio.fail_after(20):
                await cluster.next_lead()
            await trio.sleep(5)
            cluster.disk.repair()
            await trio.sleep(1)
            world.check(cluster.leader is second, "the node does not lead")
            world.check(bob.state.seq == second.shown_seq, "its client is behind")

    simulate(1, scenario)
