from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.servers import postgresql

from .newcomer import Newcomer

__all__ = ["newcomer", "postgresql"]


@pytest.fixture
def newcomer() -> Iterator[Newcomer]:
    # Not in a directory of pytest: each new session of pytest withdraws other users' access to all of them.
    with TemporaryDirectory(prefix="newcomer-") as home:
        yield Newcomer(Path(home))
