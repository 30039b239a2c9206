"""Each test here runs on every one of `tests.support.STORES`."""

from collections.abc import Iterator

import pytest

from tests.support import STORES, use_place


@pytest.fixture(autouse=True, params=STORES)
def store_kind(request: pytest.FixtureRequest) -> Iterator[None]:
    use_place(request.param)
    yield
    use_place("memory")
