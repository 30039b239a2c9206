"""Makes a test in this folder fail instead of hanging when it waits for an event that never occurs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import trio

_MOCK_SECONDS = 1e6  # longer than it takes to forget a worker
_REAL_SECONDS = 60.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and item.path.parent == Path(__file__).parent:
            mocked = "autojump_clock" in item.fixturenames
            if iscoroutinefunction(item.obj):
                item.obj = _within(_MOCK_SECONDS if mocked else _REAL_SECONDS, item.obj)


def _within(seconds: float, test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @wraps(test)
    async def patient(**fixtures: Any) -> None:
        with trio.fail_after(seconds):
            await test(**fixtures)

    return patient
