"""Retry calls to a database that failed with a transient error.

The delays use trio's clock, so that tests can use a mock clock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from .failures import StoreBroken, StoreDown

T = TypeVar("T")

DELAYS = (1.0, 2.0, 4.0)
"""Seconds before the second, the third and the last attempt."""


async def with_retry(attempt: Callable[[], Awaitable[T]], again: Callable[[], Awaitable[T]]) -> T:
    """Call `attempt`; after a transient `StoreDown`, retry it at most three times.

    After a failure with an unknown outcome of its commit, `again` is called instead of `attempt`. If that
    fails, too, `outcome_known` of the raised error is false.
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
