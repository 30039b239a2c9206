"""The Python client: the engine's methods over a WebSocket, with automatic reconnection.

Start reading at `connecting`. `link` keeps a connection open, on a `socket`. `calls` has the unanswered
commands, `following` the subscription; an application uses `client` and `ticket`.
"""

from .client import Client
from .connecting import connect
from .interface import RunEngine, RunTicket
from .ticket import ClientTicket

__all__ = ["Client", "ClientTicket", "RunEngine", "RunTicket", "connect"]
