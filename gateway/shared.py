"""The state that all connections of a gateway share."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ..actors.engine.api import Engine
from ..protocol.codec import CODECS
from ..protocol.commands import Welcome
from ..protocol.events import Filter
from .auth.access import Access
from .auth.limited_engine import LimitedEngine
from .auth.refused_nodes import RefusedNodes
from .auth.signed_tickets import SignedTickets
from .auth.strangers import Strangers
from .auth.tickets import Tickets
from .auth.tokens import Caller
from .cluster.router import Router
from .cluster.turns import Turns
from .commands.entries import Context, Entry, Fields
from .config import GatewayConfig, Limits
from .http.metrics import Metrics
from .http.state import States
from .stream.endings import Endings
from .stream.feeds import Feeds, Frames, ServerSent
from .stream.filters import narrowed
from .stream.receivers import of_snapshot
from .stream.snapshots import Snapshots
from .version import SERVER
from .websocket.heartbeats import Heartbeats

if TYPE_CHECKING:
    from .websocket.session import Session


class Shared:
    """One per gateway."""

    def __init__(
        self, engine: Engine, epoch: str, config: GatewayConfig, router: Router | None, secret: str | None
    ) -> None:
        self.engine = engine
        self.epoch = epoch
        self.config = config
        self.router = router
        """Forwards commands, if the engine is that of a cluster."""
        self.secret = secret
        """The secret of the cluster."""
        self.access = Access(config, secret)
        self.strangers = Strangers(lambda: self.limits, lambda: self.access.asks_for_tokens)
        self.refused_nodes = RefusedNodes()
        self.tickets: Tickets | SignedTickets = Tickets()
        if secret is not None:
            self.tickets = SignedTickets(secret, lambda name: self.access.named(name))
        self.metrics = Metrics(engine, router)
        self.endings = Endings(engine, self.metrics.observe)
        self.snapshots = Snapshots(engine)
        self.states = States(self.snapshots)
        self.viewer_states = States(self.snapshots, of_snapshot)
        self.feeds = Feeds(engine.stream, lambda: self.limits.max_batch)
        self.frames = {name: Frames(codec) for name, codec in CODECS.items()}
        self.server_sent = ServerSent(epoch)
        self.heartbeats = Heartbeats()
        self.sessions: dict[Session, None] = {}
        self.subscriptions = 0
        self.closing = False

    @property
    def limits(self) -> Limits:
        """The current limits."""
        return self.config.limits

    @property
    def lag(self) -> int:
        """The number of committed events not yet sent to the slowest subscriber."""
        return max((session.writer.behind or 0 for session in self.sessions), default=0)

    def changed(self) -> None:
        """Update what depends on the events; the stream calls this after each commit."""
        self.metrics.committed()
        self.snapshots.forget()
        self.states.forget()
        self.viewer_states.forget()

    def welcome(self, caller: Caller) -> Welcome:
        """The first message to a caller."""
        limits = self.limits
        return Welcome(
            epoch=self.epoch,
            seq=self.engine.stream.last_seq,
            server=SERVER,
            limits={
                "max_message_bytes": limits.max_message_bytes,
                "max_commands": limits.max_commands,
                "max_waits": limits.max_waits,
                "max_filter_names": limits.max_filter_names,
                "rate": limits.rate,
                "idle_timeout": limits.idle_timeout,
            },
            role=caller.role,
            name=caller.name if self.access.asks_for_tokens else None,
            within=None if caller.scope is None else caller.scope.texts(),
        )

    def narrowed(self, filter: Filter | None, caller: Caller | None) -> Filter | None:
        """The filter that a caller requested, narrowed to what its token permits. Raises `Forbidden`."""
        if caller is None:
            return filter
        return narrowed(filter, caller.scope, self.engine.job_of, sees_receivers=caller.sees_receivers)

    async def reach(self, seq: int) -> bool:
        """Wait, but not for long, until this node has the event `seq`: the client can come from a node that
        has more events. False: it must connect again."""
        return self.router is None or await self.router.reach(seq)

    async def execute(self, entry: Entry, caller: Caller, command: Any, turns: Turns | None = None) -> Fields:
        """Execute a command of this caller, in this engine or at the leader of its cluster. `turns` are those
        of the caller's connection."""
        if self.router is None:
            return await self.call(entry, caller, command)
        return await self.router.execute(partial(self.call, entry, caller), entry, caller, command, turns)

    async def call(self, entry: Entry, caller: Caller, command: Any) -> Fields:
        """Execute a command of this caller in this engine."""
        assert entry.call is not None, "commands about a connection are handled by its session"
        return await entry.call(self.context(caller), command) or {}

    def context(self, caller: Caller) -> Context:
        """The context of a command of this caller."""
        if caller.scope is None:
            return Context(
                self.engine,
                self.endings,
                self.snapshots,
                caller.name,
                router=self.router,
                sees_receivers=caller.sees_receivers,
            )
        limited = LimitedEngine(self.engine, caller.scope)  # it refuses each method that it lacks
        return Context(cast(Engine, limited), self.endings, self.snapshots, caller.name, limited)
