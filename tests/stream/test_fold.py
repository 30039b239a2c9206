"""A snapshot and the events after it give the next snapshot, field by field; many changes are one commit."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import combinations, pairwise

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from greenroom import Engine, Jobs, Run, open_engine
from greenroom.errors import Unavailable
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.store import Batch
from greenroom.protocol.codec import CODECS
from greenroom.protocol.events import Event
from greenroom.protocol.fold import fold
from greenroom.protocol.records import KEPT_ENDED_RUNS, Snapshot
from greenroom.simulation import World, simulate
from greenroom.simulation.scenarios.commands import CONTROLS, TALKS, Play, pause
from greenroom.simulation.world.client import Client

from ..support import Bodies


def plain(value: object) -> object:
    """A snapshot as lists and values, so that the order counts as well."""
    if isinstance(value, dict):
        return [(key, plain(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [plain(item) for item in value]
    return plain(msgspec.to_builtins(value)) if isinstance(value, msgspec.Struct) else value


def as_received(events: Iterable[Event], codec: str) -> list[Event]:
    """Events as a client receives them: encoded and decoded again."""
    return [CODECS[codec].decode(CODECS[codec].encode(event), Event) for event in events]


# Histories.

DEEDS = ("submit", "submit", "submit", *CONTROLS, *TALKS)


class Watched:
    """A simulation that takes a snapshot after every event that a reader receives."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []
        self.events: list[Event] = []

    async def __call__(self, world: World) -> None:
        play = Play(world)
        async with trio.open_nursery() as watchers:
            async with play.staged():
                self.events = play.server.rules.model.events
                watchers.start_soon(self.watch, world.client("watcher"))
                async for step in world.steps(25):
                    await play.do(step.random.choice(DEEDS), step.random, wait=False)
                    await pause(step.random)
            watchers.cancel_scope.cancel()

    async def watch(self, client: Client) -> None:
        with suppress(Unavailable):  # a body has killed the server; what was seen until then is compared
            self.snapshots.append(await client.snapshot())
            async for _ in client.events(after=self.snapshots[0].seq):
                self.snapshots.append(await client.snapshot())


@pytest.mark.parametrize("codec", sorted(CODECS))
@settings(max_examples=max(100, settings().max_examples), suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 100_000))
def test_the_events_after_any_snapshot_lead_to_the_next_one(codec, seed):
    watched = Watched()
    simulate(seed, watched)

    assume(len(watched.snapshots) > 1)  # else a body killed the server at once
    for earlier, later in pairwise(watched.snapshots):
        events = watched.events[earlier.seq : later.seq]
        assert plain(fold(earlier, as_received(events, codec))) == plain(later)
    first, last = watched.snapshots[0], watched.snapshots[-1]
    assert plain(fold(first, watched.events[first.seq : last.seq])) == plain(last)


# What a snapshot lets go of.


class Recording(MemoryStore):
    """Keeps every event, and counts the commits; each takes `seconds`."""

    def __init__(self, seconds: float = 0) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.batches: list[int] = []
        self._seconds = seconds

    async def commit(self, batch: Batch) -> None:
        if self._seconds:
            await trio.sleep(self._seconds)
        await super().commit(batch)
        self.events.extend(batch.events)
        self.batches.append(len(batch.events))


@pytest.fixture
def jobs() -> Jobs:
    jobs = Jobs()

    @jobs.job("nothing")
    async def nothing(run: Run) -> None:
        pass

    return jobs


async def have_done(engine: Engine, handles: Iterable[str], lanes: tuple[str, ...] = ("main",)) -> None:
    """Execute a run on each handle, in one lane after the other."""
    for number, handle in enumerate(handles):
        ticket = await engine.submit("nothing", handle=handle, lane=lanes[number % len(lanes)])
        assert await ticket.wait()


async def test_of_the_ended_runs_only_the_last_are_kept(jobs, autojump_clock):
    store = Recording()
    async with open_engine(jobs, store) as engine:
        snapshots = [await engine.snapshot()]
        for first in range(0, KEPT_ENDED_RUNS + 300, 100):
            await have_done(engine, (f"h{number}" for number in range(first, first + 100)))
            snapshots.append(await engine.snapshot())

    for earlier, later in pairwise(snapshots):
        assert plain(fold(earlier, store.events[earlier.seq : later.seq])) == plain(later)
    last = snapshots[-1]
    assert [run.handle for run in last.runs.values()] == [f"h{n}" for n in range(300, KEPT_ENDED_RUNS + 300)]
    assert list(last.handles) == [run.handle for run in last.runs.values()]


async def test_the_runs_that_ended_first_are_forgotten_first_whenever_one_began_to_follow(
    jobs, autojump_clock, monkeypatch
):
    """The ended runs of a snapshot are in the order of their ends, not of their starts."""
    monkeypatch.setattr("greenroom.protocol.fold.KEPT_ENDED_RUNS", 4)
    store = Recording()

    @jobs.job("lasts")
    async def lasts(run: Run, params: dict) -> None:
        await trio.sleep(params["seconds"])

    async with open_engine(jobs, store, max_concurrent=9) as engine:
        for seconds in (3, 1, 4, 2):
            await engine.submit("lasts", handle=f"h{seconds}", params={"seconds": seconds})
        await trio.sleep(5)
        snapshots = [await engine.snapshot()]
        assert [run.handle for run in snapshots[0].runs.values()] == ["h1", "h2", "h3", "h4"]
        for number in range(4):
            await have_done(engine, [f"later {number}"])
            snapshots.append(await engine.snapshot())

    for earlier, later in combinations(snapshots, 2):
        folded = fold(earlier, store.events[earlier.seq : later.seq])
        assert plain(folded) == plain(later)
        assert list(folded.runs) == list(later.runs)


async def test_what_the_last_run_of_a_handle_or_lane_leaves_goes_with_it(jobs, autojump_clock):
    """A draft, a limit and a generation are kept; a handle or a lane without them is removed."""
    store = Recording()
    async with open_engine(jobs, store) as engine:
        await engine.set_params("drafted", {"a": 1})
        await engine.set_concurrency("limited", 2)
        before = await engine.snapshot()
        await have_done(engine, ("drafted", "other"), ("limited", "gone"))
        middle = await engine.snapshot()
        await have_done(engine, ["busy"] * KEPT_ENDED_RUNS)
        after = await engine.snapshot()

    assert {"drafted", "other"} <= set(middle.handles)
    assert {"limited", "gone"} <= set(middle.lanes)
    assert set(after.handles) == {"drafted", "busy"}
    assert set(after.lanes) == {"main", "limited"}
    assert (after.handles["drafted"].params, after.handles["drafted"].status) == ({"a": 1}, "Idle")
    assert plain(fold(before, store.events[before.seq : middle.seq])) == plain(middle)
    assert plain(fold(middle, store.events[middle.seq : after.seq])) == plain(after)


async def test_a_handle_stays_as_long_as_it_is_taken_by_a_run_that_is_long_forgotten(jobs, autojump_clock):
    store, stuck = Recording(), trio.Event()

    @jobs.job("stuck", grace=1)
    async def wait(run: Run) -> None:
        with trio.CancelScope(shield=True):
            await stuck.wait()

    async with open_engine(jobs, store) as engine:
        ticket = await engine.submit("stuck", handle="ann", lane="side")
        await trio.sleep(1)
        await ticket.cancel()
        await ticket.wait()
        await have_done(engine, ["busy"] * KEPT_ENDED_RUNS)
        taken = await engine.snapshot()
        stuck.set()
        await trio.testing.wait_all_tasks_blocked()
        freed = await engine.snapshot()

    assert ticket.id not in taken.runs
    assert (taken.handles["ann"].active_run, taken.handles["ann"].locked) == (ticket.id, True)
    assert "ann" not in freed.handles
    assert plain(fold(taken, store.events[taken.seq : freed.seq])) == plain(freed)


async def test_pending_runs_are_kept_however_many_there_are(jobs, autojump_clock):
    store = Recording()
    async with open_engine(jobs, store, max_concurrent=0) as engine:
        tickets = [await engine.submit("nothing", handle=f"h{n}") for n in range(KEPT_ENDED_RUNS + 5)]
        pending = await engine.snapshot()
        for ticket in tickets:
            await ticket.cancel()
        ended = await engine.snapshot()

    assert list(pending.runs) == [ticket.id for ticket in tickets]
    assert pending.engine.queued == len(tickets)
    assert list(ended.runs) == [ticket.id for ticket in tickets[5:]]
    assert plain(fold(pending, store.events[pending.seq : ended.seq])) == plain(ended)


# Group commit.


async def test_one_change_alone_is_one_commit(autojump_clock):
    bodies, store = Bodies(), Recording()
    async with open_engine(bodies.jobs, store) as engine:
        before = len(store.batches)
        await engine.set_params("ann", {"a": 1})

        assert store.batches[before:] == [1]


async def test_a_lone_run_takes_no_more_commits_than_it_has_transitions(autojump_clock):
    bodies, store = Bodies(), Recording()
    async with open_engine(bodies.jobs, store) as engine:
        before = len(store.batches)
        ticket = await engine.submit("wait", handle="ann", params={})
        await trio.testing.wait_all_tasks_blocked()
        bodies.end(ticket)
        await ticket.result()

        assert sum(store.batches[before:]) == 3
        assert len(store.batches) - before <= 3


async def test_what_changes_nothing_is_no_commit(autojump_clock):
    bodies, store = Bodies(), Recording()
    async with open_engine(bodies.jobs, store) as engine:
        ticket = await engine.submit("wait", handle="ann", params={})
        await trio.testing.wait_all_tasks_blocked()
        before = len(store.batches)
        await engine.snapshot()
        await engine.get_run(ticket.id)
        await engine.clear_lane("side")
        await engine.clear_handle("bob")
        await engine.release_handle("ann")

        assert store.batches[before:] == []
        bodies.end(ticket)


async def test_a_thousand_simultaneous_changes_need_few_commits(autojump_clock):
    bodies, store = Bodies(), Recording(seconds=1)
    async with open_engine(bodies.jobs, store, max_concurrent=0) as engine:
        before = len(store.batches)
        async with trio.open_nursery() as nursery:
            for number in range(1000):
                nursery.start_soon(engine.set_params, f"h{number}", {"a": 1})

        assert sum(store.batches[before:]) == 1000
        assert len(store.batches) - before <= 3


async def test_what_gathers_while_a_batch_is_written_is_the_next_batch(autojump_clock):
    bodies, store = Bodies(), Recording(seconds=1)
    async with open_engine(bodies.jobs, store, max_concurrent=0) as engine:
        before, began = len(store.batches), trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(engine.set_params, "first", {"a": 1})
            await trio.sleep(0.5)
            for number in range(50):
                nursery.start_soon(engine.set_params, f"h{number}", {"a": 1})

        assert store.batches[before:] == [1, 50]
        assert trio.current_time() - began == pytest.approx(2)


async def test_progress_that_is_reported_faster_than_it_can_be_committed_is_coalesced(autojump_clock):
    jobs, store = Jobs(), Recording(seconds=1)

    @jobs.job("counts")
    async def counts(run: Run) -> None:
        for number in range(1, 1001):
            await run.progress(number, 1000)

    async with open_engine(jobs, store) as engine:
        ticket = await engine.submit("counts", handle="ann")
        await ticket.result()
        run = await engine.get_run(ticket.id)

    said = [event for event in store.events if event.type == "run_progress"]
    assert 1 <= len(said) <= 3
    assert run.progress == {"done": 1000, "total": 1000}
    assert [event.seq for event in store.events] == list(range(1, len(store.events) + 1))
