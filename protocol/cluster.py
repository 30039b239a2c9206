"""The messages between the nodes of a cluster: a follower connects to the leader.

A follower joins with the last event that it has. The leader sends all later events, or a snapshot first, and
answers the commands that the follower forwards for its clients. Everything up to the `seq` of an answer is
sent before the answer. Frames are JSON objects, one per WebSocket message.

Only nodes of the same cluster use this connection: they authenticate with the secret of the cluster.

Neighbouring versions work together, so that nodes can be upgraded one by one:

- Unknown fields are ignored, and a new field has a default, which is what a node without it means.
- Messages of an unknown type are ignored, except the first one of a connection. A new message is either one
  that its receiver can do without, or is sent only to a node whose `protocol` includes it.
- A new type of event changes the state, so it cannot be ignored. A version that writes it follows one that
  reads it.
- `VERSION` increases with each change that the node before cannot do without. The leader refuses a node whose
  `protocol` differs from its own by more than one.
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from .codec import JSON, MSGPACK
from .commandbase import CommandBase
from .commands import Command
from .errors import Invalid, Unavailable
from .events import Event
from .patterns import Within
from .records import LeaderInfo, NodeInfo, Snapshot
from .values import shown

PATH = "/node"
"""The path of nodes' WebSockets at a gateway."""

SUBPROTOCOL = "greenroom.node.v1"
"""Their WebSocket subprotocol."""

VERSION = 1
"""The version of these messages."""


class _Wire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="type"):
    """A message; its tag is its type on the wire."""


class Principal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The client for whom a command is forwarded: its name, its role, and the limits of its token."""

    name: str
    role: str
    within: Within | None = None


# From a follower.


class Join(_Wire, frozen=True, tag="join"):
    """The first message of a connection. The follower has the events up to `after` of this epoch; without an
    epoch it has none. `draining`: it cannot become the leader. `start` is the id of its process. `asks`: it
    only asks who leads, and is answered with `not_leader`. `store` is the epoch in its store, which must be
    that of the leader; empty if no engine has opened the store."""

    node: str
    address: str
    version: str
    protocol: int
    epoch: str | None = None
    after: int = 0
    draining: bool = False
    start: str = ""
    asks: bool = False
    store: str | None = None


class NodeBeat(_Wire, frozen=True, tag="beat"):
    """The follower is alive, and has the events up to `seq`. `sent` is its clock, and is returned. `draining`
    is as in `join`."""

    sent: float
    seq: int
    draining: bool = False


class Forward(_Wire, frozen=True, tag="forward"):
    """Execute a command for a client. `command` is encoded with `codec`, and is base64 in the frame; see
    `forward` and `command_in`."""

    id: int
    caller: Principal
    command: bytes
    codec: str = MSGPACK.name


class ForwardRequest(_Wire, frozen=True, tag="request"):
    """Answer an HTTP request of a client, with a JSON body."""

    id: int
    caller: Principal
    method: str
    path: str
    query: dict[str, list[str]]
    body: str


class Withdraw(_Wire, frozen=True, tag="withdraw"):
    """The client no longer waits for this answer, or has not received it: the leader takes back what was in
    it, such as a work item."""

    id: int


class ExecutorEnded(_Wire, frozen=True, tag="executor_ended"):
    """A child process of the follower has ended: its bodies no longer execute. `executor` is its id, which no
    other process has had, and `how` is how it ended, as in "was killed by SIGSEGV"."""

    executor: str
    how: str


class Identify(_Wire, frozen=True, tag="identify"):
    """The first message of a connection on which a node checks its own address: which process answers?"""


FromFollower = Join | NodeBeat | Forward | ForwardRequest | Withdraw | ExecutorEnded | Identify


# From the leader.


class Joined(_Wire, frozen=True, tag="joined"):
    """The follower is accepted. `nodes` are the known nodes, for the time when no leader can be asked. The
    leader closes the connection if a frame has more than `max_frame_bytes`."""

    epoch: str
    seq: int
    leader: LeaderInfo
    max_value_bytes: int
    nodes: list[NodeInfo] = []
    version: str = ""
    protocol: int = VERSION
    max_frame_bytes: int = 1 << 20


class NotLeader(_Wire, frozen=True, tag="not_leader"):
    """This node does not lead, or was only asked; the connection is closed. `leader` is the one that it
    knows."""

    leader: LeaderInfo | None = None


class NodeRefused(_Wire, frozen=True, tag="refused"):
    """The leader refuses this node, whose configuration or version must change; the connection is closed."""

    code: str
    message: str


class Identified(_Wire, frozen=True, tag="identified"):
    """The answer of any node to `identify`: the start id of its process. The connection is closed."""

    start: str


class Replicate(_Wire, frozen=True, tag="events"):
    """The next events: they follow the last ones without a gap."""

    events: list[Event]


class ReplaceState(_Wire, frozen=True, tag="snapshot"):
    """The state, because the events after the follower's last one are no longer available. A large snapshot
    is sent in parts, of which all but the last have `more`."""

    snapshot: Snapshot
    more: bool = False


class NodeBeaten(_Wire, frozen=True, tag="beaten"):
    """The answer to `beat`. All events that were committed before the leader received the beat are sent
    before this message."""

    sent: float
    seq: int


class Nodes(_Wire, frozen=True, tag="nodes"):
    """The known nodes have changed."""

    nodes: list[NodeInfo]


class CommandAnswered(_Wire, frozen=True, tag="ok"):
    """A forwarded command succeeded. `ok` is the reply for a client; a long one is in several messages, of
    which all but the last have `more`."""

    id: int
    ok: msgspec.Raw
    more: bool = False


class RequestAnswered(_Wire, frozen=True, tag="response"):
    """The response to a forwarded HTTP request."""

    id: int
    status: int
    body: str
    content_type: str


class CommandFailed(_Wire, frozen=True, tag="error"):
    """A forwarded command or request failed."""

    id: int
    code: str
    message: str
    details: dict[str, Any] = {}


class Leaving(_Wire, frozen=True, tag="leaving"):
    """The leader hands the leadership to the node `to`, if it has chosen one. The connection is closed."""

    to: str | None = None


FromLeader = (
    Joined
    | NotLeader
    | NodeRefused
    | Identified
    | Replicate
    | ReplaceState
    | NodeBeaten
    | Nodes
    | CommandAnswered
    | RequestAnswered
    | CommandFailed
    | Leaving
)


def encoded(message: FromFollower | FromLeader) -> bytes:
    """A frame with this message."""
    return JSON.encode(message)


def forward(id: int, caller: Principal, command: CommandBase) -> Forward:
    """The message that forwards a command. Raises `Invalid` if the command cannot be encoded.

    The leader decodes exactly the values that the client has sent, so it refuses the same ones as for its own
    clients, with the same errors. JSON would turn NaN into null and bytes into text. MessagePack keeps every
    value except integers of more than 64 bits; only a client that uses JSON can send those, and JSON keeps
    everything that was JSON.
    """
    try:
        try:
            return Forward(id=id, caller=caller, command=MSGPACK.encode(command))
        except OverflowError:
            return Forward(id=id, caller=caller, command=JSON.encode(command), codec=JSON.name)
    except RecursionError:
        raise Invalid("message: nested too deeply; reduce the nesting", path="") from None


def command_in(message: Forward) -> Command:
    """The command in a message. Raises `Invalid`."""
    codec = _CODECS.get(message.codec)
    if codec is None:
        raise Invalid(f"codec must be one of {', '.join(_CODECS)} (got {shown(message.codec)})")
    command: Command = codec.decode(message.command, Command)
    return command


_CODECS = {codec.name: codec for codec in (MSGPACK, JSON)}


class Unknown(msgspec.Struct, frozen=True):
    """A message of a type that this version does not know. It is ignored."""

    type: str


def from_leader(frame: bytes) -> FromLeader | Unknown:
    """The message of a leader in a frame. Raises `Invalid`."""
    message: FromLeader | Unknown = _decode(frame, FromLeader, _OF_LEADERS)
    return message


def from_follower(frame: bytes) -> FromFollower | Unknown:
    """The message of a follower in a frame. Raises `Invalid`."""
    message: FromFollower | Unknown = _decode(frame, FromFollower, _OF_FOLLOWERS)
    return message


def _decode(frame: bytes, messages: Any, known: frozenset[str]) -> Any:
    try:
        return JSON.decode(frame, messages)
    except Invalid:
        try:
            message: Unknown = JSON.decode(frame, Unknown)
        except Invalid:
            message = Unknown("")
        if message.type in known or not message.type:
            raise
        return message


def _types(messages: Any) -> frozenset[str]:
    return frozenset(str(each.__struct_config__.tag) for each in get_args(messages))


_OF_LEADERS = _types(FromLeader)
_OF_FOLLOWERS = _types(FromFollower)


def no_leader(why: str) -> Unavailable:
    """The error for a command that no leader has answered."""
    return Unavailable(f"{why}: repeat the command later", retry_after=1)
