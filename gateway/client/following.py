"""What a client follows: the fold of all that it has been told, the latest events, and who waits for an end.

Theory of operation. The gateway sends batches of events, each from where the last one ended, so a gap
between batches shows. Within a batch, numbers are missing: what passes neither the filter nor the limits
of the token. If the client has missed what the gateway has no more, a snapshot comes instead (`resync`).
Sometimes events come a second time, because somebody wants to iterate from a number that the ring here no
longer reaches: then the client subscribes anew, from there. So an event is folded if the fold hasn't come
to it, and goes into the ring if the ring hasn't.
"""

from __future__ import annotations

from collections.abc import Callable

from ...actors.channel import Reply
from ...protocol.commands import Events, Resync, Subscribe
from ...protocol.errors import GreenroomError
from ...protocol.events import Filter, RunStateChanged
from ...protocol.fold import Projection
from ...protocol.parts import joined
from ...protocol.records import RunRecord, Snapshot
from ...protocol.states import ENDED
from .errors import ConnectionLost
from .ring import Ring

_NO_EPOCH = "-"


class Following:
    """See the module's text. Under a filter by handles, lanes or runs, or with a token that is limited, the
    fold is of what passes."""

    def __init__(self, filter: Filter | None) -> None:
        self.filter = filter
        self.state: Projection | None = None
        self.ring = Ring(0)
        self.failure: Callable[[], GreenroomError] | None = None
        self._told = 0
        self._whole = 0  # up to where the ring has all that was wanted
        self._asked: dict[object, int] = {}  # where the subscriptions begin that have not been answered
        self._parts: list[Snapshot] = []
        self._ends: dict[str, Reply[RunRecord | None]] = {}

    @property
    def seq(self) -> int:
        """The number up to which the state is known."""
        return 0 if self.state is None else self.state.seq

    def subscribe(self, id: int, after: int | None = None) -> Subscribe:
        """The command to go on with, or to begin; or to begin again after an older number."""
        if self.state is None:
            return Subscribe(id=id, after=0, epoch=_NO_EPOCH, filter=self.filter)
        start = self._told if after is None else after
        return Subscribe(id=id, after=start, epoch=self.state.epoch, filter=self.filter)

    # What the connection tells.

    def asked(self, command: Subscribe) -> None:
        """A subscription is on its way. It counts also if whoever wanted it doesn't wait any more."""
        self._asked[command.id] = command.after or 0

    def has_asked(self, id: object) -> bool:
        """Whether a subscription of this id is on its way."""
        return id in self._asked

    def subscribed(self, id: object, seq: int) -> None:
        """A subscription has been answered: the next batch is from `seq`."""
        del self._asked[id]
        self._goes_on_from(seq)

    def lost(self) -> None:
        """The connection is gone, and with it what was half said."""
        self._asked.clear()
        self._parts.clear()

    def take(self, batch: Events) -> None:
        """Take a batch. Raises `ConnectionLost` if there is a gap before it."""
        state = self.state
        if state is None or batch.from_ != self._told:
            raise ConnectionLost(f"it sent events from {batch.from_}, where those from {self._told} were due")
        last = self.ring.last
        self.ring.extend([event for event in batch.events if event.seq > last])
        for event in batch.events:
            if event.seq > state.seq:
                state.seq = event.seq - 1  # those between pass neither the filter nor the token's limits
                state.apply(event)
                if type(event) is RunStateChanged and event.to in ENDED:
                    self._ended(event.run, state.runs[event.run])
        self._told = batch.to
        self._whole = max(self._whole, batch.to)
        state.seq = max(state.seq, batch.to)

    def resync(self, message: Resync) -> None:
        """Take a snapshot, or a part of one."""
        self._parts.append(message.snapshot)
        if message.more:
            return
        snapshot = joined(self._parts)
        self._parts = []
        start = min([self._told, *self._asked.values()])
        known = self.state
        if known is not None and known.epoch == snapshot.epoch and start <= snapshot.seq <= known.seq:
            self._goes_on_from(snapshot.seq)  # older than what is known; and what follows it comes, too
            return
        self._told = snapshot.seq
        self.state = Projection.from_snapshot(snapshot)
        ring, self.ring, self._whole = self.ring, Ring(snapshot.seq), snapshot.seq
        ring.close()
        for run_id in list(self._ends):
            run = snapshot.runs.get(run_id)
            if run is None or run.ended:
                self._ended(run_id, run)

    def _goes_on_from(self, seq: int) -> None:
        """The events that come next follow `seq`: the ring begins there, unless they overlap with it, or it
        would have a gap."""
        self._told = seq
        if not self.ring.after <= seq <= self._whole:
            self.ring.restart(seq)
            self._whole = seq

    def close(self, error: Callable[[], GreenroomError]) -> None:
        """Nothing more will be told."""
        self.failure = error
        self.ring.close()
        for reply in self._ends.values():
            reply.fail(error())
        self._ends.clear()

    # What callers ask.

    def end(self, run_id: str) -> Reply[RunRecord | None]:
        """Replies with a pending run when it has ended; with `None` if its end was missed."""
        if self.failure is not None:
            raise self.failure()
        return self._ends.setdefault(run_id, Reply())

    def _ended(self, run_id: str, run: RunRecord | None) -> None:
        reply = self._ends.pop(run_id, None)
        if reply is not None:
            reply.set(run)
