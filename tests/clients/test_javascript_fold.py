"""The fold in JavaScript equals the fold in Python: the same events lead to the same snapshots."""

from __future__ import annotations

import json
import random
from typing import Any, get_args

import pytest
import trio
from trio.testing import MockClock

from greenroom import Engine, Jobs, Run
from greenroom.errors import GreenroomError
from greenroom.protocol.codec import JSON
from greenroom.protocol.events import (
    Event,
    ExecutorChanged,
    FlowChanged,
    LeaderChanged,
    NodeChanged,
    NodeRan,
    NodeStarted,
    NodeWorkerChanged,
    RunChanged,
    RunSignal,
    RunStateChanged,
    ScheduleChanged,
    ScheduleFired,
    ScheduleMissed,
    WebhookChanged,
)
from greenroom.protocol.fold import Projection
from greenroom.protocol.records import Snapshot
from greenroom.protocol.schedules import ScheduleRecord
from greenroom.simulation.determinism.scheduler import Scheduling, SeededChooser
from greenroom.simulation.determinism.seeded_run import determined
from tests.support import open_engine

from .javascript import needs_node, run_node

HANDLES = ["alice", "42", "__proto__", "constructor", "ключ ✓", "7", "bob"]
TYPES = {str(event.__struct_config__.tag) for event in get_args(Event)}
LANES = ["main", "side", "__proto__", "3"]

FOLD = """
    const snapshots = [];
    const counted = [];
    const projection = new Projection(argument.start);
    argument.events.forEach((event, index) => {
        projection.apply(event);
        if (!argument.at.includes(index + 1)) return;
        const snapshot = projection.snapshot();
        snapshots.push(snapshot);
        const states = Object.entries(snapshot.handles);
        const handles = states.map(([name, state]) => [state, projection.handle(name)]);
        const names = [...projection.handleNames()];
        counted.push({ ...projection.counts(), handles, names, none: projection.handle("no such handle") });
    });
    const [middle] = argument.at;
    const before = fold(argument.start, argument.events.slice(0, middle));
    answer({ snapshots, counted, resumed: fold(before, argument.events.slice(middle)) });
"""


def make_jobs(lots: random.Random) -> Jobs:
    jobs = Jobs()

    @jobs.job("anything", max_attempts=2, backoff=0.5, grace=2)
    async def anything(run: Run, params: dict[str, Any]) -> Any:
        for _ in range(lots.randrange(4)):
            match lots.randrange(10):
                case 0:
                    await run.sleep(lots.random(), release_slot=lots.random() < 0.5)
                case 1:
                    await run.interrupt({"n": lots.random()}, timeout=2, release_slot=lots.random() < 0.5)
                case 2:
                    async with run.streaming():
                        await trio.sleep(lots.random())
                case 3:
                    async with run.compacting(timeout=120):
                        await run.progress(1.5, 3, **{"rate": 2.0, "__proto__": {"a": 1}})
                case 4:
                    with trio.move_on_after(5, shield=True):
                        await trio.sleep(4)
                case 5:
                    raise ValueError("by chance")
                case 6:
                    await run.log("something ✓ \u2028 said")
                case 7:
                    await run.messages()
                case 8:
                    await run.progress(None, None)
                case 9:
                    await run.end_interactive()
        return {"result": lots.random(), "list": [1, 2.0, None, "é"]}

    @jobs.job("nothing", lane="quick")
    async def nothing(run: Run, params: dict[str, Any]) -> None:
        return None

    return jobs


async def many_quick(engine: Engine, count: int) -> None:
    """End more runs than a snapshot keeps, so that older runs, handles and lanes leave it."""
    await engine.resume()
    await engine.set_max_concurrent(100)
    async with trio.open_nursery() as nursery:
        for number in range(count):
            await engine.submit("nothing", handle=f"quick {number}", params={}, lane=f"lane {number % 50}")
            nursery.start_soon(engine.set_params, f"draft {number % 9}", {"number": number})


async def disturb(engine: Engine, lots: random.Random, steps: int) -> None:
    """Send random commands, and ignore refusals."""
    for step in range(steps):
        handle, lane = lots.choice(HANDLES), lots.choice(LANES)
        runs = list((await engine.snapshot()).runs)
        run = lots.choice(runs) if runs else "nobody"
        try:
            match lots.randrange(24):
                case 0:
                    await engine.cancel(run)
                case 1:
                    await engine.inject(handle, {"hello": step})
                case 2:
                    for interrupt in (await engine.snapshot()).interrupts:
                        await engine.answer(interrupt, {"approved": True})
                case 3:
                    await engine.set_params(handle, lots.choice([None, {}, {"draft": 1.0, "": []}]))
                case 4:
                    await engine.set_concurrency(lane, lots.choice([None, 0, 1, 2, 5]))
                case 5:
                    await engine.set_max_concurrent(lots.randrange(1, 6))
                case 6:
                    await engine.clear_lane(lane)
                case 7:
                    await engine.clear_handle(handle)
                case 8:
                    await engine.reset_lanes()
                case 9:
                    await engine.release_handle(handle)
                case 10:
                    await engine.drain()
                case 11 | 12:
                    await engine.resume()
                case _:
                    delay: dict[str, Any] = {}
                    if lots.random() < 0.2:
                        delay = {"delay": lots.choice([0.5, 3, 20]), "reserve": lots.random() < 0.5}
                    await engine.submit(
                        "anything",
                        handle=handle if lots.random() < 0.7 else f"handle {step % 1500}",
                        lane=lane,
                        params={"step": step},
                        on_conflict=lots.choice(["queue", "coalesce", "replace", "reject"]),
                        queue_timeout=lots.choice([None, 3]),
                        warn_after=1,
                        **delay,
                    )
        except GreenroomError:
            continue
        await trio.sleep(lots.choice([0, 0, 0.1, 1]))


def clock() -> float:
    return 1_700_000_000.0 + trio.current_time()


async def history(seed: int, steps: int, quick: int) -> tuple[Snapshot, list[Event]]:
    """Return a snapshot and the events after it."""
    lots = random.Random(seed)
    async with open_engine(make_jobs(lots), random=random.Random(seed), clock=clock) as engine:
        await disturb(engine, lots, 30)
        start = await engine.snapshot()
        events: list[Event] = []
        async with trio.open_nursery() as nursery:

            async def record() -> None:
                async for event in engine.events(after=start.seq):
                    assert not isinstance(event, Snapshot)
                    events.append(event)

            nursery.start_soon(record)
            await disturb(engine, lots, steps)
            await many_quick(engine, quick)
            await trio.sleep(1)
            await disturb(engine, lots, 50)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
    return start, events


def repeatable_history(seed: int, steps: int, quick: int) -> tuple[Snapshot, list[Event]]:
    """The same history each time: whether it contains every type of event must not depend on chance."""
    with determined(str(seed)):
        return trio.run(
            history,
            seed,
            steps,
            quick,
            clock=MockClock(autojump_threshold=0),
            instruments=[Scheduling(SeededChooser(seed))],
        )


def of_other_parts(events: list[Event]) -> list[Event]:
    """Events of the types that only flows, workers, executors and nodes have."""
    last = events[-1]
    some = next(event for event in reversed(events) if isinstance(event, RunStateChanged))
    base = {"at": last.at + 1, "by": "test"}
    ours = {**base, "run": some.run, "handle": some.handle, "lane": some.lane}
    node = {"node": "n", "kind": "task", "visit": 1}
    return [
        RunSignal(seq=last.seq + 1, key="k", value=[1], **ours),
        NodeStarted(seq=last.seq + 2, **node, **ours),
        FlowChanged(seq=last.seq + 3, flow="f", name="F", **base),
        NodeRan(
            seq=last.seq + 4,
            attempt=1,
            status="ok",
            started_at=last.at,
            **node,
            **{**ours, "at": last.at + 2},
        ),
        NodeWorkerChanged(
            seq=last.seq + 5,
            worker="w",
            url="http://w",
            services=("s",),
            kind="http",
            status="online",
            **base,
        ),
        ExecutorChanged(seq=last.seq + 6, executor="e", status="attached", **base),
        ExecutorChanged(
            seq=last.seq + 7,
            executor="__proto__",
            status="draining",
            slots=2,
            labels=("gpu",),
            jobs=("walk",),
            ttl=2.5,
            start="p1",
            **base,
        ),
        ExecutorChanged(seq=last.seq + 8, executor="e", status="gone", **base),
        LeaderChanged(seq=last.seq + 9, address="http://a", term=3, node="n1", **base),
        NodeChanged(seq=last.seq + 10, status="left", address="http://b", node="n1", **base),
        WebhookChanged(seq=last.seq + 11, webhook="w", of_run=some.run, to="dead", **base),
        *of_schedules(last.seq + 11, some.run, base),
    ]


def of_schedules(last: int, run: str, base: dict[str, Any]) -> list[Event]:
    """Events of schedules, of which `deleted` does not stay. `run` is in the state and must not change."""
    definition = {"job": "walk", "handle": "h", "every": 60.0, "source": "api", "since": 1.0}
    state = {"paused": False, "decided_until": 1.0, "next": (61.0, 121.0)}
    put = [ScheduleRecord(name=name, id="i", **definition, **state) for name in ("__proto__", "deleted")]
    return [
        ScheduleChanged(seq=last + 1, schedule="__proto__", state=put[0], **base),
        ScheduleChanged(seq=last + 2, schedule="deleted", state=put[1], **base),
        ScheduleFired(seq=last + 3, schedule="__proto__", at_planned=61.0, run=run, next=(121.0,), **base),
        ScheduleFired(seq=last + 4, schedule="deleted", at_planned=61.0, refused="conflict", **base),
        ScheduleMissed(seq=last + 5, schedule="__proto__", count=2, until=181.0, next=(241.0,), **base),
        ScheduleFired(seq=last + 6, schedule="__proto__", at_planned=200.5, run=run, triggered=True, **base),
        ScheduleChanged(seq=last + 7, schedule="deleted", state=None, **base),
        ScheduleFired(seq=last + 8, schedule="deleted", at_planned=200.5, triggered=True, **base),
    ]


def as_json(value: Any) -> Any:
    return json.loads(JSON.encode(value))


@needs_node
@pytest.mark.parametrize(("seed", "steps", "quick"), [(1, 800, 0), (2, 800, 0), (3, 1500, 1500)])
def test_the_fold_in_javascript_leads_to_the_same_snapshots(seed: int, steps: int, quick: int):
    start, events = repeatable_history(seed, steps, quick)
    events += of_other_parts(events)
    assert {event.type for event in events} == TYPES, "there are events of every type"
    waits = {event.waiting_for for event in events if isinstance(event, RunChanged | RunStateChanged)}
    assert waits >= {"time", "handle"}, "there are delayed runs"
    at = sorted({len(events) // 2, *range(0, len(events), max(1, len(events) // 40)), len(events)} - {0})
    expected, counts = [], []
    projection = Projection.from_snapshot(start)
    for index, event in enumerate(events, 1):
        projection.apply(event)
        if index in at:
            expected.append(as_json(projection.snapshot()))
            counts.append(as_json(projection.counts()))
    argument = {"start": as_json(start), "events": as_json(events), "at": at}
    found = trio.run(run_node, FOLD, argument)
    assert found["snapshots"] == expected
    assert found["resumed"] == expected[-1]
    for counted, count, snapshot in zip(found["counted"], counts, expected, strict=True):
        assert all(state == alone for state, alone in counted.pop("handles"))
        assert counted.pop("none") is None
        assert sorted(counted.pop("names")) == sorted(snapshot["handles"])
        lanes = {name: {"paused": False, **lane} for name, lane in count.pop("lanes").items()}
        assert counted.pop("lanes") == lanes
        del count["delayed"]
        assert counted == {
            **count,
            "runs": {status: number for status, number in count["runs"].items() if number},
        }
    assert [list(snapshot["runs"]) for snapshot in found["snapshots"]] == [
        list(snapshot["runs"]) for snapshot in expected
    ], "in the same order"


@needs_node
async def test_the_rules_of_a_lane_follow_the_events():
    program = """
        const projection = new Projection({
            epoch: "e", seq: 0,
            engine: { max_concurrent: 4, executing: 0, queued: 0, draining: false },
            lanes: { images: { limit: 2, generation: 0, executing: [], queued: [], rules: { rate: "1/s" } } },
            handles: {}, interrupts: {}, runs: {}, executors: {}, schedules: {},
        });
        const rules = () => ["images", "mail", "none"].map((lane) => projection.rules(lane));
        const change = { type: "lane_changed", at: 1, by: "eve", limit: 2, generation: 0 };
        const before = rules();
        projection.apply({ ...change, seq: 1, lane: "images" });
        projection.apply({ ...change, seq: 2, lane: "mail", rules: { fair_by: "tenant" } });
        answer([before, rules()]);
    """
    assert await run_node(program) == [
        [{"rate": "1/s"}, {}, {}],
        [{}, {"fair_by": "tenant"}, {}],
    ]
