"""How the outside talks to the engine: WebSocket and HTTP on one port.

What is said stands in `protocol/`; here is how it gets in and out. A connection is read and written by
actors of its own, which know the engine by the same methods that an embedding application calls.
"""

from .config import GatewayConfig, Limits
from .server import Gateway, open_gateway
from .tokens import Role, Tokens, add_token, remove_token

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
