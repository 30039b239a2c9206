"""The journal: the actor that receives every change, and the only one that commits.

It passes the messages of its channel to its machine (`machine.py`), which decides every compare-and-set and
who is notified, and it passes the batches to the committer (`committer.py`), which has its own task. So the
journal never waits: the result of a commit arrives as a message.

A reply that depends on uncommitted state goes through this channel after the change that it depends on, so
nothing is visible before it is durable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import trio

from ...persistence.failures import StoreBroken, StoreDown
from ...persistence.store import Checkpoint, Store
from ...protocol.fold import Projection
from ...protocol.notify import Notify
from ...protocol.records import RunRecord
from ..actor import Actor, Delivery
from ..channel import Reply
from ..effects import Spawn
from .change import Change, Outcome
from .committer import CommitFailed, Committer
from .machine import JournalMachine
from .messages import Look, ReadFailed
from .stream import Stream

T = TypeVar("T")

_QUIET_TURNS = 4
_MAX_GATHERED = 1000


class Journal(Actor):
    """See the module's docstring. `gathers`: commits are slow, so wait some turns to make batches larger.
    Without `ends_stream`, the stream outlives the journal."""

    fails_with = (StoreBroken,)

    def __init__(
        self,
        store: Store,
        stream: Stream,
        delivery: Delivery,
        clock: Callable[[], float],
        spawn: Spawn,
        *,
        gathers: bool,
        ends_stream: bool = True,
    ) -> None:
        super().__init__("journal", "")
        self._ends_stream = ends_stream
        self._gathers = gathers
        self._store = store
        self._stream = stream
        self._delivery = delivery
        self._spawn = spawn
        self.look_for_suspends: Callable[[], None] = lambda: None
        """Called in each turn of the journal, to detect that the computer was suspended."""
        self.committer = Committer(store, self.tell)
        self.machine = JournalMachine(
            clock, stream.publish, lambda: self.committer.commits, store.check_every
        )

    def begin(self, projection: Projection) -> None:
        """Continue from the committed state."""
        self.machine.begin(projection)

    @property
    def commit_seconds(self) -> float:
        """The duration of the last commit."""
        return self.committer.took

    @property
    def store_is_down(self) -> bool:
        """Whether the store is down, or a commit has not returned for a long time."""
        return self.committer.down or self.committer.silent

    @property
    def draining(self) -> bool:
        """Whether the engine drains, according to the committed state."""
        return self.machine.projection.draining

    async def ask(self, change: Change) -> Outcome:
        """Send a change and wait for its outcome."""
        reply: Reply[Outcome] = Reply()
        change.reply = reply
        self.tell(change)
        return await reply.get()

    def look_now(self, read: Callable[[Projection], T]) -> T:
        """Query the committed state, without waiting for a commit in flight."""
        return read(self.machine.projection)

    def notify_of(self, lane: str) -> Notify | None:
        """Where the committed rules of a lane want the events of its runs delivered. Each submission asks."""
        return self.machine.projection.rules(lane).notify

    async def look(self, read: Callable[[Projection], T]) -> T:
        """Query the committed state, after everything sent before. While the store is down, do not wait."""
        if self.store_is_down:
            await trio.lowlevel.checkpoint()
            return self.look_now(read)
        reply: Reply[T] = Reply()
        self.tell(Look(read, reply))
        return await reply.get()

    async def read(self, call: Callable[[], Awaitable[T]]) -> T:
        """Read the store for a body or a helper task. While the store is down, wait and read again."""
        while True:
            try:
                return await call()
            except StoreDown as error:
                back: Reply[None] = Reply()
                self.tell(ReadFailed(error, self.committer.commits, back))
                await back.get()

    async def checkpoint(self, handle: str, job: str) -> Checkpoint | None:
        """The last checkpoint of a handle and job."""
        return await self.read(partial(self._store.checkpoint, handle, job))

    async def load_run(self, id: str) -> RunRecord | None:
        """The record of a run, from the store."""
        return await self.read(partial(self._store.run, id))

    def hurry(self, until: float) -> None:
        """The engine is shutting down: stop waiting for a store that is down at this time."""
        self.committer.patience = until

    def close(self) -> None:
        """Fail all replies that still wait for the end of a run, and end the stream."""
        self.machine.close()
        if self._ends_stream:
            self._stream.close()

    def report(self) -> dict[str, Any]:
        return super().report() | {"watchers": self.machine.watchers}

    async def on_batch(self, messages: Sequence[Any]) -> None:
        self.look_for_suspends()
        self._receive(messages)
        if self._gathers and self.machine.gathered:
            await self._gather()
        self.machine.end_turn(trio.current_time())
        self._carry_out()

    async def on_deadline(self) -> None:
        self.look_for_suspends()
        self.machine.on_deadline(trio.current_time())
        self._carry_out()

    def _carry_out(self) -> None:
        machine = self.machine
        machine.effects.carry_out(self._delivery, self._spawn)
        if machine.job is not None:
            self.committer.send(machine.job)
            machine.job = None
        self.deadline = machine.deadline

    def _receive(self, messages: Sequence[Any]) -> None:
        for message in messages:
            if type(message) is CommitFailed:
                self._handling = self.machine.writing
            self.machine.receive(message)

    async def _gather(self) -> None:
        """Wait some turns for the changes of actors that are ready to run: a commit costs more than turns."""
        self._carry_out()
        taken, quiet = self.machine.gathered, 0
        while quiet < (_QUIET_TURNS if self.machine.gathered > 1 else 1) and taken < _MAX_GATHERED:
            await trio.lowlevel.checkpoint()
            more = self.channel.receive_all_nowait()
            self._receive(more)
            taken += len(more)  # counts all messages, so that a stream of queries cannot delay the commit
            quiet = 0 if more else quiet + 1

    def job_of(self, run: str) -> str | None:
        """The job of a run, if the run is committed and still in memory."""
        found = self.machine.projection.runs.get(run)
        return None if found is None else found.job
