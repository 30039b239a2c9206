"""Every command in every order and interleaving, against the rules of the model.

Hypothesis draws what is done and seeds trio's scheduler, so that an example that fails can be repeated and
made smaller.
"""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .play import commands, hasty_commands, lanes, play, slow_plans


@settings(max_examples=max(400, settings().max_examples), suppress_health_check=[HealthCheck.too_slow])
@given(
    clients=st.lists(commands, min_size=1, max_size=3),
    turns=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    scheduling=st.random_module(),
)
def test_whatever_is_commanded_in_whatever_order_the_rules_hold(clients, turns, scheduling):
    played = play(clients, turns)

    assert not played.faults
    assert played.seen == played.story.events[played.first.seq :]


@settings(max_examples=max(200, settings().max_examples), suppress_health_check=[HealthCheck.too_slow])
@given(
    clients=st.lists(hasty_commands, min_size=3, max_size=3),
    turns=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    scheduling=st.random_module(),
)
def test_limits_that_change_all_the_time_lose_no_slot_and_hold_up_no_run(clients, turns, scheduling):
    assert not play(clients, turns).faults


@settings(max_examples=max(150, settings().max_examples))
@given(
    most=st.integers(1, 3),
    side=st.sampled_from([1, 2, None]),
    crowd=st.lists(st.tuples(lanes, slow_plans), min_size=4, max_size=10),
    changes=hasty_commands,
    turns=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    scheduling=st.random_module(),
)
def test_a_crowd_on_many_handles_begins_in_order_of_place(most, side, crowd, changes, turns, scheduling):
    comes = [
        ("submit", "plain", f"h{number}", lane, "reject", [plan]) for number, (lane, plan) in enumerate(crowd)
    ]
    limits = [("set_max_concurrent", most), ("set_concurrency", "side", side)]

    assert not play([[*limits, *comes], [("pause", 1.5), *changes]], turns).faults


@settings(max_examples=max(400, settings().max_examples))
@given(down=st.integers(1, 9), up=st.integers(0, 4), scheduling=st.random_module())
def test_a_limit_that_goes_down_and_up_as_a_slot_falls_free_holds_up_no_run(down, up, scheduling):
    """A lane gets the slot that it asked for when it has no room, and has room again before it says so."""
    filling = [
        ("set_concurrency", "side", 2),
        ("submit", "plain", "ann", "side", "queue", [[["hold", 2.5]]]),
        ("submit", "plain", "bob", "main", "queue", [[["hold", 1.0]]]),
        ("submit", "plain", "cleo", "side", "queue", [[["hold", 2.5]]]),
        ("pause", 3.0),
    ]
    goes_down = [("pause", 1.0), ("yield", down), *[("set_concurrency", "side", 1)] * 6]
    goes_up = [("pause", 1.0), ("yield", down + up), *[("set_concurrency", "side", 2)] * 6]

    assert not play([filling, goes_down, goes_up], turns=[0]).faults
