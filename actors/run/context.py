"""`Body`: the body's side of a run, behind the `Run` of its job (`api.py`).

It executes in the engine's process or in an executor. It passes its reports and requests to its `Host`, and
never touches the state of an actor. Calls of an abandoned body raise `RunAbandoned`, here or by the journal's
compare-and-set.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal

import trio

from ...persistence.files import PartFile
from ...protocol.errors import Invalid, RunAbandoned
from ...protocol.executors import Execute, GiveUpFiles, ReleaseSlot, Request, SetPhase, TakeSlot
from ...protocol.parameters import plain_result
from ...protocol.values import copied, json_value
from ..channel import Reply
from .host import Host
from .local_host import check_held
from .pause import Signal
from .positions import Positions
from .services import Surroundings

logger = logging.getLogger("greenroom")

_CLEANUP = 5.0
"""The timeout of a body's shielded cleanup, in seconds."""


class Body:
    """See the module's docstring."""

    __slots__ = (
        "_naps",
        "_news",
        "_pending",
        "_phases",
        "_shields",
        "calls",
        "cancel_requested",
        "checkpoint",
        "closed",
        "finished_files",
        "host",
        "inbox",
        "interrupts",
        "last_taken",
        "order",
        "parts",
        "resumes_later",
        "saw_cancel_request",
        "surroundings",
    )

    def __init__(
        self, order: Execute, host: Host, surroundings: Surroundings, inbox: Sequence[Any] = ()
    ) -> None:
        self.order = order
        self.host = host
        self.surroundings = surroundings
        self.checkpoint = None if order.checkpoint is None else copied(order.checkpoint)
        self.finished_files: Sequence[str] = ()
        self.inbox = inbox  # messages not taken yet; the message gate limits their number
        self.last_taken: int | None = None
        """The seq of the last message that was taken since the last checkpoint."""
        self._news: trio.lowlevel.ParkingLot | None = None  # created on first use: few bodies get messages
        self.parts: dict[PartFile, bool] = {}  # whether the file was recorded as finished, and was not before
        self.interrupts = Positions(order.interrupts)
        self.calls = Positions(order.calls)
        self._phases: dict[str, int] | None = None  # the number of the body's tasks in each phase
        self.cancel_requested = False
        self.saw_cancel_request = False
        self.resumes_later = False
        self._naps: set[trio.CancelScope] | None = None  # created on first use
        self._pending: dict[Reply[Any], None] = {}
        self._shields: dict[trio.CancelScope, None] | None = None  # scopes that delay a cancel until a reply
        self.closed: str | None = None  # why all calls of this body are refused, if they are

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.order.run

    @property
    def attempt(self) -> int:
        """The attempt that this body executes."""
        return self.order.attempt

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
        if self._phases is None:
            self._phases = {}
        phases = self._phases
        phases[name] = phases.get(name, 0) + 1
        try:
            if phases[name] == 1:
                await self.ask_shielded(SetPhase(name, True))
            yield
        finally:
            phases[name] -= 1
            if not phases[name] and self.closed is None:
                await self.ask_shielded(SetPhase(name, False))

    @property
    def untaken(self) -> int:
        """The number of messages or signals that the body has not taken."""
        return len(self.inbox)

    def take_signals(self) -> Sequence[Signal]:
        """Take the signals received since the last call. The caller must commit that they are taken."""
        taken, self.inbox = self.inbox, ()
        return taken

    # For the execution around it.

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
        for shield in self._shields or ():
            shield.cancel()

    def resume_later(self) -> None:
        """The body is being stopped, but its run and its children continue with another body."""
        self.resumes_later = True

    async def discard(self, part: PartFile) -> None:
        try:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLEANUP):
                await part.discard()
        except OSError:  # do not hide the exception that ended the block
            logger.exception("run %s: unfinished file %s could not be deleted", self.id, part.path)

    async def give_up(self, parts: Sequence[PartFile]) -> None:
        """Commit that these files were not renamed, before their parts, the only evidence, are deleted."""
        reply = self.host.ask(GiveUpFiles(tuple(part.path for part in parts)))
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLEANUP):
            await reply.get()

    async def discard_parts(self) -> None:
        """Delete the unfinished files of a body that is abandoned."""
        recorded = [part for part, recorded in self.parts.items() if recorded]
        if recorded:
            await self.give_up(recorded)
        for part in list(self.parts):
            await part.discard()

    # Requests to the host.

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
        if self._shields is None:
            self._shields = {}
        shields = self._shields
        with trio.CancelScope(shield=True) as shield:
            shields[shield] = None
            try:
                yield
            finally:
                del shields[shield]
        if shield.cancelled_caught:
            raise self._abandoned()

    def value(self, value: Any, where: str) -> Any:
        return json_value(value, where, self.host.max_value_bytes)

    async def ask(self, request: Request) -> None:
        """Pass a request to the host and wait until it is committed."""
        await self.committed(self.host.ask(request))

    async def committed(self, reply: Reply[Any]) -> None:
        check_held(await self.wait(reply), self.id, self.attempt)

    async def ask_shielded(self, request: Request) -> Any:
        """Pass a request to the host and wait for its reply.

        Shielded, so that the body always knows what the run's actor did. The reply follows after one commit,
        or when the body is abandoned.
        """
        with trio.CancelScope(shield=True):
            return await self.wait(self.host.ask(request))

    async def wait(self, reply: Reply[Any]) -> Any:
        """Wait for a reply; raises `RunAbandoned` if the body is closed first."""
        self.check()
        self._pending[reply] = None
        try:
            return await reply.get()
        finally:
            self._pending.pop(reply, None)

    async def resume(self) -> None:
        """Wait for a slot after a wait without one. The reply is immediate if the run is ending."""
        if self.closed is None:
            await self.ask_shielded(TakeSlot())

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
        self, waiting_for: Literal["time", "child", "message"], within: float | None = None
    ) -> AsyncIterator[None]:
        await self.ask_shielded(ReleaseSlot(waiting_for, within))
        try:
            yield
        finally:
            await self.resume()
