"""Each test here runs at every one of `tests.support.PLACES`."""

from collections.abc import Iterator

import pytest

from tests.support import PLACES, use_place


@pytest.fixture(autouse=True, params=PLACES)
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    use_place(request.param)
    yield request.param
    use_place("memory")
