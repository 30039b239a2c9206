"""Fixtures for the servers, and a fast clock: an outage of a minute takes three seconds."""

import pytest
import trio.testing

from tests.servers import mariadb, postgresql

__all__ = ["mariadb", "postgresql"]


@pytest.fixture
def fast_clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(rate=20)
