"""The Python client: the engine's methods over a WebSocket, with a connection that mends itself.

`connecting` is where to begin reading: it opens a connection and keeps it, on a `socket`. What is asked and
not yet answered stands in `calls`, what is followed in `following`; `client` and `ticket` are what an
application holds.
"""

from .client import Client
from .connecting import connect
from .interface import RunEngine, RunTicket
from .ticket import ClientTicket

__all__ = ["Client", "ClientTicket", "RunEngine", "RunTicket", "connect"]
