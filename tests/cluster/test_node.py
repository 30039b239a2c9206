"""A node: how it finds a leader, follows, leads, hands over, and fails."""

from __future__ import annotations

import logging

import msgspec
import pytest
import trio

from greenroom.actors.executors.connection import connection_pair
from greenroom.cluster.dialing import RefusedByNode
from greenroom.cluster.node import ClusterBroken
from greenroom.gateway.cluster.following import LeaderLost
from greenroom.persistence.failures import StoreBroken
from greenroom.protocol import cluster as wire
from greenroom.protocol.errors import Conflict, Draining
from greenroom.protocol.events import LeaderChanged, NodeChanged
from greenroom.protocol.records import LeaderInfo

from .world import World, until, world


async def led(home: World, *names: str):
    """Nodes of which the first leads, and the others follow."""
    nodes = []
    for name in names:
        nodes.append(home.node(name))
        with trio.fail_after(60):
            await nodes[-1].has_state.wait()
    assert nodes[0].is_leader
    await until(lambda: len(nodes[0].info().nodes) == len(names))
    return nodes


def changes(node, kind):
    return [p.event for p in node.stream.between(0, 1000) if isinstance(p.event, kind)]


# Looking.


async def test_a_node_without_a_leader_leads_and_the_next_one_follows(autojump_clock):
    async with world() as home:
        first, second = await led(home, "a", "b")
        assert second.info().role == "follower"
        assert second.info().leader == first.info().leader == LeaderInfo(id="a", address="http://a", term=1)
        assert second.replica.seq == first.stream.last_seq
        assert [(e.node, e.status) for e in changes(first, NodeChanged)] == [("b", "joined")]
        assert home.events == ["a leads"]


async def test_a_node_that_cannot_read_the_lease_follows_the_leader_that_others_know(autojump_clock, caplog):
    async with world() as home:
        first, second, third = await led(home, "a", "b", "c")
        home.store.is_down = True
        connection = third.router.following
        home.peers["http://a"], served = _closes, home.peers["http://a"]
        first.router.leading.followers.dismiss(None)
        await until(lambda: third.router.following is not connection)
        await trio.sleep(5)
        assert third.info().role == "looking"
        home.peers["http://a"] = served
        joined = len(changes(first, NodeChanged))
        await until(lambda: {second.info().role, third.info().role} == {"follower"})
        assert home.events == ["a leads"]
        warnings = [r for r in caplog.records if "cannot read the lease" in r.message]
        assert [r.levelno for r in warnings].count(logging.WARNING) == 2, "once for each node"
        after = [(e.node, e.status) for e in changes(first, NodeChanged)][joined:]
        assert sorted(after) == [("b", "joined"), ("c", "joined")], "questions are not joins"


async def _closes(connection):
    await connection.receive()


async def test_a_node_waits_for_the_lease_of_a_process_with_its_own_address(autojump_clock, caplog):
    async with world() as home:
        home.store.hold("http://a")
        node = home.node("a", serves=False)
        await trio.sleep(10)
        assert not node.has_state.is_set()
        [warning] = [r.message for r in caplog.records if r.levelno == logging.WARNING]
        assert "another process with the address http://a" in warning
        assert "cluster.advertise" in warning
        home.store.lease = None
        await until(lambda: node.is_leader)


async def test_an_engine_outside_the_cluster_is_named(autojump_clock):
    async with world() as home:
        home.store.hold(None)
        home.node("a")
        await until(lambda: home.failures)
        assert isinstance(home.failures["a"], ClusterBroken)
        assert "is not a node of a cluster (pid 0 on elsewhere)" in str(home.failures["a"])


async def test_a_leader_that_does_not_answer_delays_a_node_only_for_a_time(autojump_clock):
    async with world() as home:
        home.store.hold("http://a")
        dialed = []

        async def hangs(address):
            dialed.append(address)
            await trio.sleep_forever()

        home.dial = hangs
        node = home.node("b")
        await until(lambda: len(dialed) >= 3)
        home.store.lease = None
        await until(lambda: node.is_leader)


async def test_a_leader_that_does_not_answer_is_not_waited_for_longer_than_its_lease_is_valid(autojump_clock):
    async with world() as home:
        home.store.hold("http://a")
        assert home.store.lease is not None
        home.store.lease = msgspec.structs.replace(home.store.lease, left=1.0)

        async def hangs(address):
            home.store.lease = None  # it expires meanwhile
            await trio.sleep_forever()

        home.dial = hangs
        node = home.node("b")
        began = trio.current_time()
        await until(lambda: node.is_leader)
        assert trio.current_time() - began < 2.1  # TTL / 3 would be 5 s


async def test_a_node_with_another_store_is_refused(autojump_clock):
    async with world() as home:
        await led(home, "a")
        home.store.other_epoch = "another"
        home.node("b")
        await until(lambda: home.failures)
        assert isinstance(home.failures["b"], ClusterBroken)
        assert "node b at http://b has another store than the leader" in str(home.failures["b"])
        assert "give all nodes the same store" in str(home.failures["b"])


async def test_a_node_that_others_cannot_reach_does_not_lead(autojump_clock):
    async with world() as home:
        first, second, third = await led(home, "a", "b", "c")
        second.can_be_reached(False)
        await trio.sleep(1)  # it is told with the next beat
        await first.step_down()
        await until(lambda: third.is_leader)
        third.can_be_reached(False)  # a leader stays one
        first.can_be_reached(False)
        await trio.sleep(1)
        with pytest.raises(Conflict, match="no other node can lead"):
            await third.step_down()
        home.scopes["c"].cancel()
        await trio.sleep(30)
        assert home.store.lease is None
        second.can_be_reached(True)
        await until(lambda: second.is_leader)


async def test_limits_and_draining_stay_when_another_node_leads(autojump_clock):
    async with world() as home:
        home.max_concurrent = 4
        first, second = await led(home, "a", "b")
        engine = first.router.engine
        await engine.set_max_concurrent(7)
        await engine.set_concurrency("main", 0)
        waits = await engine.submit("quick", handle="waits", params=None)
        await engine.drain()
        await engine.set_concurrency("main", 5)
        await first.step_down()
        await until(lambda: second.is_leader)
        state = (await second.router.engine.snapshot()).engine
        assert (state.max_concurrent, state.draining) == (7, True)
        assert (await second.router.engine.snapshot()).lanes["main"].limit == 5
        with pytest.raises(Draining):
            await second.router.engine.submit("quick", handle="h", params=None)
        await trio.sleep(60)
        assert (await second.router.engine.get_run(waits.id)).waiting_for is None, "it is not even looked at"
        await second.router.engine.resume()
        await trio.sleep(1)
        assert (await second.router.engine.get_run(waits.id)).waiting_for == "executor"
        await second.router.engine.submit("quick", handle="h", params=None)


async def test_a_leader_that_is_silent_after_the_handshake_delays_a_node_only_for_a_time(autojump_clock):
    async with world() as home:
        home.store.hold("http://a")

        async def silent(connection):
            await trio.sleep_forever()

        home.peers["http://a"] = silent
        node = home.node("b")
        await trio.sleep(30)
        home.store.lease = None
        await until(lambda: node.is_leader)


@pytest.mark.parametrize(
    "known",
    [LeaderInfo(id="a", address="http://a", term=1), LeaderInfo(id="b", address="http://b", term=1), None],
)
async def test_a_leader_without_a_lease_is_not_asked_for_ever(autojump_clock, known):
    async with world() as home:
        home.store.hold("http://a")

        async def does_not_lead(connection):
            await connection.receive()
            await connection.send(wire.encoded(wire.NotLeader(leader=known)))

        home.peers["http://a"] = does_not_lead
        node = home.node("b")
        await trio.sleep(10)
        home.store.lease = None
        await until(lambda: node.is_leader)


@pytest.mark.parametrize("by", ["the leader", "the gateway"])
async def test_a_refusal_ends_the_node_with_the_reason(autojump_clock, by):
    async with world() as home:
        home.store.hold("http://a")

        async def refuses(connection):
            await connection.receive()
            await connection.send(wire.encoded(wire.NodeRefused(code="invalid", message="too old")))

        async def refused(address):
            raise RefusedByNode("too old")

        home.peers["http://a"] = refuses
        if by == "the gateway":
            home.dial = refused
        home.node("b")
        await until(lambda: home.failures)
        assert isinstance(home.failures["b"], ClusterBroken)
        assert "at http://a refuses this node: too old" in str(home.failures["b"])


# Taking the lease.


async def test_a_node_whose_lease_is_taken_while_it_opens_the_store_follows(autojump_clock):
    async with world() as home:

        def fails(address):
            if address == "http://b":
                home.store.hold("http://a")
                raise StoreBroken("another engine has taken the store: this engine stops")

        home.fails = fails
        node = home.node("b")
        await until(lambda: home.store.lease is not None)
        home.store.lease = None
        home.fails = lambda address: None
        await until(lambda: node.is_leader)
        assert home.failures == {}


async def test_a_node_whose_lease_was_taken_by_one_that_has_failed_since_leads(autojump_clock):
    async with world() as home:
        terms = iter([2, 4])

        def fails(address):
            if (term := next(terms, None)) is not None:
                raise StoreBroken(f"another engine has taken the store: its term is no longer {term}")

        home.fails = fails
        node = home.node("a")
        await until(lambda: node.is_leader)
        assert home.failures == {}


async def test_a_store_that_is_broken_ends_the_node(autojump_clock):
    async with world() as home:

        def fails(address):
            raise StoreBroken("the store has schema 4: run greenroom db upgrade")

        home.fails = fails
        home.node("a")
        await until(lambda: home.failures)
        assert "run greenroom db upgrade" in str(home.failures["a"])


# Handing over.


async def test_the_follower_that_was_chosen_leads_next_and_the_others_follow_it(autojump_clock):
    async with world() as home:
        first, second, third = await led(home, "a", "b", "c")
        chosen = first.router.leading.followers.furthest()
        await first.step_down()
        assert not first.is_leader
        await until(lambda: len(home.events) == 3 and first.info().role == "follower")
        await until(lambda: {second.info().role, third.info().role} == {"leader", "follower"})
        assert home.events == ["a leads", "a has released the lease", f"{chosen} leads"]
        leader = second if chosen == "b" else third
        assert leader.is_leader
        assert {n.stream.last_seq for n in (first, second, third)} == {leader.stream.last_seq}
        assert [e.node for e in await home.memory.events(0, 1000) if isinstance(e, LeaderChanged)] == [
            "a",
            chosen,
        ]


async def test_without_another_node_the_leadership_cannot_be_handed_over(autojump_clock):
    async with world() as home:
        [node] = await led(home, "a")
        with pytest.raises(Conflict, match="no other node can lead: start another node"):
            await node.step_down()
        await node.drain()
        assert node.is_leader


async def test_a_drain_returns_when_the_lease_is_free(autojump_clock):
    async with world() as home:
        first, second = await led(home, "a", "b")
        await first.drain()
        assert home.events == ["a leads", "a has released the lease"]
        await until(lambda: second.is_leader)
        await until(lambda: first.info().role == "follower")
        home.scopes["b"].cancel()
        await trio.sleep(30)
        assert not first.is_leader, "it is about to leave"


async def test_a_follower_that_drains_is_not_chosen(autojump_clock):
    async with world() as home:
        first, second, third = await led(home, "a", "b", "c")
        await second.drain()
        await third.drain()
        await until(lambda: not first.has_followers)
        fourth = home.node("d")
        await until(lambda: first.has_followers)
        await first.step_down()
        await until(lambda: fourth.is_leader)
        assert home.events[-1] == "d leads"


async def test_a_hand_over_waits_for_commands_of_both_sides(autojump_clock):
    async with world() as home:
        first, second = await led(home, "a", "b")
        goes_on, answers = trio.Event(), []

        async def slow():
            await goes_on.wait()
            return "done"

        async def client():
            answers.append(await first.router.request(slow, lambda following: None))

        home.nursery.start_soon(client)
        await trio.testing.wait_all_tasks_blocked()
        home.nursery.start_soon(first.drain)
        await trio.sleep(1)
        assert (first.is_leader, home.events) == (False, ["a leads"])
        goes_on.set()
        await until(lambda: second.is_leader)
        assert answers == ["done"]


# Ends.


async def test_a_cancelled_leader_frees_the_lease_and_sends_its_followers_away(autojump_clock):
    async with world() as home:
        first, second = await led(home, "a", "b")
        home.scopes["a"].cancel()
        await until(lambda: second.is_leader)
        assert home.events == ["a leads", "a has released the lease", "a ended", "b leads"]
        assert home.failures == {}
        assert first.router.engine is None


async def test_a_follower_that_ends_leaves_the_cluster(autojump_clock):
    async with world() as home:
        first, _ = await led(home, "a", "b")
        home.scopes["b"].cancel()
        await until(lambda: len(first.info().nodes) == 1)
        assert [(e.node, e.status) for e in changes(first, NodeChanged)] == [("b", "joined"), ("b", "left")]


# Names.


async def test_another_process_with_the_id_of_the_leader_or_of_a_live_follower_is_refused(autojump_clock):
    async with world() as home:
        first, _ = await led(home, "a", "b")
        for id, address in (("a", "http://a"), ("b", "http://b")):
            answer = await _join(home, id, start="another process")
            assert answer.message == (
                f"another node has this id ({id}), at {address}: set cluster.node to another id"
            )
        assert len(first.info().nodes) == 2
        assert [(e.node, e.status) for e in changes(first, NodeChanged)] == [("b", "joined")]


async def test_the_same_process_and_one_that_follows_a_silent_one_keep_their_id(autojump_clock):
    async with world() as home:
        [first] = await led(home, "a")
        assert isinstance(await _join(home, "b", start="p1"), wire.Joined)
        assert isinstance(await _join(home, "b", start="p1"), wire.Joined)
        assert isinstance(await _join(home, "b", start="p2"), wire.NodeRefused)
        await trio.sleep(2.1)
        assert isinstance(await _join(home, "b", start="p2"), wire.Joined)
        await trio.sleep(1)
        assert len(first.info().nodes) == 2


async def test_a_silent_follower_is_lost(autojump_clock):
    async with world() as home:
        [first] = await led(home, "a")
        await _join(home, "b", start="p1")
        await trio.sleep(4.9)
        assert first.has_followers
        await trio.sleep(0.2)
        assert not first.has_followers


# Versions.


@pytest.mark.parametrize("protocol", [wire.VERSION - 1, wire.VERSION + 1])
async def test_a_neighbouring_version_can_join(autojump_clock, protocol):
    async with world() as home:
        await led(home, "a")
        answer = await _join(home, "b", protocol=protocol)
        assert isinstance(answer, wire.Joined)
        assert (answer.version, answer.protocol) == ("1", wire.VERSION)


@pytest.mark.parametrize("protocol", [wire.VERSION - 2, wire.VERSION + 2])
async def test_a_version_that_is_further_away_is_refused(autojump_clock, protocol):
    async with world() as home:
        await led(home, "a")
        answer = await _join(home, "b", version="9.9", protocol=protocol)
        assert isinstance(answer, wire.NodeRefused)
        assert f"version 9.9 (protocol {protocol})" in answer.message
        assert f"the leader has version 1 (protocol {wire.VERSION})" in answer.message
        assert "upgrade the nodes one version at a time" in answer.message


async def test_unknown_messages_of_a_follower_are_ignored(autojump_clock):
    async with world() as home:
        [first] = await led(home, "a")
        connection = await home.dial("http://a")
        await connection.send(b'{"type":"join","node":"b","address":"x","version":"2","protocol":2,"new":1}')
        await connection.send(b'{"type":"new","id":1}')
        await connection.send(b'{"type":"beat","sent":7.5,"seq":1,"new":[]}')
        with trio.fail_after(5):
            while not isinstance(wire.from_leader(await connection.receive()), wire.NodeBeaten):
                pass
        assert first.has_followers


async def test_malformed_messages_of_a_known_type_end_the_connection(autojump_clock):
    async with world() as home:
        [first] = await led(home, "a")
        await _join(home, "b")
        connection = home.joined[-1]
        await connection.send(b'{"type":"beat"}')
        await until(lambda: not first.has_followers)


async def test_unknown_messages_of_a_leader_are_ignored(autojump_clock):
    async with world() as home:
        await led(home, "a")
        real = home.peers["http://a"]

        async def newer(connection):
            await real(_Newer(connection))

        home.peers["http://a"] = newer
        node = home.node("b")
        with trio.fail_after(60):
            await node.has_state.wait()
        following = node.router.following
        await trio.sleep(10)
        assert node.router.following is following, "the connection continues"
        assert node.replica.lag < 1


class _Newer:
    """The connection of a leader that sends more than this version knows."""

    def __init__(self, connection):
        self._connection = connection
        self.receive = connection.receive
        self.aclose = connection.aclose

    async def send(self, frame):
        await self._connection.send(frame[:-1] + b',"new":{}}')
        await self._connection.send(b'{"type":"new"}')


async def _join(home, node, **fields):
    """The answer to a node that joins; the connection stays open."""
    given = {
        "address": f"http://other/{node}",
        "version": "1",
        "protocol": wire.VERSION,
        "start": "",
    } | fields
    connection = await home.dial("http://a")
    home.joined = [*getattr(home, "joined", ()), connection]
    await connection.send(wire.encoded(wire.Join(node=node, **given)))
    with trio.fail_after(5):
        return wire.from_leader(await connection.receive())


# Executors at a follower.


async def test_an_executor_whose_leader_refuses_the_relay_is_disconnected(autojump_clock):
    async with world() as home:
        _, second = await led(home, "a", "b")

        async def refused(address):
            raise RefusedByNode("the secret of the cluster is missing or differs")

        second._dial_executor = refused
        executor, relayed = connection_pair()
        await second.router.serve_executor(relayed, "executor")
        with pytest.raises(trio.EndOfChannel):
            await executor.receive()


async def test_the_end_of_a_child_is_reported_when_a_leader_is_known(autojump_clock):
    async with world() as home:
        first, second = await led(home, "a", "b")
        ended = []
        first.router.engine.executors.ended = lambda *report: ended.append(report)
        await second.router.executor_ended("b-1", "exited with code 1")
        await first.router.executor_ended("a-1", "exited with code 1")
        await until(lambda: len(ended) == 2)
        assert sorted(ended) == [("a-1", "exited with code 1"), ("b-1", "exited with code 1")]
        serve = home.peers.pop("http://a")
        first.router.leading.followers.dismiss(None)
        await until(lambda: second.info().role == "looking")
        home.nursery.start_soon(second.router.executor_ended, "b-2", "exited with code 2")
        await trio.sleep(5)
        home.peers["http://a"] = serve
        await until(lambda: len(ended) == 3)
        assert ended[-1] == ("b-2", "exited with code 2")


async def test_a_command_waits_for_the_next_leader_from_the_loss_of_the_last_one(autojump_clock):
    async with world() as home:
        _, second = await led(home, "a", "b")
        answers = []

        async def here():
            answers.append("at the next leader")

        async def lost(following):
            await trio.sleep(60)
            second.router.following = None
            home.nursery.start_soon(_end_later, home, "a")
            raise LeaderLost("the connection has ended", sent=True)

        await second.router._at_leader(here, lost, repeatable=True)
        assert answers == ["at the next leader"]
        assert second.is_leader


async def _end_later(home, name):
    await trio.sleep(2)
    home.scopes[name].cancel()
