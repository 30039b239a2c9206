"""The follower's side of a connection between nodes, against a scripted leader."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import msgspec
import pytest
import trio

from greenroom.actors.executors.connection import connection_pair
from greenroom.actors.journal.stream import Stream
from greenroom.errors import Conflict, Invalid, TooLarge
from greenroom.gateway.cluster.follower_session import LEADER_LOST, NOT_LEADER
from greenroom.gateway.cluster.following import Following, LeaderLost, NotTheLeader, RefusedByLeader
from greenroom.gateway.cluster.replica import Replica
from greenroom.persistence.memory import MemoryStore
from greenroom.protocol import cluster as wire
from greenroom.protocol.commands import Ok, SetParams
from greenroom.protocol.events import EngineChanged, Event
from greenroom.protocol.fold import Projection
from greenroom.protocol.records import Snapshot
from tests.following import LEADER, SILENCE, join_of

from .scripted import OPERATOR, ScriptedLeader
from .support import pair

COMMAND = SetParams(id=0, handle="h", params=1)


def event(seq: int) -> Event:
    return EngineChanged(seq=seq, at=1.0, by="test", max_concurrent=seq, draining=False)


def joined(seq: int, epoch: str = "e", **given: Any) -> wire.Joined:
    return wire.Joined(epoch=epoch, seq=seq, leader=LEADER, max_value_bytes=1 << 20, **given)


@attrs.define
class Link:
    """A follower, and its scripted leader. `over` has why the connection has ended."""

    leader: ScriptedLeader
    following: Following
    replica: Replica
    nursery: trio.Nursery
    over: list[str | Exception]
    ended: trio.Event

    async def end(self) -> str | Exception:
        """Why the connection ends."""
        await self.ended.wait()
        return self.over[0]

    def call(self) -> list[object]:
        """Forward a command; the list then has its result or error."""
        done: list[object] = []

        async def run() -> None:
            try:
                done.append(await self.following.forward(OPERATOR, COMMAND))
            except Exception as error:
                done.append(error)

        self.nursery.start_soon(run)
        return done


@asynccontextmanager
async def link(
    seq: int | None = None, ready: Callable[[wire.Joined], None] | None = None, **given: Any
) -> AsyncIterator[Link]:
    """A follower that has connected; with `seq`, it has joined a leader and has the state at this seq."""
    replica = Replica(Stream(), MemoryStore(), 1 << 20)
    following = Following(replica, join_of("n2"), SILENCE)
    ours, theirs = connection_pair()
    over: list[str | Exception] = []
    ended = trio.Event()

    async def run() -> None:
        try:
            over.append(await following.run(ours, ready or (lambda joined: None)))
        except Exception as error:
            over.append(error)
        ended.set()

    async with trio.open_nursery() as nursery:
        here = Link(ScriptedLeader(theirs), following, replica, nursery, over, ended)
        nursery.start_soon(run)
        await here.leader.receive(wire.Join)
        if seq is not None:
            await here.leader.send(joined(seq, **given))
            await here.leader.send(wire.ReplaceState(snapshot=await state(seq)))
            await trio.testing.wait_all_tasks_blocked()
        yield here
        nursery.cancel_scope.cancel()


async def state(seq: int) -> Snapshot:
    async with pair() as here:
        projection = Projection.from_snapshot(await here.engine.snapshot())
    projection.epoch, projection.seq = "e", seq
    return projection.snapshot()


# Joining.


async def test_it_follows_when_its_state_has_everything_that_the_leader_had(autojump_clock):
    ready: list[wire.Joined] = []
    async with link(ready=ready.append) as here:
        await here.leader.send(joined(5))
        await here.leader.send(wire.ReplaceState(snapshot=await state(3)))
        await trio.testing.wait_all_tasks_blocked()
        assert (here.following.leader, ready) == (None, [])
        await here.leader.send(wire.Replicate(events=[event(4), event(5)]))
        await trio.testing.wait_all_tasks_blocked()
        assert here.following.leader == LEADER
        assert [each.seq for each in ready] == [5]


async def test_a_snapshot_in_parts_counts_when_it_is_complete(autojump_clock):
    async with link() as here:
        whole = await state(3)
        await here.leader.send(joined(3))
        await here.leader.send(
            wire.ReplaceState(snapshot=msgspec.structs.replace(whole, lanes={}), more=True)
        )
        await trio.testing.wait_all_tasks_blocked()
        assert here.following.leader is None
        await here.leader.send(wire.ReplaceState(snapshot=whole))
        await trio.testing.wait_all_tasks_blocked()
        assert here.following.leader == LEADER
        assert await here.replica.snapshot() == whole


async def test_a_node_that_does_not_lead_names_another_one(autojump_clock):
    async with link() as here:
        await here.leader.send(wire.NotLeader(leader=LEADER))
        error = await here.end()
        assert isinstance(error, NotTheLeader)
        assert error.leader == LEADER


async def test_a_refusal_is_an_error_with_its_message(autojump_clock):
    async with link() as here:
        await here.leader.send(wire.NodeRefused(code="invalid", message="upgrade first"))
        error = await here.end()
        assert isinstance(error, RefusedByLeader)
        assert str(error) == "upgrade first"


async def test_a_leader_that_does_not_answer_is_given_up(autojump_clock):
    async with link() as here:
        assert "has not answered within 5 s" in str(await here.end())


@pytest.mark.parametrize("frame", [b"nonsense", wire.encoded(wire.Nodes(nodes=[]))])
async def test_another_first_frame_ends_the_connection(autojump_clock, frame):
    async with link() as here:
        await here.leader.connection.send(frame)
        assert isinstance(await here.end(), trio.BrokenResourceError | Invalid)


# Events.


@pytest.mark.parametrize("seqs", [[5], [3], [3, 4], []])
async def test_events_that_do_not_follow_end_the_connection(autojump_clock, seqs):
    async with link(3) as here:
        await here.leader.send(wire.Replicate(events=[event(seq) for seq in seqs]))
        assert "do not follow" in str(await here.end())
        assert here.replica.seq == 3


@pytest.mark.parametrize("frame", [b"nonsense", b'{"type":"join"}', b'{"type":"events","events":[{}]}'])
async def test_a_malformed_frame_ends_the_connection(autojump_clock, frame):
    async with link(3) as here:
        await here.leader.connection.send(frame)
        assert isinstance(await here.end(), str)
        assert here.following.leader is None


async def test_a_silent_leader_is_given_up_and_a_beating_one_is_not(autojump_clock):
    async with link(3) as here:
        began = trio.current_time()
        while trio.current_time() < began + 3 * SILENCE:
            beat = await here.leader.receive(wire.NodeBeat)
            await here.leader.send(wire.NodeBeaten(sent=beat.sent, seq=3))
        assert here.replica.lag < 1
        assert here.following.leader == LEADER
        assert await here.end() == "the leader was silent for 5 s"


async def test_a_leader_that_leaves_names_the_next_one(autojump_clock):
    async with link(3) as here:
        await here.leader.send(wire.Leaving(to="n3"))
        assert await here.end() == "the leader has handed the leadership to n3"
        assert here.following.next_leader == "n3"


# Commands.


async def test_a_command_has_its_caller_and_its_answer(autojump_clock):
    async with link(3) as here:
        done = here.call()
        forward = await here.leader.receive(wire.Forward)
        assert (forward.caller.name, forward.caller.role) == ("olga", "operator")
        assert wire.command_in(forward) == COMMAND
        ok = msgspec.Raw(msgspec.json.encode(Ok(id=0, seq=3, count=7)))
        await here.leader.send(wire.CommandAnswered(id=forward.id, ok=ok))
        await trio.testing.wait_all_tasks_blocked()
        assert done == [{"count": 7}]


async def test_an_error_is_raised_as_its_class_with_its_details(autojump_clock):
    async with link(3) as here:
        done = here.call()
        id = (await here.leader.receive(wire.Forward)).id
        await here.leader.send(
            wire.CommandFailed(id=id, code="conflict", message="it is taken", details={"run": "r1"})
        )
        await trio.testing.wait_all_tasks_blocked()
        [error] = done
        assert isinstance(error, Conflict)
        assert (error.message, dict(error.details)) == ("it is taken", {"run": "r1"})


@pytest.mark.parametrize(("code", "sent"), [(NOT_LEADER, False), (LEADER_LOST, True)])
async def test_a_node_that_no_longer_leads_says_whether_it_has_the_command(autojump_clock, code, sent):
    async with link(3) as here:
        done = here.call()
        id = (await here.leader.receive(wire.Forward)).id
        await here.leader.send(wire.CommandFailed(id=id, code=code, message="the node no longer leads"))
        await trio.testing.wait_all_tasks_blocked()
        [error] = done
        assert isinstance(error, LeaderLost)
        assert error.sent is sent


async def test_commands_without_an_answer_are_lost_with_the_connection(autojump_clock):
    async with link(3) as here:
        done = here.call()
        await here.leader.receive(wire.Forward)
        await here.leader.connection.aclose()
        await here.end()
        [error] = done
        assert isinstance(error, LeaderLost)
        assert error.sent
        later = here.call()
        await trio.testing.wait_all_tasks_blocked()
        [error] = later
        assert isinstance(error, LeaderLost)
        assert not error.sent


async def test_a_cancelled_command_is_withdrawn_and_its_late_answer_is_ignored(autojump_clock):
    async with link(3) as here:
        with trio.move_on_after(1):
            await here.following.forward(OPERATOR, COMMAND)
        id = (await here.leader.receive(wire.Forward)).id
        assert (await here.leader.receive(wire.Withdraw)).id == id
        ok = msgspec.Raw(msgspec.json.encode(Ok(id=0, seq=3)))
        await here.leader.send(wire.CommandAnswered(id=id, ok=ok))
        await here.leader.send(wire.Replicate(events=[event(4)]))
        await trio.testing.wait_all_tasks_blocked()
        assert (here.replica.seq, here.over) == (4, [])


async def test_a_response_that_its_client_has_not_received_is_withdrawn(autojump_clock):
    async with link(3) as here:
        responses = []

        async def request() -> None:
            responses.append(await here.following.request(OPERATOR, "POST", "/queue/poll", {}, b"{}"))

        here.nursery.start_soon(request)
        id = (await here.leader.receive(wire.ForwardRequest)).id
        await here.leader.send(
            wire.RequestAnswered(id=id, status=200, body='{"id":1}', content_type="application/json")
        )
        await trio.testing.wait_all_tasks_blocked()
        [response] = responses
        assert (response.status, response.body) == (200, b'{"id":1}')
        response.unsent()
        assert (await here.leader.receive(wire.Withdraw)).id == id


async def test_a_body_that_is_not_text_is_not_forwarded(autojump_clock):
    async with link(3) as here:
        with pytest.raises(Invalid, match="body must be UTF-8"):
            await here.following.request(OPERATOR, "POST", "/x", {}, b"\xff")


async def test_a_frame_that_the_leader_would_not_accept_is_refused_and_not_sent(autojump_clock):
    async with link(3, max_frame_bytes=500) as here:
        with pytest.raises(TooLarge) as refused:
            await here.following.forward(OPERATOR, SetParams(id=0, handle="h", params="x" * 500))
        size = refused.value.details["size"]
        assert refused.value.message == (
            f"message: too large: {size} bytes as JSON, at most 500 are allowed; store it in a file"
        )
        with pytest.raises(TooLarge):
            await here.following.request(OPERATOR, "POST", "/x", {}, b'"' * 250)
        here.call()
        forward = await here.leader.receive(wire.Forward)
        assert wire.command_in(forward) == COMMAND
        assert here.over == []
