"""Fixtures for the tests of walks."""

from collections.abc import Iterator

import pytest

from tests.support import STORES, use_store


@pytest.fixture(params=STORES)
def each_store(request: pytest.FixtureRequest) -> Iterator[None]:
    """The test is run on every one of `tests.support.STORES`."""
    use_store(request.param)
    yield
    use_store("memory")
