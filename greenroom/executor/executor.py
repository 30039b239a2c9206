"""`Executor`: executes bodies for an engine that is at the other end of a connection.

It uses no threads of its own and no wall time, so that it also runs in tests and in the simulation. A process
adds threads for beats (`pulse.py`), signals and an exit code (`process.py`).
"""

from __future__ import annotations

import logging
import random as random_module
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import trio

from ..actors.aio.bodies import AsyncioBodies
from ..actors.engine.watchdog import Watch, real_time
from ..actors.jobs import Jobs
from ..actors.run.execution import LiveBodies, LocalExecution
from ..actors.run.services import Surroundings
from ..persistence.files import Files
from ..persistence.leasethread import Renewing
from ..protocol.errors import GreenroomError
from ..protocol.executors import (
    Answered,
    Attach,
    Attached,
    Beat,
    Beaten,
    CallFunction,
    CancelBody,
    CancelFunction,
    CloseBody,
    DeleteFiles,
    Drain,
    Draining,
    Execute,
    FromExecutor,
    Message,
    Settled,
    ToExecutor,
)
from .announcing import announced
from .bodies import Bodies
from .failures import ProcessEnding
from .link import Connect, Link
from .pulse import TaskPulse, ThreadPulse
from .session import Session
from .tasks import Tasks

logger = logging.getLogger("greenroom.executor")


@attrs.frozen(kw_only=True)
class Identity:
    """What identifies an executor: its id, the id of its process, and what it announces."""

    node: str
    start: str
    slots: int | None = None
    labels: tuple[str, ...] = ()
    folder: str = ""
    """The id of its data folder."""
    version: str = ""


class Executor:
    """See the module's docstring.

    `beats` returns the connection for beats, given the limit for each wait; then threads send the beats, and
    end the process if a body executes past the lease. Otherwise a task sends beats over the executor's
    connection, by the loop's clock or by `clock`, and calls `on_expiry` in that case. Without `reconnects`,
    `connect` ends the process when it is called again.
    """

    def __init__(
        self,
        jobs: Jobs,
        connect: Connect,
        identity: Identity,
        files: Files,
        *,
        random: random_module.Random,
        shutdown_timeout: float = 30.0,
        reconnects: bool = True,
        beats: Callable[[float], Renewing] | None = None,
        clock: Callable[[], float] = trio.current_time,
        on_expiry: Callable[[], None] = lambda: None,
    ) -> None:
        self.exits_soon = False
        """Whether its bodies have only the shutdown timeout to finish."""
        self.draining = False
        """Whether it accepts no new bodies, and ends when it has none."""
        self.failure: BaseException | None = None
        """What `run` raises when all bodies have ended."""
        self.failed = trio.Event()
        """Set when there is a failure."""
        self._jobs = jobs
        self._identity = identity
        self._files = files
        self._shutdown_timeout = shutdown_timeout
        self._ending_now = False
        self._connections = 0
        self._changed = trio.lowlevel.ParkingLot()
        self._session = Session()
        self._watch = Watch()
        self._live = LiveBodies(self._watch.body_ends)
        self._pulse: TaskPulse | ThreadPulse
        if beats is None:
            self._pulse = TaskPulse(self._live, self._lapse, clock, self._beat, self.reconnect, on_expiry)
        else:
            abort = self.reconnect if reconnects else _nothing
            self._pulse = ThreadPulse(self._live, self._lapse, beats, abort)
        self._link = Link(
            connect,
            self._session,
            clock=self._pulse.clock,
            random=random,
            reconnects=reconnects,
            attach=self._attach,
            attached=self._attached,
            handle=self._handle,
            exchanged=self._look,
            beaten=self._beaten,
        )

    async def run(self) -> None:
        """Execute bodies until a drain has ended. Raises the engine's error if it refuses this executor, and
        `ProcessEnding` if a body raised what ends the process."""
        asyncio_bodies = AsyncioBodies(self._end_process)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                surroundings = Surroundings(self._files, asyncio_bodies)
                self._bodies = Bodies(self._jobs, surroundings, self._live, nursery, self._send, self._fail)
                self._tasks = Tasks(self._jobs, self._files, self._live, nursery, self._send, self._fail)
                self._pulse.functions = lambda: [function.run for function in self._tasks.functions]
                self._handlers = self._message_handlers()
                if real_time():
                    self._watch.begin(self._live)
                nursery.start_soon(self._keep_connected)
                nursery.start_soon(self._pulse.run)
                try:
                    while not self._is_drained():
                        await self._changed.park()
                finally:
                    self._bodies.stop("the executor has stopped")
                nursery.cancel_scope.cancel()
        finally:
            self._watch.end()
            await self._pulse.aclose()
            await asyncio_bodies.aclose()
        if self.failure is not None:
            raise self.failure

    def drain(self) -> None:
        """Accept no new bodies, and end when all bodies have ended and the engine has stored that."""
        if not self.draining:
            self.draining = True
            logger.info("draining: %d bodies can finish", len(self._bodies))
            self._send(Draining())
            self._look()

    def exit_soon(self) -> None:
        """Drain. After `shutdown_timeout` the engine ends or suspends the remaining bodies."""
        self.drain()
        if not self.exits_soon:
            self.exits_soon = True
            logger.info("exiting: %d bodies have %g s to finish", len(self._bodies), self._shutdown_timeout)
            self._nursery.start_soon(self._end_bodies_later)

    def reconnect(self) -> None:
        """Close the connection and open another one, for example because another engine is in charge."""
        self._link.abort()

    @property
    def remaining(self) -> Sequence[str]:
        """The runs whose bodies execute."""
        return [execution.id for execution in self._live]

    @property
    def only_abandoned_remain(self) -> bool:
        """Whether the executor drains, and each body that executes is abandoned."""
        return self.draining and self._live.only_abandoned and bool(self.remaining)

    async def until_only_abandoned_remain(self) -> None:
        """Wait until the executor drains and executes bodies, of which each is abandoned."""
        while not self.only_abandoned_remain:
            if self.draining:
                await self._live.only_abandoned_remain()
            else:
                await self._changed.park()

    async def _end_bodies_later(self) -> None:
        await trio.sleep(self._shutdown_timeout)
        self._ending_now = True
        self._send(Draining(now=True))
        if not self._link.connected:
            self._lapse("the executor has drained, and cannot reach its engine")
        self._look()

    def _is_drained(self) -> bool:
        if not self.draining or len(self._tasks) or self.remaining:
            return False
        if self._link.connected:  # before the engine knows of the drain, it can send another body
            return not len(self._bodies) and (self._session.all_acknowledged or self._ending_now)
        return not len(self._bodies) or self._ending_now  # its engine cannot be told how the bodies ended

    def _look(self) -> None:
        """Have `run` check whether the drain has ended."""
        self._changed.unpark_all()

    async def _keep_connected(self) -> None:
        try:
            await self._link.run()
        except GreenroomError as error:  # raised in `run`, not in a group
            self._fail(error)

    def _end_process(self, error: BaseException) -> None:
        self._fail(ProcessEnding("a task in the asyncio loop of bodies", error))

    def _fail(self, error: BaseException) -> None:
        """Cancel everything: `run` raises this error."""
        cause = error.__cause__
        if self.failure is None or (cause is not None and cause is self.failure.__cause__):
            self.failure = error  # the second time, an asyncio body is known that raised it
            self.failed.set()
        self._nursery.cancel_scope.cancel()

    def _lapse(self, why: str) -> None:
        self._bodies.lapse(why)
        self._tasks.lapse(why)

    # The link.

    def _send(self, message: FromExecutor) -> None:
        self._session.add(message)
        self._link.wake()

    def _attach(self) -> Attach:
        identity = self._identity
        self._connections += 1
        return Attach(
            executor=identity.node,
            start=identity.start,
            jobs=announced(self._jobs),
            functions=tuple(self._jobs.function_names),
            slots=identity.slots,
            labels=identity.labels,
            folder=identity.folder,
            version=identity.version,
            draining=self.draining,
            connection=self._connections,
            session=self._session.id,
            received=self._session.received,
            bodies=tuple(self._bodies),
            calls=self._tasks.announce(),
        )

    def _attached(self, attached: Attached, sent: float) -> None:
        self._bodies.max_value_bytes = self._tasks.max_value_bytes = attached.max_value_bytes
        self._session.max_frame_bytes = attached.max_value_bytes
        closed: Sequence[LocalExecution] = ()
        if not attached.resumed:
            closed = self._bodies.adopt(attached.bodies)
            self._tasks.new_session()
        self._session.attach(attached, self._repeats)
        self._pulse.attached(sent, attached.ttl)
        self._look()  # a drained executor can have nothing to send
        if closed:
            self._pulse.must_end(closed)

    def _repeats(self) -> Iterator[FromExecutor]:
        """What a new session begins with."""
        yield from self._bodies.repeats()
        yield from self._tasks.repeats()
        if self.draining:  # it can have begun after `attach` was sent
            yield Draining(now=self._ending_now)

    def _beat(self, sent: float) -> bool:
        return self._link.beat(Beat(self._identity.node, self._identity.start, sent))

    def _beaten(self, answer: Beaten) -> None:
        if isinstance(self._pulse, TaskPulse):
            self._pulse.beaten(answer)

    def _handle(self, message: ToExecutor) -> None:
        self._handlers[type(message)](message)

    def _message_handlers(self) -> dict[type, Callable[[Any], None]]:
        return {
            Execute: self._bodies.execute,
            Message: self._bodies.message,
            Answered: self._bodies.answered,
            CancelBody: self._bodies.cancel,
            CloseBody: self._bodies.close,
            Settled: self._bodies.settled,
            DeleteFiles: self._tasks.delete,
            CallFunction: self._tasks.call,
            CancelFunction: self._tasks.cancel,
            Drain: lambda _: self.drain(),
        }


def _nothing() -> None:
    """For an executor that cannot connect again."""
