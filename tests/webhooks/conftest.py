"""The tests of engines here run on every one of `tests.support.STORES`."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import STORES, outliving_store, use_place


@pytest.fixture(params=STORES)
def store_kind(request: pytest.FixtureRequest) -> Iterator[None]:
    use_place(request.param)
    yield
    use_place("memory")


@pytest.fixture
def store(store_kind, request) -> Any:
    """A store that outlives its engines."""
    return outliving_store(request)
