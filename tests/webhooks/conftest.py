"""The tests of engines here run on every one of `tests.support.STORES`."""

from collections.abc import Iterator

import pytest

from tests.support import STORES, use_place


@pytest.fixture(params=STORES)
def store_kind(request: pytest.FixtureRequest) -> Iterator[None]:
    use_place(request.param)
    yield
    use_place("memory")
