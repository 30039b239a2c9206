"""A client's subscription: the fold of all received events, the latest events, and waits for ends of runs.

Theory of operation. The gateway sends batches of events; each starts where the previous one ended, so the
client detects a gap between batches. Within a batch, numbers can be missing: events that do not pass the
filter or the limits of the token. If the client has missed events that the gateway no longer has, the gateway
sends a snapshot (`resync`). Some events are received twice: when an iterator needs events older than the
client's ring, the client subscribes again from an older number. So an event is folded only if it is newer
than the fold, and added to the ring only if it is newer than the ring.
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
    """The subscription of a client. With a filter by handles, lanes or runs, or with a limited token, the
    fold contains only what passes."""

    def __init__(self, filter: Filter | None) -> None:
        self.filter = filter
        self.state: Projection | None = None
        self.ring = Ring(0)
        self.failure: Callable[[], GreenroomError] | None = None
        self._received = 0
        self._whole = 0  # the seq up to which the ring is complete
        self._asked: dict[object, int] = {}  # the start of each unanswered subscription
        self._parts: list[Snapshot] = []
        self._ends: dict[str, Reply[RunRecord | None]] = {}

    @property
    def seq(self) -> int:
        """The seq of the state."""
        return 0 if self.state is None else self.state.seq

    def subscribe(self, id: int, after: int | None = None) -> Subscribe:
        """The command to start or resume the subscription; with `after`, from an older seq."""
        if self.state is None:
            return Subscribe(id=id, after=0, epoch=_NO_EPOCH, filter=self.filter)
        start = self._received if after is None else after
        return Subscribe(id=id, after=start, epoch=self.state.epoch, filter=self.filter)

    # What the connection reports.

    def asked(self, command: Subscribe) -> None:
        """Record that a subscription was sent. It counts also if its caller is cancelled."""
        self._asked[command.id] = command.after or 0

    def has_asked(self, id: object) -> bool:
        """Whether a subscription with this id is unanswered."""
        return id in self._asked

    def subscribed(self, id: object, seq: int) -> None:
        """Record the answer to a subscription: the next batch is from `seq`."""
        del self._asked[id]
        self._continue_from(seq)

    def lost(self) -> None:
        """Forget unanswered subscriptions and incomplete snapshots, because the connection is lost."""
        self._asked.clear()
        self._parts.clear()

    def take(self, batch: Events) -> None:
        """Handle a batch. Raises `ConnectionLost` if there is a gap before it."""
        state = self.state
        if state is None or batch.from_ != self._received:
            raise ConnectionLost(f"gap in the events (expected from {self._received}, got {batch.from_})")
        last = self.ring.last
        self.ring.extend([event for event in batch.events if event.seq > last])
        for event in batch.events:
            if event.seq > state.seq:
                state.seq = event.seq - 1  # the filter or the token's limits exclude those between
                state.apply(event)
                if type(event) is RunStateChanged and event.to in ENDED:
                    self._ended(event.run, state.runs[event.run])
        self._received = batch.to
        self._whole = max(self._whole, batch.to)
        state.seq = max(state.seq, batch.to)

    def resync(self, message: Resync) -> None:
        """Handle a snapshot, or a part of one."""
        self._parts.append(message.snapshot)
        if message.more:
            return
        snapshot = joined(self._parts)
        self._parts = []
        start = min([self._received, *self._asked.values()])
        known = self.state
        if known is not None and known.epoch == snapshot.epoch and start <= snapshot.seq <= known.seq:
            self._continue_from(snapshot.seq)  # older than the state; the events after it follow
            return
        self._received = snapshot.seq
        self.state = Projection.from_snapshot(snapshot)
        ring, self.ring, self._whole = self.ring, Ring(snapshot.seq), snapshot.seq
        ring.close()
        for run_id in list(self._ends):
            run = snapshot.runs.get(run_id)
            if run is None or run.ended:
                self._ended(run_id, run)

    def _continue_from(self, seq: int) -> None:
        """Continue with the events after `seq`. The ring restarts there, unless that would overlap with it
        without a gap."""
        self._received = seq
        if not self.ring.after <= seq <= self._whole:
            self.ring.restart(seq)
            self._whole = seq

    def close(self, error: Callable[[], GreenroomError]) -> None:
        """End the subscription with an error for all waiting callers."""
        self.failure = error
        self.ring.close()
        for reply in self._ends.values():
            reply.fail(error())
        self._ends.clear()

    # What callers request.

    def end(self, run_id: str) -> Reply[RunRecord | None]:
        """A reply that is set when a pending run has ended; to `None` if the client missed its end."""
        if self.failure is not None:
            raise self.failure()
        return self._ends.setdefault(run_id, Reply())

    def _ended(self, run_id: str, run: RunRecord | None) -> None:
        reply = self._ends.pop(run_id, None)
        if reply is not None:
            reply.set(run)
