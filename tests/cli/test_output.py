"""How the commands show values."""

from __future__ import annotations

import time

import pytest

from greenroom.commands.output import moment


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles", "UTC"])
def test_a_time_beyond_the_calendar_is_shown_in_seconds(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert moment(1e15) == "1000000000000000"
        assert moment(253402300799) in ("253402300799", "9999-12-31 23:59:59", "9999-12-31 15:59:59")
    finally:
        monkeypatch.undo()
        time.tzset()
