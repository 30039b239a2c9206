"""Greenroom: an actor-model run engine on trio.

Each name is imported when it is first asked for, so that a command that only talks to a server starts without
the engine and its store.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .actors.blocking import BlockingRun
    from .actors.body import Run
    from .actors.engine import Engine
    from .actors.housekeeping import Keep
    from .actors.jobs import Jobs
    from .actors.opening import open_engine
    from .actors.ticket import Ticket
    from .gateway.client import Client, connect
    from .protocol.names import lane_name, session_handle
    from .worker.services import Services

__all__ = [
    "BlockingRun",
    "Client",
    "Engine",
    "Jobs",
    "Keep",
    "Run",
    "Services",
    "Ticket",
    "connect",
    "lane_name",
    "open_engine",
    "session_handle",
]

_HOMES = {
    "BlockingRun": ".actors.blocking",
    "Client": ".gateway.client",
    "Engine": ".actors.engine",
    "Jobs": ".actors.jobs",
    "Keep": ".actors.housekeeping",
    "Run": ".actors.body",
    "Services": ".worker.services",
    "Ticket": ".actors.ticket",
    "connect": ".gateway.client",
    "lane_name": ".protocol.names",
    "open_engine": ".actors.opening",
    "session_handle": ".protocol.names",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home, __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
