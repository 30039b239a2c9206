from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from .newcomer import Newcomer


@pytest.fixture
def newcomer() -> Iterator[Newcomer]:
    # Not in a directory of pytest: each new session of pytest withdraws other users' access to all of them.
    with TemporaryDirectory(prefix="newcomer-") as home:
        yield Newcomer(Path(home))
