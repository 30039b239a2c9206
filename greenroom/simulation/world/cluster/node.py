"""A simulated node: a machine on which processes of a cluster's node live one after the other.

The node, its gateway, its engine while it leads, and its executor are real. Only the connections, the store
and the clock of its leases are simulated. The process can be killed at any moment, paused (nothing of it
runs, but clocks continue), and drained.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

import attrs
import trio

from ....actors.engine.api import Engine
from ....actors.engine.leadership import Leadership
from ....actors.engine.open import open_engine
from ....actors.executors.connection import Connection, StreamConnection
from ....cluster.node import Identity, Node
from ....cluster.to_leader import connecting_to_leader
from ....executor.executor import Identity as ExecutorIdentity
from ....gateway import Gateway, GatewayConfig, open_gateway
from ....gateway.background import background
from ....gateway.cluster.replica import MOST_LAG
from ....persistence.failures import StoreDown
from ....persistence.store import Stored
from ....protocol.errors import Conflict
from ...rules.executors import Process
from ..crash import cut_off, is_interrupt, reap
from ..executor import BodyReports, NoFiles, ObservedExecutor
from ..executor_links import ListeningConnection
from ..jobs import TracedJobs
from ..network import End, Line
from .store import NodeStore

if TYPE_CHECKING:
    from ..world import World
    from .cluster import SimulatedCluster

Caller = Literal["node", "executor", "client"]

_MAX_VALUE_BYTES = 1 << 20
_STEP_DOWN_TIMEOUT = 5.0
_OPENS_AGAIN_AFTER = 1.0


class SimulatedNode:
    """See the module's docstring. `drift` is what the clock of its leases gains in each second. It can stand
    for a `Server` where clients and executors connect."""

    reads_ahead = True
    """A run that is not in its state is read from the store, which can be ahead."""

    def __init__(self, world: World, cluster: SimulatedCluster, name: str, drift: float) -> None:
        self.name = name
        self.address = f"http://{name}:8440"
        self.drift = drift
        self.lives = 0
        self.gateway = GatewayConfig()
        self.disk = cluster.disk
        self.rules = cluster.disk.rules
        self.jobs = cluster.jobs
        self._world = world
        self._cluster = cluster
        self._life: NodeLife | None = None

    @property
    def life(self) -> NodeLife | None:
        """Its process, if there is one."""
        return None if self._life is None or self._life.dead else self._life

    @property
    def running(self) -> bool:
        """Whether it has a process that is not paused."""
        return self.life is not None and not self.life.paused

    @property
    def serves(self) -> bool:
        """Whether its gateway accepts clients, and has no reason to close a connection."""
        life = self.life
        return life is not None and not life.paused and not life.leaving and life.gateway is not None

    @property
    def shown_seq(self) -> int:
        """The last event that its gateway has sent to clients whose connections have no fault."""
        life = self.life
        assert life is not None, "it serves"
        assert life.node is not None, "it serves"
        return life.node.stream.last_seq

    @property
    def can_lag(self) -> bool:
        """Whether another node can have shown a client more events than this one has."""
        life = self.life
        if life is None or life.node is None:
            return False
        leading = life.node.router.leading
        return leading is None or not leading.is_current

    @property
    def is_behind(self) -> bool:
        """Whether it has not heard from a leader for long: it sends clients away that have more events."""
        life = self.life
        return (
            self.can_lag and life is not None and life.node is not None and life.node.replica.lag > MOST_LAG
        )

    def clock(self) -> float:
        """The clock of its leases."""
        return 1000.0 + trio.current_time() * (1.0 + self.drift)

    def start(self) -> None:
        """Start a process, unless there is one."""
        if self.life is None:
            self.lives += 1
            self._life = NodeLife(self, self._world, self._cluster, self.lives)
            self._world.spawn(self._life.run)

    def kill(self, why: str = "killed") -> None:
        """Kill the process: its connections are closed, unless the network is blocked."""
        if self.life is not None:
            self.life.die(why)

    def pause(self) -> None:
        """Pause the process."""
        if self.life is not None:
            self.life.pause()

    def go_on(self) -> None:
        """Let a paused process continue."""
        if self.life is not None:
            self.life.go_on()

    def drain(self) -> None:
        """Have the process hand over the leadership, drain its executor, and end."""
        if self.life is not None and self.running:
            self.life.drain()

    async def ended(self) -> None:
        """Wait until the process has ended."""
        if self._life is not None:
            await self._life.gone.wait()

    def accept(self, line: Line) -> None:
        """Accept a client's connection. Raises `ConnectionRefusedError`."""
        self.receive("client", line)

    def accept_executor(self, line: Line) -> None:
        """Accept the connection of an executor that is not a node's. Raises `ConnectionRefusedError`."""
        self.receive("executor", line)

    def receive(self, caller: Caller, line: Line) -> None:
        """Accept a connection. Raises `ConnectionRefusedError`."""
        if self.life is None:
            raise ConnectionRefusedError(f"connection refused: {self.name} has no process")
        self.life.receive(caller, line)

    def judge(self, look: Callable[..., object], *arguments: Any, **options: Any) -> None:
        """Call a method of the rules; see `World.judge`."""
        self._world.judge(self.rules, look, *arguments, **options)


@attrs.define(eq=False)
class Lead:
    """A time in which a process has the store for its engine."""

    life: NodeLife
    store: NodeStore
    engine: Engine | None = None
    """The engine, while it is open."""


class NodeLife:
    """One process of a node."""

    def __init__(self, machine: SimulatedNode, world: World, cluster: SimulatedCluster, number: int) -> None:
        self.name = f"{machine.name} ({number})"
        self.address = machine.address
        self.clock = machine.clock
        self.dead = False
        self.paused = False
        self.leaving = False
        self.gone = trio.Event()
        self.node: Node | None = None
        self.gateway: Gateway | None = None
        self.process = Process(f"{machine.name}-{number}", f"{machine.name}-{number}")
        self.leader_line: Line | None = None
        """The last connection to another node."""
        self.machine = machine
        self._world = world
        self._cluster = cluster
        self._number = number
        self._jobs = TracedJobs(machine.jobs, self)
        self._reports = BodyReports(world, machine.rules, self.process)
        self._opening: Lead | None = None
        self._leads = 0
        self._continues = False
        self._connections: trio.Nursery | None = None
        self._closed = False  # whether it accepts no connections any more
        self._early: list[tuple[Caller, Line]] = []  # connections before the process accepts them
        self._ends: dict[End, Line] = {}
        self._serving = trio.Event()
        self._failure: BaseException | None = None
        self._scope = trio.CancelScope()
        self._task: trio.lowlevel.Task | None = None
        self._executor: ObservedExecutor | None = None

    async def run(self) -> None:
        """Run the process."""
        self._task = trio.lowlevel.current_task()
        self._say("starts")
        try:
            with self._scope:
                if not self.dead:
                    await self._live()
            if self._failure is not None:
                raise self._failure
        except BaseException as error:
            if is_interrupt(error):
                self._world.interrupt()
            elif not self.dead:
                self._world.fail(
                    f"node {self.machine.name} stopped with {type(error).__name__}: {error}", error
                )
        finally:
            if not self.dead:
                self._say("has ended")
            self._end()
            self.gone.set()

    async def _live(self) -> None:
        reading = NodeStore(self.machine.disk, self)
        await self._open_to_read(reading)
        try:
            async with background() as self._connections:
                try:
                    for caller, line in self._early:
                        self.receive(caller, line)
                    await self._take_part(reading)
                finally:
                    self._closed = True
        finally:
            with trio.CancelScope(shield=True):
                await reading.close()

    async def _open_to_read(self, reading: NodeStore) -> None:
        """Open the store; a service manager would start the process again until it is available."""
        while True:
            try:
                await reading.open_to_read()
            except StoreDown:
                await trio.sleep(_OPENS_AGAIN_AFTER)
            else:
                return

    async def _take_part(self, reading: NodeStore) -> None:
        machine, cluster = self.machine, self._cluster
        random = partial(self._world.derived, "node", self.name)
        node = self.node = Node(
            Identity(machine.name, machine.address, "1.0"),
            dial=partial(self._dial, "node"),
            dial_executor=partial(self._dial, "executor"),
            reading=reading,
            lead=self._open_engine,
            lease_ttl=cluster.lease_ttl,
            max_value_bytes=_MAX_VALUE_BYTES,
            random=random("elections"),
        )
        self._executor = ObservedExecutor(
            self._lapses,
            TracedJobs(machine.jobs, self._reports),
            connecting_to_leader(node.router, partial(self._dial, "executor")),
            ExecutorIdentity(
                node=self.process.executor,
                start=self.process.start,
                slots=cluster.slots,
                folder=f"folder-{machine.name}",
            ),
            NoFiles(),
            random=random("executor"),
            shutdown_timeout=cluster.shutdown_timeout,
            clock=machine.clock,
            on_expiry=lambda: self.die("the lease of its executor has expired, and a body still executes"),
        )
        async with background() as self._tasks:
            self._tasks.start_soon(self._run_node, node)
            await node.has_state.wait()
            async with open_gateway(
                cast(Engine, node.engine), machine.gateway, listeners=(), router=node.router, secret="secret"
            ) as self.gateway:
                self._say("serves")
                self._serving.set()
                await self._executor.run()
                self.leaving = True

    async def _run_node(self, node: Node) -> None:
        try:
            await node.run()
        except Exception as error:  # raised by `run`, not in a group
            self._failure = error
            self._scope.cancel()

    # Connections.

    async def _dial(self, kind: Caller, address: str) -> Connection:
        target = self._cluster.at(address)
        line = await self._cluster.wires.connect(self.machine.name, target.name)
        target.receive(kind, line)
        self._ends[line.near] = line
        if kind == "node":
            self.leader_line = line
        return StreamConnection(line.near)

    def receive(self, caller: Caller, line: Line) -> None:
        """Accept a connection; it is served when the gateway is open. Raises `ConnectionRefusedError`."""
        if self._closed:
            raise ConnectionRefusedError(f"connection refused: {self.name} is ending")
        self._ends[line.far] = line
        if self.paused:
            line.faultless = False
        if self._connections is None:
            self._early.append((caller, line))
        else:
            self._connections.start_soon(self._serve, caller, line)

    async def _serve(self, caller: Caller, line: Line) -> None:
        try:
            await self._serving.wait()
            assert self.gateway is not None, "it serves"
            assert self.node is not None, "it serves"
            if caller == "client":
                await self.gateway.serve_stream(line.far)
            elif caller == "node":
                await self.gateway.serve_node(StreamConnection(line.far))
            elif self.node.router.engine is not None:
                heard = self.machine.rules.executors.heard
                await self.gateway.serve_executor(ListeningConnection(line, heard), "executor")
            else:
                await self.gateway.serve_executor(StreamConnection(line.far), "executor")
        finally:
            self._ends.pop(line.far, None)

    # Leading.

    @asynccontextmanager
    async def _open_engine(self, leadership: Leadership) -> AsyncIterator[tuple[Engine, int]]:
        machine, rules = self.machine, self.machine.rules
        self._leads += 1
        self._continues = leadership.continues
        lead = self._opening = Lead(self, NodeStore(machine.disk, self))
        try:
            async with open_engine(
                self._jobs,
                lead.store,
                data_dir=machine.disk.files_of(self),
                clock=self._world.clock,
                random=self._world.derived("engine", self.name, self._leads),
                push=self._world.network,
                executors=0,
                executor_ttl=self._cluster.executor_ttl,
                max_concurrent=self._cluster.max_concurrent,
                max_value_bytes=_MAX_VALUE_BYTES,
                shutdown_timeout=self._cluster.shutdown_timeout,
                leadership=leadership,
            ) as lead.engine:
                self._say(f"leads in term {lead.store.term}")
                try:
                    yield lead.engine, lead.store.term
                finally:
                    self._judge_leader(lead, rules.leaving)
        except BaseException:
            self._judge_leader(lead, rules.crashed)
            raise
        else:
            self._judge_leader(lead, rules.stopped)
        finally:
            lead.engine = None
            self._say("no longer leads")

    def _judge_leader(self, lead: Lead, look: Callable[[], object]) -> None:
        if self._cluster.lead is lead and not self.dead:
            self.machine.judge(look)

    def opened(self, stored: Stored) -> None:
        """Check what its engine read when it opened the store."""
        cluster, machine = self._cluster, self.machine
        assert self._opening is not None, "an engine opens the store"
        cluster.begin_lead(self._opening)
        machine.rules.executors.begin_life(cluster.executor_ttl, alone=False)
        machine.judge(
            machine.rules.opened,
            stored,
            self._jobs.declared,
            cluster.max_concurrent,
            continues=self._continues,
        )

    # The process.

    def drain(self) -> None:
        """Drain the process; see `SimulatedNode.drain`."""
        if self.gateway is not None and not self.leaving:
            self._say("drains")
            self.leaving = self.process.draining = True
            self._tasks.start_soon(self._drain)

    async def _drain(self) -> None:
        assert self._executor is not None, "it serves"
        assert self.node is not None, "it serves"
        self._executor.exit_soon()
        with trio.move_on_after(_STEP_DOWN_TIMEOUT):
            try:
                await self.node.drain()
            except Conflict:
                self._say("no other node can lead")

    async def step_down(self) -> None:
        """Hand the leadership over. Raises `Conflict` if it does not lead, or no other node can."""
        if self.node is not None:
            await self.node.step_down()

    def pause(self) -> None:
        """Pause the process; see `SimulatedNode.pause`."""
        if self._task is not None and not self.paused:
            self._say("is paused")
            self.paused = self.process.paused = True
            for line in self._ends.values():
                line.faultless = False
            self._world.scheduling.pause(self._task)

    def go_on(self) -> None:
        """Continue the process; see `SimulatedNode.go_on`."""
        if self._task is not None and self.paused:
            self._say("continues")
            self.paused = self.process.paused = False
            self.process.continued_at = trio.current_time()
            self.machine.rules.model.disturbed = trio.current_time()
            self._world.scheduling.go_on(self._task)

    def die(self, why: str) -> None:
        """Kill the process immediately. A caller inside the process must not continue."""
        if self.dead:
            return
        self.go_on()
        self._say(f"dies: {why}")
        lead = self._cluster.lead
        if lead is not None and lead.life is self and lead.engine is not None:
            self.machine.judge(self.machine.rules.crashed)
        self._world.figures.crashes += 1
        self._end()
        if self._task is not None:
            cut_off(self._task, self._scope)
            self._world.spawn(partial(reap, self._task, self._scope))

    def _end(self) -> None:
        """The operating system closes the connections of the process."""
        if not self.dead:
            self.dead = self.process.dead = True
            self.gateway = None
            for end in self._ends:
                end.shut()
            self._reports.judge(self.machine.rules.executors.process_ended, self.process)

    def _lapses(self) -> None:
        self._say("ends its bodies: it does not reach the leader")
        self._reports.judge(self.machine.rules.executors.lapses, self.process, self._cluster.calm_since)

    def body_begins(self, run: Any) -> None:
        """Fail: a leader executes no bodies itself."""
        self._world.fail(f"a body of run {run.id} starts in the engine of {self.name}")

    def body_takes(self, run: Any, messages: Any, *, all_: bool) -> None:
        """Never called: a leader executes no bodies itself."""

    def body_ends(self, run: Any, how: str) -> None:
        """Never called: a leader executes no bodies itself."""

    def _say(self, what: str) -> None:
        self._world.trace.add("life", f"node {self.machine.name}", what)
