"""A simulated executor: a machine with a process of `greenroom.executor`, which attaches to a server.

The executor, its frames and the engine are real. Only the connections are simulated; the executor's `uplink`
can delay, block and cut them. The process can be killed at any moment, paused (nothing of it runs, but its
clock continues), and drained. Its clock can run faster or slower than the server's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import trio

from ...actors.executors.connection import StreamConnection
from ...actors.jobs import Jobs
from ...actors.run.api import Run
from ...executor.executor import Executor, Identity
from ...persistence.files import PartFile
from ..rules.executors import Process
from ..rules.rules import Rules
from .crash import cut_off, is_interrupt, reap
from .jobs import TracedJobs
from .network import Line
from .server import Server

if TYPE_CHECKING:
    from .world import World

CONNECTS_WITHIN = 3.0
"""Seconds after which an attempt to connect fails if the network delivers nothing."""


class Uplink:
    """The network between an executor and a server, over all its connections (lines)."""

    def __init__(self, server: Server, random: Random) -> None:
        self.server = server
        """The server to which it connects."""
        self.delay: tuple[float, float] | None = None
        self._fine_since = -math.inf
        self._random = random
        self._blocked = {"there": False, "back": False}
        self._lines: dict[Line, None] = {}

    @property
    def blocked(self) -> bool:
        """Whether one of the directions delivers nothing."""
        return any(self._blocked.values())

    @property
    def fine_since(self) -> float:
        """Since when it has had no fault."""
        return math.inf if self.blocked or self.delay is not None else self._fine_since

    def block(self, *, there: bool, back: bool) -> None:
        """Deliver nothing to the server (`there`), or from it (`back`)."""
        self._blocked = {"there": there, "back": back}
        self._fine_since = trio.current_time()
        for line in self._lines:
            line.block(**self._blocked)

    def slow_down(self, delay: tuple[float, float] | None) -> None:
        """Delay all data."""
        self.delay = delay
        self._fine_since = trio.current_time()
        for line in self._lines:
            line.delay = delay

    def cut(self) -> None:
        """Break the present connections."""
        self._fine_since = trio.current_time()
        for line in self._lines:
            line.cut()

    async def connect(self) -> StreamConnection:
        """For the executor. Raises `OSError`."""
        await trio.lowlevel.checkpoint()
        if self.delay is not None:
            await trio.sleep(self._random.uniform(*self.delay))
        if self.blocked:
            await trio.sleep(CONNECTS_WITHIN)
            raise TimeoutError("connection timed out")
        for line in [line for line in self._lines if line.over]:
            del self._lines[line]
        line = Line(self._random, self.delay, lambda: None)
        self.server.accept_executor(line)
        self._lines[line] = None
        return StreamConnection(line.near)

    def die(self) -> None:
        """The executor's process has died: the operating system closes its ends."""
        for line in self._lines:
            line.near.shut()


class SimulatedExecutor:
    """See the module's docstring. `drift` is what its clock gains in each second."""

    def __init__(
        self,
        world: World,
        server: Server,
        id: str,
        jobs: Jobs,
        *,
        slots: int | None,
        labels: Sequence[str],
        drift: float,
        shutdown_timeout: float,
    ) -> None:
        self.id = id
        self.server = server
        self.jobs = jobs
        self.slots = slots
        self.labels = tuple(labels)
        self.uplink = Uplink(server, world.derived("uplink", id))
        self.lives = 0
        self._world = world
        self._drift = drift
        self._shutdown_timeout = shutdown_timeout
        self._life: ExecutorLife | None = None

    @property
    def life(self) -> ExecutorLife | None:
        """Its process, if there is one."""
        return None if self._life is None or self._life.process.dead else self._life

    @property
    def running(self) -> bool:
        """Whether it has a process that is not paused."""
        return self.life is not None and not self.life.process.paused

    def clock(self) -> float:
        """The machine's clock."""
        return 1000.0 + trio.current_time() * (1.0 + self._drift)

    def start(self) -> None:
        """Start a process, unless there is one."""
        if self.life is None:
            self.lives += 1
            self._life = ExecutorLife(self, self._world, self.lives, self._shutdown_timeout)
            self._world.spawn(self._life.run)

    def kill(self) -> None:
        """Kill the process: its connections are closed, unless the network is blocked."""
        if self.life is not None:
            self.life.die("killed")

    def pause(self) -> None:
        """Pause the process."""
        if self.life is not None:
            self.life.pause()

    def go_on(self) -> None:
        """Let a paused process continue."""
        if self.life is not None:
            self.life.go_on()

    def drain(self) -> None:
        """Request the process to drain."""
        if self.life is not None and self.running:
            self.life.drain()

    async def ended(self) -> None:
        """Wait until the process has ended."""
        if self._life is not None:
            await self._life.gone.wait()


class BodyReports:
    """Reports to the rules what the bodies of a process do, while it is alive."""

    def __init__(self, world: World, rules: Rules, process: Process) -> None:
        self.process = process
        self._world = world
        self._rules = rules

    def body_begins(self, run: Run) -> None:
        """Record that a body starts."""
        self._report(run, "starts")
        if not self.process.dead:
            self.judge(self._rules.executors.body_begins, self.process, run)

    def body_takes(self, run: Run, messages: Sequence[Any], *, all_: bool) -> None:
        """Record that a body has taken messages."""

    def body_ends(self, run: Run, how: str) -> None:
        """Record that a body has ended."""
        self._report(run, how)
        if not self.process.dead:
            self.judge(self._rules.executors.body_ends, self.process, run.id, run.fence)

    def judge(self, look: Any, *arguments: Any) -> None:
        """Call a method of the rules; see `World.judge`."""
        self._world.judge(self._rules, look, *arguments)

    def _report(self, run: Run, what: str) -> None:
        if not self.process.dead:
            text = f"attempt {run.attempt} {what} at {self.process.executor} ({run.fence})"
            self._world.trace.add("body", run.id, text)


class ExecutorLife:
    """One process of an executor."""

    def __init__(
        self, machine: SimulatedExecutor, world: World, number: int, shutdown_timeout: float
    ) -> None:
        self.process = Process(machine.id, f"{machine.id}-{number}")
        self.gone = trio.Event()
        self._machine = machine
        self._world = world
        self._rules = machine.server.rules
        self._scope = trio.CancelScope()
        self._task: trio.lowlevel.Task | None = None
        self._reports = BodyReports(world, self._rules, self.process)
        self.executor = ObservedExecutor(
            self._lapses,
            TracedJobs(machine.jobs, self._reports),
            machine.uplink.connect,
            Identity(
                node=machine.id,
                start=self.process.start,
                slots=machine.slots,
                labels=machine.labels,
                folder=f"folder-{machine.id}",
            ),
            NoFiles(),
            random=world.derived("executor", machine.id, number),
            shutdown_timeout=shutdown_timeout,
            clock=machine.clock,
            on_expiry=lambda: self.die("its lease has expired, and a body still executes"),
        )

    async def run(self) -> None:
        """Run the process."""
        self._task = trio.lowlevel.current_task()
        self._say("starts")
        try:
            with self._scope:
                if not self.process.dead:
                    await self.executor.run()
                    self._say("has drained")
                    self._ends()
        except BaseException as error:
            if is_interrupt(error):
                self._world.interrupt()
            elif not self.process.dead:
                self._world.fail(
                    f"executor {self._machine.id} stopped with {type(error).__name__}: {error}", error
                )
        finally:
            self._ends()
            self.gone.set()

    def _ends(self) -> None:
        if not self.process.dead:
            self.process.dead = True
            self._machine.uplink.die()
            self._reports.judge(self._rules.executors.process_ended, self.process)

    def drain(self) -> None:
        """Request the process to drain; see `SimulatedExecutor.drain`."""
        if self._task is None:  # it has not started
            return
        self._say("drains")
        self.process.draining = True
        self.executor.exit_soon()

    def pause(self) -> None:
        """Pause the process; see `SimulatedExecutor.pause`."""
        if self._task is not None and not self.process.paused and not self.process.dead:
            self._say("is paused")
            self.process.paused = True
            self._world.scheduling.pause(self._task)

    def go_on(self) -> None:
        """Continue the process; see `SimulatedExecutor.go_on`."""
        if self._task is not None and self.process.paused:
            self._say("continues")
            self.process.paused = False
            self.process.continued_at = trio.current_time()
            self._world.scheduling.go_on(self._task)

    def die(self, why: str) -> None:
        """Kill the process immediately. A caller inside the process must not continue."""
        if self.process.dead:
            return
        self.go_on()
        self._say(f"dies: {why}")
        self._ends()
        if self._task is not None:
            cut_off(self._task, self._scope)
            self._world.spawn(partial(reap, self._task, self._scope))

    def _lapses(self) -> None:
        self._say("ends its bodies: it does not reach its engine")
        self._reports.judge(self._rules.executors.lapses, self.process, self._machine.uplink.fine_since)

    def _say(self, what: str) -> None:
        self._world.trace.add("life", f"executor {self._machine.id}", what)


class ObservedExecutor(Executor):
    """An executor that calls `lapses` when its lease lapses."""

    def __init__(self, lapses: Callable[[], None], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lapses = lapses

    def _lapse(self, why: str) -> None:
        self._lapses()
        super()._lapse(why)


class NoFiles:
    """The files of an executor in a simulation: there are none."""

    async def create(self, handle: str, path: str, run: str, *, overwrite: bool) -> PartFile:
        await trio.lowlevel.checkpoint()
        raise OSError("a simulated executor has no disk")

    async def delete(self, handle: str, paths: Sequence[str]) -> None:
        await trio.lowlevel.checkpoint()

    async def unfinished(self, handle: str, run: str) -> list[str]:
        await trio.lowlevel.checkpoint()
        return []

    async def remove_parts(self, handle: str, run: str) -> None:
        await trio.lowlevel.checkpoint()

    async def sizes(self, handle: str, paths: Sequence[str]) -> dict[str, int]:
        await trio.lowlevel.checkpoint()
        return {}

    async def locate(self, handle: str, path: str) -> Path | None:
        await trio.lowlevel.checkpoint()
        return None
