"""A nursery for tasks that run while a block runs, such as a connection while its client is in use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def background() -> AsyncIterator[trio.Nursery]:
    """Run tasks until the block ends; then they are cancelled.

    An exception of the block propagates as it is, not in a group. To end the block early, raise an exception:
    do not cancel the nursery's scope.
    """
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except BaseException as error:  # raised again outside the nursery, which would wrap it in a group
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
