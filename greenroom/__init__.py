"""Greenroom: an actor-model run engine on trio."""

from .actors.blocking import BlockingRun
from .actors.body import Run
from .actors.engine import Engine
from .actors.housekeeping import Keep
from .actors.jobs import Jobs
from .actors.opening import open_engine
from .actors.ticket import Ticket
from .gateway.client import Client, connect
from .protocol.names import lane_name, session_handle

__all__ = [
    "BlockingRun",
    "Client",
    "Engine",
    "Jobs",
    "Keep",
    "Run",
    "Ticket",
    "connect",
    "lane_name",
    "open_engine",
    "session_handle",
]
