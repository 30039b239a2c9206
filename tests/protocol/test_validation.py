"""Checks of arguments: numbers that no store and no clock can keep."""

from __future__ import annotations

import math
from typing import Any

import pytest

from greenroom.errors import Invalid
from greenroom.protocol.validation import check_labels, check_load, check_needs, check_seconds, check_wait

HUGE = 10**400
"""An integer beyond the range of floats."""


@pytest.mark.parametrize("value", [HUGE, -HUGE, math.nan, -1, -math.inf, True, "3"])
def test_a_duration_that_is_no_number_of_seconds_is_refused(value: Any):
    with pytest.raises(Invalid, match=r"timeout (must be a number of seconds|is too large)"):
        check_seconds("timeout", value, 15)


@pytest.mark.parametrize("value", [0, 0.5, 1e300, math.inf])
def test_any_other_number_is_a_duration(value: float):
    assert check_seconds("timeout", value, 15) == value
    assert check_seconds("timeout", None, 15) == 15


@pytest.mark.parametrize("value", [HUGE, -HUGE, math.nan, -1, math.inf, True, "3"])
def test_a_load_that_is_not_within_its_range_is_refused(value: Any):
    with pytest.raises(Invalid, match="load must be"):
        check_load(value)


@pytest.mark.parametrize("value", [HUGE, 26, -1, math.nan])
def test_a_poll_that_waits_too_long_is_refused(value: Any):
    with pytest.raises(Invalid, match="wait"):
        check_wait(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("gpu", r'needs must be a list of labels \(got "gpu"\): write \["gpu"\] for a single one'),
        (None, "needs must be a list of labels"),
        ({"gpu": 1}, "needs must be a list of labels"),
        ([f"label {n}" for n in range(17)], r"needs must contain at most 16 labels \(got 17\)"),
        (["gpu", "big", "gpu"], r'needs must contain each label once \(got "gpu" twice\)'),
        (["gpu", " "], r"needs\[1\] must not be empty"),
        ([1], r"needs\[0\] must be a string"),
        (["x" * 257], r"needs\[0\] .* has 257 characters"),
    ],
)
def test_needs_that_are_no_list_of_labels_are_refused(value: Any, message: str):
    with pytest.raises(Invalid, match=message):
        check_needs(value)


def test_labels_of_an_executor_are_checked_like_those_that_a_body_needs():
    assert check_labels("labels", ("gpu", "big")) == ("gpu", "big")
    with pytest.raises(Invalid, match=r'labels must contain each label once \(got "gpu" twice\)'):
        check_labels("labels", ("gpu", "gpu"))


def test_needs_are_sorted():
    assert check_needs(["gpu", "big"]) == check_needs(("big", "gpu")) == ("big", "gpu")
    assert check_needs([]) == ()
    assert len(check_needs([f"label {n}" for n in range(16)])) == 16
