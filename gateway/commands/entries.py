"""The entries of the command table: the wire type (`protocol.commands`), the required role, the call on the
engine, and the HTTP path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import attrs

from ...actors.engine.api import Engine
from ...protocol.commandbase import CommandBase
from ..auth.limited_engine import LimitedEngine
from ..auth.tokens import Role
from ..stream.endings import Endings
from ..stream.snapshots import Snapshots

if TYPE_CHECKING:
    from ..cluster.router import Router

Fields = dict[str, Any]
"""The fields of a reply, `protocol.commands.Ok`."""


@attrs.frozen
class Context:
    """What a command works on, and `by`, the name of its caller."""

    engine: Engine
    endings: Endings
    snapshots: Snapshots
    by: str
    limited: LimitedEngine | None = None
    """The engine for a caller whose token has limits; it refuses what the limits do not permit."""
    router: Router | None = None
    """Of a node of a cluster."""
    sees_receivers: bool = False
    """Whether the caller sees the URLs of the receivers of webhooks."""


Call = Callable[[Context, Any], Awaitable[Fields | None]]
"""Executes a command. With `None` the reply has no fields."""


@attrs.frozen
class Http:
    """The HTTP form of a command. Names in the path are fields of the command; the other fields are in the
    body, a JSON object, or for GET in the query."""

    method: str
    path: str
    body: str | None = None
    """The field of the reply that is the whole body of the response; without it, the body has all fields."""
    status: int = 200
    also: dict[str, str] = attrs.field(factory=dict)
    """Former names of fields in HTTP; still accepted, unless the request also has the current name."""
    pairs: dict[str, str] = attrs.field(factory=dict)
    """Parameters of the query that are repeated, each time with a text `name=value`, and the field of the
    command that maps the names to the values."""


@attrs.frozen
class Entry:
    """One command. A command without a `call` concerns the connection itself, which answers it."""

    wire: type[CommandBase]
    role: Role
    call: Call | None = None
    http: Http | None = None
    heavy: bool = False
    """Whether its reply can be large; a connection can have only a few of these in flight."""
    waits: bool = False
    """Whether it can take long; `max_waits` limits these, and they do not count for `max_commands`."""
    local: bool = False
    """Whether a follower of a cluster answers it itself; all others are forwarded to the leader."""
    repeatable: bool = False
    """Whether it can be sent to the next leader if a leader is lost before its answer. A submission takes
    effect once, because it has a request id."""
