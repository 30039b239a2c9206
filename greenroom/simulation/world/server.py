"""A simulated server: a process with an engine, which can be started, stopped and crashed repeatedly.

Its disk outlives the process. A crash can happen at any moment. All tasks of the engine and its bodies end at
the point that they have reached. Code that still unwinds reaches neither the disk nor any client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from msgspec import UNSET

from ...actors.engine.api import Engine
from ...actors.engine.open import open_engine
from ...actors.jobs import Jobs
from ...actors.run.api import Run
from ...gateway import GatewayConfig
from ...persistence.store import Stored
from ...protocol.errors import GreenroomError, Unavailable
from ...protocol.lane_settings import read_lane
from .crash import cut_off, is_interrupt, reap
from .disk import SimulatedDisk
from .executor_links import ExecutorLinks, linking
from .gateway import Listener, listening
from .jobs import TracedJobs
from .network import Line

if TYPE_CHECKING:
    from .world import World


class Server:
    """See the module's docstring. `options` are those of `open_engine`; with a `gateway` configuration the
    server has a gateway, too."""

    reads_ahead = False
    """Whether queries can return a later state than that of the events that its clients have received."""

    def __init__(
        self,
        world: World,
        name: str,
        jobs: Jobs,
        disk: SimulatedDisk,
        gateway: GatewayConfig | None,
        options: dict[str, Any],
    ) -> None:
        self.name = name
        self.disk = disk
        self.jobs = jobs
        self.gateway = gateway
        self.options = options
        self.rules = disk.rules
        self.failure: BaseException | None = None
        """The error with which the engine stopped in its last life, if it did."""
        self._world = world
        self._life: Life | None = None
        self.lives = 0

    @property
    def starting(self) -> bool:
        """Whether it was started and is not up yet."""
        return self._life is not None and not (self._life.running or self._life.ending)

    @property
    def running(self) -> bool:
        """Whether its engine accepts commands."""
        return self._life is not None and self._life.engine is not None

    @property
    def engine(self) -> Engine:
        """The engine. Raises `Unavailable` while the server is down. To call it as a client, use
        `World.client`."""
        if self._life is None or self._life.engine is None:
            raise Unavailable(f"{self.name} is down")
        return self._life.engine

    @property
    def cut_off(self) -> bool:
        """Whether its present process is cut off from the disk. Assign to it to cut the process off."""
        return self._life in self.disk.cut_off

    @cut_off.setter
    def cut_off(self, cut_off: bool) -> None:
        if self._life is not None and cut_off:
            self.disk.cut_off.add(self._life)
        elif self._life is not None:
            self.disk.cut_off.discard(self._life)

    @property
    def serves(self) -> bool:
        """Whether its gateway accepts clients."""
        listener = None if self._life is None else self._life.listener
        return listener is not None and listener.serves

    @property
    def shown_seq(self) -> int:
        """The last event that its gateway has sent to clients whose connections have no fault."""
        return self.rules.model.seq

    @property
    def can_lag(self) -> bool:
        """Whether another server can have shown a client more events than this one has."""
        return False

    @property
    def is_behind(self) -> bool:
        """Whether it sends clients away that have more events than it has."""
        return False

    def accept(self, line: Line) -> None:
        """Accept a client's connection to the gateway. Raises `ConnectionRefusedError`."""
        listener = None if self._life is None else self._life.listener
        if listener is None:
            raise ConnectionRefusedError(f"{self.name} is down")
        listener.accept(line)

    def accept_executor(self, line: Line) -> None:
        """Accept an executor's connection. Raises `ConnectionRefusedError`."""
        links = None if self._life is None else self._life.links
        if links is None:
            raise ConnectionRefusedError(f"{self.name} is down")
        links.accept(line)

    async def start_again(self) -> None:
        """Start the engine until it is up, also if its disk fails meanwhile."""
        while not self.running:
            if self.starting:
                await trio.sleep(1)
                continue
            try:
                await self.start()
            except GreenroomError:  # the disk failed
                await trio.sleep(1)

    async def start(self, **options: Any) -> None:
        """Start the engine on what the disk contains, and return when it is up.

        `options` override those of `World.serve`, also for later starts. Raises any error of `open_engine`,
        and `Unavailable` if the process dies before the engine is up.
        """
        if self._life is not None and not self._life.ending:
            raise RuntimeError(f"{self.name} is running: stop or crash it before you start it again")
        await self.ended()
        self.options |= options
        self.failure = None
        self.lives += 1
        life = self._life = Life(self, self._world, self.lives)
        self._world.begin(life)
        await life.begun.wait()
        if not life.running:
            raise self.failure or Unavailable(f"{self.name} died while it was starting")

    async def stop(self, *, at_once: bool = False) -> None:
        """Shut the engine down, and wait until it has ended. With `at_once`, the task that keeps it open is
        cancelled, so that executing runs get no time to finish."""
        if self._life is not None:
            self._life.leave(at_once)
        await self.ended()

    async def crash(self) -> None:
        """Kill the process, and wait until all its tasks have ended."""
        self.kill("killed")
        await self.ended()

    def kill(self, why: str) -> None:
        """Kill the process immediately, without waiting. A caller inside the process must not continue."""
        if self._life is not None:
            self._life.die(why)

    def end_instant(self, now: float) -> None:
        """Check the rules: no task is runnable."""
        if self._life is not None and not self._life.has_disk:
            return
        self._show_files(at_rest=False)
        self.judge(self.rules.end_instant, now)

    def ends(self) -> None:
        """Check the rules: the engine has shut down."""
        self._show_files(at_rest=True)
        self.judge(self.rules.stopped)

    def judge(self, look: Callable[..., object], *arguments: Any, **options: Any) -> None:
        """Call a method of the rules; see `World.judge`."""
        self._world.judge(self.rules, look, *arguments, **options)

    def _show_files(self, *, at_rest: bool) -> None:
        disk = self.disk
        if disk.files or disk.parts:
            parts = [key for key in disk.parts if key not in disk.undeleted]
            files = {key: file.run for key, file in disk.files.items()}
            self.judge(self.rules.observations.files, parts, files, at_rest=at_rest, undeleted=disk.undeleted)

    async def ended(self) -> None:
        """Wait until the engine has ended, for any reason."""
        if self._life is not None:
            await self._life.gone.wait()

    @contextmanager
    def connection(self) -> Iterator[Engine]:
        """The engine, while the block lasts. If the process dies meanwhile, the block is cancelled and raises
        `Unavailable`."""
        engine, life = self.engine, self._life
        assert life is not None
        with trio.CancelScope() as scope:
            life.connections[scope] = None
            try:
                yield engine
                return
            finally:
                del life.connections[scope]
        if scope.cancelled_caught:
            raise Unavailable(
                f"{self.name} died during the call: the command may or may not have been executed"
            )

    def say(self, what: str) -> None:
        """Add an entry about this server to the trace."""
        self._world.trace.add("life", self.name, what)


class Life:
    """One life of a server: from the start of its process until all its tasks have ended."""

    def __init__(self, server: Server, world: World, number: int) -> None:
        self.number = number
        self.dead = False
        self.engine: Engine | None = None
        self.begun = trio.Event()
        self.gone = trio.Event()
        self.connections: dict[trio.CancelScope, None] = {}
        self.listener: Listener | None = None
        self.links: ExecutorLinks | None = None
        self._server = server
        self._world = world
        self._jobs = TracedJobs(server.jobs, self)
        self._scope = trio.CancelScope()
        self._holding_open = trio.CancelScope()
        self._leaving = trio.Event()
        self._task: trio.lowlevel.Task | None = None

    @property
    def running(self) -> bool:
        """Whether the engine is up."""
        return self.engine is not None

    @property
    def has_disk(self) -> bool:
        """Whether no other engine has taken over the disk."""
        return self._server.disk.is_of(self)

    @property
    def ending(self) -> bool:
        """Whether it has ended, or is stopping."""
        return self.dead or self._leaving.is_set()

    async def run(self) -> None:
        """Run the process."""
        self._task = trio.lowlevel.current_task()
        try:
            with self._scope:
                if not self.dead:
                    await self._live()
        except BaseException as error:
            if is_interrupt(error):
                self._world.interrupt()
            else:
                self._ends_with(error)
        finally:
            self.engine = self.listener = self.links = None
            self.dead = True
            self.begun.set()
            self.gone.set()

    async def _live(self) -> None:
        self._server.say("starts")
        with self._holding_open:
            await self._hold_open()
        self._server.ends()
        self._server.say("has stopped")

    async def _hold_open(self) -> None:
        server, disk = self._server, self._server.disk
        gateway = nullcontext() if server.gateway is None else listening(server.gateway)
        async with (
            gateway as self.listener,
            linking(server.rules.executors.heard) as self.links,
            open_engine(
                self._jobs,
                disk.store_of(self),
                data_dir=disk.files_of(self),
                clock=self._world.clock,
                random=self._world.derived("engine", server.name, self.number),
                **{"push": self._world.network, **server.options},
            ) as self.engine,
        ):
            if self.listener is not None:
                await self.listener.open(self.engine)
            self.links.open(self.engine)
            server.say("is up")
            self.begun.set()
            await self._leaving.wait()
            # In every second life the gateway closes before the engine, in the others after it.
            if self.listener is not None and self.number % 2:
                await self.listener.close()
            if self.number % 2:
                self.links.close()
            server.judge(server.rules.leaving)

    def leave(self, at_once: bool) -> None:
        """Shut the engine down; see `Server.stop`."""
        if not self._leaving.is_set() and not self.dead:
            self._server.say("is being cancelled" if at_once else "is being stopped")
            self._leaving.set()
        if at_once and not self.dead:
            self._server.judge(self._server.rules.leaving)
            self._holding_open.cancel()

    def die(self, why: str) -> None:
        """Kill the process immediately; see `Server.kill`."""
        if self.dead:
            return
        self.dead = True
        self.engine = None
        self._world.figures.crashes += 1
        self._server.say(f"dies: {why}")
        self._server.judge(self._server.rules.crashed)
        for scope in list(self.connections):
            scope.cancel()
        if self.listener is not None:
            self.listener.die()
            self.listener = None
        if self.links is not None:
            self.links.die()
            self.links = None
        if self._task is not None:  # the process has started
            cut_off(self._task, self._scope)
            self._world.spawn(partial(reap, self._task, self._scope))

    def opened(self, stored: Stored) -> None:
        """Check what the engine read when it opened its store."""
        server, options = self._server, self._server.options
        lanes = {name: read_lane(name, each).limit for name, each in (options.get("lanes") or {}).items()}
        limits = {name: limit for name, limit in lanes.items() if limit is not UNSET}
        server.rules.executors.begin_life(
            options.get("executor_ttl", 30.0), alone=options.get("executors") is None
        )
        server.judge(server.rules.opened, stored, self._jobs.declared, options.get("max_concurrent"), limits)

    def body_begins(self, run: Run) -> None:
        """Record that a body starts."""
        if not self.dead:
            self._world.trace.add("body", run.id, f"attempt {run.attempt} starts")
            self._world.check(
                self.has_disk, f"a body of run {run.id} starts although another engine has the store"
            )
            self._server.judge(self._server.rules.observations.begins, run)

    def body_takes(self, run: Run, messages: Sequence[Any], *, all_: bool) -> None:
        """Record that a body has taken messages; with `all_`, it requested all waiting messages."""
        if not self.dead and self.has_disk:
            self._server.judge(self._server.rules.observations.took, run.id, messages, all_=all_)

    def body_ends(self, run: Run, how: str) -> None:
        """Record that a body has ended."""
        if not self.dead:
            self._world.trace.add("body", run.id, f"attempt {run.attempt} {how}")
            if not self.has_disk:
                return
            self._server.judge(self._server.rules.observations.ends, run.id)

    def _ends_with(self, error: BaseException) -> None:
        if self.dead:
            return  # the process is dead: this error has no effect
        server = self._server
        server.failure = error
        server.say(f"ends with {type(error).__name__}: {error}")
        if not self.has_disk:
            return  # another engine has taken over the disk; the rules check that engine
        server.judge(server.rules.crashed)
        disk_is_to_blame = isinstance(error, GreenroomError) and server.disk.injured
        if self.begun.is_set() and isinstance(error, Exception) and not disk_is_to_blame:
            self._world.fail(f"the engine stopped with {type(error).__name__}: {error}", error)
