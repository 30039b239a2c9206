"""Call a function that is registered for nodes of flows, in this process."""

from __future__ import annotations

import math
from typing import Any

import trio

from ..protocol.values import copied
from .jobs import Jobs

_UNLIMITED = trio.CapacityLimiter(math.inf)
"""Lane slots already limit the number of walks; an additional limit on threads could cause a deadlock."""


async def call_function(jobs: Jobs, name: str, input: Any, params: dict[str, Any]) -> Any:
    """Call a function; a plain `def` in a thread. Raises `LookupError` if there is no such function."""
    found = jobs.find_function(name)
    if found is None:
        raise LookupError(f"function {name!r} is not registered")
    arguments = [copied(input)]
    if found.takes_params:
        arguments.append(copied(params))
    if found.in_thread:
        return await trio.to_thread.run_sync(found.function, *arguments, limiter=_UNLIMITED)
    return await found.function(*arguments)
