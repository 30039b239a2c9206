"""Checks of arguments: numbers that no store and no clock can keep."""

from __future__ import annotations

import math
from typing import Any

import pytest

from greenroom.errors import Invalid
from greenroom.protocol.validation import check_load, check_seconds, check_wait

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
