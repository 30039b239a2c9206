"""Greenroom: an actor-model run engine on trio.

Start with `Jobs`, `Run`, `open_engine` and `connect`. asyncio programs use `aio`, and programs with blocking
calls use `sync.connect`. The errors are in `greenroom.errors`.

Each name is imported on first use, so that a command that only connects to a server starts without the engine
and its store.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import aio as aio
    from . import sync as sync
    from .actors.engine.api import Engine
    from .actors.engine.open import open_engine
    from .actors.engine.retention import Keep
    from .actors.engine.ticket import Ticket
    from .actors.jobs import Jobs
    from .actors.run.api import Run
    from .actors.run.blocking import BlockingRun
    from .actors.schedules.declaration import Schedule
    from .errors import (
        Compacting,
        Conflict,
        Draining,
        Forbidden,
        GreenroomError,
        HandleLocked,
        Internal,
        Invalid,
        NoActiveRun,
        NotFound,
        NotInteractive,
        NotStreaming,
        OutcomeUnknown,
        QueueFull,
        RateLimited,
        RunAbandoned,
        RunCancelled,
        RunEnded,
        RunFailed,
        RunRejected,
        RunTimedOut,
        TooLarge,
        Unauthorized,
        Unavailable,
    )
    from .gateway.client import Client, connect
    from .protocol.events import Event, Filter
    from .protocol.lanes import LaneRules
    from .protocol.names import lane_name, session_handle
    from .protocol.records import BulkResult, RunRecord, Snapshot
    from .protocol.retries import Fail, Retry
    from .protocol.schedules import ScheduleRecord
    from .protocol.webhooks import Webhook
    from .worker.services import Services

    __version__: str

__all__ = [
    "BlockingRun",
    "BulkResult",
    "Client",
    "Compacting",
    "Conflict",
    "Draining",
    "Engine",
    "Event",
    "Fail",
    "Filter",
    "Forbidden",
    "GreenroomError",
    "HandleLocked",
    "Internal",
    "Invalid",
    "Jobs",
    "Keep",
    "LaneRules",
    "NoActiveRun",
    "NotFound",
    "NotInteractive",
    "NotStreaming",
    "OutcomeUnknown",
    "QueueFull",
    "RateLimited",
    "Retry",
    "Run",
    "RunAbandoned",
    "RunCancelled",
    "RunEnded",
    "RunFailed",
    "RunRecord",
    "RunRejected",
    "RunTimedOut",
    "Schedule",
    "ScheduleRecord",
    "Services",
    "Snapshot",
    "Ticket",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "Webhook",
    "__version__",
    "connect",
    "lane_name",
    "open_engine",
    "session_handle",
]

_HOMES = {
    "BlockingRun": ".actors.run.blocking",
    "BulkResult": ".protocol.records",
    "Client": ".gateway.client",
    "Engine": ".actors.engine.api",
    "Event": ".protocol.events",
    "Fail": ".protocol.retries",
    "Filter": ".protocol.events",
    "Jobs": ".actors.jobs",
    "Keep": ".actors.engine.retention",
    "LaneRules": ".protocol.lanes",
    "Retry": ".protocol.retries",
    "Run": ".actors.run.api",
    "RunRecord": ".protocol.records",
    "Schedule": ".actors.schedules.declaration",
    "ScheduleRecord": ".protocol.schedules",
    "Services": ".worker.services",
    "Snapshot": ".protocol.records",
    "Ticket": ".actors.engine.ticket",
    "Webhook": ".protocol.webhooks",
    "connect": ".gateway.client",
    "lane_name": ".protocol.names",
    "open_engine": ".actors.engine.open",
    "session_handle": ".protocol.names",
}
"""The modules of the public names; all other names are errors, in `errors`."""


def _add_siblings() -> None:
    """Find the sub-packages of a checkout, which are next to this folder. In a checkout, programs import this
    folder even if another Greenroom is installed."""
    here = os.path.dirname(os.path.abspath(__file__))
    beside = os.path.dirname(here)
    if not os.path.isdir(os.path.join(here, "actors")) and os.path.isdir(os.path.join(beside, "actors")):
        __path__.append(beside)


_add_siblings()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("greenroom")
    if name in ("aio", "sync"):
        return import_module(f".{name}", __name__)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES.get(name, ".errors"), __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
