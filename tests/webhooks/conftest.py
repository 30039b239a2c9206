"""The tests of engines here run on every one of `tests.support.STORES`."""

from collections.abc import Iterator
from typing import Any

import pytest

from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.sqlstore import SqlStore
from tests.support import STORES, use_place


@pytest.fixture(params=STORES)
def store_kind(request: pytest.FixtureRequest) -> Iterator[None]:
    use_place(request.param)
    yield
    use_place("memory")


@pytest.fixture
def store(store_kind, request) -> Any:
    """A store that outlives its engines."""
    if request.node.callspec.params["store_kind"] == "sqlite":
        folder = request.getfixturevalue("tmp_path")
        return lambda: SqlStore(f"sqlite:///{folder}/store.db", in_threads=False)
    kept = MemoryStore()
    return lambda: kept
