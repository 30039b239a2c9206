"""The effect of each kind of event on the projection, without an engine."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.protocol.events import (
    EngineChanged,
    Event,
    ExecutorChanged,
    HandleChanged,
    InterruptClosed,
    InterruptOpened,
    LaneChanged,
    RunChanged,
    RunLog,
    RunProgress,
    RunStateChanged,
)
from greenroom.protocol.fold import Projection, fold, next_record
from greenroom.protocol.records import ExecutorState, InterruptState, LaneState, RunRecord
from greenroom.protocol.states import HandleStatus, Status


class Story:
    """A projection, and the events that lead to it."""

    def __init__(self, max_concurrent: int = 3) -> None:
        self.projection = Projection("e", max_concurrent=max_concurrent)
        self.first = self.projection.snapshot()
        self.events: list[Event] = []

    def add(self, event_type: type[Any], /, **fields: Any) -> None:
        seq = self.projection.seq + 1
        event = event_type(**({"seq": seq, "at": float(seq), "by": "app"} | fields))
        self.projection.apply(event)
        self.events.append(event)

    def about(self, run: str) -> dict[str, Any]:
        record = self.projection.runs[run]
        return {"run": run, "handle": record.handle, "lane": record.lane}

    def create(self, run: str, place: int | None = None, lane: str = "main", **fields: Any) -> None:
        named = {"handle": f"of-{run}", "job": "walk", "kind": "start", "params": {"a": run}} | fields
        self.add(
            RunStateChanged,
            run=run,
            lane=lane,
            from_=None,
            to=Status.QUEUED,
            attempt=0,
            reason=None,
            place=place,
            **named,
        )

    def move(self, run: str, to: Status, **fields: Any) -> None:
        record = self.projection.runs[run]
        named = {"attempt": record.attempt, "reason": None, "place": record.place} | fields
        self.add(RunStateChanged, from_=record.status, to=to, **self.about(run), **named)

    def start(self, run: str) -> None:
        self.move(run, Status.RUNNING, attempt=1, interactive=True)

    def change(self, run: str, **fields: Any) -> None:
        self.add(RunChanged, **self.about(run), **fields)

    def run(self, run: str) -> RunRecord:
        return self.projection.runs[run]

    def lane(self, name: str = "main") -> LaneState:
        return self.projection.snapshot().lanes[name]

    def lanes(self) -> list[str]:
        return list(self.projection.snapshot().lanes)

    def executing(self) -> int:
        return self.projection.snapshot().engine.executing

    def handle(self, run: str) -> tuple[HandleStatus, bool, str | None]:
        state = self.projection.snapshot().handles[f"of-{run}"]
        return state.status, state.locked, state.active_run


# A run's record.


def test_a_new_run_has_the_fields_of_its_event() -> None:
    story = Story()
    story.create("a", 4, "x")
    assert story.run("a") == RunRecord(
        id="a",
        handle="of-a",
        lane="x",
        job="walk",
        kind="start",
        params={"a": "a"},
        status=Status.QUEUED,
        place=4,
        created_at=1.0,
        updated_at=1.0,
    )


def test_a_new_run_of_an_old_event_has_a_kind() -> None:
    story = Story()
    story.create("a", job=None, kind=None)
    assert (story.run("a").job, story.run("a").kind) == ("", "start")
    story.create("b", kind="continue")
    assert story.run("b").kind == "continue"


def test_a_start_is_noted_once() -> None:
    story = Story()
    story.create("a", 1)
    story.start("a")
    record = story.run("a")
    assert (record.status, record.attempt, record.started_at, record.interactive) == (
        Status.RUNNING,
        1,
        2.0,
        True,
    )
    story.move("a", Status.SUSPENDED, reason="retry", waiting_for="retry", interactive=False)
    record = story.run("a")
    assert (record.reason, record.waiting_for, record.interactive) == ("retry", "retry", False)
    story.move("a", Status.RUNNING, attempt=2, place=7)
    record = story.run("a")
    assert (record.started_at, record.attempt, record.place, record.waiting_for) == (2.0, 2, 7, None)
    assert record.updated_at == 4.0


def test_a_new_body_is_in_no_phase() -> None:
    story = Story()
    story.create("a", 1)
    story.start("a")
    story.change("a", streaming=True, compacting=True)
    story.move("a", Status.SUSPENDED)
    assert (story.run("a").streaming, story.run("a").compacting, story.run("a").interactive) == (
        True,
        True,
        True,
    )
    story.move("a", Status.RUNNING, interactive=True)
    assert (story.run("a").streaming, story.run("a").compacting) == (False, False)


def test_an_end_sets_the_result_and_ends_all_phases() -> None:
    story = Story()
    story.create("a", 1)
    story.start("a")
    story.change("a", streaming=True, compacting=True)
    story.move("a", Status.SUCCEEDED, result={"x": 1}, error="none")
    record = story.run("a")
    assert (record.result, record.error, record.ended_at) == ({"x": 1}, "none", 4.0)
    assert (record.interactive, record.streaming, record.compacting) == (False, False, False)


def test_a_transition_that_is_no_end_sets_no_result() -> None:
    story = Story()
    story.create("a", 1)
    story.start("a")
    story.move("a", Status.SUSPENDED, error="it failed")
    assert (story.run("a").error, story.run("a").ended_at) == (None, None)


def test_a_run_that_is_being_cancelled_still_shows_what_it_waited_for() -> None:
    story = Story()
    story.create("a", 1)
    story.start("a")
    story.move("a", Status.SUSPENDED, waiting_for="time")
    story.move("a", Status.CANCELLING)
    assert story.run("a").waiting_for == "time"
    story.move("a", Status.CANCELLED)
    assert story.run("a").waiting_for is None


def test_a_detached_run_is_so_until_its_next_transition_but_a_cancel() -> None:
    story = Story()
    story.create("a", 1)
    story.start("a")
    story.change("a", detached=True)
    story.move("a", Status.CANCELLING)
    assert story.run("a").detached
    story.move("a", Status.CANCELLED)
    assert not story.run("a").detached


@pytest.mark.parametrize("name", ["detached", "interactive", "streaming", "compacting"])
def test_a_flag_changes_and_the_others_stay(name) -> None:
    story = Story()
    story.create("a", 1)
    before = story.run("a")
    story.change("a", **{name: True})
    assert getattr(story.run("a"), name)
    assert (story.run("a").place, story.run("a").updated_at) == (before.place, 2.0)
    story.change("a", **{name: False})
    assert not getattr(story.run("a"), name)


def test_a_suspended_run_that_gets_a_place_is_queued_in_its_lane() -> None:
    story = Story()
    story.create("a", 1)
    story.start("a")
    story.move("a", Status.SUSPENDED, waiting_for="retry")
    story.change("a", interactive=False)
    assert story.run("a").waiting_for == "retry"
    story.change("a", place=5)
    assert (story.run("a").waiting_for, story.run("a").place) == ("slot", 5)


def test_a_queued_run_that_gets_a_place_waits_for_nothing_else() -> None:
    story = Story()
    story.create("a")
    story.change("a", place=5)
    assert (story.run("a").waiting_for, story.run("a").place) == (None, 5)


def test_progress_replaces_earlier_progress() -> None:
    story = Story()
    story.create("a", 1)
    story.add(RunProgress, **story.about("a"), attempt=1, done=1, total=2, stats={"x": 3})
    assert story.run("a").progress == {"done": 1, "total": 2, "x": 3}
    assert story.run("a").updated_at == 2.0


def test_every_event_of_a_run_updates_the_time_of_its_last_change() -> None:
    story = Story()
    story.create("a", 1)
    story.add(RunLog, **story.about("a"), attempt=1, text="hello", level="info")
    assert story.run("a").updated_at == 2.0
    assert story.run("a").progress is None


def test_an_event_of_an_unknown_run_is_an_error() -> None:
    event = RunLog(seq=1, at=1, by="x", run="a", handle="h", lane="l", attempt=1, text="t", level="info")
    with pytest.raises(AssertionError, match="which no event has created"):
        next_record(None, event)


# Lanes and slots.


def test_a_queued_run_is_in_its_lanes_queue_and_an_executing_one_holds_a_slot() -> None:
    story = Story()
    story.create("a", 1)
    story.create("b", 2)
    story.start("a")
    assert story.lane() == LaneState(None, 0, ["a"], ["b"])
    assert story.executing() == 1
    assert story.projection.snapshot().engine.queued == 1
    assert story.projection.lane("main") == story.lane()
    assert story.projection.lane("nowhere") == LaneState(1, 0, [], [])


@pytest.mark.parametrize("to", [Status.SUSPENDED, Status.SUCCEEDED])
def test_a_slot_is_free_when_the_run_waits_or_has_ended(to) -> None:
    story = Story()
    story.create("a", 1)
    story.start("a")
    story.move("a", to)
    assert (story.lane().executing, story.executing()) == ([], 0)


def test_a_slot_is_kept_while_the_run_is_being_cancelled() -> None:
    story = Story()
    story.create("a", 1)
    story.start("a")
    story.move("a", Status.CANCELLING)
    assert (story.lane().executing, story.executing()) == (["a"], 1)
    story.move("a", Status.CANCELLED)
    assert (story.lane().executing, story.executing()) == ([], 0)


def test_a_slot_is_released_once() -> None:
    story = Story()
    story.create("a", 1)
    story.create("b", 2)
    story.start("a")
    story.start("b")
    story.change("a", detached=True)
    assert (story.lane().executing, story.executing()) == (["b"], 1)
    story.move("a", Status.SUCCEEDED)
    assert story.executing() == 1


def test_a_run_of_which_something_else_changes_keeps_its_slot() -> None:
    story = Story()
    story.create("a", 1)
    story.start("a")
    story.change("a", streaming=True)
    assert story.executing() == 1


def test_lanes_list_their_runs_by_place_in_any_order_of_arrival() -> None:
    story = Story()
    for run, place in (("c", 3), ("a", 1), ("d", 4), ("b", 2)):
        story.create(run, place)
    assert story.lane().queued == ["a", "b", "c", "d"]
    story.create("e", 5)
    assert story.lane().queued == ["a", "b", "c", "d", "e"]
    story.create("f", 0)
    assert story.lane().queued == ["f", "a", "b", "c", "d", "e"]
    for run in ("d", "b", "c"):
        story.start(run)
    assert story.lane().executing == ["b", "c", "d"]


def test_a_place_below_the_highest_is_sorted_even_after_one_that_arrived_in_order() -> None:
    story = Story()
    for run, place in (("a", 1), ("c", 3), ("b", 2)):
        story.create(run, place)
    assert story.lane().queued == ["a", "b", "c"]


def test_a_limit_and_a_generation_are_shown() -> None:
    story = Story()
    story.add(LaneChanged, lane="x", limit=4, generation=2)
    assert story.lane("x") == LaneState(4, 2, [], [])
    assert story.projection.generation("x") == 2
    assert story.projection.generation("main") == 0
    assert story.projection.generation("nowhere") == 0


def test_an_empty_lane_with_the_default_limit_is_removed() -> None:
    story = Story()
    story.add(LaneChanged, lane="x", limit=4, generation=0)
    assert story.lanes() == ["main", "x"]
    story.add(LaneChanged, lane="x", limit=1, generation=0)
    assert story.lanes() == ["main"]
    story.add(LaneChanged, lane="x", limit=1, generation=1)
    assert story.lanes() == ["main", "x"]
    story.add(LaneChanged, lane="x", limit=1, generation=0)
    assert story.lanes() == ["main"]
    story.add(LaneChanged, lane="main", limit=None, generation=0)
    assert story.lanes() == ["main"]
    story.create("a", 1, "x")
    story.add(LaneChanged, lane="x", limit=1, generation=0)
    assert story.lanes() == ["main", "x"]


# Handles.


def test_a_run_with_a_place_holds_its_handle_until_it_has_ended() -> None:
    story = Story()
    story.create("a", 1)
    assert story.handle("a") == (HandleStatus.QUEUED, True, "a")
    assert story.projection.active_run("of-a") == "a"
    story.start("a")
    assert story.handle("a") == (HandleStatus.RUNNING, True, "a")
    story.move("a", Status.SUCCEEDED)
    assert story.handle("a") == (HandleStatus.DONE, False, None)
    assert story.projection.active_run("of-a") is None
    assert story.projection.active_run("nobody") is None


def test_a_run_that_is_cancelled_while_it_is_queued_leaves_its_handle_idle() -> None:
    story = Story()
    story.create("a", 1)
    story.move("a", Status.CANCELLED)
    assert story.handle("a") == (HandleStatus.IDLE, False, None)


def test_an_abandoned_body_holds_the_handle_until_it_is_freed() -> None:
    story = Story()
    story.create("a", 1)
    story.start("a")
    story.move("a", Status.CANCELLED, holds_handle=True)
    assert story.handle("a") == (HandleStatus.CANCELLED, True, "a")
    story.add(HandleChanged, handle="of-a", freed="a")
    assert story.handle("a") == (HandleStatus.CANCELLED, False, None)


def test_a_run_waits_in_its_handle_until_it_gets_a_place() -> None:
    story = Story()
    story.create("a", 1, handle="h")
    story.create("b", handle="h")
    story.create("c", handle="h")
    story.create("d", handle="h", front=True)
    state = story.projection.snapshot().handles["h"]
    assert (state.active_run, state.waiting) == ("a", ["d", "b", "c"])
    assert story.lane().queued == ["a"]
    story.move("a", Status.CANCELLED)
    story.change("d", place=2)
    state = story.projection.snapshot().handles["h"]
    assert (state.active_run, state.waiting, state.status) == ("d", ["b", "c"], HandleStatus.QUEUED)
    assert story.lane().queued == ["d"]
    story.move("b", Status.CANCELLED)
    assert story.projection.snapshot().handles["h"].waiting == ["c"]
    story.move("d", Status.RUNNING)
    story.move("d", Status.SUSPENDED)
    story.change("d", place=9)
    assert story.lane().queued == []


def test_a_draft_is_shown_until_it_changes() -> None:
    story = Story()
    assert story.projection.draft("h") is None
    story.add(HandleChanged, handle="h", params={"x": 1})
    assert story.projection.draft("h") == {"x": 1}
    story.add(HandleChanged, handle="h", freed="nobody")
    assert story.projection.draft("h") == {"x": 1}
    story.add(HandleChanged, handle="h", params=None)
    assert story.projection.snapshot().handles == {}


# Interrupts and the engine.


def test_an_open_interrupt_is_shown_until_it_is_closed() -> None:
    story = Story()
    story.create("a", 1)
    about = story.about("a")
    story.add(InterruptOpened, **about, interrupt="a.1", key="k", data="?", deadline=9.0)
    assert story.projection.interrupts == {"a.1": InterruptState("a", "k", "?", 2.0, 9.0)}
    assert story.projection.snapshot().interrupts == story.projection.interrupts
    story.add(InterruptClosed, **about, interrupt="a.1", outcome="answered")
    assert story.projection.interrupts == {}


def test_the_engines_limit_and_its_drain_are_shown() -> None:
    story = Story()
    assert (story.first.engine.max_concurrent, story.first.engine.draining) == (3, False)
    story.add(EngineChanged, max_concurrent=7, draining=True)
    engine = story.projection.snapshot().engine
    assert (engine.max_concurrent, engine.draining) == (7, True)


def test_runs_are_counted_without_iteration() -> None:
    story = Story()
    for number, run in enumerate("abcd"):
        story.create(run, number, "x")
    story.start("a")
    story.start("b")
    story.move("b", Status.SUSPENDED)
    story.move("c", Status.CANCELLED)
    counts = story.projection.counts()
    assert counts.runs == {
        Status.QUEUED: 1,
        Status.RUNNING: 1,
        Status.SUSPENDED: 1,
        Status.CANCELLING: 0,
    }
    lane = counts.lanes["x"]
    assert (lane.limit, lane.generation, lane.executing, lane.queued) == (1, 0, 1, 1)
    assert (counts.seq, counts.engine.queued, counts.engine.executing) == (8, 1, 1)


# Order, and removal of ended runs.


def test_an_event_out_of_order_is_refused() -> None:
    story = Story()
    for seq in (0, 2):
        event = EngineChanged(seq=seq, at=1, by="app", max_concurrent=1, draining=False)
        with pytest.raises(ValueError, match=f"event {seq} does not follow 0"):
            story.projection.apply(event)


def test_a_record_that_the_caller_passes_is_used_unchanged() -> None:
    story = Story()
    story.create("a", 1)
    record = story.run("a")
    event = RunLog(**story.about("a"), seq=2, at=9.0, by="body", attempt=1, text="t", level="info")
    story.projection.apply(event, record)
    assert story.run("a") is record


def test_ended_runs_follow_the_pending_ones_in_the_order_of_their_ends() -> None:
    story = Story()
    for number, run in enumerate("abc"):
        story.create(run, number)
    for run in "ba":
        story.start(run)
        story.move(run, Status.SUCCEEDED)
    assert list(story.projection.snapshot().runs) == ["c", "b", "a"]


def test_only_the_last_ended_runs_stay_with_their_lanes_and_handles(monkeypatch) -> None:
    monkeypatch.setattr("greenroom.protocol.fold.KEPT_ENDED_RUNS", 2)
    story = Story()
    for number, run in enumerate("abc"):
        story.create(run, number, f"lane-{run}")
    for run in "abc":
        story.move(run, Status.CANCELLED)
    snapshot = story.projection.snapshot()
    assert list(snapshot.runs) == ["b", "c"]
    assert list(snapshot.lanes) == ["main", "lane-b", "lane-c"]
    assert list(snapshot.handles) == ["of-b", "of-c"]


def test_a_snapshot_is_released_later(monkeypatch) -> None:
    monkeypatch.setattr("greenroom.protocol.fold.KEPT_ENDED_RUNS", 1)
    story = Story()
    story.create("a", 1, "lane-a")
    story.move("a", Status.CANCELLED)
    snapshot = story.projection.snapshot()
    story.create("b", 2)
    story.move("b", Status.CANCELLED)
    folded = fold(snapshot, story.events[snapshot.seq :])
    assert folded == story.projection.snapshot()
    assert (list(folded.lanes), list(folded.handles)) == (["main"], ["of-b"])


def test_a_snapshot_and_its_later_events_lead_to_the_next_snapshot(monkeypatch) -> None:
    monkeypatch.setattr("greenroom.protocol.fold.KEPT_ENDED_RUNS", 1)
    story = Story(max_concurrent=5)
    snapshots = [story.first]

    def step() -> None:
        snapshots.append(story.projection.snapshot())

    story.add(EngineChanged, max_concurrent=4, draining=True)
    step()
    story.create("b", 2, "x", handle="h")
    story.create("a", 1, "x")
    story.create("w", None, "x", handle="h")
    step()
    story.start("b")
    story.add(InterruptOpened, **story.about("b"), interrupt="b.1", key="k", data="?", deadline=9.0)
    story.add(HandleChanged, handle="d", params=1)
    step()
    story.add(LaneChanged, lane="x", limit=2, generation=1)
    story.change("b", detached=True)
    story.create("c", 0, "x")
    step()
    story.move("b", Status.SUCCEEDED)
    story.change("w", place=3)
    step()
    story.move("a", Status.CANCELLED)
    step()
    for number, snapshot in enumerate(snapshots):
        folded = fold(snapshot, story.events[snapshot.seq :])
        assert folded == snapshots[-1], number
        assert list(folded.runs) == list(snapshots[-1].runs)
        projection = Projection.from_snapshot(snapshot)
        for event in story.events[snapshot.seq :]:
            projection.apply(event)
        assert projection.counts() == story.projection.counts()


# Executors.


def test_the_executor_and_the_fence_of_a_run_are_those_of_its_last_start() -> None:
    story = Story()
    story.create("a", 1)
    assert (story.run("a").executor, story.run("a").fence) == (None, None)
    story.move("a", Status.RUNNING, attempt=1, interactive=True, executor="gpu-1")
    started = story.projection.seq
    assert (story.run("a").executor, story.run("a").fence) == ("gpu-1", started)
    story.move("a", Status.SUSPENDED, waiting_for="time")
    story.move("a", Status.RUNNING)  # its body has a slot again
    assert (story.run("a").executor, story.run("a").fence) == ("gpu-1", started)
    story.move("a", Status.QUEUED, reason="retry")
    assert (story.run("a").executor, story.run("a").fence) == ("gpu-1", started)
    story.move("a", Status.RUNNING, attempt=2, interactive=True)  # in the engine's own process
    assert (story.run("a").executor, story.run("a").fence) == (None, story.projection.seq)
    last = story.projection.seq
    story.move("a", Status.SUCCEEDED)
    assert story.run("a").fence == last


def test_a_queued_run_waits_for_an_executor_until_it_starts() -> None:
    story = Story()
    story.create("a", 1)
    story.create("b", 2)
    before = story.lane()
    story.change("a", waiting_for="executor")
    assert (story.run("a").waiting_for, story.run("a").place) == ("executor", 1)
    assert story.lane() == before, "it keeps its place"
    story.change("a", interactive=True)
    assert story.run("a").waiting_for == "executor", "an absent field is unchanged"
    story.start("a")
    assert story.run("a").waiting_for is None


def test_a_snapshot_contains_the_executors_until_they_are_gone() -> None:
    story = Story()
    assert story.first.executors == {}
    story.add(
        ExecutorChanged,
        executor="a",
        status="attached",
        slots=2,
        labels=("gpu",),
        jobs=("walk", "swim"),
        start="p1",
    )
    story.add(ExecutorChanged, executor="b", status="attached")
    attached = story.projection.snapshot()
    assert attached.executors == {
        "a": ExecutorState("attached", 2, ("gpu",), ("walk", "swim"), start="p1"),
        "b": ExecutorState("attached", None, (), ()),
    }
    story.add(ExecutorChanged, executor="a", status="disconnected", slots=2, ttl=30, start="p2")
    story.add(ExecutorChanged, executor="b", status="gone")
    story.add(ExecutorChanged, executor="unknown", status="gone")
    assert story.projection.snapshot().executors == {"a": ExecutorState("disconnected", 2, (), (), 30, "p2")}
    assert fold(attached, story.events[2:]) == story.projection.snapshot()
    assert fold(attached, []) == attached
    assert list(attached.executors) == ["a", "b"], "a snapshot does not change"
