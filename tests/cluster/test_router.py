"""Where commands are executed: they wait for a leader, are repeated if that is safe, and keep their order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any

import msgspec
import pytest
import trio

from greenroom.actors.executors.connection import connection_pair
from greenroom.errors import GreenroomError, Unavailable
from greenroom.gateway.auth.scopes import Scope
from greenroom.gateway.auth.tokens import Caller, Role
from greenroom.gateway.cluster.following import Following
from greenroom.gateway.cluster.leading import Leading
from greenroom.gateway.cluster.router import PATIENCE
from greenroom.gateway.cluster.turns import Turns
from greenroom.gateway.commands.table import BY_TYPE
from greenroom.protocol import cluster as wire
from greenroom.protocol.commandbase import CommandBase
from greenroom.protocol.commands import Cancel, GetRun, Ok, SetMaxConcurrent, SetParams, Submit
from greenroom.protocol.patterns import patterns
from tests.following import LEADER, join_of

from .scripted import ADMIN, ScriptedLeader
from .support import Pair, pair

SUBMIT = Submit(id=0, job="wait", handle="h", params={})


class Call:
    """A command that a client has sent, and its outcome."""

    def __init__(self, here: Pair, command: CommandBase, caller: Caller = ADMIN, turns: Turns | None = None):
        self.outcome: Any = None
        self.at: float | None = None
        self._here = here
        self._command = command
        self._caller = caller
        self._turns = turns
        here.nursery.start_soon(self._run)

    async def _run(self) -> None:
        entry = BY_TYPE[type(self._command)]
        call = partial(_never, entry)
        router = self._here.follower.router
        try:
            self.outcome = await router.execute(call, entry, self._caller, self._command, self._turns)
        except GreenroomError as error:
            self.outcome = error
        self.at = trio.current_time()


async def _never(entry: Any, command: CommandBase) -> Any:
    raise AssertionError(f"{command} is executed at the leader")


@asynccontextmanager
async def next_leader(here: Pair) -> AsyncIterator[ScriptedLeader]:
    """The follower's next leader, which the test plays; it has all events."""
    ours, theirs = connection_pair()
    replica, router = here.follower.replica, here.follower.router
    following = Following(replica, join_of("follower", epoch=replica.epoch, after=replica.seq), 1e9)
    router.follow(following)

    async def run() -> None:
        await following.run(ours, lambda joined: router.changed())
        router.follow(None)
        router.changed()

    here.nursery.start_soon(run)
    leader = ScriptedLeader(theirs)
    await leader.receive(wire.Join)
    await leader.send(
        wire.Joined(epoch=replica.epoch, seq=replica.seq, leader=LEADER, max_value_bytes=1 << 20)
    )
    yield leader
    await theirs.aclose()
    await trio.testing.wait_all_tasks_blocked()


async def reply(leader: ScriptedLeader, forward: wire.Forward, **fields: Any) -> None:
    ok = msgspec.Raw(msgspec.json.encode(Ok(id=0, seq=0, **fields)))
    await leader.send(wire.CommandAnswered(id=forward.id, ok=ok))
    await trio.testing.wait_all_tasks_blocked()


def sent(forward: wire.Forward) -> dict[str, Any]:
    command: dict[str, Any] = msgspec.msgpack.decode(forward.command)
    return command


async def without_leader(here: Pair) -> None:
    here.follower.stop()
    await trio.testing.wait_all_tasks_blocked()
    assert here.follower.router.leader is None


# Waiting for a leader.


async def test_a_command_waits_for_a_leader_and_is_then_executed(autojump_clock):
    async with pair() as here:
        await without_leader(here)
        call = Call(here, SetParams(id=0, handle="h", params=1))
        await trio.sleep(PATIENCE - 1)
        assert call.at is None
        await here.nursery.start(here.follower.follow, here.leader)
        await here.caught_up()
        await trio.testing.wait_all_tasks_blocked()
        assert call.outcome == {}
        assert here.engine.stream.last_seq == 1


async def test_without_a_leader_it_fails_after_a_while_and_says_when_to_repeat_it(autojump_clock):
    async with pair() as here:
        await without_leader(here)
        began = trio.current_time()
        call = Call(here, SUBMIT)
        await trio.sleep(PATIENCE + 1)
        assert isinstance(call.outcome, Unavailable)
        assert call.outcome.details == {"retry_after": 1}
        assert call.at == began + PATIENCE


async def test_the_wait_for_the_next_leader_begins_when_the_leader_is_lost(autojump_clock):
    async with pair() as here:
        await without_leader(here)
        async with next_leader(here) as leader:
            call = Call(here, SUBMIT)
            first = await leader.receive(wire.Forward)
            await trio.sleep(2 * PATIENCE)
        await trio.sleep(PATIENCE - 1)
        async with next_leader(here) as leader:
            again = await leader.receive(wire.Forward)
            assert sent(again) == sent(first)
            await reply(leader, again, run_id="r", joined=False)
            assert call.outcome == {"run_id": "r", "joined": False}


# Repeating.


async def test_a_submission_takes_effect_once_when_the_leader_is_lost_before_its_answer(autojump_clock):
    async with pair() as here:
        await without_leader(here)
        async with next_leader(here) as leader:
            call = Call(here, SUBMIT)
            first = sent(await leader.receive(wire.Forward))
            assert first["request_id"].startswith("node:")
            run = (
                await here.engine.submit("wait", handle="h", params={}, request_id=first["request_id"])
            ).id  # the lost leader has committed it
        await here.nursery.start(here.follower.follow, here.leader)
        await trio.testing.wait_all_tasks_blocked()
        assert call.outcome == {"run_id": run, "joined": False}
        assert list((await here.engine.snapshot()).runs) == [run]


async def test_a_request_id_of_the_client_is_kept(autojump_clock):
    async with pair() as here:
        await without_leader(here)
        async with next_leader(here) as leader:
            Call(here, msgspec.structs.replace(SUBMIT, request_id="mine"))
            assert sent(await leader.receive(wire.Forward))["request_id"] == "mine"


async def test_a_command_that_must_not_be_repeated_has_an_unknown_outcome(autojump_clock):
    async with pair() as here:
        await without_leader(here)
        async with next_leader(here) as leader:
            call = Call(here, Cancel(id=0, run_id="r"))
            await leader.receive(wire.Forward)
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(call.outcome, Unavailable)
        assert call.outcome.details == {"outcome": "unknown"}


async def test_a_command_that_the_last_leader_has_not_executed_is_repeated_in_any_case(autojump_clock):
    async with pair() as here:
        await without_leader(here)
        async with next_leader(here) as leader:
            call = Call(here, Cancel(id=0, run_id="r"))
            forward = await leader.receive(wire.Forward)
            await leader.send(wire.CommandFailed(id=forward.id, code="not_leader", message="no"))
            await trio.testing.wait_all_tasks_blocked()
        async with next_leader(here) as leader:
            again = await leader.receive(wire.Forward)
            await leader.send(wire.CommandFailed(id=again.id, code="not_found", message="unknown run"))
            await trio.testing.wait_all_tasks_blocked()
        assert call.outcome.code == "not_found"


# Order.


@pytest.mark.parametrize("lost", [False, True])
async def test_commands_of_a_connection_keep_their_order_at_the_next_leader(autojump_clock, lost):
    async with pair() as here:
        await without_leader(here)
        turns = Turns()
        count = 20
        if not lost:
            for n in range(count):
                Call(here, SetMaxConcurrent(id=n, n=n), turns=turns)
                await trio.testing.wait_all_tasks_blocked()
        else:
            async with next_leader(here) as leader:
                for n in range(count):
                    Call(here, SetMaxConcurrent(id=n, n=n), turns=turns)
                    assert sent(await leader.receive(wire.Forward))["id"] == n
        async with next_leader(here) as leader:
            assert [sent(await leader.receive(wire.Forward))["id"] for _ in range(count)] == list(
                range(count)
            )


async def test_a_command_does_not_overtake_those_that_are_repeated(autojump_clock):
    async with pair() as here:
        await without_leader(here)
        turns = Turns()
        async with next_leader(here) as leader:
            Call(here, SetMaxConcurrent(id=1, n=1), turns=turns)
            await leader.receive(wire.Forward)
        Call(here, SetMaxConcurrent(id=2, n=2), turns=turns)
        async with next_leader(here) as leader:
            assert [sent(await leader.receive(wire.Forward))["id"] for _ in range(2)] == [1, 2]


async def test_commands_that_the_own_engine_loses_keep_their_order_at_a_leader_that_is_known(autojump_clock):
    received: list[int] = []
    stops = trio.Event()

    class Stopping:
        accepts = is_current = True

        def command(self, *, waits: bool) -> AbstractContextManager[None]:
            return nullcontext()

    class Known:
        leader = LEADER

        async def forward(self, caller: Caller, command: Any) -> dict[str, Any]:
            received.append(command.id)
            await trio.lowlevel.checkpoint()
            return {}

    async def lose(command: CommandBase) -> Any:
        await stops.wait()
        raise Unavailable("engine has stopped")

    async with pair() as here:
        router, turns, leading = here.follower.router, Turns(), Stopping()
        following = router.following
        router.engine = here.engine
        router.leading = leading  # type: ignore[assignment]
        entry = BY_TYPE[SetMaxConcurrent]
        for n in range(20):
            here.nursery.start_soon(router.execute, lose, entry, ADMIN, SetMaxConcurrent(id=n, n=n), turns)
            await trio.testing.wait_all_tasks_blocked()
        leading.accepts = leading.is_current = False
        router.engine, router.leading, router.following = None, None, Known()  # type: ignore[assignment]
        stops.set()
        await trio.testing.wait_all_tasks_blocked()
        router.following = following
        assert received == list(range(20))


class Leased:
    """The lease of an engine that leads at the router of its own node."""

    def __init__(self, here: Pair) -> None:
        self.good = True
        self.stopped = False
        self.router = here.leader.router
        self.leading = Leading(self, "epoch", here.leader.leading.followers)  # type: ignore[arg-type]
        self.router.lead(here.engine, self.leading, _no_step_down)

    @property
    def has_lease(self) -> bool:
        return self.good

    def lapse(self) -> None:
        self.good = False
        self.leading.lapse()


async def _no_step_down() -> None:
    raise AssertionError("it does not step down")


async def test_a_leader_whose_lease_has_lapsed_executes_nothing_until_it_is_renewed(autojump_clock):
    async with pair() as here:
        lease, called = Leased(here), []

        async def call(command: CommandBase) -> dict[str, Any]:
            called.append(trio.current_time())
            return {}

        execute = partial(lease.router.execute, call, BY_TYPE[SetParams], ADMIN)
        await execute(SetParams(id=1, handle="h", params=1))
        lease.lapse()
        began = trio.current_time()
        with pytest.raises(Unavailable, match="no leader"):
            await execute(SetParams(id=2, handle="h", params=1))
        assert trio.current_time() == began + PATIENCE
        here.nursery.start_soon(execute, SetParams(id=3, handle="h", params=1))
        await trio.sleep(1)
        assert called == [began]
        lease.good = True
        lease.router.changed()
        await trio.testing.wait_all_tasks_blocked()
        assert called == [began, began + PATIENCE + 1]


@pytest.mark.parametrize("ends", [True, False])
async def test_an_answer_that_comes_after_the_lease_has_lapsed_is_not_given(autojump_clock, ends):
    async with pair() as here:
        lease = Leased(here)

        async def call(command: CommandBase) -> dict[str, Any]:
            await trio.sleep(1)
            lease.good = False
            if not ends:
                lease.lapse()
                await trio.sleep_forever()
            return {"count": 0}

        began = trio.current_time()
        with pytest.raises(Unavailable) as unknown:
            await lease.router.execute(call, BY_TYPE[Cancel], ADMIN, Cancel(id=1, run_id="r"))
        assert unknown.value.details["outcome"] == "unknown"
        assert trio.current_time() == began + 1


async def test_a_command_that_loses_each_leader_at_once_fails(autojump_clock):
    async with pair() as here:
        await without_leader(here)
        call = Call(here, SUBMIT)
        for _ in range(3):
            assert call.outcome is None
            async with next_leader(here) as leader:
                await leader.receive(wire.Forward)
        assert isinstance(call.outcome, Unavailable)
        assert call.outcome.details["outcome"] == "unknown"


@pytest.mark.parametrize(("request_id", "outcome"), [("mine", None), (None, "unknown")])
async def test_a_submission_without_a_next_leader_can_be_repeated_if_its_client_gave_a_request_id(
    autojump_clock, request_id, outcome
):
    async with pair() as here:
        await without_leader(here)
        call = Call(here, msgspec.structs.replace(SUBMIT, request_id=request_id))
        async with next_leader(here) as leader:
            await leader.receive(wire.Forward)
        await trio.sleep(PATIENCE + 1)
        assert isinstance(call.outcome, Unavailable)
        assert call.outcome.details.get("outcome") == outcome
        assert ("retry_after" in call.outcome.details) is (outcome is None)


async def test_a_leader_whose_lease_has_lapsed_does_not_take_a_client_back(autojump_clock):
    async with pair() as here:
        lease = Leased(here)
        ahead = here.engine.stream.last_seq + 1
        assert await lease.router.reach(ahead), "a leader has all events"
        lease.lapse()
        began = trio.current_time()
        assert not await lease.router.reach(ahead)
        assert trio.current_time() == began + PATIENCE


async def test_a_read_that_the_stopped_engine_does_not_answer_is_answered_by_the_replica(autojump_clock):
    async with pair() as here:
        lease, router, asked = Leased(here), here.leader.router, []

        async def call(command: CommandBase) -> dict[str, Any]:
            asked.append(router.engine)
            if router.engine is not None:
                here.engine._entry.close()
                raise Unavailable("engine stopped before it replied")
            return {"run": None}

        router.replica.adopt(lease.leading.epoch, here.engine.committed)
        here.nursery.start_soon(after, 1, router.resign)
        fields = await router.execute(call, BY_TYPE[GetRun], ADMIN, GetRun(id=0, run_id="r"))
        assert fields == {"run": None}
        assert asked == [here.engine, None]


async def after(seconds: float, call: Callable[[], None]) -> None:
    await trio.sleep(seconds)
    call()


async def test_a_read_follows_the_answers_to_the_commands_before_it(autojump_clock):
    async with pair() as here:
        await without_leader(here)
        turns = Turns()
        read: list[float] = []

        async def get_run() -> None:
            async def call(command: CommandBase) -> dict[str, Any]:
                read.append(trio.current_time())
                return {}

            router, entry = here.follower.router, BY_TYPE[GetRun]
            await router.execute(call, entry, ADMIN, GetRun(id=0, run_id="r"), turns)

        async with next_leader(here) as leader:
            Call(here, SetParams(id=1, handle="h", params=1), turns=turns)
            forward = await leader.receive(wire.Forward)
            here.nursery.start_soon(get_run)
            await trio.testing.wait_all_tasks_blocked()
            assert read == []
            await reply(leader, forward)
            assert len(read) == 1
            Call(here, SetParams(id=2, handle="h", params=1), turns=turns)
            await leader.receive(wire.Forward)
            began = trio.current_time()
            here.nursery.start_soon(get_run)
            await trio.sleep(2 * PATIENCE)
            assert read[1:] == [began + PATIENCE]  # not for ever


# Callers, and reads.


async def test_a_limited_token_keeps_its_limits(autojump_clock):
    alice = Caller("alice", Role.OPERATOR, scope=Scope(patterns("handle", ["alice"]), None, None))
    async with pair() as here:
        allowed = Call(here, SetParams(id=0, handle="alice", params=1), alice)
        refused = Call(here, SetParams(id=0, handle="bob", params=1), alice)
        await trio.testing.wait_all_tasks_blocked()
        assert allowed.outcome == {}
        assert refused.outcome.code == "forbidden"
        handles = (await here.engine.snapshot()).handles
        assert list(handles) == ["alice"]


async def test_the_seq_of_an_answer_is_in_the_replica_when_the_answer_arrives(autojump_clock):
    async with pair() as here:
        router, entry = here.follower.router, BY_TYPE[SetParams]
        for number in range(1, 30):
            command = SetParams(id=0, handle="h", params=number)
            await router.execute(partial(_never, entry), entry, ADMIN, command)
            assert here.follower.replica.seq == here.engine.stream.last_seq == number
            assert (await here.follower.replica.snapshot()).handles["h"].params == number


async def test_reads_fall_back_to_the_leader_if_this_node_cannot_reach_the_store(autojump_clock):
    async def unreachable(command: CommandBase) -> Any:
        raise Unavailable("this node cannot reach the store")

    async with pair() as here:
        run = (await here.engine.submit("wait", handle="h", params={})).id
        router, entry = here.follower.router, BY_TYPE[GetRun]
        read = partial(router.execute, unreachable, entry, ADMIN, GetRun(id=0, run_id=run))
        assert (await read())["run"].id == run
        await without_leader(here)
        with pytest.raises(Unavailable, match="cannot reach the store"):
            await read()


async def test_the_status_is_the_leaders_as_long_as_there_is_one(autojump_clock):
    async with pair() as here:
        known = await here.follower.router.status()
        assert (known.node, known.role) == ("follower", "follower")
        assert [(node.id, node.role) for node in known.nodes] == [
            ("leader", "leader"),
            ("follower", "follower"),
        ]
        await without_leader(here)
        known = await here.follower.router.status()
        assert (known.role, known.leader) == ("looking", None)
        assert [node.id for node in known.nodes] == ["leader", "follower"]
