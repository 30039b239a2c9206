"""An executor's process as the engine sees it: its status, its bodies, and the messages to it."""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec
import pytest

from greenroom.actors.executors import peer as module
from greenroom.actors.executors.peer import Peer
from greenroom.errors import Invalid
from greenroom.protocol import executors as wire


class Body:
    """A body that notes what it receives."""

    def __init__(self, fence: int = 1) -> None:
        self.fence = fence
        self.received: list[wire.FromExecutor] = []

    def receive(self, message: wire.FromExecutor) -> None:
        self.received.append(message)


class Case:
    """A peer, and what it passes on."""

    def __init__(self, **fields: Any) -> None:
        self.others: list[wire.FromExecutor] = []
        self.spawned: list[Any] = []
        self.attach = {"executor": "e1", "start": "p1", "jobs": (wire.JobTerms(name="walk"),)} | fields
        self.peer = Peer(self.attached(), 100, 30, self.spawned.append, self._other)

    def attached(self, **fields: Any) -> wire.Attach:
        return wire.Attach(**(self.attach | fields))

    def connect(self) -> None:
        self.peer.hang_up = lambda: None

    def body(self, run: str = "r1", fence: int = 1) -> Body:
        body = Body(fence)
        self.peer.bodies[run] = cast(Any, body)
        return body

    def receive(self, *messages: wire.FromExecutor, first: int = 1, ack: int = 0) -> None:
        self.peer.receive(wire.ExecutorFrame(first=first, ack=ack, messages=messages))

    def sent(self) -> list[Any]:
        """What is sent on the next connection."""
        return [msgspec.json.decode(each) for each in self.peer.outgoing.take(100)[1]]

    def _other(self, peer: Peer, message: wire.FromExecutor) -> None:
        assert peer is self.peer
        self.others.append(message)


def call(run: str = "r1", fence: int = 1) -> wire.Call:
    return wire.Call(run, fence, 7, wire.TakeSlot())


def end(run: str = "r1", fence: int = 1) -> wire.Ended:
    return wire.Ended(run=run, fence=fence, outcome="stopped")


def test_a_peer_is_what_its_process_has_announced() -> None:
    peer = Case(slots=2, labels=("gpu",), functions=("f", "f"), connection=3).peer
    assert (peer.id, peer.start, peer.slots, peer.labels, peer.connection) == ("e1", "p1", 2, ("gpu",), 3)
    assert (list(peer.jobs), peer.functions, peer.child) == (["walk"], {"f"}, False)
    assert (peer.session, peer.was_closed, peer.bodies, peer.wake) == ("", False, {}, None)
    assert Case(executor="local-1").peer.child


def test_the_status_depends_on_the_connection_first() -> None:
    case = Case()
    assert (case.peer.status, case.peer.accepts, case.peer.connected) == ("disconnected", False, False)
    case.connect()
    assert (case.peer.status, case.peer.accepts, case.peer.connected) == ("attached", True, True)
    case.peer.draining = True
    assert (case.peer.status, case.peer.accepts, case.peer.connected) == ("draining", False, True)
    case.peer.hang_up = None
    assert (case.peer.status, case.peer.accepts) == ("disconnected", False)


def test_a_drain_is_never_taken_back() -> None:
    case = Case()
    assert not case.peer.draining
    case.peer.update(case.attached(draining=True))
    case.peer.update(case.attached())
    assert case.peer.draining


def test_it_is_lost_when_its_lease_can_be_over() -> None:
    peer = Case().peer
    assert peer.lost_at == 130
    peer.heard_at = 110
    assert peer.lost_at == 140


@pytest.mark.parametrize(
    ("folder", "own", "found"), [("f1", False, "f1"), ("", False, None), ("f1", True, ""), ("", True, "")]
)
def test_the_folder_of_files(folder: str, own: bool, found: str | None) -> None:
    peer = Case(folder=folder).peer
    assert not peer.own_folder
    peer.own_folder = own
    assert peer.folder_of_files == found


def test_messages_wake_the_writer_and_are_kept_until_acknowledged() -> None:
    case, woken = Case(), []
    case.peer.send(wire.Drain())
    case.peer.wake = lambda: woken.append(True)
    case.peer.send(wire.Settled("r1", 1))
    assert woken == [True]
    assert [each["type"] for each in case.sent()] == ["drain", "settled"]
    case.receive(ack=1)
    assert len(case.peer.outgoing) == 1


def test_a_new_session_begins_without_messages() -> None:
    case = Case()
    case.peer.send(wire.Drain())
    case.receive(wire.Draining())
    case.peer.new_session("s2")
    assert (case.peer.session, len(case.peer.outgoing), case.peer.incoming.received) == ("s2", 0, 0)
    case.peer.send(wire.Drain())
    assert case.peer.outgoing.size == len(b'{"type":"drain"}')


def test_helper_tasks_are_started_by_the_engine() -> None:
    async def helper() -> None:
        raise AssertionError("not called here")

    case = Case()
    case.peer.spawn(helper)
    assert case.spawned == [helper]


def test_messages_reach_their_body_once_and_in_order() -> None:
    case = Case()
    body, other = case.body(), case.body("r2", fence=5)
    cancel = wire.CancelCall("r1", 1, 7)
    told = wire.Told("r2", 5, wire.TookMessages(1))
    case.receive(call(), told, cancel)
    case.receive(told, cancel, first=2)
    assert body.received == [call(), cancel]
    assert other.received == [told]
    assert case.others == []


def test_a_body_that_has_ended_is_no_longer_there() -> None:
    case = Case()
    body = case.body()
    case.receive(end(), call())
    assert body.received == [end()]
    assert case.peer.bodies == {}
    assert [each["type"] for each in case.sent()] == ["answered"]


@pytest.mark.parametrize("fence", [0, 2])
def test_messages_of_a_body_with_another_fence_are_refused(fence: int) -> None:
    case = Case()
    body = case.body()
    told = wire.Told("r1", fence, wire.TookMessages(1))
    case.receive(call(fence=fence), end(fence=fence), told, wire.CancelCall("r1", fence, 7))
    assert body.received == []
    assert list(case.peer.bodies) == ["r1"]
    answered, settled = case.sent()
    assert (answered["type"], answered["call"], answered["code"]) == ("answered", 7, "abandoned")
    assert (settled["type"], settled["run"], settled["fence"]) == ("settled", "r1", fence)


def test_a_blocked_loop_is_for_the_body_and_for_the_registry() -> None:
    case = Case()
    body = case.body()
    blocked = wire.Told("r1", 1, wire.BlockedLoop(1.5, "app.py:1 in f"))
    case.receive(blocked, wire.Draining())
    assert body.received == [blocked]
    assert case.others == [blocked, wire.Draining()]


def test_an_executor_that_acknowledges_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 2)
    case = Case()
    for _ in range(2):
        case.peer.send(wire.Drain())
    case.receive()
    case.peer.send(wire.Drain())
    with pytest.raises(Invalid, match="executor has left 3 messages unacknowledged: send `ack`") as refused:
        case.receive()
    assert "retry" not in refused.value.details
    case.sent()
    case.receive(ack=1)


def test_an_executor_that_acknowledges_too_few_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case()
    case.peer.send(wire.Drain())
    monkeypatch.setattr(module, "MOST_KEPT_BYTES", case.peer.outgoing.size)
    case.receive()
    case.peer.send(wire.Drain())
    text = f"executor has left {2 * module.MOST_KEPT_BYTES} bytes of messages unacknowledged"
    with pytest.raises(Invalid, match=re.escape(text)) as refused:
        case.receive()
    assert refused.value.details["retry"] is True


def test_the_limits_are_those_in_the_documentation_of_the_protocol() -> None:
    assert (module.MOST_KEPT, module.MOST_KEPT_BYTES) == (20_000, 256 * 1024 * 1024)
