"""The lease of an executor on its engine: bodies execute only while the engine has acknowledged recent beats.

The machine is that of the store's lease (`persistence/leasekeeping.py`). In a process, threads drive it
(`ThreadPulse`), with their own connection: so a blocked event loop neither stops the beats, nor keeps a body
executing when the lease has expired, because the thread then ends the process. In a simulation, a task drives
it and sends the beats over the executor's connection (`TaskPulse`).
"""

from __future__ import annotations

import logging
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import trio

from ..actors.run.execution import LiveBodies, LocalExecution
from ..persistence.leasekeeping import (
    EXECUTOR,
    MOMENT,
    Asked,
    Do,
    Failed,
    Keeping,
    Renewed,
    Told,
    now,
)
from ..persistence.leasethread import LeaseThread, Renewing, notify
from ..protocol.executors import Beaten

logger = logging.getLogger("greenroom.executor")

_SHORTEST_WAIT = 0.001
"""So that rounding never leaves a wait that is too short to advance the clock."""

_NOT_OURS = "the engine has lost this executor in the meantime"

UNKNOWN = "the engine does not know this executor"


class Pulse(ABC):
    """See the module's docstring. Implements `store.LeaseWatch`; `clock` also counts while the machine is
    suspended. `lapse` is called to cancel all bodies."""

    exits = False

    def __init__(self, live: LiveBodies, lapse: Callable[[str], None], clock: Callable[[], float]) -> None:
        self.clock = clock
        self.functions: Callable[[], Sequence[str]] = tuple
        """Returns the runs for which functions execute. Can be called from any thread."""
        self._live = live
        self._lapse = lapse
        self._keeping: Keeping | None = None
        self._renewed = trio.Event()
        live.may_begin = self._may_begin

    @property
    def is_good(self) -> bool:
        """Whether bodies can execute now."""
        return self._keeping is not None and self.clock() < self._keeping.acts_until

    def attached(self, sent: float, ttl: float) -> None:
        """The engine has accepted an `attach` that was sent at this time."""
        if self._keeping is None:
            self._keeping = Keeping(ttl, sent, EXECUTOR)
            self._start(self._keeping)
        else:
            self._receive(Renewed(sent, ttl))

    @abstractmethod
    def must_end(self, bodies: Sequence[LocalExecution]) -> None:
        """The engine does not know these bodies: others can execute in their place. They were cancelled, and
        the process ends if one still executes a moment later."""

    @abstractmethod
    def _start(self, keeping: Keeping) -> None:
        """Drive the machine from now on."""

    @abstractmethod
    def _receive(self, told: Renewed | Asked) -> None:
        """Pass a message to the machine."""

    async def _may_begin(self) -> None:
        while not self.is_good:
            if self._keeping is not None:
                self._receive(Asked())
            await self._renewed.wait()

    def _left(self, bodies: Sequence[LocalExecution]) -> Sequence[str]:
        """The runs of these bodies that still execute."""
        begun = self._live.begun()
        return [body.id for body in bodies if body in begun]

    # For the driver.

    def executing(self) -> Sequence[str]:
        return [*(execution.id for execution in self._live.begun()), *self.functions()]

    def lease_lapses(self, why: str) -> None:
        reason = why or "no answer in time"
        logger.error(
            "beats are not acknowledged (%s): bodies are cancelled, and none starts until they are", reason
        )
        self._lapse("the executor could not reach its engine")

    def lease_over(self, executing: Sequence[str]) -> None:
        if executing:
            logger.error(
                "the executor's lease has expired, and the bodies of these runs still execute: %s; other "
                "executors may start them, too",
                ", ".join(executing),
            )

    def lease_renewed(self) -> None:
        logger.info("beats are acknowledged again: bodies can start")
        self._let_bodies_begin()

    def _let_bodies_begin(self) -> None:
        renewed, self._renewed = self._renewed, trio.Event()
        renewed.set()

    def lease_lost(self, why: str) -> None:
        raise AssertionError(f"only a store's lease can be taken ({why})")


class ThreadPulse(Pulse):
    """Driven by threads. `beats` returns what sends beats on its own connection; its argument is the limit
    for each wait, in seconds. `abort` closes the executor's connection when the lease lapses: the engine at
    its other end may no longer exist, which the system does not notice if its machine has failed."""

    exits = True

    def __init__(
        self,
        live: LiveBodies,
        lapse: Callable[[str], None],
        beats: Callable[[float], Renewing],
        abort: Callable[[], None],
    ) -> None:
        super().__init__(live, lapse, now)
        self._beats = beats
        self._abort = abort
        self._thread: LeaseThread | None = None

    def _start(self, keeping: Keeping) -> None:
        self._thread = LeaseThread(
            keeping,
            self._beats(EXECUTOR.timeout * keeping.ttl),
            self.clock,
            name="the executor's lease",
            others="those of other executors",
        )
        self._thread.watch(self)
        self._thread.start()
        self._let_bodies_begin()

    def lease_lapses(self, why: str) -> None:
        super().lease_lapses(why)
        self._abort()

    def must_end(self, bodies: Sequence[LocalExecution]) -> None:
        assert self._keeping is not None, "the lease was granted"
        timer = threading.Timer(MOMENT * self._keeping.ttl, self._end_process, [bodies])
        timer.daemon = True
        timer.start()

    def _end_process(self, bodies: Sequence[LocalExecution]) -> None:
        assert self._thread is not None, "the lease was granted"
        if left := self._left(bodies):
            self._thread.end_process(_NOT_OURS, left)

    def _receive(self, told: Renewed | Asked) -> None:
        assert self._thread is not None, "the lease was granted"
        self._thread.tell(told)

    async def run(self) -> None:
        """Do nothing: threads drive the machine."""

    async def aclose(self) -> None:
        """Stop the threads. No body executes then."""
        if self._thread is not None:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._thread.stop)


class TaskPulse(Pulse):
    """Driven by a task. `beat` sends a beat over the executor's connection, or returns false without one;
    `abort` closes that connection, because a beat was not answered. `on_expiry` is called when bodies execute
    past the lease."""

    def __init__(
        self,
        live: LiveBodies,
        lapse: Callable[[str], None],
        clock: Callable[[], float],
        beat: Callable[[float], bool],
        abort: Callable[[], None],
        on_expiry: Callable[[], None],
    ) -> None:
        super().__init__(live, lapse, clock)
        self._on_expiry = on_expiry
        self._beat = beat
        self._abort = abort
        self._sends, self._receives = trio.open_memory_channel[Told | None](math.inf)
        self._must_end: list[tuple[float, Sequence[LocalExecution]]] = []  # with the time
        self._started = trio.Event()

    def beaten(self, answer: Beaten) -> None:
        """The engine has answered a beat."""
        self._sends.send_nowait(Renewed(answer.sent) if answer.attached else Failed(UNKNOWN))

    def must_end(self, bodies: Sequence[LocalExecution]) -> None:
        assert self._keeping is not None, "the lease was granted"
        self._must_end.append((self.clock() + MOMENT * self._keeping.ttl, bodies))
        self._sends.send_nowait(None)

    def _start(self, keeping: Keeping) -> None:
        self._started.set()
        self._let_bodies_begin()

    def _receive(self, told: Renewed | Asked) -> None:
        self._sends.send_nowait(told)

    async def run(self) -> None:
        """Drive the machine until cancelled."""
        await self._started.wait()
        keeping, received = self._keeping, None
        assert keeping is not None, "the lease was granted"
        while True:
            for do in keeping.turn(self.clock(), received):
                self._carry_out(do, keeping)
            while self._must_end and self._must_end[0][0] <= self.clock():
                if left := self._left(self._must_end.pop(0)[1]):
                    logger.error("%s, and the bodies of these runs still execute: %s", _NOT_OURS, left)
                    self._on_expiry()
            received, until = None, min([keeping.next(), *(until for until, _ in self._must_end)])
            with trio.move_on_after(max(_SHORTEST_WAIT, until - self.clock())):
                received = await self._receives.receive()

    def lease_over(self, executing: Sequence[str]) -> None:
        super().lease_over(executing)
        if executing:
            self._on_expiry()

    async def aclose(self) -> None:
        """Do nothing: the task was cancelled."""

    def _carry_out(self, do: Do, keeping: Keeping) -> None:
        if do is Do.RENEW:
            if not self._beat(self.clock()):
                self._sends.send_nowait(Failed("not connected"))
        elif do is Do.ABORT:
            self._abort()
            self._sends.send_nowait(Failed("no answer in time"))
        else:
            notify(self, do, keeping)
