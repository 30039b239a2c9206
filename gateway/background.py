"""A nursery for what goes on beside a block, such as a connection while its client is used."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def background() -> AsyncIterator[trio.Nursery]:
    """Run tasks until the block ends; then they are cancelled.

    What the block raises comes out as itself, not in a group. To end the block early, raise: the nursery's
    scope is not to be cancelled.
    """
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except BaseException as error:  # raised again below, where no nursery puts it into a group
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
