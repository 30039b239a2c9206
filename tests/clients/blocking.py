"""The synchronous client for the tests that all engines and clients pass: each of its calls is made in a
thread, and awaited."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import trio
from trio.testing import MockClock

from greenroom import Jobs, sync
from greenroom.gateway import GatewayConfig, open_gateway
from greenroom.gateway.client import RunEngine

from ..support import open_engine

RATE = 10
"""How much faster than real time the clock runs while threads wait, because they do not use mock time."""


@asynccontextmanager
async def synchronous_client(jobs: Jobs) -> AsyncIterator[RunEngine]:
    """A client of an engine with these jobs; closing it does not wait for their bodies."""
    async with (
        open_engine(jobs, shutdown_timeout=0) as engine,
        open_gateway(engine, GatewayConfig(port=0)) as gateway,
    ):
        connect = partial(sync.connect, gateway.url, patience=math.inf, clock=MockClock(rate=RATE))
        client = await trio.to_thread.run_sync(connect)
        try:
            yield cast(RunEngine, Awaited(client))
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(client.close)


class Awaited:
    """Something whose methods block, with such that are awaited instead."""

    def __init__(self, blocking: Any) -> None:
        self._blocking = blocking

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._blocking, name)
        if isinstance(value, sync.Flows | sync.Workers | sync.Executors | sync.Schedules | sync.Webhooks):
            return Awaited(value)
        if name == "events":
            return lambda *args, **kwargs: _AwaitedEvents(value(*args, **kwargs))
        return partial(_call, value) if callable(value) else value


class _AwaitedEvents:
    def __init__(self, events: Any) -> None:
        self._events = events

    def __aiter__(self) -> _AwaitedEvents:
        return self

    async def __anext__(self) -> Any:
        item = await trio.to_thread.run_sync(next, self._events, None, abandon_on_cancel=True)
        if item is None:
            raise StopAsyncIteration
        return item


async def _call(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    on_wait = kwargs.get("on_wait")
    if callable(on_wait):
        token = trio.lowlevel.current_trio_token()
        kwargs["on_wait"] = lambda *what: trio.from_thread.run_sync(on_wait, *what, trio_token=token)
    found = await trio.to_thread.run_sync(partial(method, *args, **kwargs), abandon_on_cancel=True)
    if isinstance(found, list):  # of `submit_many`
        return [Awaited(one) if isinstance(one, sync.Ticket) else one for one in found]
    return Awaited(found) if isinstance(found, sync.Ticket) else found
