"""The cost of a snapshot: a few copies of dicts for any number of runs; counts cost less."""

from __future__ import annotations

import math
from collections import Counter

import trio.testing

from greenroom import Engine
from greenroom.protocol.events import LaneChanged, RunChanged, RunStateChanged
from greenroom.protocol.fold import Projection
from greenroom.protocol.states import Status

from ..support import Bodies, open_engine, until_status

MANY = 3000


def queued(id: str, seq: int, place: int | None, *, handle: str | None = None, lane: str = "main"):
    return RunStateChanged(
        seq=seq,
        at=float(seq),
        by="test",
        run=id,
        handle=handle or f"handle {id}",
        lane=lane,
        from_=None,
        to=Status.QUEUED,
        reason=None,
        attempt=1,
        place=place,
        job="job",
        kind="start",
    )


def crowd(count: int) -> Projection:
    """A projection with this number of queued runs, each with its own handle."""
    projection = Projection("e", max_concurrent=3)
    for seq in range(1, count + 1):
        projection.apply(queued(f"r{seq}", seq, seq))
    return projection


def test_a_snapshot_copies_no_record():
    projection = crowd(MANY)
    first, second = projection.snapshot(), projection.snapshot()
    assert all(second.runs[id] is run for id, run in first.runs.items())
    assert all(second.handles[name] is handle for name, handle in first.handles.items())
    assert len(first.runs) == len(first.handles) == MANY


def test_a_snapshot_stays_what_it_was_while_the_projection_moves_on():
    projection = crowd(3)
    for seq, id in ((4, "w1"), (5, "w2")):
        projection.apply(queued(id, seq, None, handle="handle r1"))
    snapshot = projection.snapshot()
    kept = str(snapshot)
    projection.apply(queued("w3", 6, None, handle="handle r1"))
    projection.apply(queued("r7", 7, 7))
    projection.apply(RunChanged(seq=8, at=8.0, by="test", run="w1", handle="handle r1", lane="main", place=8))
    assert str(snapshot) == kept
    assert projection.snapshot().handles["handle r1"].waiting == ["w2", "w3"]


def test_a_long_list_of_waiting_runs_is_made_once_for_a_snapshot_and_not_at_each_change():
    projection = Projection("e", max_concurrent=3)
    projection.apply(queued("r", 1, 1, handle="h"))
    lists = []
    for seq in range(2, MANY):
        projection.apply(queued(f"w{seq}", seq, None, handle="h"))
        waiting = projection._handles["h"].waiting
        if not lists or lists[-1] is not waiting:
            lists.append(waiting)
    assert len(lists) < 20
    assert projection.snapshot().handles["h"].waiting == [f"w{seq}" for seq in range(2, MANY)]


def test_queued_runs_are_in_the_order_of_their_places_also_after_events_out_of_order():
    projection = Projection("e", max_concurrent=3)
    for seq, place in enumerate((5, 2, 9, 7), 1):
        projection.apply(queued(f"at {place}", seq, place))
    expected = ["at 2", "at 5", "at 7", "at 9"]
    assert projection.snapshot().lanes["main"].queued == expected
    assert projection.lane("main").queued == expected
    projection.apply(queued("at 1", 5, 1))
    assert projection.lane("main").queued == ["at 1", *expected]
    again = Projection.from_snapshot(projection.snapshot())
    again.apply(queued("at 3", 6, 3))
    assert again.lane("main").queued == ["at 1", "at 2", "at 3", "at 5", "at 7", "at 9"]


def agrees(projection: Projection) -> bool:
    """Whether the counts equal those of a snapshot."""
    counts, snapshot = projection.counts(), projection.snapshot()
    lanes = {
        name: (lane.limit, lane.generation, len(lane.executing), len(lane.queued))
        for name, lane in snapshot.lanes.items()
    }
    statuses = Counter(run.status for run in snapshot.runs.values() if not run.ended)
    shown = {
        name: (lane.limit, lane.generation, lane.executing, lane.queued)
        for name, lane in counts.lanes.items()
    }
    return (
        (counts.seq, counts.engine, shown) == (snapshot.seq, snapshot.engine, lanes)
        and +Counter(counts.runs) == statuses
        and all(projection.lane(name) == lane for name, lane in snapshot.lanes.items())
    )


async def test_counts_are_kept_through_all_that_happens_to_runs(autojump_clock):
    bodies = Bodies()

    async def look(engine: Engine) -> None:
        assert await engine.look(agrees)

    async with open_engine(bodies.jobs, max_concurrent=2, shutdown_timeout=0) as engine:
        submit = engine.submit
        first = await submit("wait", handle="a", params={})
        tickets = [await submit("wait", handle=f"h{n}", params={}, warn_after=math.inf) for n in range(5)]
        await submit("wait", handle="a", params={}, on_conflict="queue", warn_after=math.inf)
        await submit("wait", handle="x", params={}, lane="slow", warn_after=math.inf)
        await until_status(engine, first, "running")
        await look(engine)
        await tickets[4].cancel()
        await engine.set_concurrency("slow", 5)
        await look(engine)
        bodies.end(first)
        await first.result()
        await look(engine)
        await engine.reset_lanes()
        await look(engine)
        await engine.clear_lane("main")
        await look(engine)
        await trio.testing.wait_all_tasks_blocked()
        counts = await engine.look(lambda committed: committed.counts())
        assert counts.lanes["main"].queued == 0
        assert Projection.from_snapshot(await engine.snapshot()).counts() == counts


def test_an_unknown_lane_has_the_default_limit():
    projection = crowd(1)
    assert (projection.lane("other").limit, projection.lane("other").queued) == (1, [])
    projection.apply(LaneChanged(seq=2, at=2.0, by="test", lane="other", limit=4, generation=0))
    assert projection.counts().lanes["other"].limit == 4
