"""The world of a simulation: everything that a scenario uses, and the checks of the rules.

A scenario is an async function that receives a world. It serves jobs, calls the servers as clients, takes its
steps, and crashes and restarts servers. If a rule is broken, the simulation ends immediately, with the rule's
text as the reason.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from random import Random
from typing import Any, Literal, TypeVar, cast

import attrs
import trio
import trio.testing

from ...actors.jobs import Jobs
from ...gateway import GatewayConfig
from ...persistence.store import Batch
from ...worker.services import Services
from ..determinism.scheduler import Scheduling, SeededChooser
from ..determinism.seeded_run import SimulatedClock, derived
from ..rules.rules import Rules
from ..scenarios.flows.calls import Work
from ..scenarios.flows.network import Network
from ..scenarios.flows.workers import Worker
from .client import Client
from .cluster.cluster import SimulatedCluster
from .cluster.node import SimulatedNode
from .crash import cut_off, is_interrupt, reap
from .disk import SimulatedDisk
from .disk_backend import Backend, MemoryBackend, SqliteBackend
from .executor import SimulatedExecutor
from .remote_client import RemoteClient, connected
from .server import Life, Server
from .trace import Trace

StoreKind = Literal["memory", "sqlite"]
Scenario = Callable[["World"], Awaitable[object]]
Invariant = Callable[[], object]
I = TypeVar("I", bound=Invariant)  # noqa: E741

BEGINNING = 1_000_000_000.0
"""The Unix time at which every world starts."""


class RuleBroken(AssertionError):
    """A rule or an invariant is not satisfied; the simulation ends with this error."""


class WallClock:
    """The time of day in a world. It can jump, in contrast to trio's clock."""

    def __init__(self) -> None:
        self._offset = BEGINNING

    def __call__(self) -> float:
        return trio.current_time() + self._offset

    def jump(self, seconds: float) -> None:
        """Set the time of day forward, or back (negative seconds)."""
        self._offset += seconds


@attrs.frozen
class Step:
    """One step of a scenario. Its `random` depends only on the seed and the step's number, so leaving out
    other steps does not change it."""

    number: int
    random: Random


@attrs.define
class Figures:
    """Counts of what happened in a simulation."""

    steps: int = 0
    commands: int = 0
    events: int = 0
    commits: int = 0
    lives: int = 0
    crashes: int = 0
    faults: int = 0
    simulated_seconds: float = 0.0
    real_seconds: float = 0.0


class World:
    """See the module's docstring."""

    def __init__(
        self,
        seed: int,
        scenario: Scenario,
        steps: int | None,
        keep: Collection[int] | None,
        store: StoreKind,
    ) -> None:
        self.seed = seed
        self.random = derived(seed, "scenario")
        """Random numbers for use outside of steps: they change when steps are left out."""
        self.clock = WallClock()
        self.figures = Figures()
        self.failure: tuple[str, BaseException | None] | None = None
        self.interrupted = False
        self.servers: list[Server] = []
        self.remotes: dict[RemoteClient, None] = {}
        self.workers: list[Worker] = []
        self.executors: list[SimulatedExecutor] = []
        self.clusters: list[SimulatedCluster] = []
        self.network = Network()
        self.ticking = SimulatedClock(self._end_instant, self._stuck)
        self.trace = Trace(self.ticking)
        self.scheduling: Scheduling
        self.chooser: SeededChooser | None = None
        """Starts a chapter with each step, so that the choices in a step change little when earlier steps are
        left out."""
        self._scenario = scenario
        self._steps = steps
        self._keep = None if keep is None else frozenset(keep)
        self._store: StoreKind = store
        self._step = 0
        self._invariants: list[tuple[str, Invariant]] = []
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery
        self._task: trio.lowlevel.Task | None = None
        self._played = trio.Event()

    # For scenarios.

    async def serve(
        self,
        jobs: Jobs,
        *,
        name: str | None = None,
        disk: SimulatedDisk | None = None,
        gateway: GatewayConfig | None = None,
        **options: Any,
    ) -> Server:
        """Start a server with an engine for these jobs, and return when it is up.

        `options` are those of `open_engine`. The server gets a new disk, unless `disk` is passed (a
        `leased_disk`, or the disk of another server). With a `gateway` configuration it has a gateway, which
        `connect` requires.
        """
        name = name or ("server" if not self.servers else f"server {len(self.servers) + 1}")
        server = Server(self, name, jobs, disk or self._make_disk(name), gateway, options)
        self.servers.append(server)
        await server.start()
        return server

    def client(self, name: str, server: Server | None = None) -> Client:
        """A client that calls an engine directly. `server` can be omitted if there is only one."""
        if server is None:
            [server] = self.servers
        return Client(name, server, self.trace)

    def connect(
        self, name: str, server: Server | SimulatedNode | None = None, **options: Any
    ) -> AbstractAsyncContextManager[RemoteClient]:
        """A client on another machine, for as long as the block lasts: the client of `greenroom.connect`,
        over a simulated network to the gateway of a server or of a cluster's node. `options` are those of
        `greenroom.connect`."""
        if server is None:
            [server] = self.servers
        return connected(self, name, cast(Server, server), options)  # a node has what a gateway's client uses

    def worker(
        self,
        id: str,
        services: Services | Sequence[str],
        server: Server | None = None,
        *,
        kind: Literal["http", "queue"] = "http",
        work: Work | None = None,
    ) -> Worker:
        """Start a worker that executes these services for the nodes of flows. If `services` contains only
        names, `work` executes all of them."""
        if server is None:
            [server] = self.servers
        worker = Worker(self, id, services, server, kind, work)
        self.workers.append(worker)
        worker.start()
        return worker

    def executor(
        self,
        id: str,
        jobs: Jobs | None = None,
        server: Server | None = None,
        *,
        slots: int | None = None,
        labels: Sequence[str] = (),
        drift: float = 0.0,
        shutdown_timeout: float = 30.0,
    ) -> SimulatedExecutor:
        """Start an executor, by default with the server's jobs. Its clock gains `drift` seconds in each
        second. With `executors=0`, `serve` starts a server that executes no bodies itself."""
        if server is None:
            [server] = self.servers
        executor = SimulatedExecutor(
            self,
            server,
            id,
            server.jobs if jobs is None else jobs,
            slots=slots,
            labels=labels,
            drift=drift,
            shutdown_timeout=shutdown_timeout,
        )
        self.executors.append(executor)
        executor.start()
        return executor

    async def cluster(
        self,
        jobs: Jobs,
        *,
        lease_ttl: float = 15.0,
        executor_ttl: float = 30.0,
        max_concurrent: int = 3,
        slots: int | None = None,
        shutdown_timeout: float = 30.0,
    ) -> SimulatedCluster:
        """A cluster for these jobs, without nodes: `add` starts them. `slots` are those of each node's
        executor."""
        cluster = SimulatedCluster(
            self,
            jobs,
            lease_ttl=lease_ttl,
            executor_ttl=executor_ttl,
            max_concurrent=max_concurrent,
            slots=slots,
            shutdown_timeout=shutdown_timeout,
        )
        await cluster.disk.migrate()
        self.clusters.append(cluster)
        return cluster

    def steps(self, count: int) -> AsyncIterator[Step]:
        """The steps of the scenario: `count` of them, unless `simulate` was called with another number."""
        return _Steps(self, count if self._steps is None else self._steps)

    def next_step(self) -> Step | None:
        """The next step, or `None` if it is left out."""
        self._step += 1
        if self._keep is not None and self._step not in self._keep:
            return None
        self.figures.steps += 1
        if self.chooser is not None:
            self.chooser.begin(self._step)
        self.trace.add("step", "", f"step {self._step}")
        return Step(self._step, derived(self.seed, "step", self._step))

    def derived(self, *names: object) -> Random:
        """A separate source of random numbers for a name."""
        return derived(self.seed, *names)

    def note(self, text: str) -> None:
        """Add a note to the trace."""
        self.trace.add("note", "note", text)

    def check(self, condition: object, text: str) -> None:
        """Fail the simulation with this text unless the condition is true."""
        if not condition:
            self.fail(text)
            raise RuleBroken(text)

    def invariant(self, function: I) -> I:
        """Check a function whenever no task is runnable. It fails the simulation if it returns False or a
        text (which describes the problem), or if it raises."""
        self._invariants.append((getattr(function, "__name__", repr(function)), function))
        return function

    # For the parts of the world.

    def fail(self, text: str, cause: BaseException | None = None) -> None:
        """End the simulation because a rule is broken. Only the first failure counts."""
        if self.failure is not None:
            return
        self.failure = (text, cause)
        self.trace.end(f"FAILED: {text}")
        self._end_everything()

    def interrupt(self) -> None:
        """End the simulation after Ctrl-C."""
        if not self.interrupted:
            self.interrupted = True
            self._end_everything()

    def judge(self, rules: Rules, look: Callable[..., object], *arguments: Any, **options: Any) -> None:
        """Call a method of the rules; the simulation fails if they report a fault."""
        try:
            look(*arguments, **options)
        except Exception as error:
            self.fail(f"a check of the rules raised {type(error).__name__}: {error}", error)
        if rules.faults:
            self.fail(rules.faults[0])

    def fault(self, who: str, what: str) -> None:
        """Count an injected fault, and add it to the trace."""
        self.figures.faults += 1
        self.trace.add("fault", who, what)

    def touched(self, text: str) -> None:
        """Fail because code under test used the real world; see `guard`."""
        self.fail(f"the real world was touched: {text}")

    def begin(self, life: Life) -> None:
        """Start a server's process."""
        self.figures.lives += 1
        self.spawn(life.run)

    def spawn(self, function: Callable[[], Awaitable[None]]) -> None:
        """Start a task that can outlive its caller."""
        self._nursery.start_soon(function)

    async def run(self) -> None:
        """Play the scenario, and wait until all tasks have ended."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._play)
            try:
                await self._played.wait()
            except KeyboardInterrupt:
                self.interrupt()

    async def _play(self) -> None:
        self._task = trio.lowlevel.current_task()
        try:
            with self._scope:
                await self._play_and_stop()
        finally:
            self._kill_all()
            self._played.set()

    async def _play_and_stop(self) -> None:
        try:
            await self._scenario(self)
            for executor in self.executors:
                executor.kill()
            for server in self.servers:
                await server.stop()
            for node in self._nodes():
                node.kill("the scenario has ended")
            self._end_instant()
        except (trio.Cancelled, GeneratorExit):
            raise
        except BaseException as error:
            if is_interrupt(error):
                self.interrupt()
            else:
                await trio.testing.wait_all_tasks_blocked()  # an engine that crashes may be the reason
                self.fail(f"the scenario raised {type(error).__name__}: {error}", error)

    def _kill_all(self) -> None:
        for worker in self.workers:
            worker.die()
        for executor in self.executors:
            executor.kill()
        for server in self.servers:
            server.kill("the simulation ends")
        for node in self._nodes():
            node.kill("the simulation ends")

    def _nodes(self) -> list[SimulatedNode]:
        return [node for cluster in self.clusters for node in cluster.nodes.values()]

    def _end_everything(self) -> None:
        self._kill_all()
        if self._task is not None:
            cut_off(self._task, self._scope)
            self.spawn(partial(reap, self._task, self._scope))

    def leased_disk(self, name: str = "disk", ttl: float = 15.0) -> SimulatedDisk:
        """A disk for `serve` on which the engine's lease can expire."""
        return self._make_disk(name, ttl)

    def _make_disk(self, name: str, lease_ttl: float = math.inf) -> SimulatedDisk:
        rules = Rules(lambda: self.ticking.now, self.clock)

        def committed(batch: Batch) -> None:
            self.figures.commits += 1
            self.figures.events += len(batch.events)
            for event in batch.events:
                self.trace.add("event", name, event)
            self.judge(rules, rules.commit, batch)

        backend: Backend = MemoryBackend()
        if self._store == "sqlite" or lease_ttl < math.inf:
            backend = SqliteBackend(self.derived("sqlite", name), lease_ttl)
        return SimulatedDisk(backend, self.derived("disk", name), rules, committed, partial(self.fault, name))

    def _end_instant(self) -> None:
        """Check the rules and the invariants: no task is runnable."""
        for server in self.servers:
            if server.disk.at_rest and server.running:
                server.end_instant(self.ticking.now)
        for cluster in self.clusters:
            cluster.end_instant()
        for remote in self.remotes:
            remote.end_instant()
        for name, invariant in self._invariants:
            try:
                found = invariant()
            except Exception as error:
                self.fail(f"{name}: {type(error).__name__}: {error}", error)
            else:
                if found is False or isinstance(found, str):
                    self.fail(f"{name} does not hold" if found is False else f"{name}: {found}")

    def _stuck(self, why: str) -> None:
        self.fail(f"the simulation hangs: {why}")


class _Steps:
    """Iterates over the steps. Not an async generator, because trio warns if one is not exhausted."""

    def __init__(self, world: World, count: int) -> None:
        self._world = world
        self._left = count

    def __aiter__(self) -> _Steps:
        return self

    async def __anext__(self) -> Step:
        while self._left:
            self._left -= 1
            await trio.lowlevel.checkpoint()
            step = self._world.next_step()
            if step is not None:
                return step
        raise StopAsyncIteration
