"""A client's unanswered calls.

A call is sent again after a reconnection if that is safe: if it only reads, is idempotent, or is a submit,
which has a `request_id`. The outcome of any other call is unknown when the connection is lost; its caller
receives `OutcomeUnknown`. `Link` repeats the same calls when the gateway asks for it with `retry_after`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import count
from typing import TypeVar

import msgspec
import trio

from ...actors.channel import Reply
from ...protocol.commandbase import CommandBase, submits_runs
from ...protocol.commands import Error, Ok, SubmitMany, Wait
from ...protocol.errors import GreenroomError, Unavailable
from .errors import OutcomeUnknown, raised

T = TypeVar("T")

_SHORTEST_PAUSE = 0.1


class Call(msgspec.Struct, eq=False):
    """One command. `waits_since`: since when it waits for a connection; `None` after it is sent. `unsure`:
    whether the reply to an earlier attempt was lost."""

    command: CommandBase
    repeatable: bool
    reply: Reply[list[Ok]]
    sent: bool = False
    unsure: bool = False
    waits_since: float | None = None
    parts: list[Ok] = []

    @property
    def name(self) -> str:
        """The command's `type` on the wire."""
        return str(self.command.__struct_config__.tag)

    @property
    def submit_may_have_arrived(self) -> bool:
        """Whether this is a submit that the gateway may have carried out without the client's knowledge."""
        submits = submits_runs(self.command) or isinstance(self.command, SubmitMany)
        return (self.sent or self.unsure) and submits

    def failure(self, error: GreenroomError) -> GreenroomError:
        """The error of this call if the client gives up because of `error`."""
        return _unknown(self, error.message) if self.submit_may_have_arrived else error


def expected(value: T | None) -> T:
    """Return the value of a field that the `ok` of this command always has."""
    assert value is not None, "the field is required in this reply"
    return value


def retry_after(error: Unavailable) -> float | None:
    """After how many seconds the gateway asks the client to repeat the command; `None` if it does not ask. A
    cluster asks for this while it has no leader."""
    seconds = error.details.get("retry_after")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    return max(_SHORTEST_PAUSE, seconds) if 0 <= seconds < math.inf else None


class Calls:
    """The unanswered calls, in order."""

    def __init__(self) -> None:
        self._calls: dict[object, Call] = {}
        self._numbers = count(1)

    def __iter__(self) -> Iterator[Call]:
        return iter(list(self._calls.values()))

    def number(self) -> int:
        """An id for a new command."""
        return next(self._numbers)

    def add(self, command: CommandBase, *, repeatable: bool) -> Call:
        """Add a call, which is not sent yet."""
        call = Call(command, repeatable, Reply(), waits_since=trio.current_time())
        self._calls[command.id] = call
        return call

    def repeat(self, call: Call) -> None:
        """Add a refused call again."""
        call.reply, call.waits_since = Reply(), trio.current_time()
        self._calls[call.command.id] = call

    def forget(self, call: Call) -> None:
        """Remove a call; an answer to it is ignored."""
        self._calls.pop(call.command.id, None)

    def answered(self, ok: Ok) -> None:
        """Handle an answer, or a part of one."""
        call = self._calls.get(ok.id)
        if call is None:
            return  # the caller was cancelled
        call.parts.append(ok)
        if not ok.more:
            del self._calls[ok.id]
            call.reply.set(call.parts)

    def refused(self, error: Error) -> None:
        """Handle an error reply."""
        call = self._calls.pop(error.id, None)
        if call is not None:
            call.sent, call.parts = False, []
            call.reply.fail(raised(error))

    def fail(self, call: Call, error: GreenroomError) -> None:
        """Fail a call without the gateway."""
        self.forget(call)
        call.reply.fail(error)

    def lost(self) -> None:
        """Handle a lost connection: fail each call that cannot be sent again."""
        now = trio.current_time()
        for call in self:
            call.parts = []
            call.unsure = call.unsure or call.sent
            if call.waits_since is None:
                call.waits_since = now
            if call.sent and not call.repeatable:
                self.fail(call, _unknown(call, "the connection was lost"))

    def give_up(self, since: float, why: str) -> None:
        """Fail the calls that have waited for a connection since then, or for longer."""
        for call in self:
            if (
                call.waits_since is not None
                and call.waits_since <= since
                and not isinstance(call.command, Wait)
            ):
                self.fail(call, _unanswered(call, why))

    def close(self, error: Callable[[], GreenroomError]) -> None:
        """Fail all calls, because there will be no other connection."""
        for call in self:
            self.fail(call, call.failure(error()))


def _unanswered(call: Call, why: str) -> GreenroomError:
    if call.submit_may_have_arrived:
        return _unknown(call, why)
    return Unavailable(f"{why}; {call.name} was not carried out", command=call.name)


def _unknown(call: Call, why: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{why} before the reply to {call.name} arrived; it may or may not have been carried out",
        command=call.name,
    )
