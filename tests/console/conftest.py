"""The engine and the page of most tests of the console."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from .house import House, house


@pytest.fixture
async def home() -> AsyncIterator[House]:
    async with house() as home:
        yield home
