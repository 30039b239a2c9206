"""How the outside talks to the engine: WebSocket and HTTP on one port.

What is said stands in `protocol/`; here is how it gets in and out. A connection is read and written by
actors of its own, which know the engine by the same methods that an embedding application calls.

The server is imported when it is asked for: the clients are in this package, too, and need nothing of it.
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
