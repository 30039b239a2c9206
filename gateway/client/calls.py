"""What a client has asked and not yet been answered.

A call outlives the connection it was sent on where it may be sent again: if it only reads, means the same
when it is said twice, or is a submit, whose `request_id` makes two of them one. Of any other nobody knows,
when the connection is lost, whether it was carried out, and so its caller is told just that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import TypeVar

import msgspec
import trio

from ...actors.channel import Reply
from ...protocol.commandbase import CommandBase
from ...protocol.commands import Error, Ok, Wait
from ...protocol.errors import GreenroomError, Unavailable
from ...protocol.submission import SubmitCommand
from .errors import OutcomeUnknown, raised

T = TypeVar("T")


class Call(msgspec.Struct, eq=False):
    """One command. `waits_since`: for a connection; `None` while it is with the gateway."""

    command: CommandBase
    repeatable: bool
    reply: Reply[list[Ok]]
    sent: bool = False
    waits_since: float | None = None
    parts: list[Ok] = []

    @property
    def name(self) -> str:
        """The command's name on the wire."""
        return str(self.command.__struct_config__.tag)


def expected(value: T | None) -> T:
    """What the `ok` of a command always has."""
    assert value is not None, "it is what answers this command"
    return value


class Calls:
    """The calls in the order in which they were made."""

    def __init__(self) -> None:
        self._calls: dict[object, Call] = {}
        self._numbers = count(1)

    def __iter__(self) -> Iterator[Call]:
        return iter(list(self._calls.values()))

    def number(self) -> int:
        """An id for a new command."""
        return next(self._numbers)

    def add(self, command: CommandBase, *, repeatable: bool) -> Call:
        """A new call, which waits for a connection at first."""
        call = Call(command, repeatable, Reply(), waits_since=trio.current_time())
        self._calls[command.id] = call
        return call

    def forget(self, call: Call) -> None:
        """Nobody waits for it any more."""
        self._calls.pop(call.command.id, None)

    def answered(self, ok: Ok) -> None:
        """Take an answer, or a part of one."""
        call = self._calls.get(ok.id)
        if call is None:
            return  # whoever asked has gone
        call.parts.append(ok)
        if not ok.more:
            del self._calls[ok.id]
            call.reply.set(call.parts)

    def refused(self, error: Error) -> None:
        """Take a refusal."""
        call = self._calls.pop(error.id, None)
        if call is not None:
            call.reply.fail(raised(error))

    def fail(self, call: Call, error: GreenroomError) -> None:
        """Answer a call here, without the gateway."""
        self.forget(call)
        call.reply.fail(error)

    def lost(self) -> None:
        """The connection is lost: give up what may not be sent again."""
        now = trio.current_time()
        for call in self:
            call.parts = []
            if call.waits_since is None:
                call.waits_since = now
            if call.sent and not call.repeatable:
                self.fail(call, _unknown(call, "the connection was lost"))

    def give_up(self, since: float, why: str) -> None:
        """End those that have waited for a connection since then, or for longer."""
        for call in self:
            if (
                call.waits_since is not None
                and call.waits_since <= since
                and not isinstance(call.command, Wait)
            ):
                self.fail(call, _unanswered(call, why))

    def close(self, error: Callable[[], GreenroomError]) -> None:
        """There will be no more connections."""
        for call in self:
            if call.sent and isinstance(call.command, SubmitCommand):
                self.fail(call, _unknown(call, str(error())))
            else:
                self.fail(call, error())


def _unanswered(call: Call, why: str) -> GreenroomError:
    if call.sent and isinstance(call.command, SubmitCommand):
        return _unknown(call, why)
    return Unavailable(f"{why}; {call.name} was not carried out", command=call.name)


def _unknown(call: Call, why: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{why} before {call.name} was answered: whether it was carried out is not known", command=call.name
    )
