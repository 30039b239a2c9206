"""Shared by the tests of flows and workers at the gateway: small definitions, and an engine that can run
them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from tests.support import Bodies, until

from .support import House, house

DOUBLES: dict[str, Any] = {
    "start": "a",
    "nodes": {
        "a": {
            "kind": "local",
            "func": "double",
            "prep": {"input_key": "$params.n"},
            "post": {"output_key": "out"},
        }
    },
    "edges": [],
}
"""Doubles the parameter `n`, or fails where that is no number."""

WAITS: dict[str, Any] = {
    "start": "w",
    "nodes": {
        "w": {
            "kind": "wait_event",
            "params": {"signal_key": "$shared.flag"},
            "post": {"output_key": "got"},
        }
    },
    "edges": [],
}
"""Waits for the signal `flag`."""

QUEUED: dict[str, Any] = {
    "start": "q",
    "nodes": {
        "q": {
            "kind": "executor",
            "exec_type": "queue",
            "service": "slow",
            "params": {"by": 3},
            "prep": {"input_key": "$params.n"},
            "post": {"output_key": "out"},
        }
    },
    "edges": [],
}
"""Requires a pull worker."""

HANGS: dict[str, Any] = {"start": "h", "nodes": {"h": {"kind": "local", "func": "hang"}}, "edges": []}
"""Executes, and ignores its cancellation until the house is closed."""


@asynccontextmanager
async def flow_house(**options: Any) -> AsyncIterator[House]:
    """A gateway to an engine that knows the functions of these flows."""
    bodies = Bodies()

    @bodies.jobs.function("double")
    async def double(input: Any) -> Any:
        return input * 2

    @bodies.jobs.function("hang")
    async def hang(input: Any) -> Any:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await over.wait()

    over = trio.Event()
    async with house(bodies, **options) as home:
        try:
            yield home
        finally:
            over.set()


async def until_run(home: House, run: str, *statuses: str) -> None:
    """Wait until a run has one of these statuses."""
    await until(home.engine, lambda snapshot: snapshot.runs[run].status in statuses)
