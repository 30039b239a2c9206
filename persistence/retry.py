"""Trying again what failed for a reason that may be gone in a moment.

It knows nothing of databases but their two errors. Waiting is trio's, so that a mock clock serves it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from .failures import StoreBroken, StoreDown

T = TypeVar("T")

DELAYS = (1.0, 2.0, 4.0)
"""Seconds before the second attempt, the third and the last."""


async def with_retry(attempt: Callable[[], Awaitable[T]], again: Callable[[], Awaitable[T]]) -> T:
    """Call `attempt`, and if it fails with a transient `StoreDown`, up to three times more.

    As soon as one has failed without anybody knowing whether it was committed, `again` is called in its
    place; and the error that leaves says so too (`outcome_known`), unless a later attempt came to an end.
    """
    outcome_known = True
    for delay in (*DELAYS, None):
        try:
            return await (attempt if outcome_known else again)()
        except (StoreDown, StoreBroken) as failure:
            outcome_known = outcome_known and failure.outcome_known
            failure.outcome_known = outcome_known
            if delay is None or isinstance(failure, StoreBroken) or not failure.transient:
                raise
        await trio.sleep(delay)
    raise AssertionError("the last attempt returns or raises")
