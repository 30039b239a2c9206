"""What a body is given: `Run`, its side of the run that it executes for.

A body reports to the journal and asks its run's actor; it never touches their state. What an older attempt or
an abandoned body reports is refused with `RunAbandoned`, here or by the journal's compare-and-set.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal, TypeVar

import msgspec
import trio

from ..persistence.files import Files, PartFile
from ..persistence.flows import FlowState
from ..persistence.store import Checkpoint, FileFinished, FileGivenUp, Memo
from ..protocol.answers import approves, with_truth
from ..protocol.errors import Invalid, RunAbandoned
from ..protocol.events import Event, RunLog
from ..protocol.names import check_name
from ..protocol.values import copied, json_value
from .actor import Actor, Reply
from .bodymessages import Ask, Flag, Resume, Save, Suspend, Taken, Unask, cancel_child
from .change import REPORTING, Change, Outcome, ProgressReport
from .children import Children
from .door import Door
from .jobs import check_seconds
from .journal import Journal, Mention
from .messages import OnConflict, Submission
from .pause import Signal
from .positions import Positions
from .questions import Kept
from .results import raise_unless_succeeded

T = TypeVar("T")

logger = logging.getLogger("greenroom")

_CLEANUP = 5.0
"""Seconds that a body's shielded cleanup may take."""


class RunFile:
    """A file that a body is writing."""

    def __init__(self, run: Run, part: PartFile) -> None:
        self._run = run
        self._part = part

    @property
    def path(self) -> str:
        """Its path under the handle's folder."""
        return self._part.path

    async def write(self, data: bytes) -> int:
        """Append bytes."""
        await self._run.check_open()
        return await self._part.write(data)


class Services(msgspec.Struct):
    """What bodies and run actors use of the engine."""

    door: Door
    journal: Journal
    files: Files
    wall_clock: Callable[[], float]
    spawn: Callable[[Callable[[], Awaitable[object]]], None]
    """Starts a task beside the actors."""


class Run:
    """A run, as its body sees it."""

    def __init__(
        self,
        submission: Submission,
        attempt: int,
        checkpoint: Checkpoint | None,
        inbox: Sequence[Any],
        actor: Actor,
        services: Services,
        kept: Mapping[str, Kept],
    ) -> None:
        self.id = submission.id
        self.handle = submission.handle
        self.lane = submission.lane
        self.kind = submission.kind
        self.attempt = attempt
        self.params: Any = submission.params
        self.finished_files: list[str] = []
        self.children: dict[str, None] = {}  # the runs that it has called and waits for
        self._submission = submission
        self._checkpoint = None if checkpoint is None else copied(checkpoint.value)
        self._actor = actor
        self._services = services
        self._journal = services.journal
        self._kept = kept
        self._inbox = inbox  # messages that it hasn't taken; at most as many as the doorstep lets in
        self._news: trio.lowlevel.ParkingLot | None = None  # made when first needed: few bodies are told
        self._progress: ProgressReport | None = None  # likewise
        self._parts: dict[PartFile, bool] = {}  # and whether it is recorded as finished, for the first time
        own = checkpoint is not None and checkpoint.run == self.id
        self._interrupts = Positions(checkpoint.interrupts if own and checkpoint is not None else 0)
        self._calls = Positions(checkpoint.calls if own and checkpoint is not None else 0)
        self._phases = {"streaming": 0, "compacting": 0}  # how many tasks of the body are in each
        self._cancel_requested = False
        self._saw_cancel_request = False
        self._goes_on_later = False
        self.end_is_written = False
        """Whether the walk of a flow has written down the node that a cancel reaches it at."""
        self.woken_at: float | None = None
        """The wake time, in Unix seconds, that has come for a run without a body."""
        self._naps: set[trio.CancelScope] | None = None  # made when first needed
        self._pending: dict[Reply[Any], None] = {}
        self._shields: dict[trio.CancelScope, None] = {}  # what holds up a cancel until the engine answers
        self._closed: str | None = None  # why nothing is taken from this body any more

    @property
    def checkpoint(self) -> Any:
        """What was saved last: by this run, or, for a run of kind `continue`, by the last one that saved."""
        return self._checkpoint

    @property
    def cancel_requested(self) -> bool:
        """Whether the body should come to an end by itself."""
        self._saw_cancel_request = self._cancel_requested
        return self._cancel_requested

    async def progress(self, done: float | None = None, total: float | None = None, **stats: Any) -> None:
        """Say how far the body has come. Doesn't wait for the commit; only the latest counts."""
        await self.check_open()
        for name, number in (("done", done), ("total", total)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int | float)):
                raise Invalid(f"progress.{name} must be a number or None, not {number!r}", value=repr(number))
        value = self._value({"done": done, "total": total, **stats}, "progress")
        if self._progress is None:
            self._progress = ProgressReport(self.id, self.handle, self.lane, self.attempt)
        report = self._progress
        waits = report.latest is not None
        report.latest = (value.pop("done"), value.pop("total"), value)
        if not waits:
            self._journal.tell(report)

    async def log(self, text: str, level: str = "info") -> None:
        """Say something to people. Returns when it is committed."""
        await self.check_open()
        event = RunLog(
            by="body",
            attempt=self.attempt,
            text=self._value(str(text), "log"),
            level=check_name("level", level),
            **self._submission.about(),
        )
        await self._commit(Change((event,)))

    async def save_checkpoint(self, value: Any) -> None:
        """Keep a value to go on from. Returns when it is committed.

        A body that goes on from it makes none of the interrupts and calls again that were made before it.
        """
        await self.check_open()
        kept = self._value(value, "checkpoint")
        counts = (self._interrupts.save(), self._calls.save())
        reply: Reply[Outcome] = Reply()
        self._actor.tell(Save(kept, *counts, self.attempt, reply))
        await self._committed(reply)
        self._checkpoint = copied(kept)

    async def messages(self) -> list[Any]:
        """All messages that wait, oldest first; perhaps none."""
        await self.check_open()
        taken, self._inbox = list(self._inbox), ()
        if taken:
            self._actor.tell(Taken(len(taken)))
        return taken

    async def next_message(self, release_slot: bool = False) -> Any:
        """The oldest message that waits, or the next one to come: until then without a slot, if it is to be
        released."""
        await self.check_open()
        while not self._inbox:
            if release_slot:
                async with self._released("message", None):
                    await self._news_of_messages()
                await self._look_up()
            else:
                await self._news_of_messages()
        message, *self._inbox = self._inbox
        self._actor.tell(Taken(1))
        return message

    async def _news_of_messages(self) -> None:
        """Wait until there is a message."""
        if self._news is None:
            self._news = trio.lowlevel.ParkingLot()
        while not self._inbox:
            await self._news.park()
            self._check()

    @asynccontextmanager
    async def streaming(self) -> AsyncIterator[None]:
        """A phase in which a job that accepts messages while streaming accepts them."""
        async with self.phase("streaming"):
            yield

    @asynccontextmanager
    async def compacting(self, timeout: float = 120) -> AsyncIterator[None]:
        """A phase in which no messages are accepted. Raises `trio.TooSlowError` when it takes too long."""
        with trio.fail_after(check_seconds("timeout", timeout, 120)):
            async with self.phase("compacting"):
                yield

    @asynccontextmanager
    async def phase(self, name: Literal["streaming", "compacting"]) -> AsyncIterator[None]:
        """A phase that others can see, without a time limit."""
        await self.check_open()
        self._phases[name] += 1
        try:
            if self._phases[name] == 1:
                await self._ask_actor(Flag(name, True, Reply()))
            yield
        finally:
            self._phases[name] -= 1
            if not self._phases[name] and self._closed is None:
                await self._ask_actor(Flag(name, False, Reply()))

    async def end_interactive(self) -> None:
        """From here on the body is in post-processing: it takes no messages and can't be cancelled."""
        await self.check_open()
        await self._ask_actor(Flag("interactive", False, Reply()))

    async def interrupt(
        self,
        data: Any,
        timeout: float | None = 300,
        key: str | None = None,
        release_slot: bool = False,
    ) -> Any:
        """Ask people a question and wait for the answer; `None` when none came in time.

        Whatever denies is false: besides `None`, an answer whose `approved` is not `True`, as a cancel and
        the engine's end give it.
        A body that asks the same under a key that was answered since the last checkpoint (default: the
        position of the question) gets that answer at once.
        """
        await self.check_open()
        position = self._interrupts.begin()
        over = True
        try:
            key = str(position) if key is None else check_name("key", key)
            seconds = check_seconds("timeout", timeout, 300)
            ask = Ask(self._value(data, "interrupt"), seconds, key, release_slot, Reply(), Reply())
            return await self._answer_to(ask)
        except trio.Cancelled:
            over = not self._goes_on_later  # else the next body asks it again
            raise
        finally:
            if over:
                self._interrupts.end(position)

    async def confirm(
        self,
        data: Any,
        timeout: float | None = 300,
        key: str | None = None,
        release_slot: bool = False,
    ) -> bool:
        """Ask people for a yes or no: whether the answer is `True` or has `"approved": True`.

        Everything else is a no: another answer, none in time, a cancel, the engine's end.
        """
        return approves(await self.interrupt(data, timeout, key, release_slot))

    async def _answer_to(self, ask: Ask) -> Any:
        released = await self._ask_actor(ask)
        try:
            return with_truth(copied(await self._wait(ask.answer)))
        except trio.Cancelled:
            self._actor.tell(Unask(ask.key))
            raise
        finally:
            if released:
                await self._resume()

    async def sleep(self, seconds: float, release_slot: bool = True) -> None:
        """Sleep; without a slot unless it is to be kept."""
        await self.check_open()
        if seconds is None:
            raise Invalid("seconds must be a number: give math.inf to sleep until cancelled", value="None")
        wakes_at = trio.current_time() + check_seconds("seconds", seconds, 0)
        if not release_slot:
            await self._nap(wakes_at)
            return
        wall = None if wakes_at == math.inf else self._services.wall_clock() + seconds
        async with self._released("time", wall):
            await self._nap(wakes_at)
        await self._look_up()

    async def call(
        self,
        job: str,
        *,
        handle: str,
        params: Any = None,
        kind: str = "start",
        lane: str | None = None,
        on_conflict: OnConflict = "queue",
        **limits: Any,
    ) -> Any:
        """Have another run done and return its result; it raises what `Ticket.result` does.

        The child is cancelled with this run. It waits for its handle by default; a handle that is held by
        this run, or by one that waits for this run, is a conflict.
        """
        await self.check_open()
        terms = {
            "handle": handle,
            "params": params,
            "kind": kind,
            "lane": lane,
            "on_conflict": on_conflict,
            "by": f"run:{self.id}",
            "parent": self.id,
            "ancestors": (*self._submission.terms.ancestors, self.handle),
        }
        position = self._calls.begin()
        over = True
        try:
            return await self._result_of_child(position, job, on_conflict, limits | terms)
        except trio.Cancelled:
            over = not self._goes_on_later  # else the next body calls it again
            raise
        finally:
            if over:
                self._calls.end(position)

    async def _result_of_child(self, position: int, job: str, on_conflict: str, terms: dict[str, Any]) -> Any:
        # Made for each call: kept, it would be a cycle, and the run would wait for the garbage collector.
        calls = Children(self.id, self.attempt, self._services.door, self._journal, self._shielded)
        accepted, ended = await calls.call(position, job, terms)
        if not accepted.joined or on_conflict != "join":
            self.children[accepted.run] = None
        try:
            async with self._released("child", None):
                await self._wait(ended)
                child = await calls.record(accepted, ended)
        except BaseException:
            if accepted.run in self.children and not self._goes_on_later:
                self._services.door.tell(cancel_child(accepted.run))
            raise
        finally:
            self.children.pop(accepted.run, None)
        await self._look_up()
        return raise_unless_succeeded(child)

    @asynccontextmanager
    async def open_file(self, path: str, *, overwrite: bool = False) -> AsyncIterator[RunFile]:
        """Write a file of the handle: `await f.write(data)`. It is there, whole, if the block ends well."""
        await self.check_open()
        with trio.CancelScope(shield=True):  # or a file might be created that nobody knows of
            part = await self._services.files.create(self.handle, path, self.id, overwrite=overwrite)
        self._parts[part] = False
        try:
            yield RunFile(self, part)
            await self.check_open()
            self._parts[part] = part.path not in self.finished_files
            await self._commit(Change((), memos=(FileFinished(self.id, part.path),)))
            with trio.CancelScope(shield=True):
                await part.finish()
            self.finished_files.append(part.path)
        except BaseException:
            if self._parts[part]:
                await self._give_up([part])
            await self._discard(part)
            raise
        finally:
            del self._parts[part]

    # For the walk of a flow.

    @property
    def goes_on_later(self) -> bool:
        """Whether the body is being stopped because the engine is left, and not because its run ends."""
        return self._goes_on_later

    @property
    def answers(self) -> Mapping[str, Any]:
        """The answers that were given so far, by the keys of the questions."""
        return {key: kept.answer for key, kept in self._kept.items()}

    @property
    def wall_clock(self) -> Callable[[], float]:
        """Unix seconds, by the engine's clock."""
        return self._services.wall_clock

    @property
    def max_value_bytes(self) -> int:
        """How large a value may be."""
        return self._services.door.max_value_bytes

    def about(self) -> dict[str, Any]:
        """What every event of the run begins with."""
        return self._submission.about()

    def take_first_state(self) -> FlowState | None:
        """The state of a walk that has not begun yet; later, it is only in the store."""
        memos, self._submission.memos = self._submission.memos, ()
        return next((memo for memo in memos if isinstance(memo, FlowState)), None)

    @property
    def untaken(self) -> int:
        """How many messages or signals wait to be taken."""
        return len(self._inbox)

    def take_signals(self) -> Sequence[Signal]:
        """The signals that have come since the last time, which whoever takes them has to commit as taken."""
        taken, self._inbox = self._inbox, ()
        return taken

    def withdraw(self, key: str) -> None:
        """The question under this key need not be answered any more."""
        self._actor.tell(Unask(key))

    def mention(self, *events: Event) -> None:
        """Have events committed that nobody waits for, soon."""
        change = Change(events, run=self.id, expect=REPORTING, attempt=self.attempt)
        self._journal.tell(Mention(change))

    async def commit(self, events: tuple[Event, ...], memos: tuple[Memo, ...]) -> None:
        """Returns when it is committed."""
        await self._commit(Change(events, memos=memos))

    # For the run's actor.

    def request_cancel(self) -> None:
        """The body should end."""
        self._cancel_requested = True

    def as_result(self, value: Any) -> Any:
        """What the body returned, as it goes into the run's record."""
        return self._value(value, "result")

    def deliver(self, message: Any) -> None:
        """A message or a signal was accepted and committed."""
        self._inbox = (*self._inbox, message)
        if self._news is not None:
            self._news.unpark()

    def close(self, why: str) -> Sequence[Any]:
        """Take nothing from this body any more; returns the messages that it hasn't taken."""
        self._closed = why
        if self._news is not None:
            self._news.unpark_all()
        for reply in self._pending:
            reply.fail(self._abandoned())
        return self._inbox

    def lapse(self, why: str) -> None:
        """Take nothing more from this body, and let it wait for nothing more."""
        self.close(why)
        for shield in self._shields:
            shield.cancel()

    def go_on_later(self) -> None:
        """The body is being stopped, but its run and its children go on at the engine's next start."""
        self._goes_on_later = True

    @property
    def obeyed_cancel(self) -> bool:
        """Whether the body has seen that it should end."""
        return self._saw_cancel_request

    async def _discard(self, part: PartFile) -> None:
        try:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLEANUP):
                await part.discard()
        except OSError:  # what made the body give the file up matters more
            logger.exception("run %s left %s unfinished, and it could not be deleted", self.id, part.path)

    async def _give_up(self, parts: Sequence[PartFile]) -> None:
        """Commit that these files didn't get their names, before the parts are gone: they show it."""
        reply: Reply[Outcome] = Reply()
        memos = tuple(FileGivenUp(self.id, part.path) for part in parts)
        self._journal.tell(Change((), run=self.id, memos=memos, reply=reply))
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLEANUP):
            await reply.get()

    async def discard_parts(self) -> None:
        """Delete what is unfinished: the body can't be relied on to do it."""
        recorded = [part for part, recorded in self._parts.items() if recorded]
        if recorded:
            await self._give_up(recorded)
        for part in list(self._parts):
            await part.discard()

    # Ways to the actors.

    def _check(self) -> None:
        if self._closed is not None:
            raise self._abandoned()

    def _abandoned(self) -> RunAbandoned:
        return RunAbandoned(f"run {self.id}, attempt {self.attempt}: {self._closed}")

    async def check_open(self) -> None:
        """Every call comes here first: a checkpoint, and a refusal if nothing is taken any more."""
        self._check()
        await trio.lowlevel.checkpoint()
        self._check()

    @contextmanager
    def _shielded(self) -> Iterator[None]:
        """Not cancelled, unless the engine itself must let go of the body."""
        with trio.CancelScope(shield=True) as shield:
            self._shields[shield] = None
            try:
                yield
            finally:
                del self._shields[shield]
        if shield.cancelled_caught:
            raise self._abandoned()

    def _value(self, value: Any, where: str) -> Any:
        return json_value(value, where, self._services.door.max_value_bytes)

    async def _commit(self, change: Change) -> None:
        change.run, change.expect, change.attempt = self.id, REPORTING, self.attempt
        change.reply = Reply()
        self._journal.tell(change)
        await self._committed(change.reply)

    async def _committed(self, reply: Reply[Outcome]) -> None:
        outcome = await self._wait(reply)
        if not outcome.held:
            raise RunAbandoned(f"run {self.id}, attempt {self.attempt}: the run goes on without this body")

    async def _ask_actor(self, message: Suspend | Resume | Ask | Flag) -> Any:
        """Shielded, so that the body always knows what the actor did; the actor answers after one commit, or
        when it abandons the body."""
        with trio.CancelScope(shield=True):
            self._actor.tell(message)
            return await self._wait(message.reply)

    async def _wait(self, reply: Reply[Any]) -> Any:
        """Wait for a reply, or until nothing is taken from this body any more."""
        self._check()
        self._pending[reply] = None
        try:
            return await reply.get()
        finally:
            self._pending.pop(reply, None)

    async def _resume(self) -> None:
        """Whatever ended the wait, the body may go on only with a slot. The actor answers at once when the
        run is being ended."""
        if self._closed is None:
            await self._ask_actor(Resume(Reply()))

    async def _nap(self, until: float) -> None:
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

    async def _look_up(self) -> None:
        """The wait for the slot was shielded: what came meanwhile ends the body here."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check()

    @asynccontextmanager
    async def _released(
        self, waiting_for: Literal["time", "child", "message"], wakes_at: float | None
    ) -> AsyncIterator[None]:
        await self._ask_actor(Suspend(waiting_for, wakes_at, Reply()))
        try:
            yield
        finally:
            await self._resume()
