"""What a restart keeps of the rules of lanes: the rules, pauses, ranks, and the tokens of rates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from greenroom import Jobs, Run
from greenroom.persistence.store import BucketsFull, StoredLane, TokenTaken
from greenroom.protocol.lanes import LaneRules
from greenroom.protocol.records import LaneState

from .conftest import Place
from .lives import Lives
from .story import NOW, lane_changed, opened

RULES = LaneRules(
    fair_by="user.tenant",
    weights={"gold": 3, "é%_": 2},
    limit_per_key=2,
    rate="100/min",
    burst=5,
    rate_per="key",
    age=None,
    priority=-7,
)


async def test_rules_and_pauses_are_read_back_unchanged(place: Place) -> None:
    async with opened(place) as story:
        await story.tell(lane_changed("a", 1, rules=RULES), lane_changed("b", None, paused=True))
        await story.tell(lane_changed("b", None, paused=False), lane_changed("c", 2, 1, paused=True))
    store = place.store()
    assert (await store.open("", 1, NOW)).lanes == {
        "a": StoredLane(1, 0, rules=RULES),
        "b": StoredLane(None, 0),
        "c": StoredLane(2, 1, paused=True),
    }
    await store.close()


async def test_the_last_token_of_each_bucket_is_kept_until_it_is_full(place: Place) -> None:
    async with opened(place) as story:
        await story.tell(
            memos=[
                TokenTaken("a", None, NOW + 1),
                TokenTaken("a", "é%_", NOW + 2),
                TokenTaken("a", "x", NOW + 3),
            ]
        )
        await story.tell(memos=[TokenTaken("a", None, NOW + 5.25), TokenTaken("b", "x", NOW + 4)])
        await story.tell(memos=[TokenTaken("a", "y", NOW + 6), BucketsFull("a", ("x", "z"))])
        await story.tell(memos=[TokenTaken("b", None, NOW + 6), BucketsFull("b", (None,))])
    store = place.store()
    found = (await store.open("", 1, NOW)).buckets
    assert sorted(found, key=lambda bucket: bucket.full_at) == [
        TokenTaken("a", "é%_", NOW + 2),
        TokenTaken("b", "x", NOW + 4),
        TokenTaken("a", None, NOW + 5.25),
        TokenTaken("a", "y", NOW + 6),
    ]
    await store.close()


# Engines. They run in mock time, so only with the stores without threads.


class Notes:
    """The job `note` notes when it starts."""

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.starts: list[tuple[str, float]] = []

        @self.jobs.job("note")
        async def note(run: Run, params: dict[str, Any]) -> None:
            self.starts.append((run.handle, trio.current_time()))


@pytest.fixture(params=["memory", "sqlite_unthreaded"])
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Lives:
    from .conftest import make_place

    return Lives(make_place(request, request.param, tmp_path), tmp_path)


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0)


LANES: dict[str, Any] = {"x": {"limit": None, "rate": "1/100s", "burst": 2}}


async def submit(engine: Any, handle: str, **options: Any) -> Any:
    return await engine.submit("note", handle=handle, params={}, **({"lane": "x"} | options))


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_restart_gives_no_token_back(
    lives: Lives, notes: Notes, clock: MockClock, key: str | None
) -> None:
    lanes = {"x": {**LANES["x"], "rate_per": "lane" if key is None else "key"}}
    async with lives.crash(notes.jobs, lanes=lanes) as engine:
        for handle in "abc":
            ticket = await submit(engine, handle, key=key)
            if handle != "c":
                await ticket.result()
    await trio.sleep(30)
    async with lives.clean(notes.jobs, lanes=lanes) as engine:
        await submit(engine, "d", key=key)
        await trio.sleep(250)
    times = [time - notes.starts[0][1] for _, time in notes.starts]
    assert [handle for handle, _ in notes.starts] == ["a", "b", "c", "d"]
    assert times == pytest.approx([0, 0, 100, 200], abs=1)


@pytest.mark.parametrize("jump", [-3600, 3600])
async def test_a_clock_that_jumps_does_not_stop_a_rate(
    lives: Lives, notes: Notes, clock: MockClock, jump: float
) -> None:
    async with lives.crash(notes.jobs, lanes=LANES) as engine:
        for handle in "ab":
            await (await submit(engine, handle)).result()
    began = trio.current_time()
    async with lives.clean(
        notes.jobs, lanes=LANES, clock=lambda: 1_700_000_000 + trio.current_time() + jump
    ) as engine:
        await (await submit(engine, "c")).result()
    waited = notes.starts[-1][1] - began
    assert waited <= 200, "never longer than an empty bucket needs to be full"
    if jump > 0:
        assert waited < 1


async def test_the_order_by_ranks_is_the_same_after_a_restart(
    lives: Lives, notes: Notes, clock: MockClock
) -> None:
    lanes = {"x": {"limit": 1, "age": 10}}
    async with lives.crash(notes.jobs, lanes=lanes) as engine:
        await engine.pause_lane("x")
        await submit(engine, "old")
        await submit(engine, "old", on_conflict="queue")
        await trio.sleep(15)
        await submit(engine, "before", priority=2)
        await trio.sleep(10)
        await submit(engine, "after", priority=2)
        assert (await engine.snapshot()).lanes["x"].paused
    async with lives.clean(notes.jobs) as engine:
        state = (await engine.snapshot()).lanes["x"]
        assert (state.paused, state.limit, state.rules) == (True, 1, LaneRules(age=10.0))
        await engine.resume_lane("x")
        await trio.sleep(10)
    assert [handle for handle, _ in notes.starts] == ["before", "old", "after", "old"]


async def test_a_configured_rule_overrides_the_stored_one_and_the_others_stay(
    lives: Lives, notes: Notes, clock: MockClock
) -> None:
    async with lives.clean(notes.jobs, lanes={"x": {"limit": 5, "fair_by": "tenant"}}) as engine:
        await engine.set_lane("x", rate="1/s", burst=3)
        await engine.set_concurrency("x", 4)
    async with lives.clean(notes.jobs, lanes={"x": {"fair_by": None, "age": 5}}) as engine:
        found = (await engine.snapshot()).lanes["x"]
        assert found == LaneState(4, 0, [], [], rules=LaneRules(rate="1/s", burst=3, age=5.0))
    async with lives.clean(notes.jobs, lanes={"x": 1}) as engine:
        assert (await engine.snapshot()).lanes["x"].rules == LaneRules(rate="1/s", burst=3, age=5.0)
