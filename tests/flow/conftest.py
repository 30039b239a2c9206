"""Fixtures for the tests of walks."""

from collections.abc import Iterator

import pytest

from tests.support import STORES, use_place


@pytest.fixture(params=["memory", "link"])
def place(request: pytest.FixtureRequest) -> Iterator[None]:
    """Functions of nodes execute in the engine's process, or in an executor."""
    use_place(request.param)
    yield
    use_place("memory")


@pytest.fixture(params=STORES)
def each_store(request: pytest.FixtureRequest) -> Iterator[None]:
    """The test is run on every one of `tests.support.STORES`."""
    use_place(request.param)
    yield
    use_place("memory")
