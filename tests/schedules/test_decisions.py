"""What a schedule does at a time, and what a changed definition makes of its record."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.schedules.decisions import (
    GRACE,
    Fire,
    LeaveOut,
    Wait,
    check_times,
    decide,
    revised,
    times_of,
)
from greenroom.protocol.errors import Invalid

from .making import BEGAN, decided, definition, record


def decision(schedule, after):
    return decide(schedule, times_of(schedule, schedule.since), BEGAN + after)


def all_decisions(schedule, after):
    """The due times that fire, and the number that is left out, when each firing ends at once."""
    fired, left_out = [], 0
    while not isinstance(decided_now := decision(schedule, after), Wait):
        if isinstance(decided_now, Fire):
            fired.append(decided_now.planned - BEGAN)
            schedule = decided(schedule, decided_now.planned)
        else:
            left_out += decided_now.count
            schedule = decided(schedule, decided_now.until)
    return fired, left_out


def test_a_schedule_waits_for_its_next_time_and_then_fires():
    schedule = record()
    assert decision(schedule, 0) == Wait(BEGAN + 100)
    assert decision(schedule, 99.9) == Wait(BEGAN + 100)
    assert decision(schedule, 100) == Fire(BEGAN + 100)


def test_a_firing_that_is_a_minute_late_is_missed():
    schedule = record(missed="skip")
    assert decision(schedule, 99.999 + GRACE) == Fire(BEGAN + 100)
    assert decision(schedule, 100 + GRACE) == LeaveOut(1, BEGAN + 100, visited=1)


@pytest.mark.parametrize(
    ("missed", "fired", "left_out"),
    [
        ("skip", [], 10),
        ("latest", [1000], 9),
        ("all", [700, 800, 900, 1000], 6),
    ],
)
def test_what_was_missed_follows_the_rule(missed, fired, left_out):
    schedule = record(missed=missed, missed_limit=4)
    assert all_decisions(schedule, 1061) == (fired, left_out)


@pytest.mark.parametrize(
    ("missed", "fired", "left_out"),
    [
        ("skip", [1100], 10),
        ("latest", [1100], 10),
        ("all", [700, 800, 900, 1000, 1100], 6),
    ],
)
def test_a_time_that_is_due_now_is_not_missed(missed, fired, left_out):
    schedule = record(missed=missed, missed_limit=4)
    assert all_decisions(schedule, 1110) == (fired, left_out)


def test_a_clock_that_is_set_back_fires_nothing_again():
    schedule = decided(record(), BEGAN + 200)
    assert decision(schedule, -3600) == Wait(BEGAN + 300)
    assert decision(schedule, 200) == Wait(BEGAN + 300)
    assert decision(schedule, 300) == Fire(BEGAN + 300)


def test_an_expression_without_further_times_waits_for_ever():
    schedule = record(cron="0 0 29 2 *")

    class Never:
        def count(self, after, until):
            return 0

        def next(self, after):
            return None

    assert decide(schedule, Never(), BEGAN) == Wait(math.inf)


@given(
    st.floats(0, 100_000), st.sampled_from(["skip", "latest", "all"]), st.integers(1, 20), st.integers(0, 90)
)
def test_each_due_time_fires_once_or_is_left_out(after, missed, limit, jitter):
    schedule = record(missed=missed, missed_limit=limit, jitter=float(jitter))
    due = [time for k in range(1, 1001) if schedule.starts_at(time := BEGAN + k * 100.0) <= BEGAN + after]
    fired, left_out = all_decisions(schedule, after)
    assert len(fired) + left_out == len(due)
    assert [time + BEGAN for time in fired] == due[left_out:]


def test_jitter_delays_each_firing_by_the_same_time_again():
    schedule = record(jitter=50.0)
    delays = [schedule.starts_at(BEGAN + k * 100) - BEGAN - k * 100 for k in range(1, 200)]
    assert all(0 <= delay < 50 for delay in delays)
    assert len(set(delays)) == len(delays)
    assert 20 < sum(delays) / len(delays) < 30
    assert delays == [schedule.starts_at(BEGAN + k * 100) - BEGAN - k * 100 for k in range(1, 200)]
    other = record(jitter=50.0, id="id2")
    assert other.starts_at(BEGAN + 100) != schedule.starts_at(BEGAN + 100)


def test_a_request_id_names_the_schedule_its_generation_and_the_time():
    assert record().request_id(BEGAN + 100) == "schedule:tick:id1:1795000100.000"


# Definitions.


def put_again(before, after, paused=None, **options):
    return revised(before, definition(**options), id="id2", source="api", paused=paused, now=BEGAN + after)


def test_a_schedule_that_is_put_again_with_the_same_times_continues():
    before = decided(record(), BEGAN + 300)
    again = put_again(before, 350, missed="all", handle="alice", params={"page": 1})
    assert (again.id, again.since, again.decided_until) == ("id1", BEGAN, BEGAN + 300)
    assert again.next == (BEGAN + 400, BEGAN + 500, BEGAN + 600)
    assert (again.missed, again.handle, again.params) == ("all", "alice", {"page": 1})
    assert put_again(before, 350) == before


@pytest.mark.parametrize("options", [{"every": 60.0}, {"cron": "0 3 * * *"}])
def test_a_schedule_with_other_times_begins_anew(options):
    again = put_again(decided(record(), BEGAN + 300), 350, **options)
    assert (again.id, again.since, again.decided_until) == ("id2", BEGAN + 350, BEGAN + 350)
    assert again.next[0] > BEGAN + 350


def test_another_time_zone_is_other_times():
    before = record(cron="0 3 * * *")
    again = put_again(before, 10, cron="0 3 * * *", timezone="Europe/Berlin")
    assert again.id == "id2"
    assert again.next != before.next


def test_what_is_due_during_a_pause_never_fires():
    paused = put_again(record(), 10, paused=True)
    assert (paused.paused, paused.next) == (True, ())
    assert put_again(paused, 20).paused, "None leaves it paused"
    resumed = put_again(paused, 1050, paused=False)
    assert (resumed.decided_until, resumed.next[0]) == (BEGAN + 1050, BEGAN + 1100)


def test_a_resumed_schedule_fires_nothing_again_after_the_clock_was_set_back():
    paused = put_again(decided(record(), BEGAN + 300), 310, paused=True)
    assert put_again(paused, 10, paused=False).next[0] == BEGAN + 400


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"cron": "* * * * *", "every": 5}, "requires either cron or every (got both)"),
        ({"cron": None, "every": None}, "requires either cron or every (got neither)"),
        ({"every": 0.5}, "every must be a number of seconds between 1 and 31,622,400 (got 0.5)"),
        ({"every": math.nan}, "every must be a number of seconds between 1"),
        ({"every": True}, "every must be a number of seconds between 1"),
        ({"timezone": "Europe/Berlin"}, "timezone applies to cron only"),
        ({"jitter": -1}, "jitter must be a number of seconds between 0 and 100 (got -1)"),
        ({"jitter": 101}, "jitter must be a number of seconds between 0 and 100 (got 101)"),
        ({"missed": "none"}, 'missed must be one of skip, latest, all (got "none")'),
        ({"missed_limit": 0}, "missed_limit must be an integer between 1 and 1,000 (got 0)"),
        ({"missed_limit": 1.5}, "missed_limit must be an integer between 1 and 1,000 (got 1.5)"),
        ({"name": "x" * 129}, "has 129 characters: at most 128 are allowed"),
        ({"name": ""}, "schedule name must not be empty"),
        ({"handle": ""}, "handle must not be empty"),
    ],
)
def test_a_bad_definition_is_refused_with_the_value(options, complaint):
    with pytest.raises(Invalid) as error:
        definition(**options)
    assert complaint in error.value.message


def test_an_expression_that_no_date_matches_is_refused():
    with pytest.raises(Invalid, match="cron"):
        check_times(definition(cron="0 0 31 4 *", every=None))
