"""Network access to the engine: WebSocket and HTTP on one port, and the clients.

The messages are defined in `protocol/`; this package transports them. Each connection has its own tasks,
which call the same methods of the engine as an embedding application.

The server is imported on first use, because the clients are in this package, too, and do not need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .auth.tokens import Role, Tokens, add_token, remove_token
from .config import GatewayConfig, Limits

if TYPE_CHECKING:
    from .server import Gateway, open_gateway

__all__ = [
    "Gateway",
    "GatewayConfig",
    "Limits",
    "Role",
    "Tokens",
    "add_token",
    "open_gateway",
    "remove_token",
]


def __getattr__(name: str) -> Any:
    if name not in ("Gateway", "open_gateway"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import server

    return getattr(server, name)
