"""The fixture of tests that run with the gateway of each of `tests.support.NODES`."""

from collections.abc import Iterator

import pytest

from tests.support import NODES, use_node


@pytest.fixture(autouse=True, params=NODES)
def node(request: pytest.FixtureRequest) -> Iterator[str]:
    use_node(request.param)
    yield request.param
    use_node("engine")
