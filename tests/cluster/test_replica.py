"""The state of a follower: it is the leader's, field by field, and its stream has the same events."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from greenroom.actors.journal.stream import FellBehind, Stream
from greenroom.errors import GreenroomError, Unavailable
from greenroom.gateway.cluster.replica import Replica
from greenroom.persistence.memory import MemoryStore
from greenroom.protocol.cluster import Joined
from greenroom.protocol.fold import Projection
from greenroom.protocol.records import Snapshot
from tests.following import LEADER
from tests.support import Bodies

from .support import Pair, pair


async def state(seq: int, epoch: str = "e") -> Snapshot:
    """A state of an engine, as of another seq."""
    async with pair() as here:
        projection = Projection.from_snapshot(await here.engine.snapshot())
    projection.epoch, projection.seq = epoch, seq
    return projection.snapshot()


def empty_replica() -> Replica:
    return Replica(Stream(), MemoryStore(), 1 << 20)


def joined_at(seq: int, epoch: str = "e") -> Joined:
    return Joined(epoch=epoch, seq=seq, leader=LEADER, max_value_bytes=1)


async def act(here: Pair, lots: random.Random) -> None:
    """One command of a random kind."""
    engine, handle = here.engine, lots.choice("abc")
    runs = list((await engine.snapshot()).runs)
    match lots.randrange(8):
        case 0 | 1 | 2:
            await engine.submit("wait", handle=handle, lane=lots.choice(["main", "l"]), params={})
        case 3 if runs:
            await engine.cancel(lots.choice(runs))
        case 4 if runs:
            here.bodies._ends[lots.choice(runs)].set()
        case 5:
            await engine.set_params(handle, lots.random())
        case 6:
            await engine.set_concurrency("l", lots.randrange(3))
        case _:
            await engine.set_max_concurrent(lots.randrange(4))


@settings(max_examples=20)
@given(st.integers(0, 1 << 32), st.integers(1, 40))
def test_the_replica_is_the_leaders_state_field_by_field(seed, count):
    async def main() -> None:
        lots = random.Random(seed)
        async with pair(Bodies()) as here:
            for _ in range(count):
                with suppress(GreenroomError):  # refused by the engine's rules
                    await act(here, lots)
                if lots.random() < 0.3:
                    await trio.testing.wait_all_tasks_blocked()
                    assert await here.follower.replica.snapshot() == await here.engine.snapshot()
            await trio.testing.wait_all_tasks_blocked()
            assert await here.follower.replica.snapshot() == await here.engine.snapshot()
            mine, theirs = here.follower.stream, here.engine.stream
            assert [p.event for p in mine.between(0, 10_000)] == [p.event for p in theirs.between(0, 10_000)]

    trio.run(main, clock=MockClock(autojump_threshold=0))


async def test_a_follower_of_an_engine_without_events_has_its_state(autojump_clock):
    async with pair() as here:
        assert here.engine.stream.last_seq == 0
        assert await here.follower.replica.snapshot() == await here.engine.snapshot()


async def test_an_empty_replica_reads_nothing():
    replica = empty_replica()
    with pytest.raises(Unavailable, match="this node has no state yet"):
        await replica.snapshot()
    assert replica.job_of("x") is None


async def test_a_state_of_another_epoch_is_dropped_when_a_leader_is_joined(autojump_clock):
    replica = empty_replica()
    replica.begin(joined_at(3))
    replica.replace(await state(3))
    replica.begin(joined_at(3))
    assert not replica.is_empty
    replica.begin(joined_at(3, "another"))
    assert replica.is_empty


async def test_a_state_later_than_the_leaders_is_dropped_and_its_subscribers_resync(autojump_clock):
    replica = empty_replica()
    replica.begin(joined_at(9))
    replica.replace(await state(9))
    replica.begin(joined_at(4))
    assert replica.is_empty
    replica.replace(await state(4))
    assert replica.seq == 4
    with pytest.raises(FellBehind):
        replica.stream.between(9, 1)


async def test_it_is_ready_while_the_leader_has_confirmed_it_within_a_second(autojump_clock):
    async with pair() as here:
        replica = here.follower.replica
        await trio.sleep(10)
        replica.check_ready()
        here.follower.stop()
        await trio.sleep(0.5)
        replica.check_ready()
        await trio.sleep(1)
        with pytest.raises(Unavailable, match="not up to date"):
            replica.check_ready()
        assert replica.lag > 1
