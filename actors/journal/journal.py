"""The journal: the one actor through which every change goes, and the only one who commits.

It hands what its channel holds to its machine (`machine.py`), which decides every compare-and-set and
what everyone is told, and the batches of that to the committer (`committer.py`), a task of its own. So the
journal never waits: what a commit has led to comes as a message.

Everything that would name state which is not committed yet goes through this channel behind the change it
depends on, so nothing is shown to anyone before it is durable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import trio

from ...persistence.failures import StoreBroken, StoreDown
from ...persistence.store import Checkpoint, Store
from ...protocol.fold import Projection
from ...protocol.records import RunRecord
from ..actor import Actor, Delivery
from ..channel import Reply
from ..effects import Spawn
from .change import Change, Outcome
from .committer import CommitFailed, Committer
from .machine import JournalMachine
from .messages import Look, NotRead
from .stream import Stream

T = TypeVar("T")

_QUIET_TURNS = 4
_MANY = 1000


class Journal(Actor):
    """See the module's text. `gathers`: commits take so long that it is worth some turns to have fewer."""

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
    ) -> None:
        super().__init__("journal", "")
        self._gathers = gathers
        self._store = store
        self._stream = stream
        self._delivery = delivery
        self._spawn = spawn
        self.look_for_suspends: Callable[[], None] = lambda: None
        """Called whenever the journal does something, to notice that the machine was suspended."""
        self.committer = Committer(store, self.tell)
        self.machine = JournalMachine(
            clock, stream.publish, lambda: self.committer.commits, store.check_every
        )

    def begin(self, projection: Projection) -> None:
        """Go on from what is committed."""
        self.machine.begin(projection)

    @property
    def commit_seconds(self) -> float:
        """How long the last commit took."""
        return self.committer.took

    @property
    def store_is_down(self) -> bool:
        """Whether everything waits for the store to come back."""
        return self.committer.down or self.committer.silent

    @property
    def draining(self) -> bool:
        """Whether the engine drains, as far as is committed."""
        return self.machine.projection.draining

    async def ask(self, change: Change) -> Outcome:
        """Have a change decided and committed."""
        reply: Reply[Outcome] = Reply()
        change.reply = reply
        self.tell(change)
        return await reply.get()

    def look_now(self, read: Callable[[Projection], T]) -> T:
        """What is committed and known, without waiting for a commit that is under way."""
        return read(self.machine.projection)

    async def look(self, read: Callable[[Projection], T]) -> T:
        """Ask about what is committed. While the store is down, that is what is known already."""
        if self.store_is_down:
            await trio.lowlevel.checkpoint()
            return self.look_now(read)
        reply: Reply[T] = Reply()
        self.tell(Look(read, reply))
        return await reply.get()

    async def read(self, call: Callable[[], Awaitable[T]]) -> T:
        """Read the store, for a body or a helper task that can't go on without: it waits for one that is
        down."""
        while True:
            try:
                return await call()
            except StoreDown as error:
                back: Reply[None] = Reply()
                self.tell(NotRead(error, self.committer.commits, back))
                await back.get()

    async def checkpoint(self, handle: str, job: str) -> Checkpoint | None:
        """What was last saved for a handle and job."""
        return await self.read(partial(self._store.checkpoint, handle, job))

    async def load_run(self, id: str) -> RunRecord | None:
        """A run, however long ago it ended."""
        return await self.read(partial(self._store.run, id))

    def hurry(self, until: float) -> None:
        """The engine is being left: a store that is down is not waited for beyond this time."""
        self.committer.patience = until

    def close(self) -> None:
        """Answer everyone who still waits for a run: nothing is going to happen any more."""
        self.machine.close()
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
        """Take along what actors that can act now are about to send: a commit costs more than some turns."""
        self._carry_out()
        taken, quiet = self.machine.gathered, 0
        while quiet < (_QUIET_TURNS if self.machine.gathered > 1 else 1) and taken < _MANY:
            await trio.lowlevel.checkpoint()
            more = self.channel.receive_all_nowait()
            self._receive(more)
            taken += len(more)  # also what is no change: as much of that as comes would put the commit off
            quiet = 0 if more else quiet + 1

    def job_of(self, run: str) -> str | None:
        """The job of a run, if that is committed and still in memory."""
        found = self.machine.projection.runs.get(run)
        return None if found is None else found.job
