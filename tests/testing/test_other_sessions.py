"""The plugin does not disturb a session of pytest that has nothing to do with Greenroom."""

from __future__ import annotations

from pathlib import Path

from tests.testing.sessions import pytest_in

LISTING = """
    import sys

    def test_it():
        watched = ("greenroom", "trio", "sqlalchemy")
        print(sorted(name for name in sys.modules if name.partition(".")[0] in watched))
        assert False
"""


def test_pytest_loads_the_plugin_and_nothing_else_of_greenroom(tmp_path: Path):
    shown = pytest_in(tmp_path, "-p", "greenroom.testing.plugin", autoload=False, test_it=LISTING)
    assert "['greenroom', 'greenroom.testing', 'greenroom.testing.plugin']" in shown


def test_a_strict_session_accepts_the_plugin(tmp_path: Path):
    shown = pytest_in(tmp_path, "--strict-markers", "-W", "error", test_it="def test_it(): ...")
    assert "1 passed" in shown


def test_its_fixtures_are_listed(tmp_path: Path):
    fixtures = pytest_in(tmp_path, "--fixtures")
    assert "greenroom_engine" in fixtures
    assert "greenroom_aio_engine" in fixtures
