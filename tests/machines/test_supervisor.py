"""The supervisor's decisions and their order: its machine, without a scheduler."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio
import trio.testing

from greenroom.actors.channel import Reply
from greenroom.actors.journal.change import Change
from greenroom.actors.journal.messages import Answer, WatchEnd
from greenroom.actors.messages import (
    Accepted,
    AnswerInterrupt,
    BodyGone,
    Cancel,
    Cancelling,
    Clear,
    Closing,
    Ended,
    Enter,
    FindRequest,
    Inject,
    KeepTime,
    Leave,
    Left,
    NotStarted,
    NotStored,
    NotWaiting,
    Phase,
    ReleaseHandle,
    ResetLanes,
    RunsEnded,
    SendSignal,
    SetConcurrency,
    SetDraining,
    SetMaxConcurrent,
    SetParams,
    Started,
    StoreIsDown,
    WaitForActive,
)
from greenroom.persistence.store import Requested
from greenroom.protocol.errors import (
    Conflict,
    Draining,
    HandleLocked,
    Internal,
    Invalid,
    NoActiveRun,
    QueueFull,
    Unavailable,
)
from greenroom.protocol.events import RunChanged
from greenroom.protocol.fold import Projection
from greenroom.protocol.states import PENDING, Status, allowed_from

from .driving import answer, record_of
from .making import job, jobs
from .supervising import Desk


@jobs.job("parametrized")
async def parametrized(run: Any, params: dict[str, int]) -> None: ...


@jobs.job("without parameters")
async def without_parameters(run: Any) -> None: ...


# Creations, places and starts, in one turn.


def test_a_run_that_finds_a_slot_is_created_and_started_by_one_change() -> None:
    desk = Desk()
    assert desk.submits("a", params={"x": 1}, by="ann", memos=()) == ["create a, start a"]
    (change,) = desk.changes()
    made = desk.pending("a")
    created, started = change.events
    assert (created.from_, created.to, created.attempt) == (None, Status.QUEUED, 0)
    assert (created.job, created.kind, created.params) == ("walk", "start", {"x": 1})
    assert (created.by, created.handle, created.lane, created.place) == ("ann", "of-a", "main", 1)
    assert (created.front, created.reason, created.seq, created.at) == (False, None, 0, 0)
    assert (started.from_, started.to, started.attempt) == (Status.QUEUED, Status.RUNNING, 1)
    assert (started.by, started.place, started.interactive, started.reason) == ("engine", 1, True, None)
    assert (started.seq, started.at, started.run, started.lane) == (0, 0, "a", "main")
    assert change.creates
    assert change.submission is made
    assert change.watch is made.ended
    assert change.terms is made.terms
    assert (change.run, change.generation, change.expect) == ("a", 0, None)
    assert change.reply is desk.replies["a"]
    assert change.answer == Accepted("a", False)
    assert change.notify == (("run", "a", Started(1, 0, False, started)),)
    assert desk.told("run") == []
    assert (made.begun, made.phase, made.place) == (True, Phase.QUEUED, 1)


def test_a_run_that_finds_no_slot_is_only_created() -> None:
    desk = Desk(limit=0)
    assert desk.submits("a") == ["create a"]
    (change,) = desk.changes()
    assert (change.generation, change.notify) == (None, ())
    assert not desk.pending("a").begun


def test_the_runs_of_one_turn_are_created_and_started_in_the_order_of_their_submission() -> None:
    desk = Desk(limit=2)
    assert desk.submits("a", "b", "c") == ["create a, start a", "create b, start b", "create c"]


def test_a_start_follows_all_runs_that_got_their_places_before_it() -> None:
    desk = Desk()
    desk.machine.order.set_limit("x", 0)
    changes = desk.turn(desk.submit("a", lane="x"), desk.submit("b"), desk.submit("c", lane="x"))
    assert changes == ["create a", "create b, start b", "create c"]


def test_runs_of_earlier_turns_start_before_those_of_this_one_are_created() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b")
    changes = desk.turn(Left("a", 0), RunsEnded([Ended("a", False)]), desk.submit("c"))
    assert changes == ["start b", "create c"]


def test_a_run_that_got_its_place_in_this_turn_starts_after_that_change() -> None:
    desk = Desk(limit=1)
    desk.submits("a", handle="h")
    desk.turn(desk.submit("b", "queue", handle="h"))
    changes = desk.turn(Left("a", 0), RunsEnded([Ended("a", False)]), desk.submit("c"))
    assert changes == ["place b 2", "start b", "create c"]
    place, start, _ = desk.changes()
    assert (place.events[0].by, place.run, place.expect) == ("engine", "b", frozenset({Status.QUEUED}))
    assert (start.run, start.generation, start.expect) == ("b", 0, allowed_from(Status.RUNNING))
    assert start.notify_on_refusal == (("supervisor", "", NotStarted("b", 0)),)


def test_a_run_that_waits_in_its_handle_is_created_in_order_too() -> None:
    desk = Desk()
    changes = desk.turn(desk.submit("a", handle="h"), desk.submit("b", "queue", handle="h"), desk.submit("c"))
    assert changes == ["create a, start a", "create b waiting", "create c, start c"]
    assert desk.pending("b").phase is Phase.WAITING


def test_places_are_drawn_once_and_in_order() -> None:
    desk = Desk(limit=0)
    desk.submits("a", "b")
    desk.submits("c")
    assert [desk.pending(run).place for run in "abc"] == [1, 2, 3]


# Conflicts.


def test_a_second_run_of_a_handle_is_refused_with_the_first() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    assert desk.submits("b", handle="h") == []
    (said,) = desk.answers()
    assert isinstance(said.error, Conflict)
    assert said.error.details == {"active_run": "a"}
    assert said.about is desk.pending("a")
    assert "b" not in desk.machine.pending


def test_a_submission_that_joins_gets_the_end_of_the_existing_run() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    assert desk.turn(desk.submit("b", "join", handle="h")) == []
    (watch,) = desk.told("journal")
    assert isinstance(watch, WatchEnd)
    assert watch.run == "a"
    assert desk.answer(desk.replies["b"]) == Accepted("a", True, watch.reply)
    assert desk.answers()[0].about is desk.pending("a")
    desk.turn(desk.submit("c", "join", handle="h"))
    assert desk.told("journal") == []
    assert desk.answer(desk.replies["c"]) == Accepted("a", True, watch.reply)


def test_a_body_that_joins_has_its_own_reply() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    for run in ("b", "c"):
        desk.turn(desk.submit(run, "join", handle="h", parent="p", ancestors=("p",)))
        (watch,) = desk.told("journal")
        assert desk.answer(desk.replies[run]).ended is watch.reply
    assert desk.pending("a").shared is None


def test_a_replacement_cancels_the_admitted_run_when_it_is_committed() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    assert desk.turn(desk.submit("b", "replace", handle="h", by="ann")) == ["create b waiting"]
    (change,) = desk.changes()
    ((kind, name, cancel),) = change.notify
    assert (kind, name) == ("supervisor", "")
    assert (cancel.run, cancel.by, cancel.reason, cancel.files) == ("a", "ann", "replaced", "keep")
    assert change.events[0].front
    assert desk.pending("b").terms.front
    assert desk.ends("a") == ["place b 2", "start b"]


def test_a_replacement_of_a_run_that_ends_in_the_same_turn_is_created_before_it_starts() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    changes = desk.turn(desk.submit("b", "replace", handle="h"), Left("a", 0), RunsEnded([Ended("a", False)]))
    assert changes == ["create b waiting", "place b 2", "start b"]


def test_a_run_that_queues_does_not_wait_in_front() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    desk.turn(desk.submit("b", "queue", handle="h"))
    assert not desk.pending("b").terms.front
    assert desk.changes()[0].notify == ()


def test_a_run_that_is_being_cancelled_can_not_be_joined() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    desk.turn(Cancelling("a"))
    desk.turn(desk.submit("b", "join", handle="h"))
    assert isinstance(desk.answer(desk.replies["b"]), Conflict)


# Coalescing.


def params_of(change: Change) -> Any:
    (event,) = change.events
    assert isinstance(event, RunChanged)
    return event.params


def test_a_submission_that_coalesces_changes_the_parameters_of_the_waiting_run() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    desk.turn(desk.submit("b", "queue", handle="h"))
    message = desk.submit("c", "coalesce", handle="h", params={"n": 1}, by="ann")
    assert desk.turn(message) == ["run_changed b"]
    (change,) = desk.changes()
    assert (params_of(change), change.events[0].by, change.run) == ({"n": 1}, "ann", "b")
    assert change.expect == {Status.QUEUED}
    assert desk.pending("b").params == {"n": 1}
    (watch,) = desk.told("journal")
    assert (change.reply, change.answer) == (message.reply, Accepted("b", True, watch.reply))
    assert "c" not in desk.machine.pending


def test_all_who_coalesce_share_one_watch_of_the_end() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    desk.turn(desk.submit("b", "queue", handle="h"))
    desk.turn(desk.submit("c", "coalesce", handle="h", params={"n": 1}))
    (watch,) = desk.told("journal")
    desk.turn(desk.submit("d", "coalesce", handle="h", params={"n": 2}))
    assert desk.told("journal") == []
    assert desk.changes()[0].answer == Accepted("b", True, watch.reply)


def test_equal_parameters_are_no_event() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    desk.turn(desk.submit("b", "queue", handle="h", params={"n": 1}))
    assert desk.turn(desk.submit("c", "coalesce", handle="h", params={"n": 1})) == [""]
    assert desk.turn(desk.submit("d", "coalesce", handle="h", params={"n": True})) == ["run_changed b"]


def test_runs_of_one_turn_are_created_with_the_parameters_that_they_were_submitted_with() -> None:
    desk = Desk(limit=0)
    changes = desk.turn(
        desk.submit("a", handle="h", params={"n": 1}),
        desk.submit("other"),
        desk.submit("b", "coalesce", handle="h", params={"n": 2}),
        desk.submit("c", "coalesce", handle="h", params={"n": 3}),
    )
    assert changes == ["create a", "create other", "run_changed a", "run_changed a"]
    created, _, *changed = desk.changes()
    assert created.events[0].params == {"n": 1}
    assert [params_of(change) for change in changed] == [{"n": 2}, {"n": 3}]


def test_a_run_that_starts_in_the_turn_in_which_it_is_changed_starts_after_the_change() -> None:
    desk = Desk()
    changes = desk.turn(
        desk.submit("a", handle="h", params={"n": 1}),
        desk.submit("b", "coalesce", handle="h", params={"n": 2}),
        desk.submit("other"),
    )
    assert changes == ["create a", "run_changed a", "start a", "create other, start other"]
    assert desk.turn(desk.submit("c", "coalesce", handle="h", params={"n": 3})) == ["create c waiting"]


def test_a_submission_is_decided_again_if_the_run_has_ended_instead() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    desk.turn(desk.submit("b", "queue", handle="h"))
    message = desk.submit("c", "coalesce", handle="h", request_id="r", fingerprint="f")
    desk.turn(message)
    (change,) = desk.changes()
    ((_, _, refused),) = change.notify_on_refusal
    desk.pending("b").over = True  # as the journal does with the commit
    assert desk.turn(refused, RunsEnded([Ended("b", False)])) == ["create c waiting"]
    (created,) = desk.changes()
    assert (created.reply, created.watch) == (message.reply, message.submission.ended)
    desk.submits("d", handle="h", request_id="r", fingerprint="f")
    assert desk.answer(desk.replies["d"]).run == "c"


@pytest.mark.parametrize("held", [True, False])
def test_a_repeat_of_a_request_that_coalesces_waits_for_the_commit_and_gets_the_same_run(held: bool) -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    desk.turn(desk.submit("b", "queue", handle="h"))
    desk.turn(desk.submit("c", "coalesce", handle="h", params={"n": 1}, request_id="r", fingerprint="f"))
    (change,) = desk.changes()
    assert change.memos == (Requested("r", "b", "f"),)
    ((_, _, outcome),) = change.notify if held else change.notify_on_refusal
    repeat = {"handle": "h", "params": {"n": 1}, "request_id": "r", "fingerprint": "f"}
    assert desk.turn(desk.submit("d", "coalesce", **repeat)) == []
    assert desk.answers() == []
    desk.pending("b").over = not held
    desk.turn(outcome)
    assert desk.answer(desk.replies["d"]).run == ("b" if held else "c")
    desk.turn(desk.submit("e", "coalesce", **repeat))
    assert desk.answer(desk.replies["e"]).run == ("b" if held else "c")


# Request ids.


def test_the_same_request_id_is_the_same_run() -> None:
    desk = Desk()
    desk.submits("a", request_id="r", fingerprint="f")
    assert desk.submits("b", request_id="r", fingerprint="f") == []
    accepted = desk.answer(desk.replies["b"])
    assert (accepted.run, accepted.joined) == ("a", True)
    assert "b" not in desk.machine.pending


def test_a_request_id_is_checked_before_everything_else() -> None:
    desk = Desk(max_pending=1)
    desk.submits("a", request_id="r")
    desk.turn(SetDraining(True, "ann", Reply()))
    desk.submits("b", request_id="r")
    assert desk.answer(desk.replies["b"]).run == "a"


def test_a_request_id_with_another_payload_is_refused_with_the_run_that_it_created() -> None:
    desk = Desk()
    desk.submits("a", request_id="r", fingerprint="f")
    assert desk.submits("b", request_id="r", fingerprint="g") == []
    (look,) = desk.told("journal")
    assert look.reply is desk.replies["b"]
    with pytest.raises(Conflict, match='request_id "r" was already used for another submission') as refused:
        look.read(Projection("e", max_concurrent=1))
    assert refused.value.details == {}
    committed = Projection("e", max_concurrent=1)
    committed.runs["a"] = record_of(Status.QUEUED, id="a")
    with pytest.raises(Conflict) as refused:
        look.read(committed)
    assert refused.value.details == {"run": committed.runs["a"]}


def test_a_request_id_returns_an_ended_run_and_expires_after_24_hours() -> None:
    desk = Desk()
    desk.submits("a", request_id="r")
    desk.now = 10.0
    desk.ends("a")
    desk.now = 10.0 + 24 * 3600 - 1
    desk.submits("b", request_id="r")
    assert desk.answer(desk.replies["b"]).run == "a"
    (watch,) = desk.told("journal")
    assert (watch.run, watch.reply) == ("a", desk.answer(desk.replies["b"]).ended)
    desk.now += 1
    assert desk.submits("c", request_id="r") == ["create c, start c"]


def test_a_request_id_of_a_submission_that_joins_is_stored_with_that_run() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    changes = desk.turn(desk.submit("b", "join", handle="h", request_id="r", fingerprint="f"))
    assert changes == ["remember Requested a"]
    (change,) = desk.changes()
    assert change.memos == (Requested("r", "a", "f"),)
    assert change.expect == frozenset(Status)
    desk.submits("c", request_id="r", fingerprint="f")
    assert desk.answer(desk.replies["c"]).run == "a"


def test_a_refused_submission_leaves_its_request_id_free() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    desk.submits("b", handle="h", request_id="r")
    assert desk.submits("c", request_id="r") == ["create c, start c"]


def test_a_run_that_could_not_be_stored_leaves_its_request_id_free() -> None:
    desk = Desk()
    desk.submits("a", request_id="r")
    desk.turn(NotStored("a"))
    assert desk.submits("b", request_id="r") == ["create b, start b"]


def test_a_request_id_can_be_looked_up() -> None:
    desk = Desk()
    desk.submits("a", request_id="r", fingerprint="f", parent="p", ancestors=("p",))

    def found(request_id: str) -> Any:
        message = FindRequest(request_id, Reply())
        desk.turn(message)
        return desk.answer(message.reply)

    assert found("r") == ("a", "f", "p")
    assert found("other") is None
    desk.ends("a")
    assert found("r") == ("a", "f", None)


# What is refused.


def test_a_draining_engine_accepts_only_children_of_executing_runs() -> None:
    desk = Desk()
    desk.submits("a")
    desk.turn(SetDraining(True, "ann", Reply()))
    assert desk.submits("b") == []
    assert isinstance(desk.answer(desk.replies["b"]), Draining)
    assert desk.submits("c", parent="a", ancestors=("a",)) == ["create c, start c"]
    desk.turn(SetDraining(False, "ann", Reply()))
    assert desk.submits("d") == ["create d, start d"]


def test_an_engine_that_shuts_down_accepts_no_new_runs() -> None:
    desk = Desk()
    reply: Reply[object] = Reply()
    desk.turn(Closing(False, reply))
    assert desk.answers() == [Answer(reply)]
    desk.submits("a")
    assert isinstance(desk.answer(desk.replies["a"]), Draining)


def test_queued_runs_do_not_start_during_shutdown() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b")
    desk.turn(Closing(False, Reply()))
    assert desk.ends("a") == []


def test_at_most_max_pending_runs_are_pending() -> None:
    desk = Desk(limit=0, max_pending=2)
    desk.submits("a", "b", "c")
    refused = desk.answer(desk.replies["c"])
    assert isinstance(refused, QueueFull)
    assert refused.details == {"max_pending": 2}
    desk.ends("a", generation=None)
    assert desk.submits("c") == ["create c"]


def test_a_run_id_that_already_exists_is_refused() -> None:
    desk = Desk()
    desk.submits("a")
    desk.submits("a", handle="other")
    refused = desk.answer(desk.replies["a"])
    assert isinstance(refused, Internal)
    assert "run id a already exists" in str(refused)


# Drafts.


def draft(desk: Desk, handle: str, params: Any) -> Any:
    message = SetParams(handle, params, "ann", Reply())
    desk.turn(message)
    return message.reply


def test_a_run_without_parameters_takes_the_draft_of_its_handle() -> None:
    desk = Desk()
    reply = draft(desk, "h", {"x": 1})
    (change,) = desk.changes()
    (event,) = change.events
    assert (event.handle, event.params, event.by, event.freed) == ("h", {"x": 1}, "ann", None)
    assert (event.seq, event.at) == (0, 0)
    assert change.reply is reply
    desk.submits("a", handle="h", params=None, job=job("parametrized"))
    assert desk.pending("a").params == {"x": 1}
    assert desk.changes()[0].events[0].params == {"x": 1}


def test_a_run_with_parameters_does_not_change_the_draft() -> None:
    desk = Desk()
    draft(desk, "h", {"x": 1})
    desk.submits("a", handle="h", params={"x": 2}, job=job("parametrized"))
    assert desk.pending("a").params == {"x": 2}


def test_a_run_without_parameters_and_without_a_draft_gets_none() -> None:
    desk = Desk()
    desk.submits("a", params=None, job=job("parametrized"))
    assert desk.pending("a").params == {}
    desk.submits("b", params=None, job=job("without parameters"))
    assert desk.pending("b").params is None


def test_a_draft_that_does_not_fit_refuses_the_run() -> None:
    desk = Desk()
    draft(desk, "h", {"x": "text"})
    assert desk.submits("a", handle="h", params=None, job=job("parametrized")) == []
    assert isinstance(desk.answer(desk.replies["a"]), Invalid)
    assert desk.submits("b", handle="h", params=None) == ["create b, start b"]


def test_a_draft_is_locked_while_its_handle_is_taken() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    reply = draft(desk, "h", {"x": 1})
    (said,) = desk.answers()
    assert said.reply is reply
    assert isinstance(said.error, HandleLocked)
    assert said.about is desk.pending("a")
    assert desk.changes() == []
    assert "h" not in desk.machine.handles.drafts


# Slots.


def test_a_slot_that_is_released_goes_to_the_next_run() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b")
    assert desk.ends("a") == ["start b"]


def test_a_run_that_waits_returns_with_its_place_and_its_body() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b", "c")
    assert desk.waits("a") == ["start b"]
    assert desk.asks("a", live_body=True) == []
    assert desk.ends("b") == ["start a"]
    (change,) = desk.changes()
    (event,) = change.events
    assert (event.from_, event.attempt, event.place, event.interactive) == (Status.SUSPENDED, 1, 1, None)
    assert change.notify == (("run", "a", Started(1, 0, True, event)),)


def test_a_retry_gets_a_new_place_and_a_new_body() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b", "c")
    desk.waits("a")
    assert desk.asks("a", 2, new_place=True) == ["place a 4"]
    (change,) = desk.changes()
    assert change.expect == frozenset({Status.SUSPENDED})
    assert desk.ends("b") == ["start c"]
    assert desk.ends("c") == ["start a"]
    (event,) = desk.changes()[0].events
    assert (event.attempt, event.interactive, event.place) == (2, True, 4)


def test_a_run_that_requests_a_slot_twice_is_queued_once() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b")
    desk.waits("a")
    desk.asks("a")
    desk.asks("a", 2, new_place=True)
    assert desk.ends("b") == ["start a"]
    assert desk.ends("a") == []


def test_a_run_that_has_its_slot_is_not_queued_again() -> None:
    desk = Desk()
    desk.submits("a")
    assert desk.asks("a", 2, new_place=True) == []
    assert desk.pending("a").next_attempt == 1


def test_a_run_that_has_ended_or_is_about_to_is_not_queued() -> None:
    desk = Desk()
    desk.submits("a")
    desk.waits("a")
    desk.pending("a").over = True
    assert desk.asks("a") == []
    desk.turn(RunsEnded([Ended("a", False)]))
    assert desk.asks("a") == []


def test_a_run_that_no_longer_requests_a_slot_leaves_its_lane() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b", "c")
    desk.turn(Leave("b"))
    assert desk.ends("a") == ["start c"]
    assert desk.turn(Leave("nobody")) == []


def test_a_refused_start_frees_the_slot() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b")
    assert desk.turn(NotStarted("a", 0)) == ["start b"]
    assert desk.turn(NotStarted("nobody", 0)) == []


def test_a_run_that_leaves_the_queue_by_its_end_delays_no_others() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b", "c")
    desk.ends("b", generation=None)
    assert desk.ends("a") == ["start c"]


def test_a_slot_granted_to_a_run_is_free_when_the_run_has_ended() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b", "c")
    desk.turn(Left("a", 0))  # b is started, and has ended before that
    assert desk.turn(Left("b", None), RunsEnded([Ended("b", False)])) == ["start c"]


def test_the_handle_of_a_run_that_has_released_its_slot_is_taken_until_its_end_is_committed() -> None:
    desk = Desk(limit=1)
    desk.submits("a", handle="h")
    desk.turn(desk.submit("b", "queue", handle="h"))
    assert desk.turn(Left("a", 0)) == []
    assert desk.turn(RunsEnded([Ended("a", False)])) == ["place b 2", "start b"]


def test_a_refused_start_frees_its_slot_even_if_its_run_ended_by_the_same_commit() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b", "c")
    desk.turn(Left("a", 0))
    assert desk.turn(NotStarted("b", 0), RunsEnded([Ended("a", False), Ended("b", False)])) == ["start c"]
    assert list(desk.machine.order.executing) == ["c"]


def test_a_new_run_that_had_the_slot_of_an_end_and_could_not_be_stored_frees_it_again() -> None:
    desk = Desk(limit=1)
    desk.submits("a")
    desk.turn(Left("a", 0), desk.submit("b"))
    assert desk.turn(StoreIsDown(True), NotStored("b"), desk.submit("c")) == []
    assert desk.machine.order.executing == {}
    desk.turn(StoreIsDown(False), RunsEnded([Ended("a", False)]))
    assert desk.submits("d") == ["create d, start d"]


def test_a_queued_run_that_could_not_be_stored_leaves_its_lane() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b", "c")
    desk.turn(NotStored("b"))
    assert desk.ends("a") == ["start c"]


def test_a_run_that_is_cancelled_while_it_is_queued_with_its_body_leaves_the_queue() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b", "c")
    desk.waits("a")
    desk.asks("a", live_body=True)
    desk.turn(Left("a", None), Cancelling("a"))
    assert desk.ends("b") == ["start c"]


def test_a_run_that_could_not_be_stored_uses_no_memory() -> None:
    desk = Desk(limit=1)
    desk.submits("a", handle="h")
    desk.turn(desk.submit("b", "queue", handle="h"))
    assert desk.turn(NotStored("a")) == ["place b 2", "start b"]
    assert list(desk.machine.pending) == ["b"]
    assert desk.machine.handles.taken_by("h") == "b"


def test_a_run_whose_deadline_has_passed_gets_no_slot() -> None:
    desk = Desk(limit=1)
    desk.submits("a")
    desk.submits("b", queue_timeout=5.0)
    desk.submits("c", deadline=5.0)
    desk.submits("d", queue_timeout=5.01, deadline=5.01)
    desk.now = 4.9995
    assert desk.ends("a") == ["start d"]


@pytest.mark.parametrize("terms", [{"queue_timeout": 4.0 + 0.001}, {"deadline": 4.0 + 0.001}])
def test_a_run_whose_deadline_is_about_to_pass_gets_no_slot_even_in_a_turn_without_messages(terms) -> None:
    desk = Desk(limit=0)
    desk.submits("a", **terms)
    desk.machine.order.limit = 1
    desk.now = 4.0
    assert desk.turn() == []


def test_a_run_that_has_begun_has_no_queue_timeout() -> None:
    desk = Desk(limit=1)
    desk.submits("a", queue_timeout=5.0)
    desk.waits("a")
    desk.now = 9.0
    assert desk.asks("a") == ["start a"]
    late = Desk(limit=1)
    late.submits("a", deadline=5.0)
    late.waits("a")
    late.now = 9.0
    assert late.asks("a") == []


def test_the_deadline_of_a_run_counts_from_its_submission() -> None:
    desk = Desk(limit=1)
    desk.submits("a")
    desk.submits("b", deadline=5.0, created_at=3.0)
    desk.now = 7.0
    assert desk.ends("a") == ["start b"]


@pytest.mark.parametrize("terms", [{"queue_timeout": 5.0}, {"deadline": 5.0}])
def test_a_run_that_has_to_wait_watches_its_own_deadline(terms) -> None:
    desk = Desk(limit=0)
    desk.submits("a", **terms)
    assert desk.decided[-1] == ("run", "a", KeepTime())
    desk.submits("b")
    assert desk.told("run") == []
    starting = Desk()
    starting.submits("a", **terms)
    assert starting.told("run") == []


# Limits and lanes.


def test_a_limit_is_effective_immediately() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b", "c")
    reply: Reply[object] = Reply()
    assert desk.turn(SetMaxConcurrent(2, "ann", reply)) == ["engine_changed", "start b"]
    (event,) = desk.changes()[0].events
    assert (event.max_concurrent, event.draining, event.by, event.seq, event.at) == (2, False, "ann", 0, 0)
    assert desk.changes()[0].reply is reply


def test_a_lanes_limit_is_effective_immediately() -> None:
    desk = Desk(limit=9)
    desk.submits("a", "b", lane="x")
    reply: Reply[object] = Reply()
    assert desk.turn(SetConcurrency("x", None, "ann", reply)) == ["lane_changed x", "start b"]
    (event,) = desk.changes()[0].events
    assert (event.limit, event.generation, event.by, event.seq, event.at) == (None, 0, "ann", 0, 0)
    assert desk.changes()[0].reply is reply


def test_while_the_engine_drains_only_runs_that_have_begun_start() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b")
    reply: Reply[object] = Reply()
    assert desk.turn(SetDraining(True, "ann", reply)) == ["engine_changed"]
    assert desk.changes()[0].events[0].draining
    assert desk.changes()[0].reply is reply
    assert desk.waits("a") == []
    assert desk.asks("a") == ["start a"]
    assert desk.ends("a") == []
    assert desk.turn(SetDraining(False, "ann", Reply())) == ["engine_changed", "start b"]


def test_an_engine_that_shuts_down_starts_runs_that_have_begun_and_finally_none() -> None:
    desk = Desk(limit=1)
    desk.submits("a")
    desk.turn(Closing(False, Reply()))
    desk.waits("a")
    assert desk.asks("a") == ["start a"]
    desk.waits("a")
    desk.turn(Closing(True, Reply()))
    assert desk.asks("a") == []


def test_an_engine_that_shuts_down_does_not_resume_when_its_drain_ends() -> None:
    desk = Desk(limit=1)
    desk.turn(Closing(False, Reply()))
    desk.turn(SetDraining(False, "ann", Reply()))
    desk.submits("a", parent="p", ancestors=("p",))
    assert desk.machine.settings.holding
    assert not desk.machine.settings.draining


def test_a_reset_detaches_executing_runs_and_starts_queued_ones() -> None:
    desk = Desk(limit=2)
    desk.submits("a", "b", "c")
    reply: Reply[object] = Reply()
    changes = desk.turn(ResetLanes("ann", reply))
    assert changes == ["lane_changed main", "run_changed a", "run_changed b", "start c"]
    lane, detached, *_ = desk.changes()
    assert (lane.events[0].generation, lane.events[0].by) == (1, "ann")
    (event,) = detached.events
    assert (event.detached, event.by) == (True, "ann")
    assert (detached.run, detached.expect) == ("a", frozenset({Status.RUNNING, Status.CANCELLING}))
    assert desk.changes()[-1].generation == 1
    assert desk.answer(reply) is True
    assert desk.submits("d") == ["create d, start d"]
    assert desk.ends("a") == []
    assert desk.submits("e") == ["create e"]
    assert desk.ends("c", generation=1) == ["start e"]


def test_a_reset_emits_an_event_for_each_busy_lane_and_for_main() -> None:
    desk = Desk()
    desk.submits("a", lane="x")
    desk.submits("b", lane="b")
    changes = desk.turn(ResetLanes("ann", Reply()))
    assert changes == [
        "lane_changed b",
        "run_changed b",
        "lane_changed main",
        "lane_changed x",
        "run_changed a",
    ]


def test_a_reset_ends_a_drain() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b")
    desk.turn(SetDraining(True, "ann", Reply()))
    changes = desk.turn(ResetLanes("bob", Reply()))
    assert changes == ["lane_changed main", "run_changed a", "engine_changed", "start b"]
    assert desk.changes()[2].events[0].by == "bob"
    assert not desk.changes()[2].events[0].draining


def test_a_reset_answers_wait_for_active() -> None:
    desk = Desk()
    desk.submits("a")
    reply: Reply[bool] = Reply()
    desk.turn(WaitForActive(reply))
    desk.turn(ResetLanes("ann", Reply()))
    assert desk.answer(reply) is True
    desk.ends("a")
    assert desk.answers() == []


def test_a_run_whose_slot_is_free_before_its_end_is_committed_is_not_detached_by_a_reset() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b", "c")
    assert desk.turn(Left("a", 0)) == ["start b"]
    assert desk.turn(ResetLanes("ann", Reply())) == ["lane_changed main", "run_changed b", "start c"]
    assert [change.generation for change in desk.changes()] == [None, None, 1]
    assert desk.turn(RunsEnded([Ended("a", False)])) == []
    assert list(desk.machine.order.executing) == ["c"]


def test_a_slot_from_before_a_reset_that_is_released_at_the_end_frees_nothing() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b", "c")
    assert desk.turn(ResetLanes("ann", Reply()), Left("a", 0))[-1] == "start b"
    assert desk.turn(RunsEnded([Ended("a", False)])) == []
    assert desk.ends("b", generation=1) == ["start c"]


# wait_for_active.


def test_wait_for_active_is_answered_when_the_executing_runs_have_ended() -> None:
    desk = Desk(limit=2)
    desk.submits("a", "b", "c")
    reply: Reply[bool] = Reply()
    desk.turn(WaitForActive(reply))
    assert desk.answers() == []
    assert len(desk.machine.active.waiters) == 1
    desk.ends("a")  # c starts later, and is not awaited
    assert desk.answers() == []
    desk.waits("b")
    assert desk.answer(reply) is True
    assert len(desk.machine.active.waiters) == 0


def test_wait_for_active_is_answered_after_the_end_that_released_the_slot() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b")
    reply: Reply[bool] = Reply()
    desk.turn(WaitForActive(reply))
    assert desk.turn(Left("a", 0)) == ["start b"]
    assert desk.answer(reply) is True  # through the journal, which already has the end of a
    assert desk.turn(RunsEnded([Ended("a", False)])) == []
    assert desk.answers() == []


def test_wait_for_active_does_not_wait_if_nothing_executes() -> None:
    desk = Desk()
    reply: Reply[bool] = Reply()
    desk.turn(WaitForActive(reply))
    assert desk.answer(reply) is True


def test_a_caller_that_no_longer_waits_is_not_answered() -> None:
    desk = Desk()
    desk.submits("a")
    first, second = Reply[bool](), Reply[bool]()
    desk.turn(WaitForActive(first), WaitForActive(second))
    desk.turn(NotWaiting(first))
    desk.ends("a")
    assert [said.reply for said in desk.answers()] == [second]


def test_a_waiter_that_was_answered_in_another_way_is_removed() -> None:
    desk = Desk()
    desk.submits("a", "b")
    gone, waiting = Reply[bool](), Reply[bool]()
    desk.turn(WaitForActive(gone), WaitForActive(waiting))
    gone.set(False)
    desk.ends("a")
    assert len(desk.machine.active.waiters) == 1
    desk.ends("b")
    assert [said.reply for said in desk.answers()] == [waiting]


# Commands for runs.


def test_a_cancelled_run_that_is_queued_gets_no_slot() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b", "c")
    cancel = desk.cancel("b")
    desk.turn(cancel)
    assert desk.told("run") == [cancel]
    assert desk.pending("b").cleared
    assert desk.ends("a") == ["start c"]


def test_a_cancelled_run_that_waits_in_its_handle_is_not_admitted() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    desk.turn(desk.submit("b", "queue", handle="h"), desk.submit("c", "queue", handle="h"))
    desk.turn(desk.cancel("b"))
    assert desk.ends("a") == []
    assert desk.ends("b", generation=None) == ["place c 2", "start c"]


def test_a_run_that_has_ended_is_not_admitted() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    desk.turn(desk.submit("b", "queue", handle="h"))
    desk.pending("b").over = True
    assert desk.ends("a") == []


def test_a_cancelled_run_that_has_begun_keeps_its_place_until_it_has_decided() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b")
    desk.waits("a")
    desk.asks("a")
    desk.turn(desk.cancel("a"))
    assert not desk.pending("a").cleared
    assert desk.ends("b") == ["start a"]


@pytest.mark.parametrize(
    "message",
    [
        Cancel("a", "ann", "user", "keep", Reply()),
        AnswerInterrupt("a", "a.1", 1, "ann", Reply()),
        SendSignal("a", "k", 1, "ann", Reply()),
    ],
)
def test_messages_for_a_run_are_forwarded_if_it_is_pending(message) -> None:
    desk = Desk()
    desk.turn(message)
    assert answer(message.reply) is None
    desk.submits("a")
    message.reply = Reply()
    desk.turn(message)
    assert desk.decided == [("run", "a", message)]
    assert not message.reply.done


def test_a_message_finds_the_run_by_its_id_or_by_its_handle() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    for target in ("a", "h"):
        message = Inject(target, "hello", "ann", Reply())
        desk.turn(message)
        assert desk.decided == [("run", "a", message)]


def test_a_message_for_an_unknown_target_is_refused() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    desk.ends("a", body_remains=True)

    def refusal(target: str) -> str:
        message = Inject(target, "hello", "ann", Reply())
        desk.turn(message)
        refused = answer(message.reply)
        assert isinstance(refused, NoActiveRun)
        return str(refused)

    assert refusal("h") == 'handle "h" has no active run'
    assert refusal("x") == '"x" is neither a pending run nor a handle with an active run'
    desk.turn(desk.submit("b", "queue", handle="h"))
    desk.machine.handles.free("h")
    assert refusal("h") == 'handle "h" has no active run'


# Handles.


def test_an_abandoned_body_keeps_its_handle_until_it_has_ended() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    desk.turn(desk.submit("b", "queue", handle="h"))
    assert desk.ends("a", body_remains=True) == []
    assert desk.turn(BodyGone("a", "h")) == ["handle_changed", "place b 2", "start b"]
    (event,) = desk.changes()[0].events
    assert (event.freed, event.by, event.handle, event.seq, event.at) == ("a", "engine", "h", 0, 0)
    assert desk.turn(BodyGone("a", "h")) == []


def test_an_operator_releases_a_handle_from_an_abandoned_body() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    desk.ends("a", body_remains=True)
    reply: Reply[bool] = Reply()
    assert desk.turn(ReleaseHandle("h", "ann", reply)) == ["handle_changed"]
    (change,) = desk.changes()
    assert (change.reply, change.answer, change.events[0].by) == (reply, True, "ann")
    assert desk.answers() == []
    again: Reply[bool] = Reply()
    assert desk.turn(ReleaseHandle("h", "ann", again)) == []
    assert desk.answer(again) is False


# Clears.


def test_a_clear_cancels_runs_that_are_queued_in_a_lane_or_wait_for_it() -> None:
    desk = Desk(limit=1)
    desk.submits("a", handle="h")
    desk.turn(desk.submit("b", "queue", handle="h"), desk.submit("c"), desk.submit("d", lane="x"))
    message = Clear("lane_cleared", "main", "ann", Reply())
    desk.turn(message)
    (helper,) = desk.helpers()
    assert [desk.pending(run).cleared for run in "abcd"] == [False, True, True, False]
    assert desk.ends("a") == ["start d"]

    async def clear() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(helper)
            await trio.testing.wait_all_tasks_blocked()
            for cancel in desk.itself:
                cancel.reply.set(object())

    trio.run(clear)
    assert [(cancel.run, cancel.reason, cancel.by) for cancel in desk.itself] == [
        ("b", "lane_cleared", "ann"),
        ("c", "lane_cleared", "ann"),
    ]
    assert answer(message.reply) == 2


def test_clearing_a_handle_cancels_the_runs_that_wait_in_it() -> None:
    desk = Desk()
    desk.submits("a", handle="h")
    desk.turn(desk.submit("b", "queue", handle="h"))
    desk.turn(Clear("handle_cleared", "h", "ann", Reply()))
    assert [desk.pending(run).cleared for run in "ab"] == [False, True]


# The store.


def test_while_the_store_is_down_no_runs_start_and_no_new_ones_are_accepted() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b")
    desk.turn(StoreIsDown(True))
    assert desk.ends("a") == []
    assert desk.submits("c") == []
    assert isinstance(answer(desk.replies["c"]), Unavailable)
    assert "c" not in desk.machine.pending
    assert desk.turn(StoreIsDown(False)) == ["start b"]


def test_a_child_that_is_submitted_while_the_store_is_down_is_accepted_when_it_is_back() -> None:
    desk = Desk()
    desk.submits("a")
    desk.turn(StoreIsDown(True))
    assert desk.submits("b", parent="a", ancestors=("a",)) == []
    assert not desk.replies["b"].done
    assert desk.turn(StoreIsDown(False)) == ["create b, start b"]
    assert desk.turn(StoreIsDown(False)) == []


def test_answers_are_forwarded_to_the_journal() -> None:
    desk = Desk()
    said = Answer(Reply(), 1)
    desk.turn(said)
    assert desk.decided == [("journal", "", said)]


def test_pending_means_not_ended() -> None:
    assert Status.QUEUED in PENDING
    desk = Desk()
    desk.submits("a")
    assert list(desk.machine.pending) == ["a"]
    desk.ends("a")
    assert desk.machine.pending == {}
    assert desk.machine.deadline() == math.inf


def test_a_request_for_a_new_body_replaces_one_for_an_ended_body() -> None:
    desk = Desk(limit=1)
    desk.submits("a", "b")
    desk.waits("a")
    desk.asks("a", live_body=True)
    desk.turn(Leave("a"))
    desk.turn(Enter("a", 2))
    desk.ends("b")
    (change,) = desk.changes()
    assert change.notify == (("run", "a", Started(2, 0, False, change.events[0])),)
