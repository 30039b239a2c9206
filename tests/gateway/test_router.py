"""Where a node of a cluster executes a command: waits for a leader, repetitions, and what callers learn."""

import random
from typing import Any, cast

import pytest
import trio
import trio.testing

from greenroom.actors.journal.stream import Stream
from greenroom.gateway.auth.tokens import Caller, Role
from greenroom.gateway.cluster.following import Following, LeaderLost
from greenroom.gateway.cluster.replica import Replica
from greenroom.gateway.cluster.router import Router
from greenroom.gateway.commands.entries import Fields
from greenroom.gateway.commands.table import BY_TYPE
from greenroom.persistence.memory import MemoryStore
from greenroom.protocol import commands as wire
from greenroom.protocol.batches import Refused, Submitted
from greenroom.protocol.commandbase import CommandBase
from greenroom.protocol.errors import Unavailable
from greenroom.protocol.records import ClusterInfo, LeaderInfo
from greenroom.protocol.submission import NewRun

CALLER = Caller("ann", Role.ADMIN)
SUBMIT = wire.Submit(id=1, job="works", handle="h")


class FakeFollowing:
    """A connection to a leader, which answers or is lost."""

    leader = LeaderInfo(id="n1", address="http://n1", term=1)

    def __init__(self, answer: Fields | LeaderLost) -> None:
        self.forwarded: list[Any] = []
        self._answer = answer

    async def forward(self, caller: Caller, command: CommandBase) -> Fields:
        await trio.lowlevel.checkpoint()
        self.forwarded.append(command)
        if isinstance(self._answer, LeaderLost):
            raise self._answer
        return self._answer


def new_router() -> Router:
    replica = Replica(Stream(), MemoryStore(), 1 << 20)
    return Router(replica, lambda: ClusterInfo(node="n2", role="follower"), _no_dial, random.Random(1))


async def _no_dial(leader: LeaderInfo) -> Any:
    raise AssertionError("no executor connects")


def follow(router: Router, following: FakeFollowing) -> None:
    router.follow(cast(Following, following))
    router.changed()


async def execute(router: Router, command: CommandBase) -> Fields:
    return await router.execute(_not_here, BY_TYPE[type(command)], CALLER, command)


async def _not_here(command: CommandBase) -> Fields:
    raise AssertionError("this node does not lead")


async def test_the_outcome_of_a_submission_is_unknown_if_no_leader_follows_the_one_that_was_lost(
    autojump_clock: trio.testing.MockClock,
):
    router = new_router()
    follow(router, FakeFollowing(LeaderLost("cut", sent=True)))
    with pytest.raises(Unavailable, match="may or may not have been carried out") as raised:
        await execute(router, SUBMIT)
    assert raised.value.details["outcome"] == "unknown"


async def test_a_submission_that_no_leader_has_received_was_not_carried_out(
    autojump_clock: trio.testing.MockClock,
):
    router = new_router()
    follow(router, FakeFollowing(LeaderLost("cut", sent=False)))
    with pytest.raises(Unavailable, match="no leader") as raised:
        await execute(router, SUBMIT)
    assert "outcome" not in raised.value.details


@pytest.mark.parametrize(("on_conflict", "joined"), [("queue", False), ("join", True), ("coalesce", True)])
async def test_a_repeated_submission_without_a_request_id_reports_a_new_run(
    autojump_clock: trio.testing.MockClock, on_conflict: str, joined: bool
):
    router = new_router()
    first = FakeFollowing(LeaderLost("cut", sent=True))
    second = FakeFollowing({"run_id": "01", "joined": True})
    follow(router, first)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def change_leader() -> None:
            await trio.testing.wait_all_tasks_blocked()
            follow(router, second)

        command = wire.Submit(id=1, job="works", handle="h", on_conflict=on_conflict)
        fields = await execute(router, command)
    assert fields == {"run_id": "01", "joined": joined}
    [sent], [repeated] = first.forwarded, second.forwarded
    assert sent.request_id is not None
    assert sent == repeated


async def test_a_repeated_batch_reports_new_runs(autojump_clock: trio.testing.MockClock):
    router = new_router()
    first = FakeFollowing(LeaderLost("cut", sent=True))
    outcomes = [Submitted(f"0{number}", True) for number in range(3)]
    outcomes.append(Submitted(error=Refused("conflict", "busy", {})))
    second = FakeFollowing({"submitted": outcomes})
    follow(router, first)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def change_leader() -> None:
            await trio.testing.wait_all_tasks_blocked()
            follow(router, second)

        new, joins = NewRun(job="works", handle="h"), NewRun(job="works", handle="h", on_conflict="join")
        mine = NewRun(job="works", handle="h", request_id="mine")
        command = wire.SubmitMany(id=1, runs=[new, joins, mine, new], all_or_nothing=False)
        fields = await execute(router, command)
    assert [outcome.joined for outcome in fields["submitted"]] == [False, True, True, None]
    assert fields["submitted"][3].error is not None
    [sent], [repeated] = first.forwarded, second.forwarded
    ids = [run.request_id for run in sent.runs]
    assert ids[2] == "mine"
    assert len(set(ids)) == 4
    assert sent == repeated


async def test_a_batch_with_all_request_ids_is_forwarded_unchanged(autojump_clock: trio.testing.MockClock):
    router = new_router()
    fields = {"submitted": [Submitted("01", True)]}
    following = FakeFollowing(fields)
    follow(router, following)
    command = wire.SubmitMany(id=1, runs=[NewRun(job="works", handle="h", request_id="mine")])
    assert await execute(router, command) == fields
    assert following.forwarded == [command]


async def test_the_request_id_of_a_client_is_kept_and_joined_is_reported(
    autojump_clock: trio.testing.MockClock,
):
    router = new_router()
    following = FakeFollowing({"run_id": "01", "joined": True})
    follow(router, following)
    command = wire.Submit(id=1, job="works", handle="h", request_id="mine")
    assert await execute(router, command) == {"run_id": "01", "joined": True}
    assert following.forwarded == [command]


async def test_a_trigger_can_have_joined_a_run(autojump_clock: trio.testing.MockClock):
    router = new_router()
    following = FakeFollowing({"run_id": "01", "joined": True})
    follow(router, following)
    fields = await execute(router, wire.TriggerSchedule(id=1, name="nightly"))
    assert fields == {"run_id": "01", "joined": True}
    assert following.forwarded[0].request_id is not None


@pytest.mark.parametrize(
    "command",
    [
        wire.Rerun(id=1, run_id="r"),
        wire.Retry(id=1, run_id="r"),
        wire.RerunMany(id=1, job="works"),
        wire.RetryMany(id=1, job="works"),
        wire.TriggerSchedule(id=1, name="nightly"),
    ],
    ids=lambda command: type(command).__name__,
)
async def test_commands_that_submit_runs_again_are_repeated_with_the_same_request_id(
    autojump_clock: trio.testing.MockClock, command: Any
):
    router = new_router()
    first = FakeFollowing(LeaderLost("cut", sent=True))
    second = FakeFollowing({})
    follow(router, first)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def change_leader() -> None:
            await trio.testing.wait_all_tasks_blocked()
            follow(router, second)

        await execute(router, command)
    [sent], [repeated] = first.forwarded, second.forwarded
    assert sent.request_id is not None
    assert sent == repeated


async def test_a_bulk_cancel_is_not_repeated(autojump_clock: trio.testing.MockClock):
    router = new_router()
    follow(router, FakeFollowing(LeaderLost("cut", sent=True)))
    with pytest.raises(Unavailable, match="may or may not have been carried out"):
        await execute(router, wire.CancelMany(id=1, job="works"))
