"""The machine of the schedules: what waits for what."""

import math
from typing import Any

import pytest

from greenroom.actors.channel import Reply
from greenroom.actors.journal.change import Change
from greenroom.actors.schedules import machine as module
from greenroom.actors.schedules.machine import SchedulesMachine
from greenroom.actors.schedules.messages import (
    Delete,
    FiringEnded,
    Put,
    Resumed,
    SetPaused,
    StoreIsBack,
    TellWhenResumed,
)
from greenroom.protocol.errors import Conflict, Draining, Invalid, NotFound, QueueFull, Unavailable
from greenroom.protocol.events import ScheduleChanged, ScheduleFired, ScheduleMissed

from .making import BEGAN, definition, record


class Driver:
    """A machine, and the effects of its turns."""

    def __init__(self, *records):
        async def submit(schedule, event):
            raise AssertionError("the tests only look at what is submitted")

        self.machine = SchedulesMachine(submit)
        self.machine.restore({each.name: each for each in records})
        self.submitted: list[tuple[str, float]] = []
        self.changes: list[Change] = []
        self.told: list[Any] = []

    def turn(self, after: float, *messages: Any) -> None:
        """One turn, this long after the schedules were put."""
        for message in messages:
            self.machine.receive(message, BEGAN + after)
        self.machine.end_turn(BEGAN + after)
        for kind, _, what in self.machine.effects.take():
            if kind == "helper":
                schedule, event = what.args
                self.submitted.append((schedule.name, event.at_planned - BEGAN))
            elif kind == "journal":
                self.changes.append(what)
            else:
                self.told.append(what)

    @property
    def events(self):
        return [event for change in self.changes for event in change.events]

    @property
    def wakes_at(self):
        return self.machine.deadline() - BEGAN


def put(**options):
    return Put(definition(**options), "id2", None, "app", Reply())


def pause(name="tick"):
    return SetPaused(name, True, "app", Reply())


def ended(run="r1", *, joined=False, error=None):
    return FiringEnded("tick", None if error else run, joined, error)


def test_a_created_run_needs_no_further_commit():
    driver = Driver(record())
    assert driver.wakes_at == 100
    driver.turn(100)
    assert driver.submitted == [("tick", 100)]
    assert driver.wakes_at == math.inf, "one firing at a time"
    driver.turn(101, ended())
    assert not driver.changes
    assert driver.wakes_at == 200


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (ended("r0", joined=True), {"run": "r0", "joined": True}),
        (ended(error=Conflict("busy")), {"refused": "conflict", "error": "busy"}),
        (ended(error=QueueFull("full")), {"refused": "queue_full", "error": "full"}),
    ],
)
def test_a_firing_that_creates_no_run_is_committed_with_the_advance(message, fields):
    driver = Driver(record())
    driver.turn(100)
    driver.turn(101, message)
    [change] = driver.changes
    [event] = change.events
    assert isinstance(event, ScheduleFired)
    assert {name: getattr(event, name) for name in fields} == fields
    [stored] = change.memos
    assert stored.decided_until == BEGAN + 100
    assert stored.next == event.next == (BEGAN + 200, BEGAN + 300, BEGAN + 400)
    assert stored.last_run == fields.get("run")
    assert stored.last_error == fields.get("error")


def test_a_refusal_is_logged_until_its_reason_changes_or_a_firing_is_accepted(caplog):
    driver = Driver(record())

    def fire(at, *outcomes):
        for outcome in outcomes:
            driver.turn(at)
            driver.turn(at, outcome)
            at += 100

    bad, worse = ended(error=Invalid("bad params: fix them")), ended(error=Invalid("worse"))
    busy = [ended(error=Conflict(f"handle is taken by run r{n}")) for n in range(2)]
    fire(100, bad, bad, worse, *busy, ended("r2", joined=True), busy[0])
    logged = [record.getMessage() for record in caplog.records]
    texts = ["bad params: fix them", "worse", "run r0", "run r0"]
    assert len(logged) == len(texts)
    for message, text in zip(logged, texts, strict=True):
        assert message.startswith("schedule 'tick' has submitted no run")
        assert text in message
    fire(800, ended(error=Unavailable("down")))
    assert len(caplog.records) == len(texts)


def test_the_last_error_goes_with_the_next_accepted_firing():
    driver = Driver(record())
    driver.turn(100)
    driver.turn(101, ended(error=Invalid("bad")))
    driver.turn(200)
    driver.turn(201, ended("r1", joined=True))
    assert [change.memos[0].last_error for change in driver.changes] == ["bad", None]


def test_changes_wait_for_the_end_of_a_firing():
    driver = Driver(record())
    driver.turn(100)
    messages = [pause(), put(every=60.0), Delete("tick", "app", Reply())]
    driver.turn(101, *messages)
    assert not driver.changes
    driver.turn(102, ended())
    paused, changed, deleted = driver.events
    assert (paused.state.decided_until, paused.state.paused) == (BEGAN + 100, True)
    assert (changed.state.id, changed.state.paused) == ("id2", True)
    assert deleted.state is None
    assert driver.wakes_at == math.inf


def test_times_that_were_left_out_are_committed_before_the_next_firing():
    driver = Driver(record())
    driver.turn(1061)
    [missed] = driver.events
    assert isinstance(missed, ScheduleMissed)
    assert (missed.count, missed.until - BEGAN) == (9, 900)
    assert driver.changes[0].memos[0].decided_until == BEGAN + 900
    assert driver.submitted == [("tick", 1000)]


def test_while_the_store_is_down_a_firing_waits():
    driver = Driver(record())
    driver.turn(100)
    driver.turn(101, ended(error=Unavailable("down")))
    [change] = driver.changes
    assert not change.events, "a change without events is accepted when the store is back"
    assert [message for _, _, message in change.notify] == [StoreIsBack()]
    assert driver.wakes_at == math.inf
    driver.turn(110, pause(), SetPaused("tick", False, "app", Reply()))
    assert driver.wakes_at == math.inf
    driver.turn(130, StoreIsBack())
    assert driver.submitted == [("tick", 100)], "the pause at 110 has left it out"
    assert driver.wakes_at == 200


def test_a_firing_that_the_store_refused_is_submitted_again():
    driver = Driver(record())
    driver.turn(100)
    driver.turn(101, ended(error=Unavailable("down")))
    driver.turn(130, StoreIsBack())
    assert driver.submitted == [("tick", 100), ("tick", 100)]
    driver.turn(131, ended(error=Unavailable("down again")))
    assert len(driver.changes) == 2


def test_while_the_engine_drains_nothing_fires_and_then_the_missed_rule_holds():
    driver = Driver(record(), record("other", every=150.0))
    driver.turn(100)
    driver.turn(101, ended(error=Draining("draining")))
    assert driver.told == [TellWhenResumed()]
    driver.turn(500)
    assert driver.submitted == [("tick", 100)]
    assert driver.wakes_at == math.inf
    driver.turn(561, Resumed())
    assert driver.submitted == [("tick", 100), ("tick", 500), ("other", 450)]
    assert [event.count for event in driver.events] == [4, 2]


def test_a_drain_that_has_ended_before_the_firing_was_refused():
    driver = Driver(record())
    driver.turn(100)
    driver.turn(101, ended(error=Draining("draining")))
    driver.turn(101, Resumed())
    assert driver.submitted == [("tick", 100)] * 2
    driver.turn(102, ended(error=Draining("again")))
    assert driver.told == [TellWhenResumed()] * 2


def test_a_deleted_schedule_fires_no_more():
    driver = Driver(record())
    reply = Reply()
    driver.turn(1, Delete("tick", "app", reply))
    assert [event.state for event in driver.events] == [None]
    driver.turn(100)
    assert not driver.submitted
    again = Delete("tick", "app", Reply())
    driver.turn(101, again)
    assert isinstance(again.reply._error, NotFound)


def test_what_is_put_again_without_a_change_has_no_event():
    driver = Driver(record())
    message = put()
    driver.turn(1, message)
    [change] = driver.changes
    assert change.events == ()
    assert change.answer == record()


def test_a_schedule_with_other_times_fires_at_these_only():
    driver = Driver(record())
    driver.turn(90, put(every=60.0))
    driver.turn(100)
    assert not driver.submitted
    assert driver.wakes_at == 150


def test_a_schedule_that_is_declared_in_code_is_changed_and_deleted_only_there():
    driver = Driver(record(source="code"))
    for message in (put(every=60.0), Delete("tick", "app", Reply())):
        driver.turn(1, message)
        assert isinstance(message.reply._error, Conflict)
        assert "is declared in the code of job" in message.reply._error.message
    driver.turn(2, pause())
    assert [event.state.paused for event in driver.events] == [True]


def test_declared_schedules_are_put_changed_and_deleted():
    kept, changed = record("kept", source="code"), record("changed", source="code")
    gone = [record("gone", source="code"), record("left", source="config")]
    driver = Driver(kept, changed, *gone, record("api"), record("taken"))
    declared = [
        (definition("kept"), "code"),
        (definition("changed", every=60.0), "code"),
        (definition("taken"), "code"),
        (definition("new"), "config"),
    ]
    assert driver.machine.declare(declared, lambda: "id2", BEGAN + 50) == ["taken"]
    driver.turn(50)
    changes = {event.schedule: event.state for event in driver.events if isinstance(event, ScheduleChanged)}
    assert changes.keys() == {"changed", "gone", "left", "taken", "new"}
    assert (changes["left"], changes["new"].source) == (None, "config")
    assert (changes["changed"].id, changes["gone"], changes["taken"].source) == ("id2", None, "code")
    assert changes["taken"].id == "id1", "the times are the same, so it continues"


def test_a_put_beyond_the_limit_is_refused(monkeypatch):
    monkeypatch.setattr(module, "MAX_SCHEDULES", 1)
    driver = Driver(record())
    message = put(name="other")
    driver.turn(1, message)
    assert isinstance(message.reply._error, QueueFull)
    driver.turn(2, put(every=60.0))
    assert len(driver.events) == 1


def test_schedules_of_the_configuration_are_not_refused_because_of_those_of_callers(monkeypatch):
    monkeypatch.setattr(module, "MAX_SCHEDULES", 1)
    driver = Driver(record())
    message = put(name="other")
    message.source = "config"
    driver.turn(1, message)
    assert message.reply._error is None
    assert len(driver.events) == 1


def test_a_limited_number_of_firings_is_submitted_at_a_time(monkeypatch):
    monkeypatch.setattr(module, "_MOST_FIRINGS", 2)
    driver = Driver(*(record(f"s{number}") for number in range(5)))
    driver.turn(100)
    assert len(driver.submitted) == 2
    [first, _] = driver.submitted
    driver.turn(101, FiringEnded(first[0], "r1"))
    assert len(driver.submitted) == 3


def test_a_turn_is_short(monkeypatch):
    monkeypatch.setattr(module, "_VISITED_PER_TURN", 5)
    driver = Driver(*(record(f"s{number}") for number in range(5)))
    driver.turn(100)
    assert len(driver.submitted) == 2
    assert driver.wakes_at == 100, "the others follow in the next turns"
    driver.turn(100)
    driver.turn(100)
    assert len(driver.submitted) == 5


def test_a_turn_visits_a_limited_number_of_due_times_not_of_schedules():
    many = {"missed": "all", "missed_limit": 1000}
    driver = Driver(*(record(f"s{number}", **many) for number in range(5)))
    driver.turn(1_000_000)
    assert len(driver.submitted) == 1, "each of them visits the last 1,000 due times"
    driver.turn(1_000_000)
    assert len(driver.submitted) == 2


def test_schedules_that_were_deleted_or_changed_need_no_memory():
    driver = Driver()
    for number in range(500):
        driver.turn(number, put(name=f"s{number}"))
        driver.turn(number, Delete(f"s{number}", "app", Reply()))
    for number in range(500):
        driver.turn(number, put(every=1000.0 + number))
    assert len(driver.machine._heap) < 100
    assert driver.wakes_at == 499 + 1499
