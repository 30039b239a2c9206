"""The servers, and one parameter for both."""

import pytest

from tests.servers import Server, mariadb, postgresql

__all__ = ["mariadb", "postgresql"]


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Server:
    """Each server in turn."""
    return request.getfixturevalue(request.param)
