"""`RemoteExecution`: a body in an executor, as its run's machine and the link see it.

What the machine decides is sent to the executor. What the body reports and requests is checked and passed to
its `LocalHost`, as for a body in the engine's process. It keeps what the executor has to receive again when
the engine or the connection was restarted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import trio

from ...protocol import executors as wire
from ...protocol.errors import GreenroomError
from ..run.body_messages import Lost, NeverBegan, Raised, Returned, Stopped, Unfit
from ..run.execution import Execution
from ..run.failures import Failure, RemoteError
from ..run.local_host import LocalHost
from ..run.retries import Decision
from ..scheduling.stored_bodies import is_child
from .calls import Calls, Send, abandoned
from .checks import checked_delay, checked_report, checked_result


class RemoteExecution(Execution):
    """See the module's docstring."""

    def __init__(self, order: wire.Execute, host: LocalHost, executor: str, inbox: Sequence[Any]) -> None:
        self.id = order.run
        self.attempt = order.attempt
        self.fence = order.fence
        self.order = order
        self.host = host
        self.executor = executor
        self.continues = not is_child(executor)
        self.number = 0
        """The number of the order in the session, or 0 if it was received in an earlier session."""
        self._ended = False
        self._closed: str | None = None
        """Why the body no longer belongs to its run."""
        self._inbox: Sequence[Any] = tuple(inbox)
        self._cancelled = False
        self._stopped = False
        self._calls = Calls(order, host, executor)

    @property
    def is_closed(self) -> bool:
        """Whether the body no longer belongs to its run."""
        return self._closed is not None

    # For the run's machine.

    @property
    def untaken(self) -> int:
        return len(self._inbox)

    def deliver(self, message: Any) -> None:
        self._inbox = (*self._inbox, message)
        self.send(wire.Message(self.id, self.order.fence, message.seq, message.value))

    def request_cancel(self, *, resumes_later: bool) -> None:
        self._cancelled = True
        self._calls.resumes_later = self._calls.resumes_later or resumes_later
        self._send_cancel()

    def stop(self) -> None:
        self._stopped = True
        self._send_cancel()

    def close(self, why: str) -> Sequence[Any]:
        self._closed = why
        if not self._ended:
            self._calls.forget_all()
            self.send(wire.CloseBody(self.id, self.order.fence, why))
        return self._inbox

    def advance(self, seconds: float) -> None:
        pass  # the executor's own computer was not suspended, or the executor has noticed it itself

    async def discard_parts(self) -> None:
        await trio.lowlevel.checkpoint()  # the executor deletes them when the body is closed

    def settle(self) -> None:
        self.send(wire.Settled(self.id, self.order.fence))

    # For the link.

    def send(self, message: wire.ToExecutor) -> None:
        """Send the executor a message."""
        if self._calls.peer is not None:
            self._calls.peer.send(message)

    def begin(self, peer: Send) -> None:
        """Start the body at its executor."""
        self._calls.peer = peer
        self.host.folder = peer.folder_of_files or ""
        self.number = peer.send(self.order)
        self._repeat_state(0)

    def adopt(self, peer: Send, received: int) -> None:
        """The executor has attached with this body, in a new session."""
        self._calls.peer = peer
        self.number = 0
        self.host.folder = peer.folder_of_files or ""
        self._calls.repeat()
        self.host.adopted()
        self._repeat_state(received)

    def lose(self, why: str, *, died: bool = False, forgotten: bool = False) -> None:
        """The executor is lost, and the body with it; or it has forgotten the body."""
        self._calls.peer = None
        self._calls.resumes_later = True
        self._calls.forget_all()
        self.host.ended(Lost(why, died, forgotten))

    def withdraw(self) -> None:
        """The executor has not received the order and never will, so there is no body."""
        self._calls.peer = None
        self.host.ended(NeverBegan())

    def receive(self, message: wire.FromExecutor) -> None:
        """Handle a message about this body. Raises `GreenroomError` if it breaks the protocol."""
        match message:
            case wire.Ended():
                self._ended = True
                self._calls.forget_all()
                outcome = self._outcome(message)
                if isinstance(outcome, Returned | Raised | Stopped) and not self._calls.resumes_later:
                    self._drop_children()
                self.host.ended(outcome)
            case wire.Call() if self._closed is not None:
                self.send(abandoned(self.id, self.order.fence, message.call))
            case wire.Call():
                self._calls.begin(message)
            case wire.Told() if self._closed is not None:
                pass  # the body no longer belongs to its run
            case wire.Told():
                self.host.tell(checked_report(message.report, self.host.max_value_bytes))
                self._reported(message.report)
            case wire.CancelCall():
                self._calls.cancel(message.call)

    def _reported(self, report: wire.Report) -> None:
        match report:
            case wire.TookMessages(seq=seq):
                self._inbox = tuple(left for left in self._inbox if left.seq > seq)
            case wire.WithdrawInterrupt(key=key):
                self._calls.forget(("interrupt", key))
            case wire.DropChild(run=run):
                self._calls.forget(("child", run))

    def _repeat_state(self, received: int) -> None:
        for message in self._inbox:
            if message.seq > received:
                self.send(wire.Message(self.id, self.order.fence, message.seq, message.value))
        if self._cancelled:
            self._send_cancel()
        if self._closed is not None:
            self.send(wire.CloseBody(self.id, self.order.fence, self._closed))

    def _send_cancel(self) -> None:
        self.send(wire.CancelBody(self.id, self.order.fence, self._stopped, self._calls.resumes_later))

    def _drop_children(self) -> None:
        """Cancel the children whose ids the body has received only after it no longer waited for them."""
        for child in list(self.host.children):
            self.host.tell(wire.DropChild(child))

    # The end.

    def _outcome(self, ended: wire.Ended) -> Returned | Raised | Stopped | Lost | Unfit:
        match ended.outcome:
            case "returned":
                try:
                    return Returned(checked_result(ended.value, self.host.max_value_bytes), ended.obeyed)
                except GreenroomError as invalid:
                    return Raised(Failure(f"{type(invalid).__name__}: {invalid.message}"))
            case "raised":
                error = RemoteError.of(ended)
                decision = Decision(ended.retries, checked_delay(ended.retry_after), error.text)
                return Raised(error, decision)
            case "stopped" if self._stopped:
                return Stopped()
            case "stopped":  # by the engine's last life, or for no reason
                return Lost("its executor stopped the body")
            case "lapsed":
                return Lost("its executor could not reach the engine in time")
            case "refused":
                return Unfit(ended.error or "the executor refused it")
