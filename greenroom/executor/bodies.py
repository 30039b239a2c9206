"""The bodies of an executor: it begins, notifies and ends them as its engine's messages say.

A body is known to the engine from its `execute` message until its end is stored (`settled`). A body that no
longer belongs to its run is closed: all its calls fail, but it is known until it has ended, because it can
ignore its cancellation.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

import msgspec
import trio

from ..actors.jobs import Jobs
from ..actors.run.context import Body
from ..actors.run.execution import LiveBodies, LocalExecution
from ..actors.run.services import Surroundings
from ..protocol.errors import Invalid
from ..protocol.executors import (
    Answered,
    CancelBody,
    CloseBody,
    Execute,
    FromExecutor,
    LiveBody,
    Message,
    Settled,
)
from .failures import ProcessEnding
from .host import LinkHost

logger = logging.getLogger("greenroom.executor")

Key = tuple[str, int]
"""A body: its run and its fence."""


class _Known(msgspec.Struct):
    """A body that the engine knows. `received` is the seq of the last message for it."""

    order: Execute
    host: LinkHost
    execution: LocalExecution | None = None
    received: int = 0


class Bodies:
    """See the module's docstring. `send` sends a message to the engine, and `interrupt` is called with errors
    that must end the process."""

    def __init__(
        self,
        jobs: Jobs,
        surroundings: Surroundings,
        live: LiveBodies,
        nursery: trio.Nursery,
        send: Callable[[FromExecutor], None],
        interrupt: Callable[[BaseException], None],
    ) -> None:
        self.max_value_bytes = 1 << 20
        self._jobs = jobs
        self._surroundings = surroundings
        self._live = live
        self._nursery = nursery
        self._send = send
        self._interrupt = interrupt
        self._known: dict[Key, _Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[LiveBody]:
        for known in self._known.values():
            order = known.order
            yield LiveBody(order.run, order.attempt, order.fence, known.received)

    # Sessions.

    def adopt(self, adopted: Sequence[LiveBody]) -> Sequence[LocalExecution]:
        """A new session has begun: the engine knows only these bodies. Returns those of the others that
        execute; they are cancelled."""
        closed = []
        keys = {(body.run, body.fence) for body in adopted}
        for key in [key for key in self._known if key not in keys]:
            known = self._known.pop(key)
            known.host.forgotten = True
            self._close(known, "the engine has restarted without this body")
            if known.execution is not None and known.execution in self._live:
                closed.append(known.execution)
        return closed

    def repeats(self) -> Iterator[FromExecutor]:
        """What the bodies send first in a new session."""
        for known in self._known.values():
            yield from known.host.repeats

    # Messages of the engine.

    def execute(self, order: Execute) -> None:
        """Begin a body; refuse it if the job is missing here, or the parameters cannot be converted."""
        if (order.run, order.fence) in self._known:
            return
        host = LinkHost(order, self._jobs, self.max_value_bytes, self._send, self._spawn)
        known = self._known[order.run, order.fence] = _Known(order, host)
        try:
            job = self._jobs.get(order.job)
            body = Body(order, host, self._surroundings)
            execution = LocalExecution(job, body, order.params, partial(self._end_process, order))
            execution.check()
        except Invalid as error:
            host.refuse(error.message)
            return
        known.execution = execution
        self._live.add(execution)
        host.close_body = execution.close
        self._nursery.start_soon(self._begin, order, execution, name=f"body of run {order.run}")

    async def _begin(self, order: Execute, execution: LocalExecution) -> None:
        if order.again:
            try:
                await self._surroundings.files.remove_parts(order.handle, order.run)
            except OSError:
                logger.exception("unfinished files of run %s could not be deleted", order.run)
        await execution(self._live)

    def _end_process(self, order: Execute, error: BaseException) -> None:
        self._interrupt(ProcessEnding(f"body of run {order.run} of job {order.job!r}", error))

    def _spawn(self, call: Callable[[], Awaitable[object]]) -> None:
        self._nursery.start_soon(self._help, call)

    async def _help(self, call: Callable[[], Awaitable[object]]) -> None:
        try:
            await call()
        except trio.Cancelled:
            raise
        except BaseException as error:
            self._interrupt(error)

    def message(self, message: Message) -> None:
        """Pass a message to its body."""
        known = self._find(message)
        if known is not None and message.seq > known.received:
            known.received = message.seq
            if known.execution is not None:
                known.execution.deliver(message)

    def answered(self, answer: Answered) -> None:
        """Pass an answer to its body."""
        known = self._find(answer)
        if known is not None:
            known.host.answered(answer)

    def cancel(self, message: CancelBody) -> None:
        """Request a body to end, or cancel its scope."""
        known = self._find(message)
        if known is None or known.execution is None:
            return
        known.host.resumes_later = known.host.resumes_later or message.resumes_later
        known.execution.request_cancel(resumes_later=message.resumes_later)
        if message.stop:
            known.execution.stop()

    def close(self, message: CloseBody) -> None:
        """Close a body: it no longer belongs to its run."""
        known = self._find(message)
        if known is not None:
            self._close(known, message.why)

    def settled(self, message: Settled) -> None:
        """Forget a body whose end is stored."""
        self._known.pop((message.run, message.fence), None)

    def _find(self, message: Message | Answered | CancelBody | CloseBody) -> _Known | None:
        return self._known.get((message.run, message.fence))

    def _close(self, known: _Known, why: str) -> None:
        execution = known.execution
        if execution is None or execution not in self._live:
            return
        logger.warning("run %s, attempt %d: %s: its body is cancelled", execution.id, execution.attempt, why)
        execution.request_cancel(resumes_later=False)
        execution.close(why)
        known.host.close(why)
        execution.stop()
        self._live.abandoned(execution)
        self._nursery.start_soon(_discard_parts, execution)

    # The lease, and the end.

    def stop(self, why: str) -> None:
        """Fail the calls of all bodies, because the executor ends: no answer will follow."""
        for known in self._known.values():
            if known.execution is not None:
                known.execution.close(why)
            known.host.close(why)

    def lapse(self, why: str) -> None:
        """Cancel all bodies that have begun: the executor cannot reach its engine."""
        hosts = {known.execution: known.host for known in self._known.values()}
        for execution in self._live.begun():
            execution.lapse(why)
            host = hosts.get(execution)
            if host is not None:
                host.lapsed = True
                host.close(why)


async def _discard_parts(execution: LocalExecution) -> None:
    try:
        await execution.discard_parts()
    except OSError:
        logger.exception("unfinished files of run %s could not be deleted", execution.id)
