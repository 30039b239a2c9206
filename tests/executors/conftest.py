"""Fixtures of the tests of executors."""

from collections.abc import Iterator

import pytest

from tests.support import STORES, use_place


@pytest.fixture(params=STORES)
def store_kind(request: pytest.FixtureRequest) -> Iterator[None]:
    """For tests of the engine's side: each of the `STORES`."""
    use_place(request.param)
    yield
    use_place("memory")
