"""The leader's side of a connection between nodes: what it sends, and in which order."""

from __future__ import annotations

import msgspec
import pytest
import trio

from greenroom import Engine
from greenroom.actors.executors.connection import connection_pair
from greenroom.actors.journal.stream import RING_SIZE
from greenroom.gateway.auth.scopes import Scope
from greenroom.gateway.auth.tokens import Caller, Role
from greenroom.gateway.cluster.follower_session import LEADER_LOST, NOT_LEADER
from greenroom.protocol import cluster as wire
from greenroom.protocol.commands import (
    GetRun,
    ListRuns,
    Ok,
    SetMaxConcurrent,
    SetParams,
    Submit,
    Subscribe,
    Wait,
)
from greenroom.protocol.flow.commands import CreateFlow, ListFlows, PollWork
from greenroom.protocol.parts import joined
from greenroom.protocol.patterns import patterns
from tests.following import join_of
from tests.support import Bodies

from .scripted import ADMIN, OPERATOR, ScriptedFollower
from .support import Pair, pair

ALICE = Caller("alice", Role.OPERATOR, scope=Scope(patterns("handle", ["alice"]), None, None))


async def follower_of(here: Pair) -> ScriptedFollower:
    return ScriptedFollower(await here.leader.dial())


async def set_params(here: Pair, count: int) -> None:
    for number in range(count):
        await here.engine.set_params("h", number)


# Events.


async def test_a_new_follower_receives_a_snapshot_and_the_events_after_it(autojump_clock):
    async with pair() as here:
        await set_params(here, 3)
        node = await follower_of(here)
        joined_ = await node.join()
        assert (joined_.seq, joined_.leader.id) == (3, "leader")
        state = await node.until(wire.ReplaceState)
        assert state.snapshot == await here.engine.snapshot()
        await here.engine.set_params("h", "later")
        await node.until(wire.Replicate)
        assert node.seqs() == [4]


async def test_a_follower_that_joins_again_receives_what_it_missed(autojump_clock):
    async with pair() as here:
        await set_params(here, 5)
        node = await follower_of(here)
        await node.join(epoch=here.leader.leading.epoch, after=2)
        await node.until(wire.Replicate)
        assert node.seqs() == [3, 4, 5]
        assert not [message for message in node.received if isinstance(message, wire.ReplaceState)]


@pytest.mark.parametrize(("epoch", "after"), [("another", 2), (None, 99), (None, 0)])
async def test_a_follower_whose_state_the_ring_does_not_follow_receives_a_snapshot(
    autojump_clock, epoch, after
):
    async with pair() as here:
        await set_params(here, RING_SIZE + 1 if after == 0 else 5)
        node = await follower_of(here)
        await node.join(epoch=epoch or here.leader.leading.epoch, after=after)
        assert (await node.until(wire.ReplaceState)).snapshot.seq == here.engine.stream.last_seq


async def test_a_large_snapshot_is_sent_in_parts(autojump_clock, monkeypatch):
    monkeypatch.setattr("greenroom.gateway.cluster.follower_session._PART_BYTES", 500)
    async with pair() as here:
        for number in range(20):
            await here.engine.submit("wait", handle=f"h{number}", params={})
        await trio.testing.wait_all_tasks_blocked()
        node = await follower_of(here)
        await node.join()
        parts = [await node.until(wire.ReplaceState)]
        while parts[-1].more:
            parts.append(await node.until(wire.ReplaceState))
        assert len(parts) > 3
        assert joined(part.snapshot for part in parts) == await here.engine.snapshot()


async def test_events_are_divided_by_their_number_and_their_bytes(autojump_clock, monkeypatch):
    monkeypatch.setattr("greenroom.gateway.cluster.follower_session._MOST_EVENTS", 4)
    monkeypatch.setattr("greenroom.gateway.cluster.follower_session._EVENTS_BYTES", 1000)
    async with pair() as here:
        await set_params(here, 6)
        for _ in range(3):
            await here.engine.set_params("h", "x" * 2000)
        node = await follower_of(here)
        await node.join(epoch=here.leader.leading.epoch)
        while len(node.seqs()) < 9:
            await node.receive()
        sizes = [len(message.events) for message in node.received if isinstance(message, wire.Replicate)]
        assert sizes == [4, 3, 1, 1]
        assert node.seqs() == list(range(1, 10))


async def test_a_follower_that_does_not_read_costs_nothing_and_then_receives_a_snapshot(autojump_clock):
    async with pair() as here:
        node = await follower_of(here)
        await node.join()
        for _ in range(3):
            await set_params(here, RING_SIZE // 2)
        await trio.testing.wait_all_tasks_blocked()
        assert here.follower.replica.seq == here.engine.stream.last_seq  # another one is not delayed
        snapshots = 0
        seq = 0
        while seq < here.engine.stream.last_seq:
            match await node.receive():
                case wire.ReplaceState(snapshot=snapshot):
                    snapshots, seq = snapshots + 1, snapshot.seq
                case wire.Replicate(events=events):
                    assert events[0].seq == seq + 1
                    seq = events[-1].seq
        assert snapshots == 2


# Commands.


async def test_everything_up_to_the_seq_of_an_answer_is_sent_before_the_answer(autojump_clock):
    async with pair() as here:
        node = await follower_of(here)
        await node.join(epoch=here.leader.leading.epoch)
        for number in range(20):
            answer = await node.answer(await node.forward(SetParams(id=0, handle="h", params=number)))
            assert isinstance(answer, wire.CommandAnswered)
            assert node.seqs()[-1] >= msgspec.json.decode(answer.ok, type=Ok).seq == number + 1


async def test_forwarded_commands_take_effect_in_their_order(autojump_clock):
    async with pair() as here:
        node = await follower_of(here)
        await node.join(epoch=here.leader.leading.epoch)
        ids = [await node.forward(SetMaxConcurrent(id=0, n=number)) for number in range(100)]
        await node.answer(ids[-1])
        events = [e for m in node.received if isinstance(m, wire.Replicate) for e in m.events]
        assert [event.max_concurrent for event in events] == list(range(100))  # type: ignore[union-attr]


async def test_a_command_has_the_name_and_the_limits_of_its_caller(autojump_clock):
    async with pair() as here:
        node = await follower_of(here)
        await node.join(epoch=here.leader.leading.epoch)
        await node.answer(await node.forward(SetParams(id=0, handle="h", params=1), OPERATOR))
        [event] = [e for m in node.received if isinstance(m, wire.Replicate) for e in m.events]
        assert event.by == "olga"
        refused = await node.answer(await node.forward(SetParams(id=0, handle="bob", params=1), ALICE))
        assert isinstance(refused, wire.CommandFailed)
        assert refused.code == "forbidden"
        await node.answer(await node.forward(Submit(id=0, job="wait", handle="bob", params={}), ADMIN))
        refused = await node.answer(await node.forward(GetRun(id=0, run_id="bob"), ALICE))
        assert isinstance(refused, wire.CommandFailed)
        assert refused.code == "not_found"


async def test_an_error_has_its_details(autojump_clock):
    async with pair() as here:
        node = await follower_of(here)
        await node.join()
        submit = Submit(id=0, job="wait", handle="h", params={})
        first = await node.answer(await node.forward(submit))
        assert isinstance(first, wire.CommandAnswered)
        run = msgspec.json.decode(first.ok, type=Ok).run_id
        again = await node.answer(await node.forward(submit))
        assert isinstance(again, wire.CommandFailed)
        assert (again.code, again.details["active_run"]) == ("conflict", run)


async def test_a_long_list_is_sent_in_several_messages(autojump_clock):
    async with pair() as here:
        tickets = [
            await here.engine.submit("wait", handle=f"h{number}", params={"x": "y" * 50_000})
            for number in range(50)
        ]
        node = await follower_of(here)
        await node.join()
        id = await node.forward(ListRuns(id=0, limit=200))
        parts = [await node.answer(id)]
        while (last := parts[-1]) and isinstance(last, wire.CommandAnswered) and last.more:
            parts.append(await node.answer(id))
        assert len(parts) > 2
        following = here.follower.router.following
        assert following is not None
        runs = (await following.forward(ADMIN, ListRuns(id=0, limit=200)))["runs"]
        assert [run.id for run in runs] == [ticket.id for ticket in reversed(tickets)]


async def test_a_withdrawn_command_ends_without_an_answer(autojump_clock):
    async with pair() as here:
        node = await follower_of(here)
        await node.join()
        await here.engine.workers.register("w", "", ["s"], kind="queue")
        id = await node.forward(PollWork(id=0, worker_id="w", services=["s"], wait=25))
        await node.send(wire.Withdraw(id=id))
        await node.send(wire.Withdraw(id=999))  # nobody's
        with trio.fail_after(5):
            await here.leader.leading.idle()


# Who leads.


async def test_a_follower_leaves_an_engine_that_stops_before_it_has_the_state(autojump_clock):
    async with pair() as here:
        here.engine._entry.close()
        node = await follower_of(here)
        await node.join()
        with pytest.raises(trio.EndOfChannel):
            await node.receive()


async def test_a_node_that_no_longer_leads_executes_no_command(autojump_clock):
    async with pair() as here:
        node = await follower_of(here)
        await node.join()
        here.leader.leading.stop()
        refused = await node.answer(await node.forward(SetParams(id=0, handle="h", params=1)))
        assert isinstance(refused, wire.CommandFailed)
        assert refused.code == NOT_LEADER
        assert here.engine.stream.last_seq == 0


async def test_a_command_is_not_executed_by_an_engine_that_has_stopped(autojump_clock):
    async with pair() as here:
        node = await follower_of(here)
        await node.join(epoch=here.leader.leading.epoch)
        here.engine._entry.close()
        answer = await node.answer(await node.forward(SetParams(id=0, handle="h", params=1)))
        assert isinstance(answer, wire.CommandFailed)
        assert answer.code == NOT_LEADER


async def test_a_leader_whose_lease_has_lapsed_answers_no_beat(autojump_clock, monkeypatch):
    async with pair() as here:
        node = await follower_of(here)
        await node.join(epoch=here.leader.leading.epoch)
        await node.send(wire.NodeBeat(sent=1.0, seq=0))
        assert (await node.until(wire.NodeBeaten)).sent == 1.0
        with monkeypatch.context() as lapsed:
            lapsed.setattr(Engine, "has_lease", False)
            await node.send(wire.NodeBeat(sent=2.0, seq=0))
            await trio.testing.wait_all_tasks_blocked()
        await node.send(wire.NodeBeat(sent=3.0, seq=0))
        assert (await node.until(wire.NodeBeaten)).sent == 3.0


async def test_a_command_in_progress_is_lost_when_the_lease_lapses(autojump_clock):
    async with pair(Bodies()) as here:
        ticket = await here.engine.submit("wait", handle="h", params={})
        node = await follower_of(here)
        await node.join(epoch=here.leader.leading.epoch)
        number = await node.forward(Wait(id=0, run_id=ticket.id, timeout=3600))
        await trio.testing.wait_all_tasks_blocked()
        here.leader.leading.lapse()
        answer = await node.answer(number)
        assert isinstance(answer, wire.CommandFailed)
        assert answer.code == LEADER_LOST


async def test_a_node_that_does_not_lead_names_the_leader_it_follows(autojump_clock):
    async with pair() as here:
        ours, theirs = connection_pair()
        here.nursery.start_soon(here.follower.router.serve_node, theirs, None)
        node = ScriptedFollower(ours)
        await node.send(join_of("n3"))
        answer = await node.receive()
        assert isinstance(answer, wire.NotLeader)
        assert answer.leader is not None
        assert answer.leader.id == "leader"


async def test_a_leader_that_leaves_names_the_next_one_after_all_answers(autojump_clock):
    async with pair() as here:
        node = await follower_of(here)
        await node.join(epoch=here.leader.leading.epoch)
        id = await node.forward(SetParams(id=0, handle="h", params=1))
        await trio.testing.wait_all_tasks_blocked()
        here.leader.leading.followers.dismiss("n2")
        assert (await node.until(wire.Leaving)).to == "n2"
        assert [m.id for m in node.received if isinstance(m, wire.CommandAnswered)] == [id]
        with pytest.raises(trio.EndOfChannel):
            await node.receive()


# Nodes.


async def test_the_nodes_are_listed_with_what_they_have(autojump_clock):
    async with pair() as here:
        node = await follower_of(here)
        await node.join("n2", address="http://n2", version="1.1")
        await set_params(here, 3)
        await node.send(wire.NodeBeat(sent=0.5, seq=2))
        beaten = await node.until(wire.NodeBeaten)
        assert (beaten.sent, beaten.seq) == (0.5, 3)
        await trio.sleep(0.3)
        leader, follower, second = here.leader.leading.followers.nodes(3)
        assert (leader.role, leader.seq, follower.id) == ("leader", 3, "follower")
        assert (second.id, second.address, second.version, second.seq) == ("n2", "http://n2", "1.1", 2)
        assert second.lag == pytest.approx(0.3)


async def test_the_follower_with_the_most_events_is_the_furthest_unless_it_is_draining(autojump_clock):
    async with pair() as here:
        followers = here.leader.leading.followers
        here.follower.stop()
        await trio.testing.wait_all_tasks_blocked()
        assert followers.furthest() is None
        nodes = [await follower_of(here) for _ in range(3)]
        await nodes[0].join("a", epoch=here.leader.leading.epoch)
        await nodes[1].join("b")
        await nodes[2].join("c", draining=True)
        await set_params(here, 3)
        for node, seq in zip(nodes, (2, 1, 3), strict=True):
            await node.send(wire.NodeBeat(sent=0, seq=seq, draining=node is nodes[2]))
            await node.until(wire.NodeBeaten)
        assert followers.furthest() == "a"


async def test_a_second_connection_of_a_node_replaces_the_first(autojump_clock):
    async with pair() as here:
        first, second = await follower_of(here), await follower_of(here)
        await first.join("n2", address="http://old")
        await second.join("n2", address="http://new")
        assert (await first.until(wire.Leaving)).to is None
        await trio.testing.wait_all_tasks_blocked()
        nodes = here.leader.leading.followers.nodes(0)
        assert [node.address for node in nodes if node.id == "n2"] == ["http://new"]
        await second.answer(await second.forward(SetParams(id=0, handle="h", params=1)))


async def test_a_node_with_the_id_of_the_leader_is_refused(autojump_clock):
    async with pair() as here:
        node = await follower_of(here)
        await node.send(join_of("leader"))
        refused = await node.until(wire.NodeRefused)
        assert refused.code == "invalid"
        assert "set cluster.node to another id" in refused.message


@pytest.mark.parametrize(("protocol", "works"), [(-1, False), (0, True), (1, True), (2, True), (3, False)])
async def test_nodes_of_neighbouring_versions_work_together(autojump_clock, protocol, works):
    async with pair() as here:
        node = await follower_of(here)
        await node.send(join_of("n2", protocol=protocol))
        first = await node.receive()
        assert isinstance(first, wire.Joined if works else wire.NodeRefused)
        if isinstance(first, wire.NodeRefused):
            assert "upgrade the nodes one version at a time" in first.message


# Hostile frames.


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"type":"events","events":[]}',
        b'{"type":"beat","sent":0,"seq":0}',
        b'{"type":"join","node":1}',
    ],
)
async def test_a_connection_whose_first_frame_is_no_join_is_refused(autojump_clock, frame):
    async with pair() as here:
        node = await follower_of(here)
        await node.connection.send(frame)
        assert (await node.until(wire.NodeRefused)).code == "invalid"
        with pytest.raises(trio.EndOfChannel):
            await node.receive()


async def test_a_node_that_never_joins_is_refused(autojump_clock):
    async with pair() as here:
        node = await follower_of(here)
        with trio.fail_after(11), pytest.raises(trio.EndOfChannel):
            await node.receive()


@pytest.mark.parametrize("frame", [b"nonsense", b'{"type":"forward","id":1}', wire.encoded(join_of("n2"))])
async def test_a_malformed_frame_ends_only_the_connection_of_its_node(autojump_clock, frame):
    async with pair() as here:
        node = await follower_of(here)
        await node.join()
        await node.connection.send(frame)
        assert (await node.until(wire.NodeRefused)).code == "invalid"
        await set_params(here, 2)
        await here.caught_up()
        assert "n2" not in [each.id for each in here.leader.leading.followers.nodes(0)]


@pytest.mark.parametrize(
    "command",
    [
        b'{"type":"nothing","id":1}',
        b'{"type":"submit","id":1}',
        b"17",
        b'{"type":"auth","id":1,"token":"x"}',
        msgspec.json.encode(Subscribe(id=1)),
    ],
)
async def test_a_command_that_cannot_be_executed_fails_alone(autojump_clock, command):
    async with pair() as here:
        node = await follower_of(here)
        await node.join()
        caller = wire.Principal(name="x", role="admin")
        await node.send(wire.Forward(id=7, caller=caller, command=command, codec="json"))
        failed = await node.answer(7)
        assert isinstance(failed, wire.CommandFailed)
        assert failed.code == "invalid"
        answer = await node.answer(await node.forward(SetParams(id=0, handle="h", params=1)))
        assert isinstance(answer, wire.CommandAnswered)


async def test_a_caller_of_an_unknown_role_fails_its_command_alone(autojump_clock, caplog):
    async with pair() as here:
        node = await follower_of(here)
        await node.join()
        caller = wire.Principal(name="x", role="king")
        await node.send(wire.forward(7, caller, SetParams(id=0, handle="h", params=1)))
        failed = await node.answer(7)
        assert isinstance(failed, wire.CommandFailed)
        assert failed.code == "invalid"
        assert failed.message == (
            'role must be one of executor, worker, viewer, operator, admin (got "king")'
        )
        assert caplog.records == []
        assert here.engine.stream.last_seq == 0


async def test_two_commands_with_one_id_break_the_protocol(autojump_clock):
    async with pair() as here:
        node = await follower_of(here)
        await node.join()
        await here.engine.workers.register("w", "", ["s"], kind="queue")
        command = PollWork(id=0, worker_id="w", services=["s"], wait=25)
        caller = wire.Principal(name="x", role="admin")
        for _ in range(2):
            await node.send(wire.forward(7, caller, command))
        assert (await node.until(wire.NodeRefused)).code == "invalid"


async def test_the_commands_of_a_node_without_an_answer_are_limited(autojump_clock, monkeypatch):
    monkeypatch.setattr("greenroom.gateway.cluster.follower_session._MOST_CALLS", 3)
    async with pair() as here:
        node = await follower_of(here)
        await node.join()
        ids = []
        for worker in "abcd":  # a worker has one poll at a time
            await here.engine.workers.register(worker, "", ["s"], kind="queue")
            poll = PollWork(id=0, worker_id=worker, services=["s"], wait=3)
            ids.append(await node.forward(poll))
        refused = await node.answer(ids.pop())
        assert isinstance(refused, wire.CommandFailed)
        assert refused.code == "rate_limited"
        assert refused.message == "more than 3 commands of this node are in flight: retry later"
        assert {(await node.until(wire.CommandAnswered)).id for _ in ids} == set(ids)  # in any order
        answer = await node.answer(await node.forward(SetParams(id=0, handle="h", params=1)))
        assert isinstance(answer, wire.CommandAnswered)


# Followers that do not read, and large answers.


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


async def beat_for_ever(node: ScriptedFollower) -> None:
    while True:
        await node.send(wire.NodeBeat(sent=0, seq=0))
        await trio.sleep(0.25)


async def list_flows_often(node: ScriptedFollower, sent: list[int]) -> None:
    for _ in range(100):
        sent.append(await node.forward(ListFlows(id=0)))
        await trio.testing.wait_all_tasks_blocked()


async def test_only_the_newest_of_the_beats_that_cannot_be_answered_yet_is_answered(autojump_clock):
    async with pair() as here:
        node = await follower_of(here)
        await node.join(epoch=here.leader.leading.epoch)
        for number in range(1000):
            await node.send(wire.NodeBeat(sent=number, seq=0))
        await trio.testing.wait_all_tasks_blocked()
        await here.engine.set_params("h", 1)
        beaten = [await node.until(wire.NodeBeaten)]
        while beaten[-1].sent < 999:
            beaten.append(await node.until(wire.NodeBeaten))
        assert len(beaten) < 25  # the connection has room for 16 frames
        await node.send(wire.NodeBeat(sent=1000, seq=0))
        assert await node.until(wire.NodeBeaten) == wire.NodeBeaten(sent=1000, seq=1)


async def test_the_answer_to_a_later_beat_comes_after_the_events_before_that_beat(autojump_clock):
    async with pair() as here:
        node = await follower_of(here)
        await node.join(epoch=here.leader.leading.epoch)
        for number in range(30):
            await node.send(wire.NodeBeat(sent=number, seq=0))
            await trio.testing.wait_all_tasks_blocked()
            await here.engine.set_params("h", number)
        while not isinstance(last := await node.receive(), wire.NodeBeaten) or last.sent < 29:
            pass
        assert len(node.seqs()) >= 29


async def test_a_follower_that_beats_and_does_not_read_is_disconnected(autojump_clock, caplog):
    async with pair() as here:
        node = await follower_of(here)
        await node.join()
        with trio.fail_after(100), pytest.raises(trio.BrokenResourceError):
            await beat_for_ever(node)
        [text] = warnings_in(caplog)
        assert text.startswith("connection of node n2 is closed: the node does not read: a frame of ")
        assert text.endswith(" bytes was not sent within 20 s")
        assert "n2" not in [each.id for each in here.leader.leading.followers.nodes(0)]
        await set_params(here, 1)
        await here.caught_up()


async def test_the_answers_that_wait_for_a_follower_are_bounded(autojump_clock, monkeypatch, caplog):
    monkeypatch.setattr("greenroom.gateway.cluster.follower_session._MOST_UNSENT", 50_000)
    async with pair() as here:
        for number in range(20):
            await here.engine.flows.create(f"f{number}", "x" * 1000)
        node = await follower_of(here)
        await node.join()
        sent: list[int] = []
        with pytest.raises(trio.BrokenResourceError):
            await list_flows_often(node, sent)
        assert 3 <= len(sent) <= 25
        [text] = warnings_in(caplog)
        assert text == (
            "connection of node n2 is closed: the node does not read: "
            "more than 50,000 bytes of answers wait to be sent"
        )


async def test_a_follower_that_does_not_read_is_later_sent_only_the_last_list_of_nodes(autojump_clock):
    async with pair() as here:
        node = await follower_of(here)
        await node.join()
        for number in range(50):
            other = await follower_of(here)
            await other.join(f"o{number}")
        await node.send(wire.NodeBeat(sent=1, seq=0))
        await node.until(wire.NodeBeaten)
        await trio.testing.wait_all_tasks_blocked()
        await node.send(wire.NodeBeat(sent=2, seq=0))
        await node.until(wire.NodeBeaten)
        lists = [message.nodes for message in node.received if isinstance(message, wire.Nodes)]
        assert len(lists) < 25
        assert len(lists[-1]) == 53


async def test_an_answer_that_a_follower_would_not_accept_is_an_error_and_not_sent(
    autojump_clock, monkeypatch
):
    monkeypatch.setattr("greenroom.gateway.cluster.follower_session.MAX_MESSAGE", 2000)
    async with pair() as here:
        node = await follower_of(here)
        await node.join()
        failed = await node.answer(await node.forward(CreateFlow(id=0, name="f", description="x" * 2000)))
        assert isinstance(failed, wire.CommandFailed)
        assert (failed.code, failed.details["limit"]) == ("too_large", 2000)
        assert failed.message.startswith("answer: too large: 2")
        caller = wire.Principal(name="x", role="admin")
        request = wire.ForwardRequest(id=99, caller=caller, method="GET", path="/flows", query={}, body="")
        await node.send(request)
        assert isinstance(failed := await node.answer(99), wire.CommandFailed)
        assert failed.code == "too_large"
        answer = await node.answer(await node.forward(SetParams(id=0, handle="h", params=1)))
        assert isinstance(answer, wire.CommandAnswered)
