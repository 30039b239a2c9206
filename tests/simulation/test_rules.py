"""The rules report a fault in each forbidden sequence of events, and none in a correct one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from greenroom.persistence.store import (
    Batch,
    Checkpoint,
    Deaths,
    FileFinished,
    FilesDoomed,
    MessagesTaken,
    Stored,
    StoredInterrupt,
    StoredLane,
    StoredRun,
    Terms,
)
from greenroom.protocol.events import (
    EngineChanged,
    HandleChanged,
    InterruptClosed,
    InterruptOpened,
    LaneChanged,
    RunChanged,
    RunLog,
    RunMessage,
    RunSignal,
    RunStateChanged,
)
from greenroom.protocol.executors import JobTerms
from greenroom.protocol.records import RunRecord
from greenroom.protocol.states import Status
from greenroom.simulation.model.state import ModelRun
from greenroom.simulation.rules.retries import Error
from greenroom.simulation.rules.rules import Rules


@dataclass
class Job:
    """The declarations of a job."""

    resumable: bool = False
    max_attempts: int = 1
    accepts: str = "interactive"
    cancel: str = "immediate"
    grace: float = 10.0
    registered: bool = True


@dataclass
class Body:
    id: str
    handle: str = "h"
    attempt: int = 1
    kind: str = "start"
    params: Any = None
    checkpoint: Any = None


JOBS = {
    "plain": Job(),
    "retried": Job(max_attempts=3),
    "resumable": Job(resumable=True),
    "streamer": Job(accepts="streaming"),
    "gone": Job(registered=False),
}


def recall(name: str, announced: JobTerms | None) -> Job:
    """The job of a run, as in `RecoveryRules.opened`."""
    return JOBS[name]


class Story:
    """A sequence of events that the rules read one by one, as if they were committed."""

    def __init__(self, max_concurrent: int = 2) -> None:
        self.now = 0.0
        self.rules = Rules(lambda: self.now)
        stored = Stored("epoch", 0, 0, max_concurrent, False, {}, {}, {}, [], [], [])
        self.rules.opened(stored, recall)
        self.rules.end_instant(self.now)

    def add(self, kind: type, /, *, memos: Sequence[Any] = (), **fields: Any) -> None:
        before = self.rules.model.seq
        event = kind(seq=before + 1, at=0.0, by=fields.pop("by", "engine"), **fields)
        self.rules.commit(Batch(before, [event], {}, list(memos)))

    def commit(self, *memos: Any) -> None:
        self.rules.commit(Batch(self.rules.model.seq, [], {}, list(memos)))

    def pass_time(self) -> None:
        self.rules.end_instant(self.now)
        self.now += 1

    def submit(
        self, run: str, place: int | None, handle: str = "h", lane: str = "main", **fields: Any
    ) -> None:
        fields = {"job": "plain", "kind": "start", "attempt": 0, "reason": None} | fields
        here = {"run": run, "handle": handle, "lane": lane}
        self.add(RunStateChanged, **here, from_=None, to=Status.QUEUED, place=place, **fields)

    def move(self, run: str, to: str, **fields: Any) -> None:
        known = self.rules.model.runs[run]
        now = {"attempt": known.attempt, "place": known.place, "from_": known.status}
        fields = {"reason": None} | now | fields
        if to == "running":
            fields = {"interactive": True} | fields
        self.add(RunStateChanged, **self.of(run), to=Status(to), **fields)

    def begin(self, run: str, **fields: Any) -> None:
        self.move(run, "running", **{"attempt": 1} | fields)
        known = self.rules.model.runs[run]
        self.rules.observations.begins(Body(run, known.handle, known.attempt))

    def end(self, run: str, to: str = "succeeded") -> None:
        self.rules.observations.ends(run)
        self.move(run, to)

    def of(self, run: str) -> dict[str, str]:
        known = self.rules.model.runs[run]
        return {"run": run, "handle": known.handle, "lane": known.lane}

    def draw_place(self, run: str, place: int) -> None:
        self.add(RunChanged, **self.of(run), place=place)

    def restart(self, **changes: Any) -> None:
        """Crash, and open the store again; its content is what was committed, except for the `changes`."""
        self.rules.crashed()
        self.rules.opened(replace(self.stored_now(), **changes), recall)

    def stored_now(self) -> Stored:
        model = self.rules.model
        return Stored(
            epoch="epoch",
            last_seq=model.seq,
            last_place=0,
            max_concurrent=model.max_concurrent,
            draining=model.draining[-1][1],
            lanes={name: StoredLane(lane.limit, lane.generation) for name, lane in model.lanes.items()},
            drafts={name: handle.draft for name, handle in model.handles.items() if handle.draft is not None},
            held={},
            pending=[stored_run(run) for run in model.pending.values()],
            ended=[],
            requests=[],
        )


def stored_run(run: ModelRun) -> StoredRun:
    record = RunRecord(
        id=run.id,
        handle=run.handle,
        lane=run.lane,
        job=run.job,
        kind=run.kind,
        params=run.params,
        status=run.status,
        reason=run.reason,
        attempt=run.attempt,
        place=run.place,
        created_at=0.0,
        updated_at=0.0,
    )
    interrupts = [StoredInterrupt(id, run.id, key, None, 0.0, None) for id, key in run.interrupts.items()]
    messages = list(run.messages.items())
    return StoredRun(
        record, Terms(), None, run.doomed, messages, interrupts, [], deaths=run.deaths, tried=run.tried
    )


# Sequences of events that break a rule. `BROKEN` contains a part of the expected fault.


def two_bodies_on_one_handle(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    story.rules.observations.begins(Body("a"))


def two_admitted_runs_on_one_handle(story: Story) -> None:
    story.submit("a", 1)
    story.submit("b", 2)


def handle_released_before_the_body_ended(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    story.move("a", "failed")


def handle_kept_for_a_body_that_has_ended(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    story.move("a", "cancelling", reason="cancelled")
    story.move("a", "cancelled", reason="abandoned", holds_handle=True)
    story.rules.observations.ends("a")
    story.pass_time()


def more_than_the_limit(story: Story) -> None:
    for number, run in enumerate("abc"):
        story.submit(run, number + 1, handle=run)
        story.begin(run)


def more_than_the_limit_of_a_lane(story: Story) -> None:
    for number, run in enumerate("ab"):
        story.submit(run, number + 1, handle=run, lane="side")
        story.begin(run)


def more_than_a_limit_that_was_lowered_before(story: Story) -> None:
    story.add(EngineChanged, max_concurrent=1, draining=False)
    story.pass_time()
    more_than_the_limit(story)


def more_than_a_limit_that_was_lowered_just_before(story: Story) -> None:
    story.submit("a", 1, handle="a")
    story.begin("a")
    story.submit("b", 2, handle="b")
    story.add(EngineChanged, max_concurrent=1, draining=False)
    story.begin("b")


def more_than_the_limit_of_a_lane_that_was_lowered_just_before(story: Story) -> None:
    story.submit("a", 1, lane="side")
    story.add(LaneChanged, lane="side", limit=0, generation=0)
    story.begin("a")


def a_new_run_in_an_engine_that_started_to_drain_just_before(story: Story) -> None:
    story.submit("a", 1)
    story.add(EngineChanged, max_concurrent=2, draining=True)
    story.begin("a")


def a_new_run_in_a_draining_engine(story: Story) -> None:
    story.submit("a", 1)
    story.add(EngineChanged, max_concurrent=2, draining=True)
    story.begin("a")
    story.pass_time()
    story.submit("b", 2, handle="b")
    story.begin("b")


def a_higher_place_first(story: Story) -> None:
    story.submit("a", 1, handle="a", lane="side")
    story.submit("b", 2, handle="b", lane="side")
    story.begin("b")
    story.pass_time()


def a_higher_place_first_in_the_instant_of_its_submission(story: Story) -> None:
    story.submit("a", 1, handle="a")
    story.submit("b", 2, handle="b")
    story.begin("b")
    story.begin("a")
    story.pass_time()


def a_higher_place_first_after_a_change_of_the_limit(story: Story) -> None:
    story.add(EngineChanged, max_concurrent=0, draining=False)
    story.submit("a", 1, handle="a")
    story.submit("b", 2, handle="b", lane="side")
    story.pass_time()
    story.add(EngineChanged, max_concurrent=2, draining=False)
    story.begin("b")
    story.begin("a")
    story.pass_time()


def a_higher_place_in_a_slot_that_was_released_later(story: Story) -> None:
    """The slot of the lane is released before the global slot, so the run in the lane must start first."""
    story.add(LaneChanged, lane="side", limit=1, generation=0)
    story.submit("a", 1, handle="a", lane="side")
    story.begin("a")
    story.submit("b", 2, handle="b")
    story.begin("b")
    story.submit("c", 3, handle="c", lane="side")
    story.submit("d", 4, handle="d")
    story.pass_time()
    story.add(EngineChanged, max_concurrent=1, draining=False)
    story.end("a")
    story.end("b")
    story.begin("d")
    story.end("d")
    story.begin("c")
    story.pass_time()


def a_higher_place_of_another_lane_first(story: Story) -> None:
    story.add(EngineChanged, max_concurrent=1, draining=False)
    story.submit("a", 1, handle="a", lane="side")
    story.submit("b", 2, handle="b")
    story.begin("b")
    story.pass_time()


def a_resumed_run_behind_others(story: Story) -> None:
    story.add(EngineChanged, max_concurrent=1, draining=False)
    story.submit("a", 1, handle="a")
    story.begin("a")
    with story.rules.observations.waiting("a", "time", 1.0):
        story.move("a", "suspended", reason="time", waiting_for="time")
        story.submit("b", 2, handle="b")
        story.begin("b")
        story.submit("c", 3, handle="c")
        story.pass_time()
        story.pass_time()
        story.end("b")
        story.begin("c")
        story.pass_time()


def a_free_slot_and_a_run_that_waits(story: Story) -> None:
    story.submit("a", 1)
    story.pass_time()


def a_free_handle_and_a_run_that_waits(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    story.submit("b", None)
    story.end("a")
    story.pass_time()


def a_wait_that_keeps_its_slot(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    with story.rules.observations.waiting("a", "answer"):
        story.pass_time()


def a_transition_that_is_not_in_the_table(story: Story) -> None:
    story.submit("a", 1)
    story.move("a", "succeeded")


def two_ends_of_one_run(story: Story) -> None:
    story.submit("a", 1)
    story.move("a", "cancelled", reason="cancelled")
    story.move("a", "cancelled", reason="cancelled")


def a_report_of_an_older_attempt(story: Story) -> None:
    story.submit("a", 1, job="retried")
    story.begin("a")
    story.add(RunLog, **story.of("a"), attempt=0, text="old", level="info")


def a_gap_in_the_numbers(story: Story) -> None:
    story.rules.take(EngineChanged(seq=2, at=0.0, by="engine", max_concurrent=2, draining=False))


def a_draft_that_changes_while_locked(story: Story) -> None:
    story.submit("a", 1)
    story.add(HandleChanged, handle="h", params={"new": 1})


def a_place_that_was_drawn_before(story: Story) -> None:
    story.submit("a", 1, handle="a")
    story.submit("b", 1, handle="b")


def a_resumed_run_with_another_place(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    story.move("a", "suspended", reason="time", waiting_for="time")
    story.draw_place("a", 2)


def a_generation_that_jumps(story: Story) -> None:
    story.add(LaneChanged, lane="side", limit=1, generation=2)


def an_interrupt_that_is_answered_twice(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    story.add(InterruptOpened, **story.of("a"), interrupt="a.1", key="1", data=None, deadline=None)
    for _ in range(2):
        story.add(InterruptClosed, **story.of("a"), interrupt="a.1", outcome="answered", answer=1)


def an_interrupt_whose_answer_is_kept(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    for interrupt in ("a.1", "a.2"):
        story.add(InterruptOpened, **story.of("a"), interrupt=interrupt, key="1", data=None, deadline=None)
        story.add(InterruptClosed, **story.of("a"), interrupt=interrupt, outcome="answered", answer=1)


def an_answer_that_belongs_to_another_interrupt(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    story.rules.replays.asks("a", (0, 0))
    story.add(InterruptOpened, **story.of("a"), interrupt="a.1", key="1", data="?", deadline=None)
    story.add(InterruptClosed, **story.of("a"), interrupt="a.1", outcome="answered", answer="yes")
    story.rules.replays.was_answered("a", (0, 0), "yes")
    story.commit(Checkpoint("h", "plain", "a", 1, 1, 0))
    assert not story.rules.faults
    story.rules.replays.asks("a", (1, 0))
    story.rules.replays.was_answered("a", (1, 0), "yes")


def an_interrupt_that_is_opened_again_although_it_was_answered(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    for id, key in (("a.1", "1"), ("a.2", "2")):
        story.rules.replays.asks("a", (0, 0))
        story.add(InterruptOpened, **story.of("a"), interrupt=id, key=key, data="?", deadline=None)
        story.add(InterruptClosed, **story.of("a"), interrupt=id, outcome="answered", answer="yes")


def a_call_for_which_two_children_succeed(story: Story) -> None:
    story.submit("a", 1, "h")
    story.begin("a")
    for place, child in ((2, "b"), (3, "c")):
        story.rules.replays.asks("a", (0, 0))
        story.submit(child, place, "card", by="run:a", parent="a")
        story.begin(child)
        story.end(child)


def the_result_of_a_child_that_another_call_had(story: Story) -> None:
    story.submit("a", 1, "h")
    story.begin("a")
    story.rules.replays.asks("a", (0, 0))
    story.submit("b", 2, "card", by="run:a", parent="a")
    story.begin("b")
    story.end("b")
    story.rules.replays.was_charged("a", (0, 0), "b")
    assert not story.rules.faults
    story.rules.replays.was_charged("a", (1, 0), "b")


def an_interrupt_that_stays_open(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    story.add(InterruptOpened, **story.of("a"), interrupt="a.1", key="1", data=None, deadline=None)
    story.end("a")


def a_cancel_in_post_processing(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    story.add(RunChanged, **story.of("a"), interactive=False)
    story.move("a", "cancelling", reason="cancelled")


def a_message_for_a_job_that_does_not_stream(story: Story) -> None:
    story.submit("a", 1, job="streamer")
    story.begin("a")
    story.add(RunMessage, **story.of("a"), message="hello")


def a_message_that_is_taken_twice(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    story.add(RunMessage, **story.of("a"), message="hello")
    taken = MessagesTaken("a", (story.rules.model.seq,))
    story.commit(taken)
    story.commit()  # otherwise the second batch would count as a retry of the first, after an unknown outcome
    story.commit(taken)


def a_signal_that_is_taken_twice(story: Story) -> None:
    story.submit("a", 1)
    story.add(RunSignal, **story.of("a"), key="paid", value=True)
    taken = MessagesTaken("a", (story.rules.model.seq,))
    story.commit(taken)
    story.commit()
    story.commit(taken)


def a_message_that_is_not_taken_in_the_store(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    story.add(RunMessage, **story.of("a"), message="hello")
    story.rules.observations.took("a", ["hello"], all_=True)
    story.pass_time()


def an_unfinished_file_that_outlives_its_run(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    story.end("a")
    story.rules.observations.files([("h", "x.txt", "a")], {}, at_rest=False)


def a_file_that_was_to_be_deleted(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    story.commit(FileFinished("a", "x.txt"), FilesDoomed("a"))
    story.move("a", "cancelling", reason="cancelled")
    story.end("a", "cancelled")
    story.rules.observations.files([], {("h", "x.txt"): "a"}, at_rest=False)


def a_file_of_another_run_that_was_deleted(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    story.commit(FileFinished("a", "x.txt"))
    story.end("a")
    story.rules.observations.files([], {("h", "x.txt"): "a"}, at_rest=False)
    story.rules.observations.files([], {}, at_rest=False)


def an_event_that_was_shown_too_early(story: Story) -> None:
    changed = EngineChanged(seq=1, at=0.0, by="engine", max_concurrent=2, draining=False)
    story.rules.observations.shown(changed)


def an_event_that_a_crash_has_lost(story: Story) -> None:
    story.submit("a", 1)
    story.restart(last_seq=0)


def a_run_that_a_crash_has_lost(story: Story) -> None:
    story.submit("a", 1)
    story.restart(pending=[])


def a_body_that_is_repeated_although_its_job_is_not_resumable(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    story.restart()
    story.move("a", "suspended", reason="recovered", waiting_for="slot")


def a_run_that_is_not_recovered(story: Story) -> None:
    story.submit("a", 1, job="resumable")
    story.begin("a")
    story.restart()
    story.pass_time()


def an_attempt_that_a_restart_costs(story: Story) -> None:
    story.submit("a", 1, job="resumable")
    story.begin("a")
    story.restart()
    story.move("a", "suspended", reason="recovered", waiting_for="slot")
    story.move("a", "running", attempt=2)


def an_attempt_that_a_restart_gives(story: Story) -> None:
    story.submit("a", 1, job="retried")
    story.begin("a")
    story.restart()
    story.move("a", "suspended", reason="recovered", waiting_for="slot")
    story.move("a", "running", attempt=1)


def a_recovered_run_behind_others(story: Story) -> None:
    story.add(EngineChanged, max_concurrent=1, draining=False)
    story.submit("a", 1, job="resumable", handle="a")
    story.begin("a")
    story.submit("b", 2, handle="b")
    story.pass_time()
    story.restart()
    story.move("a", "suspended", reason="recovered", waiting_for="slot")
    story.commit(Deaths("a", 1))
    story.begin("b")
    story.pass_time()


def one_executes_and_one_waits(story: Story) -> None:
    story.submit("a", 1, handle="a", lane="side")
    story.begin("a")
    story.submit("b", 2, handle="b", lane="side")
    story.pass_time()


def a_lane_passed_over_whose_run_has_ended(story: Story) -> None:
    one_executes_and_one_waits(story)
    story.end("a")
    story.submit("c", 3, handle="c")
    story.begin("c")
    story.begin("b")
    story.pass_time()


def a_death_that_is_not_counted(story: Story) -> None:
    story.submit("a", 1, job="resumable")
    story.begin("a")
    story.restart()
    story.move("a", "suspended", reason="recovered", waiting_for="slot")
    story.pass_time()


def two_suspects_at_the_same_time(story: Story) -> None:
    for number, run in enumerate("ab", start=1):
        story.submit(run, number, handle=run, job="resumable")
        story.begin(run)
    story.pass_time()
    story.restart()
    for run in "ab":
        story.move(run, "suspended", reason="recovered", waiting_for="slot")
        story.commit(Deaths(run, 1))
    for run in "ab":
        story.begin(run)
    story.pass_time()


def one_death_and_two(story: Story) -> None:
    """Two suspects: the first executes; the second has two deaths, and is queued."""
    for number, run in enumerate("ab", start=1):
        story.submit(run, number, handle=run, job="resumable")
        story.begin(run)
    story.pass_time()
    for deaths in (1, 2):
        story.restart()
        for run, count in (("a", 1), ("b", deaths)):
            story.move(run, "suspended", reason="recovered", waiting_for="slot")
            story.commit(Deaths(run, count))
        story.begin("a")
        story.pass_time()
        if deaths == 1:
            story.begin("b", memos=[Deaths("a", 1, tried=True)])
            story.pass_time()


def a_suspect_with_two_deaths_while_another_executes(story: Story) -> None:
    one_death_and_two(story)
    story.begin("b")


def a_run_that_times_out_too_early(story: Story) -> None:
    story.submit("a", 1)
    story.rules.time_limits.submitted(story.rules.model.runs["a"], Terms(run_timeout=5))
    story.begin("a")
    story.pass_time()
    story.rules.observations.ends("a")
    story.move("a", "timed_out", reason="run_timeout")


def a_run_that_executes_for_too_long(story: Story) -> None:
    story.submit("a", 1)
    story.rules.time_limits.submitted(story.rules.model.runs["a"], Terms(run_timeout=5))
    story.begin("a")
    for _ in range(20):
        story.pass_time()


def a_run_that_is_queued_for_too_long(story: Story) -> None:
    story.add(EngineChanged, max_concurrent=0, draining=False)
    story.submit("a", 1)
    story.rules.time_limits.submitted(story.rules.model.runs["a"], Terms(queue_timeout=2))
    for _ in range(5):
        story.pass_time()


def a_job_that_is_no_longer_registered(story: Story) -> None:
    story.add(EngineChanged, max_concurrent=0, draining=False)
    story.submit("a", 1, job="gone")
    story.restart()
    story.pass_time()


def a_run_that_is_not_replaced(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    story.submit("b", None, front=True)
    story.pass_time()


def a_replacement_that_was_superseded(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    story.move("a", "cancelling", reason="replaced")
    story.submit("b", None, front=True)
    story.submit("c", None, front=True)
    story.end("a", "cancelled")
    story.move("c", "cancelled", reason="cancelled")
    story.draw_place("b", 2)


def parameters_that_change_after_the_run_has_begun(story: Story) -> None:
    story.submit("a", 1)
    story.add(RunChanged, **story.of("a"), params={"n": 1})
    story.begin("a")
    assert not story.rules.faults
    story.add(RunChanged, **story.of("a"), params={"n": 2})


def parameters_of_a_child_that_change(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    story.submit("b", 2, handle="b", by="run:a", parent="a")
    story.add(RunChanged, **story.of("b"), params={"n": 2})


def a_child_without_its_parent(story: Story) -> None:
    story.submit("a", 1)
    story.begin("a")
    story.submit("b", 2, handle="b", by="run:a")


def raises(story: Story, after: tuple[float, float] | None) -> None:
    story.submit("a", 1, job="retried")
    story.begin("a")
    story.rules.retries.raises("a", 1, Error("E", after))
    story.rules.observations.ends("a")


def a_retry_after_an_error_that_permits_none(story: Story) -> None:
    raises(story, None)
    fields: dict[str, Any] = {"reason": "retry", "waiting_for": "retry", "interactive": False}
    story.move("a", "suspended", by="body", error="E", retry_after=1.0, **fields)


def a_retry_after_another_delay(story: Story) -> None:
    raises(story, (1.0, 2.0))
    fields: dict[str, Any] = {"reason": "retry", "waiting_for": "retry", "interactive": False}
    story.move("a", "suspended", by="body", error="E", retry_after=2.5, **fields)


def a_failure_although_another_attempt_must_follow(story: Story) -> None:
    raises(story, (1.0, 2.0))
    story.move("a", "failed", by="body", reason="error", error="E")


BROKEN = {
    parameters_that_change_after_the_run_has_begun: "although it has begun",
    parameters_of_a_child_that_change: "takes the parameters of another submission",
    a_child_without_its_parent: "its parent is None",
    a_retry_after_an_error_that_permits_none: "its body has raised Error",
    a_retry_after_another_delay: "its body has raised Error",
    a_failure_although_another_attempt_must_follow: "another attempt must follow",
    two_bodies_on_one_handle: "execute on the same handle",
    two_admitted_runs_on_one_handle: "the handle is held by",
    handle_released_before_the_body_ended: "its body still executes",
    handle_kept_for_a_body_that_has_ended: "that has ended",
    more_than_the_limit: "2 runs execute already, and the limit is 2",
    more_than_the_limit_of_a_lane: "1 runs execute already in lane side",
    more_than_a_limit_that_was_lowered_before: "the limit is 1",
    more_than_a_limit_that_was_lowered_just_before: "the limit is 1",
    more_than_the_limit_of_a_lane_that_was_lowered_just_before: "its limit is 0",
    a_new_run_in_an_engine_that_started_to_drain_just_before: "the engine is draining",
    a_new_run_in_a_draining_engine: "the engine is draining",
    a_higher_place_first: "which comes first",
    a_higher_place_first_in_the_instant_of_its_submission: "which comes first",
    a_higher_place_first_after_a_change_of_the_limit: "which comes first",
    a_higher_place_in_a_slot_that_was_released_later: "which comes first",
    a_higher_place_of_another_lane_first: "which comes first",
    a_resumed_run_behind_others: "which comes first",
    a_free_slot_and_a_run_that_waits: "a slot is free",
    a_free_handle_and_a_run_that_waits: "is free, but runs wait in it",
    a_wait_that_keeps_its_slot: "keeps its slot",
    a_transition_that_is_not_in_the_table: "the state machine allows no transition",
    two_ends_of_one_run: "which ended at seq",
    a_report_of_an_older_attempt: "a body reports",
    a_gap_in_the_numbers: "the previous seq was 0",
    a_draft_that_changes_while_locked: "the handle is locked",
    a_place_that_was_drawn_before: "a place must be higher than the last one",
    a_resumed_run_with_another_place: "only a retry draws a new place",
    a_generation_that_jumps: "the generation was 0",
    an_interrupt_that_is_answered_twice: "the interrupt is not open",
    an_interrupt_whose_answer_is_kept: "its answer is kept",
    an_answer_that_belongs_to_another_interrupt: "the answer to another interrupt",
    an_interrupt_that_is_opened_again_although_it_was_answered: "was answered already",
    a_call_for_which_two_children_succeed: "has succeeded already for the same call",
    the_result_of_a_child_that_another_call_had: "received the result of b",
    an_interrupt_that_stays_open: "interrupts are still open",
    a_cancel_in_post_processing: "cannot be cancelled",
    a_message_for_a_job_that_does_not_stream: "only while it streams",
    a_message_that_is_taken_twice: "but is not waiting",
    a_signal_that_is_taken_twice: "but is not waiting",
    a_message_that_is_not_taken_in_the_store: "but its body expects",
    an_unfinished_file_that_outlives_its_run: "unfinished file x.txt",
    a_file_that_was_to_be_deleted: "was to be deleted for",
    a_file_of_another_run_that_was_deleted: "is missing, but was finished by",
    an_event_that_was_shown_too_early: "differs from the committed event",
    an_event_that_a_crash_has_lost: "last seq: the store contains 0",
    a_run_that_a_crash_has_lost: "pending runs: the store contains",
    a_body_that_is_repeated_although_its_job_is_not_resumable: "must change to one of",
    a_run_that_is_not_recovered: "has not changed",
    an_attempt_that_a_restart_costs: "the attempt was 1",
    an_attempt_that_a_restart_gives: "the attempt was 1",
    a_recovered_run_behind_others: "which comes first",
    a_lane_passed_over_whose_run_has_ended: "which comes first",
    a_death_that_is_not_counted: "has 0 deaths, expected 1",
    two_suspects_at_the_same_time: "suspects execute at the same time",
    a_suspect_with_two_deaths_while_another_executes: "it has 2 deaths",
    a_run_that_times_out_too_early: "only 1 s of 5 s had passed",
    a_run_that_executes_for_too_long: "has exceeded its run_timeout",
    a_run_that_is_queued_for_too_long: "has exceeded its queue_timeout",
    a_job_that_is_no_longer_registered: "has not changed",
    a_run_that_is_not_replaced: "is to be replaced",
    a_replacement_that_was_superseded: "was superseded",
}


@pytest.mark.parametrize("happens", BROKEN, ids=lambda happens: happens.__name__)
def test_a_sequence_of_events_that_breaks_a_rule_is_a_fault(happens):
    story = Story()
    happens(story)

    assert story.rules.faults
    assert BROKEN[happens] in story.rules.faults[0]


def test_a_sequence_of_events_that_obeys_all_rules_has_no_fault():
    story = Story()
    story.submit("a", 1, job="resumable")
    story.begin("a")
    story.submit("b", None, job="retried")
    story.pass_time()
    story.restart()
    story.move("a", "suspended", reason="recovered", waiting_for="slot")
    story.commit(Deaths("a", 1))
    story.begin("a")
    story.pass_time()
    story.end("a")
    story.draw_place("b", 2)
    story.begin("b")
    story.pass_time()
    story.rules.observations.ends("b")
    story.move("b", "suspended", reason="retry", waiting_for="retry")
    story.pass_time()
    story.draw_place("b", 3)
    story.begin("b", attempt=2)
    story.end("b")
    story.pass_time()
    story.rules.leaving()
    story.rules.stopped()

    assert not story.rules.faults


def test_a_suspect_can_start_in_the_commit_that_records_the_trial_of_another():
    story = Story()
    one_death_and_two(story)
    story.begin("b", memos=[Deaths("a", 1, tried=True)])
    story.pass_time()

    assert not story.rules.faults


@pytest.mark.parametrize("frees", ["it waits", "it ends"])
def test_a_lane_whose_slot_was_released_in_this_instant_must_not_be_passed_over(frees: str):
    story = Story()
    one_executes_and_one_waits(story)
    if frees == "it waits":
        story.move("a", "suspended", reason="time", waiting_for="time")
    else:
        story.end("a")
    story.submit("c", 3, handle="c")
    story.begin("c")
    story.begin("b")
    story.pass_time()

    (fault,) = story.rules.faults
    assert "started before run b" in fault


def test_a_later_run_may_replace_and_delete_a_file_in_one_instant():
    story = Story()
    story.submit("a", 1)
    story.begin("a")
    story.commit(FileFinished("a", "x.txt"))
    story.end("a")
    story.rules.observations.files([], {("h", "x.txt"): "a"}, at_rest=False, undeleted=())
    story.submit("b", 2)
    story.begin("b")
    story.commit(FileFinished("b", "x.txt"), FilesDoomed("b"))
    story.move("b", "cancelling")
    story.end("b", "cancelled")
    story.rules.observations.files([], {}, at_rest=False, undeleted=())

    assert not story.rules.faults


def test_the_files_of_a_run_may_be_deleted_before_its_end():
    story = Story()
    story.submit("a", 1)
    story.begin("a")
    story.commit(FileFinished("a", "x.txt"))
    story.rules.observations.files([], {("h", "x.txt"): "a"}, at_rest=False, undeleted=())
    story.commit(FilesDoomed("a"))
    story.move("a", "cancelling")
    story.rules.observations.files([], {}, at_rest=False, undeleted=())
    assert not story.rules.faults

    story.end("a")  # it ends as succeeded, so its files must be there
    story.rules.observations.files([], {}, at_rest=False, undeleted=())
    assert "is missing" in story.rules.faults[0]


def test_a_run_that_started_while_its_cancel_was_committed_is_cancelling_first_after_a_restart():
    story = Story()
    story.submit("a", 1, job="resumable")
    story.commit(FilesDoomed("a"))
    story.begin("a")
    story.pass_time()
    story.restart()
    story.move("a", "cancelling")
    story.move("a", "cancelled")
    story.pass_time()

    assert not story.rules.faults
