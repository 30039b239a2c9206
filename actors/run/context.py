"""`Body`: the base of `Run` (`api.py`), also used by the run's actor and by the walk of a flow.

A body sends reports to the journal and requests to its run's actor; it never touches their state. Reports of
an older attempt or of an abandoned body are refused with `RunAbandoned`, here or by the journal's
compare-and-set.
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
from .body_messages import Flag, OpenInterrupt, Resume, Suspend, WithdrawInterrupt
from .interrupts import Kept
from .pause import Signal
from .positions import Positions

if TYPE_CHECKING:
    from ..aio.bodies import AsyncioBodies

logger = logging.getLogger("greenroom")

_CLEANUP = 5.0
"""The timeout of a body's shielded cleanup, in seconds."""


class Services(msgspec.Struct):
    """The parts of the engine that bodies and run actors use."""

    entry: EntryPoint
    journal: Journal
    files: Files
    wall_clock: Callable[[], float]
    delivery: Delivery
    asyncio_bodies: AsyncioBodies


class Body:
    """See the module's docstring."""

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
        "handle",
        "id",
        "inbox",
        "interrupts",
        "journal",
        "kind",
        "lane",
        "last_taken",
        "parts",
        "progress",
        "resumes_later",
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
        self.children: dict[str, None] = {}  # the child runs that it waits for
        self.submission = submission
        self.checkpoint = None if checkpoint is None else copied(checkpoint.value)
        self.services = services
        self.journal = services.journal
        self._kept = kept
        self.inbox = inbox  # messages not taken yet; the message gate limits their number
        self.last_taken: int | None = None
        """The seq of the last message that was taken since the last checkpoint."""
        self._news: trio.lowlevel.ParkingLot | None = None  # created on first use: few bodies get messages
        self.progress: ProgressReport | None = None  # created on first use, too
        self.parts: dict[PartFile, bool] = {}  # whether the file was recorded as finished, and was not before
        own = checkpoint is not None and checkpoint.run == self.id
        self.interrupts = Positions(checkpoint.interrupts if own and checkpoint is not None else 0)
        self.calls = Positions(checkpoint.calls if own and checkpoint is not None else 0)
        self._phases: dict[str, int] = {}  # the number of the body's tasks in each phase
        self.cancel_requested = False
        self.saw_cancel_request = False
        self.resumes_later = False
        self.end_is_written = False
        """Whether the walk of a flow has recorded the node that the cancel interrupts."""
        self.woken_at: float | None = None
        """The wake time, in Unix seconds, that ended the wait without a body."""
        self._naps: set[trio.CancelScope] | None = None  # created on first use
        self._pending: dict[Reply[Any], None] = {}
        self._shields: dict[trio.CancelScope, None] = {}  # scopes that delay a cancel until a reply
        self.closed: str | None = None  # why all calls of this body are refused, if they are

    def default_key(self, position: int) -> str:
        """The key of an interrupt at this position.

        An interrupt that is opened after a message was taken can concern that message, which no other body
        will receive. So the key includes the message, and the answer is never used for another message.
        """
        return str(position) if self.last_taken is None else f"{position}@{self.last_taken}"

    async def wait_for_message(self) -> None:
        """Wait until there is a message."""
        if self._news is None:
            self._news = trio.lowlevel.ParkingLot()
        while not self.inbox:
            await self._news.park()
            self.check()

    @asynccontextmanager
    async def phase(self, name: Literal["streaming", "compacting"]) -> AsyncIterator[None]:
        """A phase that is visible in the run's record, without a timeout."""
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
        """The stored answers, by the keys of the interrupts."""
        return {key: kept.answer for key, kept in self._kept().items()}

    @property
    def wall_clock(self) -> Callable[[], float]:
        """The engine's clock, in Unix seconds."""
        return self.services.wall_clock

    @property
    def max_value_bytes(self) -> int:
        """The maximum size of a value."""
        return self.services.entry.max_value_bytes

    def about(self) -> dict[str, Any]:
        """The fields that every event of the run has."""
        return self.submission.about()

    def take_first_state(self) -> FlowState | None:
        """Take the initial state of a walk that has not begun; later the state is only in the store."""
        memos, self.submission.memos = self.submission.memos, ()
        return next((memo for memo in memos if isinstance(memo, FlowState)), None)

    @property
    def untaken(self) -> int:
        """The number of messages or signals that the body has not taken."""
        return len(self.inbox)

    def take_signals(self) -> Sequence[Signal]:
        """Take the signals received since the last call. The caller must commit that they are taken."""
        taken, self.inbox = self.inbox, ()
        return taken

    def withdraw(self, key: str) -> None:
        """Close the interrupt with this key: the body no longer waits for its answer."""
        self.tell_actor(WithdrawInterrupt(key))

    def mention(self, *events: Event) -> None:
        """Have events committed soon, without waiting."""
        change = Change(events, run=self.id, expect=REPORTING, attempt=self.attempt)
        self.journal.tell(Mention(change))

    async def commit(self, events: tuple[Event, ...], memos: tuple[Memo, ...]) -> None:
        """Commit events and memos; returns when they are committed."""
        await self.report(Change(events, memos=memos))

    # For the run's actor.

    def request_cancel(self) -> None:
        """Set `cancel_requested`: the body should end."""
        self.cancel_requested = True

    def as_result(self, value: Any) -> Any:
        """The body's return value as a JSON value for the run's record."""
        try:
            return self.value(value, "result")
        except Invalid:
            plain = plain_result(value)  # converted only now: nearly all results are JSON values
            return self.value(plain, "result")

    def deliver(self, message: Any) -> None:
        """Pass a committed message or signal to the body."""
        self.inbox = (*self.inbox, message)
        if self._news is not None:
            self._news.unpark()

    def close(self, why: str) -> Sequence[Any]:
        """Refuse all further calls of this body; returns the messages that it has not taken."""
        self.closed = why
        if self._news is not None:
            self._news.unpark_all()
        for reply in self._pending:
            reply.fail(self._abandoned())
        return self.inbox

    def lapse(self, why: str) -> None:
        """Refuse all further calls of this body, and cancel its shielded waits."""
        self.close(why)
        for shield in self._shields:
            shield.cancel()

    def resume_later(self) -> None:
        """The body is being stopped, but its run and its children continue at the engine's next start."""
        self.resumes_later = True

    @property
    def obeyed_cancel(self) -> bool:
        """Whether the body has read `cancel_requested` since it became true."""
        return self.saw_cancel_request

    async def discard(self, part: PartFile) -> None:
        try:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLEANUP):
                await part.discard()
        except OSError:  # do not hide the exception that ended the block
            logger.exception("run %s: unfinished file %s could not be deleted", self.id, part.path)

    async def give_up(self, parts: Sequence[PartFile]) -> None:
        """Commit that these files were not renamed, before their parts, the only evidence, are deleted."""
        reply: Reply[Outcome] = Reply()
        memos = tuple(FileGivenUp(self.id, part.path) for part in parts)
        self.journal.tell(Change((), run=self.id, memos=memos, reply=reply))
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLEANUP):
            await reply.get()

    async def discard_parts(self) -> None:
        """Delete the unfinished files of a body that is abandoned."""
        recorded = [part for part, recorded in self.parts.items() if recorded]
        if recorded:
            await self.give_up(recorded)
        for part in list(self.parts):
            await part.discard()

    # Messages to the actors.

    def tell_actor(self, message: object) -> None:
        """Send the run's actor a message."""
        self.services.delivery.tell("run", self.id, message)

    def check(self) -> None:
        if self.closed is not None:
            raise self._abandoned()

    def _abandoned(self) -> RunAbandoned:
        return RunAbandoned(f"run {self.id}, attempt {self.attempt}: {self.closed}")

    async def check_open(self) -> None:
        """Begin a call: a trio checkpoint; raises `RunAbandoned` if the body is closed."""
        self.check()
        await trio.lowlevel.checkpoint()
        self.check()

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Shield from cancellation, unless the engine loses its lease."""
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
            raise RunAbandoned(f"run {self.id}, attempt {self.attempt}: the run continues without this body")

    async def ask_actor(self, message: Suspend | Resume | OpenInterrupt | Flag) -> Any:
        """Send the actor a request and wait for its reply.

        Shielded, so that the body always knows what the actor did. The actor replies after one commit, or
        when it abandons the body.
        """
        with trio.CancelScope(shield=True):
            self.tell_actor(message)
            return await self.wait(message.reply)

    async def wait(self, reply: Reply[Any]) -> Any:
        """Wait for a reply; raises `RunAbandoned` if the body is closed first."""
        self.check()
        self._pending[reply] = None
        try:
            return await reply.get()
        finally:
            self._pending.pop(reply, None)

    async def resume(self) -> None:
        """Wait for a slot after a wait without one. The actor replies immediately if the run is ending."""
        if self.closed is None:
            await self.ask_actor(Resume(Reply()))

    async def nap(self, until: float) -> None:
        """Sleep until a time, which `advance` can move."""
        if self._naps is None:
            self._naps = set()
        with trio.CancelScope(deadline=until) as nap:
            self._naps.add(nap)
            try:
                await trio.sleep_forever()
            finally:
                self._naps.discard(nap)

    def advance(self, seconds: float) -> None:
        """The computer was suspended for `seconds`: shorten all sleeps by that."""
        for nap in self._naps or ():
            nap.deadline -= seconds

    async def check_cancelled(self) -> None:
        """Raise a cancellation that arrived during a shielded wait for a slot."""
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
