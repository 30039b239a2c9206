"""`LinkHost`: the host of a body in an executor. It turns what the body reports and requests into messages.

It keeps what the engine may not have committed yet, in the order in which the body has sent it. When a new
session begins, because the engine has restarted, the body repeats that. The first answer to a request counts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import msgspec
import trio

from ..actors.channel import Reply
from ..actors.effects import Spawn
from ..actors.executors.calls import MAX_CALLS
from ..actors.jobs import Jobs
from ..actors.run.body_messages import Raised, Returned, Stopped
from ..actors.run.failures import Failure
from ..actors.run.host import Shielded
from ..actors.scheduling.wait_warnings import call_on_wait
from ..protocol.errors import RunAbandoned, from_code
from ..protocol.executors import (
    Answered,
    AwaitChild,
    Call,
    CallChild,
    CancelCall,
    DropChild,
    Ended,
    Execute,
    FromExecutor,
    GiveUpFiles,
    LongWait,
    OpenInterrupt,
    Progress,
    Report,
    Request,
    SaveCheckpoint,
    Told,
    TookMessages,
    WithdrawInterrupt,
)
from ..protocol.jobs import AnyJob
from ..protocol.names import check_name, lane_name
from ..protocol.parameters import plain_params
from ..protocol.records import RunRecord
from ..protocol.submission import OnWait, SubmitOptions, to_wire
from ..protocol.values import json_value
from .endings import ending, lapsed, refused

Send = Callable[[FromExecutor], None]


class _Asked(msgspec.Struct):
    """A call that is not answered. `opened` is the first answer to an interrupt, and `on_wait` is called with
    that to a child run that waits for long. `dropped`: the body no longer waits for the child run, whose id
    the engine may already have sent."""

    request: Request
    reply: Reply[Any]
    opened: Reply[bool] | None = None
    on_wait: OnWait | None = None
    dropped: bool = False


class LinkHost:
    """Implements `Host` for one body. `send` sends a message, and `spawn` starts a task."""

    def __init__(self, order: Execute, jobs: Jobs, max_value_bytes: int, send: Send, spawn: Spawn) -> None:
        self.max_value_bytes = max_value_bytes
        self.end: Ended | None = None
        """The body's end, until the engine has stored it."""
        self.lapsed = False
        """Whether the body was ended because the executor could not reach its engine."""
        self.forgotten = False
        """Whether the engine does not know this body: its end is not sent."""
        self.resumes_later = False
        """Whether the run continues with another body, which needs the child runs of this one."""
        self.close_body: Callable[[str], object] = lambda why: None
        """Refuses all further calls of the body."""
        self._order = order
        self._jobs = jobs
        self._send = send
        self._spawn = spawn
        self._closed: str | None = None
        self._number = 0
        self._calls: dict[int, _Asked] = {}
        self._held: dict[int, _Asked] = {}  # calls that are sent when others are answered
        self._kept: dict[Hashable, FromExecutor] = {}

    # For the body.

    def name_of(self, job: str | AnyJob) -> str:
        return self._jobs.name_of(job)

    def tell(self, report: Report) -> None:
        if self._closed is not None:
            return
        message = Told(self._order.run, self._order.fence, report)
        key = _key(report)
        if key is not None:
            self._kept.pop(key, None)
            self._kept[key] = message
        self._send(message)
        if isinstance(report, WithdrawInterrupt | DropChild):
            self._forget_calls(report)  # after the report: this sends held calls, and the engine limits them

    def ask(self, request: Request) -> Reply[Any]:
        reply: Reply[Any] = Reply()
        self._ask(_Asked(request, reply))
        return reply

    def open_interrupt(self, request: OpenInterrupt) -> tuple[Reply[bool], Reply[Any]]:
        opened: Reply[bool] = Reply()
        answer: Reply[Any] = Reply()
        self._kept.pop(("withdraw", request.key), None)
        self._ask(_Asked(request, answer, opened))
        return opened, answer

    async def call_child(self, position: int, options: SubmitOptions, shielded: Shielded) -> LinkChild:
        reply: Reply[str] = Reply()
        asked = _Asked(self._child_request(position, options), reply)
        number = self._ask(asked)
        try:
            run = await reply.get()
        except trio.Cancelled:
            if number in self._calls and not self.resumes_later:
                asked.dropped = True
                message = CancelCall(self._order.run, self._order.fence, number)
                self._kept["cancel", number] = message
                self._send(message)
            elif number in self._held:
                del self._held[number]
            elif reply.done and not self.resumes_later:
                with trio.CancelScope(shield=True):
                    self.tell(DropChild(await reply.get()))
            raise
        ended: Reply[RunRecord | None] = Reply()
        self._ask(_Asked(AwaitChild(run), ended, on_wait=options.on_wait))
        return LinkChild(run, ended)

    def ended(self, outcome: Returned | Raised | Stopped) -> None:
        if not self.forgotten:
            self.end = lapsed(self._order) if self.lapsed else ending(self._order, outcome, self._jobs)
            self._kept["end"] = self.end
            self._send(self.end)
        why = "its body has ended"  # a task or a thread that it has left behind can still make calls
        self.close_body(why)
        self._fail_calls(why)

    def refuse(self, why: str) -> None:
        """End a body that this executor cannot execute, before it begins."""
        self.end = refused(self._order, why)
        self._kept["end"] = self.end
        self._send(self.end)

    # For the link.

    @property
    def repeats(self) -> Sequence[FromExecutor]:
        """What the body sends first in a new session."""
        return list(self._kept.values())

    def answered(self, answer: Answered) -> None:
        """Pass an answer to the body. An answer that was received before is ignored."""
        asked = self._calls.get(answer.call)
        if asked is None:
            return
        if answer.code is None and answer.more:
            self._first_answer(asked, answer.value)
            return
        if isinstance(asked.request, SaveCheckpoint) and answer.code is None:
            self._saved(answer.call)
        self._forget_call(answer.call)
        if answer.code is not None:
            self._fail(asked, self._error(answer))
            return
        if asked.opened is not None:
            asked.opened.set(False)
        if asked.dropped:
            self.tell(DropChild(answer.value))
        try:
            asked.reply.set(_value(asked.request, answer.value))
        except msgspec.ValidationError as error:
            self._fail(asked, Failure(f"the engine sent a malformed answer: {error}"))

    def _first_answer(self, asked: _Asked, value: Any) -> None:
        if asked.opened is not None:
            asked.opened.set(bool(value))
        elif asked.on_wait is not None and isinstance(asked.request, AwaitChild):
            wait = msgspec.convert(value, LongWait)
            run, on_wait = asked.request.run, asked.on_wait
            self._spawn(partial(call_on_wait, on_wait, run, wait.waited, wait.ahead, wait.blockers))

    def close(self, why: str) -> None:
        """The body no longer belongs to its run: all its calls fail."""
        self._kept = {key: message for key, message in self._kept.items() if isinstance(message, Told)}
        self._fail_calls(why)

    # Internals.

    def _child_request(self, position: int, options: SubmitOptions) -> CallChild:
        """The request for a child run. Only what JSON can represent may reach the link."""
        name = options.job
        if not isinstance(name, str):
            self._jobs.get(name)  # raises the error
        if options.handle is not None:
            check_name("handle", options.handle)
        if options.lane is not None:
            check_name("lane", lane_name(options.lane))
        options.check()
        kind = self._jobs.get(name).params_type if name in self._jobs else None
        params = json_value(plain_params(options.params, kind), "params", self.max_value_bytes)
        fields = {field: value for field, value in to_wire(options).items() if value not in (None, ())}
        del fields["handle"]
        return CallChild(position, name, options.handle, params, fields, options.on_wait is not None)

    def _fail_calls(self, why: str) -> None:
        self._closed = why
        calls = [*self._calls.values(), *self._held.values()]
        self._calls.clear()
        self._held.clear()
        for asked in calls:
            self._fail(asked, self._abandoned(why))

    def _ask(self, asked: _Asked) -> int:
        if self._closed is not None:
            if isinstance(asked.request, GiveUpFiles):
                asked.reply.set(None)  # nothing is recorded for this body, so its files can be deleted
            else:
                self._fail(asked, self._abandoned(self._closed))
            return 0
        self._number += 1
        if len(self._calls) < MAX_CALLS:
            self._call(self._number, asked)
        else:
            self._held[self._number] = asked
        return self._number

    def _call(self, number: int, asked: _Asked) -> None:
        message = Call(self._order.run, self._order.fence, number, asked.request)
        self._calls[number] = asked
        self._kept["call", number] = message
        self._send(message)

    def _forget_call(self, number: int) -> None:
        del self._calls[number]
        if self._held:
            held = next(iter(self._held))
            self._call(held, self._held.pop(held))
        self._kept.pop(("call", number), None)
        self._kept.pop(("cancel", number), None)

    def _forget_calls(self, report: WithdrawInterrupt | DropChild) -> None:
        """Forget the calls for whose answers the body no longer waits."""
        for number, asked in list(self._calls.items()):
            match asked.request, report:
                case (OpenInterrupt(key=waits), WithdrawInterrupt(key=ends)) if waits == ends:
                    self._forget_call(number)
                case (AwaitChild(run=waits), DropChild(run=ends)) if waits == ends:
                    self._forget_call(number)

    def _saved(self, call: int) -> None:
        """A checkpoint is stored, and so is what the body has withdrawn and dropped before it."""
        for key in list(self._kept):
            if key == ("call", call):
                return
            if isinstance(key, tuple) and key[0] in ("withdraw", "drop"):
                del self._kept[key]

    def _fail(self, asked: _Asked, error: Exception) -> None:
        if asked.opened is not None:
            asked.opened.fail(error)
        asked.reply.fail(error)

    def _error(self, answer: Answered) -> Exception:
        assert answer.code is not None, "it is an error"
        if answer.code == "abandoned":
            return self._abandoned(answer.message or "the run continues without this body")
        return from_code(answer.code, answer.message or answer.code, answer.details)

    def _abandoned(self, why: str) -> RunAbandoned:
        return RunAbandoned(f"run {self._order.run}, attempt {self._order.attempt}: {why}")


class LinkChild:
    """Implements `Child`. The engine knows whether the child belongs to the run."""

    own = True

    def __init__(self, run: str, ended: Reply[RunRecord | None]) -> None:
        self.run = run
        self.ended = ended

    async def record(self) -> RunRecord | None:
        return await self.ended.get()


def _key(report: Report) -> Hashable | None:
    """The key under which a report is kept: one with the same key replaces it."""
    if isinstance(report, WithdrawInterrupt):
        return "withdraw", report.key
    if isinstance(report, DropChild):
        return "drop", report.run
    if isinstance(report, Progress | TookMessages):
        return type(report)
    return None


def _value(request: Request, value: Any) -> Any:
    """The value of an answer as the body receives it."""
    if isinstance(request, AwaitChild) and value is not None:
        return msgspec.convert(value, RunRecord)
    return value
