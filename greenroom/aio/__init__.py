"""Greenroom for asyncio: the engine and the client, with the same methods as in trio.

    async with greenroom.aio.open_engine(jobs, "sqlite:///greenroom.db") as engine:
        ticket = await engine.submit("mirror", handle="alice", params={"url": "https://example.org"})
        print(await ticket.result())

The engine itself runs in trio, in a thread that exists as long as the block. Jobs execute in that thread, or,
if they are declared with `loop="asyncio"`, in an asyncio loop that belongs to the engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..actors.aio.run import AsyncioRun as Run
    from ..protocol.retries import Fail, Retry
    from .client import Client, ClientTicket, connect
    from .engine import Engine, Ticket, open_engine

__all__ = ["Client", "ClientTicket", "Engine", "Fail", "Retry", "Run", "Ticket", "connect", "open_engine"]

_HOMES = {
    "Client": (".client", "Client"),
    "ClientTicket": (".client", "ClientTicket"),
    "Engine": (".engine", "Engine"),
    "Fail": ("..protocol.retries", "Fail"),
    "Retry": ("..protocol.retries", "Retry"),
    "Run": ("..actors.aio.run", "AsyncioRun"),
    "Ticket": (".engine", "Ticket"),
    "connect": (".client", "connect"),
    "open_engine": (".engine", "open_engine"),
}


def __getattr__(name: str) -> Any:
    """Import each name at its first use, so that a client does not load the engine."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    found = globals()[name] = getattr(import_module(module, __name__), attribute)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
