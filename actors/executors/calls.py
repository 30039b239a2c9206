"""`Calls`: the calls of a body in an executor that have no answer yet, and the replies that answer them.

The body's `LocalHost` handles each request, as for a body in the engine's process. Only calls about child
runs need a task that waits. The executor can cancel them, and forgets those for whose answers the body no
longer waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, Protocol

import trio
from msgspec import to_builtins

from ...protocol import executors as wire
from ...protocol.errors import GreenroomError, Invalid, RunAbandoned
from ...protocol.values import shown
from ..channel import Reply
from ..journal.change import Outcome
from ..run.local_host import LocalHost
from .checks import checked_request, submit_options

MAX_CALLS = 1000
"""The maximum number of calls of one body that are not answered."""

ABANDONED = "abandoned"
"""The code of the answer to a body that no longer belongs to its run."""

Subject = tuple[Literal["interrupt", "child"], str]
"""What a call waits for: an interrupt, by its key, or the end of a child run."""


class Send(Protocol):
    """Sends messages to one executor, now or when it attaches again."""

    def send(self, message: wire.ToExecutor) -> int:
        """Send a message; returns its number in the session. Never waits."""

    def spawn(self, call: Callable[[], Awaitable[object]]) -> None:
        """Start a helper task of the engine."""

    @property
    def folder_of_files(self) -> str | None:
        """The id of its data folder; empty for the engine's own, `None` if it has no folder."""


class Calls:
    """See the module's docstring. `executor` is the id of the body's executor."""

    def __init__(self, order: wire.Execute, host: LocalHost, executor: str) -> None:
        self.peer: Send | None = None
        """The body's executor; `None` after a restart, until it attaches, and when it is lost."""
        self.resumes_later = False
        """Whether the run continues with another body, which needs the child runs of this one."""
        self._order = order
        self._host = host
        self._executor = executor
        self._open: dict[int, _CallReply] = {}
        self._waiting: dict[int, trio.CancelScope] = {}
        """Of the tasks that submit or await child runs, by call."""
        self._called: dict[int, str] = {}
        """The own child runs that the body has called and does not await yet, by call."""
        self._long_waits: dict[str, _LongWaits] = {}  # by the ids of child runs

    def begin(self, message: wire.Call) -> None:
        """Handle a call. Raises `Invalid` if the body has too many."""
        peer = self.peer
        assert peer is not None, "a connected body makes calls"
        if message.call in self._open:
            return  # repeated; its answer follows
        if len(self._open) >= MAX_CALLS:
            raise Invalid(f"body of run {self._order.run} has more than {MAX_CALLS} calls without an answer")
        reply = self._open[message.call] = _CallReply(self, message.call)
        try:
            request = checked_request(message.request, self._host.max_value_bytes)
        except GreenroomError as error:
            reply.fail(error)
            return
        match request:
            case wire.FinishFile() if peer.folder_of_files is None:
                reply.fail(_has_no_folder(self._executor))
            case wire.OpenInterrupt():
                reply.subject = ("interrupt", request.key)
                self._host.handle_interrupt(request, _CallReply(self, message.call, more=True), reply)
            case wire.CallChild():
                scope = self._waiting[message.call] = trio.CancelScope()
                peer.spawn(partial(self._call_child, request, message.call, reply, scope))
            case wire.AwaitChild():
                reply.subject = ("child", request.run)
                self._called = {call: run for call, run in self._called.items() if run != request.run}
                scope = self._waiting[message.call] = trio.CancelScope()
                peer.spawn(partial(self._await_child, request.run, message.call, reply, scope))
            case _:
                self._host.handle(request, reply)

    def cancel(self, call: int) -> None:
        """The body no longer waits for a call that submits a child run."""
        if call in self._waiting:
            self._waiting[call].cancel()
        elif call in self._called:  # its answer was sent before this message was received
            self._host.tell(wire.DropChild(self._called.pop(call)))

    def forget(self, subject: Subject) -> None:
        """The body no longer waits for this: the executor has forgotten its calls about it."""
        for number, call in list(self._open.items()):
            if call.subject == subject:
                call.done = True
                del self._open[number]
                if number in self._waiting:
                    self._waiting[number].cancel()

    def forget_all(self) -> None:
        """The body is gone: nothing is answered."""
        for call in self._open.values():
            call.done = True
        self._open.clear()
        for scope in self._waiting.values():
            scope.cancel()

    def repeat(self) -> None:
        """A new session begins: the executor repeats the calls that have no answer."""
        for number, call in self._open.items():
            if call.subject is not None and call.subject[0] == "child":
                call.done = True
                if number in self._waiting:
                    self._waiting[number].cancel()
        self._open.clear()

    def answer(self, call: int, *, last: bool, **fields: Any) -> None:
        """Send an answer; after the `last` one of a call, the executor forgets the call."""
        if last:
            self._open.pop(call, None)
        if self.peer is not None:
            run, fence = self._order.run, self._order.fence
            self.peer.send(wire.Answered(run=run, fence=fence, call=call, more=not last, **fields))

    async def _call_child(
        self, request: wire.CallChild, call: int, reply: _CallReply, scope: trio.CancelScope
    ) -> None:
        long_waits = _LongWaits() if request.on_wait else None
        with scope:
            try:
                options = submit_options(request, long_waits)
                child = await self._host.call_child(request.position, options, _shielded)
            except GreenroomError as error:
                reply.fail(error)
            else:
                if long_waits is not None:
                    self._long_waits[child.run] = long_waits
                if scope.cancel_called and child.own and not self.resumes_later:
                    self._host.tell(wire.DropChild(child.run))
                elif child.own:
                    self._called[call] = child.run
                reply.set(child.run)
            finally:
                self._waited(call, scope)
        if scope.cancelled_caught:
            reply.fail(RunAbandoned("the body no longer waits for this call"))

    async def _await_child(self, run: str, call: int, reply: _CallReply, scope: trio.CancelScope) -> None:
        long_waits = self._long_waits.pop(run, None)
        if long_waits is not None:
            long_waits.answer_to(reply)
        with scope:
            try:
                reply.set(await self._host.record_of(run, self._host.await_child(run)))
            finally:
                self._waited(call, scope)

    def _waited(self, call: int, scope: trio.CancelScope) -> None:
        if self._waiting.get(call) is scope:
            del self._waiting[call]


class _LongWaits:
    """The `on_wait` of a child run, which is called at most once. It answers the body's `await_child`."""

    def __init__(self) -> None:
        self._reply: _CallReply | None = None
        self._waited: wire.LongWait | None = None

    def __call__(self, waited: float, ahead: int, blockers: list[str]) -> None:
        self._waited = wire.LongWait(waited, ahead, blockers)
        if self._reply is not None:
            self._reply.more(self._waited)

    def answer_to(self, reply: _CallReply) -> None:
        """The body now waits for the child, and for this reply."""
        self._reply = reply
        if self._waited is not None:
            reply.more(self._waited)


@contextmanager
def _shielded() -> Iterator[None]:
    with trio.CancelScope(shield=True):
        yield


class _CallReply(Reply[Any]):
    """A reply that is sent to the executor. `more`: another one follows."""

    __slots__ = ("_call", "_calls", "_more", "subject")

    def __init__(self, calls: Calls, call: int, *, more: bool = False) -> None:
        super().__init__()
        self._calls = calls
        self._call = call
        self._more = more
        self.subject: Subject | None = None

    def set(self, value: Any) -> None:
        if self.done:
            return
        if isinstance(value, Outcome):
            if not value.held:
                self.fail(RunAbandoned("the run continues without this body"))
                return
            value = None
        self.done = True
        self._calls.answer(self._call, last=not self._more, value=to_builtins(value))

    def more(self, value: object) -> None:
        """Send an answer that another one follows."""
        if not self.done:
            self._calls.answer(self._call, last=False, value=to_builtins(value))

    def fail(self, error: Exception) -> None:
        if self.done:
            return
        self.done = True
        error_fields: dict[str, Any] = {"code": ABANDONED, "message": str(error)}
        if isinstance(error, GreenroomError):
            details = to_builtins(dict(error.details))
            error_fields = {"code": error.code, "message": error.message, "details": details}
        self._calls.answer(self._call, last=True, **error_fields)


def _has_no_folder(executor: str) -> Invalid:
    return Invalid(f"executor {shown(executor)} has no data folder: attach with the id of one as `folder`")


def abandoned(run: str, fence: int, call: int) -> wire.Answered:
    """The answer to a call of a body that no longer belongs to its run."""
    why = "the run continues without this body"
    return wire.Answered(run=run, fence=fence, call=call, code=ABANDONED, message=why)
