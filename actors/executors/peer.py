"""`Peer`: one executor process, as the engine sees it: its jobs, its bodies, and the messages to it.

It outlives its connections: while there is none, messages to it are kept for the next one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ...protocol import executors as wire
from ...protocol.errors import Invalid
from ...protocol.numbering import Incoming, Outgoing
from ..effects import Spawn
from ..scheduling.stored_bodies import is_child
from .calls import abandoned
from .held_body import HeldBody
from .remote_execution import RemoteExecution

_encoder = msgspec.json.Encoder()

MOST_KEPT = 20_000
"""The number of messages that an executor can leave unacknowledged."""
MOST_KEPT_BYTES = 256 << 20
"""The size of these messages."""


class Peer:
    """See the module's docstring. `heard_at` is when its last sign of life was received, in trio's time.
    `ttl` is how long its lease can last from then on."""

    def __init__(
        self,
        attach: wire.Attach,
        now: float,
        ttl: float,
        spawn: Spawn,
        on_other: Callable[[Peer, wire.FromExecutor], None],
    ) -> None:
        self.id = attach.executor
        self.start = attach.start
        self.session = ""
        self.child = is_child(attach.executor)
        self.own_folder = False
        """Whether its data folder is the engine's own."""
        self.bodies: dict[str, RemoteExecution | HeldBody] = {}
        self.draining = False
        self.exits = False
        """Whether it has said that it drains: it exits when it has nothing to execute."""
        self.was_closed = False
        """Whether its last connection ended, instead of falling silent."""
        self.heard_at = now
        self.ttl = ttl
        self.wake: Callable[[], None] | None = None  # of the connection's writer
        self.hang_up: Callable[[], None] | None = None  # ends the connection
        self.outgoing: Outgoing[bytes] = Outgoing(len)  # encoded, once
        self.incoming: Incoming[wire.FromExecutor] = Incoming()
        self._spawn = spawn
        self._on_other = on_other
        self.update(attach)

    @property
    def connected(self) -> bool:
        """Whether it has a connection."""
        return self.hang_up is not None

    @property
    def lost_at(self) -> float:
        """When it is lost, unless it is heard before."""
        return self.heard_at + self.ttl

    @property
    def accepts(self) -> bool:
        """Whether it can take bodies now."""
        return self.connected and not self.draining

    @property
    def status(self) -> str:
        """Its status, as in `executor_changed`."""
        if not self.connected:
            return "disconnected"
        return "draining" if self.draining else "attached"

    @property
    def folder_of_files(self) -> str | None:
        """The id of its data folder; empty for the engine's own, `None` if it has no folder."""
        return "" if self.own_folder else self.folder or None

    def update(self, attach: wire.Attach) -> None:
        """It has attached: set what it can execute."""
        self.connection = attach.connection
        self.jobs = {job.name: job for job in attach.jobs}
        self.functions = frozenset(attach.functions)
        self.slots = attach.slots
        self.labels = attach.labels
        self.folder = attach.folder
        self.exits = self.exits or attach.draining
        self.draining = self.draining or self.exits

    def new_session(self, session: str) -> None:
        """Begin to number messages again."""
        self.session = session
        self.outgoing = Outgoing(len)
        self.incoming = Incoming()

    def send(self, message: wire.ToExecutor) -> int:
        """Send a message, now or when the executor attaches again; returns its number. Never waits."""
        number = self.outgoing.add(_encoder.encode(message))
        if self.wake is not None:
            self.wake()
        return number

    def can_have(self, body: RemoteExecution | HeldBody) -> bool:
        """Whether the executor can have received the order for a body."""
        return self.outgoing.can_be_received(body.number)

    def had(self, body: RemoteExecution | HeldBody) -> bool:
        """Whether the executor has received the order for a body."""
        return self.outgoing.was_acknowledged(body.number)

    def take_unreceived(self) -> Sequence[RemoteExecution]:
        """Take the bodies whose orders the executor cannot have received, and withdraw the orders."""
        bodies = [
            body
            for body in self.bodies.values()
            if isinstance(body, RemoteExecution) and not self.can_have(body)
        ]
        for body in sorted(bodies, key=lambda body: body.number, reverse=True):
            self.outgoing.withdraw(body.number)
            del self.bodies[body.id]
        return bodies

    def spawn(self, call: Callable[[], Awaitable[object]]) -> None:
        """Start a helper task of the engine."""
        self._spawn(call)

    def receive(self, frame: wire.ExecutorFrame) -> None:
        """Handle the messages of a frame about bodies. Raises `GreenroomError` if they break the protocol."""
        self.outgoing.acknowledge(frame.ack)
        if len(self.outgoing) > MOST_KEPT:
            raise Invalid(f"executor has left {len(self.outgoing)} messages unacknowledged: send `ack`")
        if self.outgoing.size > MOST_KEPT_BYTES:
            raise Invalid(
                f"executor has left {self.outgoing.size:,} bytes of messages unacknowledged", retry=True
            )
        for message in self.incoming.accept(frame.first, frame.messages):
            self.handle(message)

    def handle(self, message: wire.FromExecutor) -> None:
        """Handle one message. Messages about a body that no longer belongs to its run are refused."""
        match message:
            case wire.Ended() | wire.Call() | wire.Told() | wire.CancelCall():
                execution = self.bodies.get(message.run)
                if execution is None or execution.fence != message.fence:
                    self._refuse(message)
                    return
                if isinstance(message, wire.Ended):
                    del self.bodies[message.run]
                execution.receive(message)
                if isinstance(message, wire.Told) and isinstance(message.report, wire.BlockedLoop):
                    self._on_other(self, message)
            case _:
                self._on_other(self, message)

    def _refuse(self, message: wire.Ended | wire.Call | wire.Told | wire.CancelCall) -> None:
        if isinstance(message, wire.Call):
            self.send(abandoned(message.run, message.fence, message.call))
        elif isinstance(message, wire.Ended):
            self.send(wire.Settled(message.run, message.fence))
