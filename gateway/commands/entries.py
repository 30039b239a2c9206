"""What an entry of the table of commands says: how a command looks on the wire (`protocol.commands`), which
role may give it, what it calls on the engine, and under which path HTTP has it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from ...actors.engine.api import Engine
from ...protocol.commandbase import CommandBase
from ..auth.limited_engine import LimitedEngine
from ..auth.tokens import Role
from ..stream.endings import Endings
from ..stream.snapshots import Snapshots

Fields = dict[str, Any]
"""What a reply says: fields of `protocol.commands.Ok`."""


@attrs.frozen
class Context:
    """What a command works on, and in whose name."""

    engine: Engine
    endings: Endings
    snapshots: Snapshots
    by: str
    limited: LimitedEngine | None = None
    """What stands for the engine where the caller's token has limits: it refuses what these don't permit."""


Call = Callable[[Context, Any], Awaitable[Fields | None]]
"""What a command does. Where it has nothing to tell, its reply is empty."""


@attrs.frozen
class Http:
    """A command's place in HTTP. Names in the path are fields of the command; the others come in the body, a
    JSON object, or for GET in the query."""

    method: str
    path: str
    body: str | None = None
    """The field of the reply that is the whole body of the answer, where it isn't all of them."""
    status: int = 200
    also: dict[str, str] = attrs.field(factory=dict)
    """Old names that fields of the request had in HTTP; still taken, unless the field has its name, too."""


@attrs.frozen
class Entry:
    """One command. Those without a `call` are about the connection itself, which answers them."""

    wire: type[CommandBase]
    role: Role
    call: Call | None = None
    http: Http | None = None
    heavy: bool = False
    """Whether its reply may be large, so that a connection may not ask for many at once."""
    waits: bool = False
    """Whether it may take long, so that many of them hold up nothing else."""
