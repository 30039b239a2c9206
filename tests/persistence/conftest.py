"""Fixtures for the servers, and for every kind of database."""

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.redis_servers import redis, redis_server
from tests.servers import Server, mariadb, postgresql

__all__ = ["mariadb", "postgresql", "redis", "redis_server"]


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Server:
    """Each server in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database, of each kind that several connections can open."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return request.getfixturevalue(request.param).fresh_database()


@pytest.fixture(params=["memory", "sqlite", "postgresql", "mariadb"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database, of every kind."""
    if request.param == "memory":
        return "sqlite:///:memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return request.getfixturevalue(request.param).fresh_database()


@pytest.fixture
def read_only_folder() -> Iterator[Path]:
    """A read-only folder; the test does not run as root."""
    folder = Path(tempfile.mkdtemp(prefix="greenroom-"))
    folder.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(pwd.getpwnam("nobody").pw_uid)
    yield folder
    if root:
        os.seteuid(0)
    folder.chmod(0o755)
    shutil.rmtree(folder)
