"""A body's side of the run that it executes for: what `Run` (`api.py`) stands on, and what the run's actor
and the walk of a flow use of a body.

A body reports to the journal and asks its run's actor; it never touches their state. What an older attempt or
an abandoned body reports is refused with `RunAbandoned`, here or by the journal's compare-and-set.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import trio

from ...persistence.files import Files, PartFile
from ...persistence.flows import FlowState
from ...persistence.store import Checkpoint, FileGivenUp, Memo
from ...protocol.errors import Invalid, RunAbandoned
from ...protocol.events import Event
from ...protocol.parameters import plain_result
from ...protocol.values import copied, json_value
from ..actor import Delivery
from ..channel import Reply
from ..engine.entry_point import EntryPoint
from ..journal.change import REPORTING, Change, Outcome, ProgressReport
from ..journal.journal import Journal
from ..journal.messages import Mention
from ..messages import Submission
from .body_messages import Ask, Flag, Resume, Suspend, Unask
from .interrupts import Kept
from .pause import Signal
from .positions import Positions

if TYPE_CHECKING:
    from ..aio.bodies import AsyncioBodies

logger = logging.getLogger("greenroom")

_CLEANUP = 5.0
"""Seconds that a body's shielded cleanup may take."""


class Services(msgspec.Struct):
    """What bodies and run actors use of the engine."""

    entry: EntryPoint
    journal: Journal
    files: Files
    wall_clock: Callable[[], float]
    delivery: Delivery
    asyncio_bodies: AsyncioBodies


class Body:
    """See the module's text."""

    __slots__ = (
        "_kept",
        "_naps",
        "_news",
        "_pending",
        "_phases",
        "_shields",
        "attempt",
        "calls",
        "cancel_requested",
        "checkpoint",
        "children",
        "closed",
        "end_is_written",
        "finished_files",
        "goes_on_later",
        "handle",
        "heard",
        "id",
        "inbox",
        "interrupts",
        "journal",
        "kind",
        "lane",
        "parts",
        "progress",
        "saw_cancel_request",
        "services",
        "submission",
        "woken_at",
    )

    def __init__(
        self,
        submission: Submission,
        attempt: int,
        checkpoint: Checkpoint | None,
        inbox: Sequence[Any],
        services: Services,
        kept: Callable[[], Mapping[str, Kept]],
    ) -> None:
        self.id = submission.id
        self.handle = submission.handle
        self.lane = submission.lane
        self.kind = submission.kind
        self.attempt = attempt
        self.finished_files: Sequence[str] = ()
        self.children: dict[str, None] = {}  # the runs that it has called and waits for
        self.submission = submission
        self.checkpoint = None if checkpoint is None else copied(checkpoint.value)
        self.services = services
        self.journal = services.journal
        self._kept = kept
        self.inbox = inbox  # messages that it hasn't taken; at most as many as the message gate lets in
        self.heard: int | None = None
        """The seq of the last message that was taken since the last checkpoint."""
        self._news: trio.lowlevel.ParkingLot | None = None  # made when first needed: few bodies are told
        self.progress: ProgressReport | None = None  # likewise
        self.parts: dict[PartFile, bool] = {}  # and whether it is recorded as finished, for the first time
        own = checkpoint is not None and checkpoint.run == self.id
        self.interrupts = Positions(checkpoint.interrupts if own and checkpoint is not None else 0)
        self.calls = Positions(checkpoint.calls if own and checkpoint is not None else 0)
        self._phases: dict[str, int] = {}  # how many tasks of the body are in each
        self.cancel_requested = False
        self.saw_cancel_request = False
        self.goes_on_later = False
        self.end_is_written = False
        """Whether the walk of a flow has written down the node that a cancel reaches it at."""
        self.woken_at: float | None = None
        """The wake time, in Unix seconds, that has come for a run without a body."""
        self._naps: set[trio.CancelScope] | None = None  # made when first needed
        self._pending: dict[Reply[Any], None] = {}
        self._shields: dict[trio.CancelScope, None] = {}  # what holds up a cancel until the engine answers
        self.closed: str | None = None  # why nothing is taken from this body any more

    def default_key(self, position: int) -> str:
        """The key of an interrupt at this position. A message that was taken is not given to another body, so
        what is asked after it is asked about this message, and never answered for another one."""
        return str(position) if self.heard is None else f"{position}@{self.heard}"

    async def news_of_messages(self) -> None:
        """Wait until there is a message."""
        if self._news is None:
            self._news = trio.lowlevel.ParkingLot()
        while not self.inbox:
            await self._news.park()
            self.check()

    @asynccontextmanager
    async def phase(self, name: Literal["streaming", "compacting"]) -> AsyncIterator[None]:
        """A phase that others can see, without a time limit."""
        await self.check_open()
        self._phases[name] = self._phases.get(name, 0) + 1
        try:
            if self._phases[name] == 1:
                await self.ask_actor(Flag(name, True, Reply()))
            yield
        finally:
            self._phases[name] -= 1
            if not self._phases[name] and self.closed is None:
                await self.ask_actor(Flag(name, False, Reply()))

    @property
    def answers(self) -> Mapping[str, Any]:
        """The answers that were given so far, by the keys of the interrupts."""
        return {key: kept.answer for key, kept in self._kept().items()}

    @property
    def wall_clock(self) -> Callable[[], float]:
        """Unix seconds, by the engine's clock."""
        return self.services.wall_clock

    @property
    def max_value_bytes(self) -> int:
        """How large a value may be."""
        return self.services.entry.max_value_bytes

    def about(self) -> dict[str, Any]:
        """What every event of the run begins with."""
        return self.submission.about()

    def take_first_state(self) -> FlowState | None:
        """The state of a walk that has not begun yet; later, it is only in the store."""
        memos, self.submission.memos = self.submission.memos, ()
        return next((memo for memo in memos if isinstance(memo, FlowState)), None)

    @property
    def untaken(self) -> int:
        """How many messages or signals wait to be taken."""
        return len(self.inbox)

    def take_signals(self) -> Sequence[Signal]:
        """The signals that have come since the last time, which whoever takes them has to commit as taken."""
        taken, self.inbox = self.inbox, ()
        return taken

    def withdraw(self, key: str) -> None:
        """The interrupt under this key need not be answered any more."""
        self.tell_actor(Unask(key))

    def mention(self, *events: Event) -> None:
        """Have events committed that nobody waits for, soon."""
        change = Change(events, run=self.id, expect=REPORTING, attempt=self.attempt)
        self.journal.tell(Mention(change))

    async def commit(self, events: tuple[Event, ...], memos: tuple[Memo, ...]) -> None:
        """Returns when it is committed."""
        await self.report(Change(events, memos=memos))

    # For the run's actor.

    def request_cancel(self) -> None:
        """The body should end."""
        self.cancel_requested = True

    def as_result(self, value: Any) -> Any:
        """What the body returned, as it goes into the run's record."""
        try:
            return self.value(value, "result")
        except Invalid:
            plain = plain_result(value)  # looked at only here: nearly all results are JSON values already
            return self.value(plain, "result")

    def deliver(self, message: Any) -> None:
        """A message or a signal was accepted and committed."""
        self.inbox = (*self.inbox, message)
        if self._news is not None:
            self._news.unpark()

    def close(self, why: str) -> Sequence[Any]:
        """Take nothing from this body any more; returns the messages that it hasn't taken."""
        self.closed = why
        if self._news is not None:
            self._news.unpark_all()
        for reply in self._pending:
            reply.fail(self._abandoned())
        return self.inbox

    def lapse(self, why: str) -> None:
        """Take nothing more from this body, and let it wait for nothing more."""
        self.close(why)
        for shield in self._shields:
            shield.cancel()

    def go_on_later(self) -> None:
        """The body is being stopped, but its run and its children go on at the engine's next start."""
        self.goes_on_later = True

    @property
    def obeyed_cancel(self) -> bool:
        """Whether the body has seen that it should end."""
        return self.saw_cancel_request

    async def discard(self, part: PartFile) -> None:
        try:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLEANUP):
                await part.discard()
        except OSError:  # what made the body give the file up matters more
            logger.exception("run %s left %s unfinished, and it could not be deleted", self.id, part.path)

    async def give_up(self, parts: Sequence[PartFile]) -> None:
        """Commit that these files didn't get their names, before the parts are gone: they show it."""
        reply: Reply[Outcome] = Reply()
        memos = tuple(FileGivenUp(self.id, part.path) for part in parts)
        self.journal.tell(Change((), run=self.id, memos=memos, reply=reply))
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLEANUP):
            await reply.get()

    async def discard_parts(self) -> None:
        """Delete what is unfinished: the body can't be relied on to do it."""
        recorded = [part for part, recorded in self.parts.items() if recorded]
        if recorded:
            await self.give_up(recorded)
        for part in list(self.parts):
            await part.discard()

    # Ways to the actors.

    def tell_actor(self, message: object) -> None:
        """Tell the actor of the run something."""
        self.services.delivery.tell("run", self.id, message)

    def check(self) -> None:
        if self.closed is not None:
            raise self._abandoned()

    def _abandoned(self) -> RunAbandoned:
        return RunAbandoned(f"run {self.id}, attempt {self.attempt}: {self.closed}")

    async def check_open(self) -> None:
        """Every call comes here first: a checkpoint, and a refusal if nothing is taken any more."""
        self.check()
        await trio.lowlevel.checkpoint()
        self.check()

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Not cancelled, unless the engine itself must let go of the body."""
        with trio.CancelScope(shield=True) as shield:
            self._shields[shield] = None
            try:
                yield
            finally:
                del self._shields[shield]
        if shield.cancelled_caught:
            raise self._abandoned()

    def value(self, value: Any, where: str) -> Any:
        return json_value(value, where, self.services.entry.max_value_bytes)

    async def report(self, change: Change) -> None:
        change.run, change.expect, change.attempt = self.id, REPORTING, self.attempt
        change.reply = Reply()
        self.journal.tell(change)
        await self.committed(change.reply)

    async def committed(self, reply: Reply[Outcome]) -> None:
        outcome = await self.wait(reply)
        if not outcome.held:
            raise RunAbandoned(f"run {self.id}, attempt {self.attempt}: the run goes on without this body")

    async def ask_actor(self, message: Suspend | Resume | Ask | Flag) -> Any:
        """Shielded, so that the body always knows what the actor did; the actor answers after one commit, or
        when it abandons the body."""
        with trio.CancelScope(shield=True):
            self.tell_actor(message)
            return await self.wait(message.reply)

    async def wait(self, reply: Reply[Any]) -> Any:
        """Wait for a reply, or until nothing is taken from this body any more."""
        self.check()
        self._pending[reply] = None
        try:
            return await reply.get()
        finally:
            self._pending.pop(reply, None)

    async def resume(self) -> None:
        """Whatever ended the wait, the body may go on only with a slot. The actor answers at once when the
        run is being ended."""
        if self.closed is None:
            await self.ask_actor(Resume(Reply()))

    async def nap(self, until: float) -> None:
        """Sleep until a time, or until less is left of it."""
        if self._naps is None:
            self._naps = set()
        with trio.CancelScope(deadline=until) as nap:
            self._naps.add(nap)
            try:
                await trio.sleep_forever()
            finally:
                self._naps.discard(nap)

    def advance(self, seconds: float) -> None:
        """The machine was suspended for so long: whoever sleeps has as much less to sleep."""
        for nap in self._naps or ():
            nap.deadline -= seconds

    async def look_up(self) -> None:
        """The wait for the slot was shielded: what came meanwhile ends the body here."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self.check()

    @asynccontextmanager
    async def released(
        self,
        waiting_for: Literal["time", "child", "message"],
        wakes_at: float | None = None,
        within: float | None = None,
    ) -> AsyncIterator[None]:
        await self.ask_actor(Suspend(waiting_for, wakes_at, within, Reply()))
        try:
            yield
        finally:
            await self.resume()
