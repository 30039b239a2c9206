"""The server process of a node: its gateway, what executes its bodies, its part in the cluster, and signals.

The first SIGTERM (or Ctrl-C) hands the leadership over if this node leads, and drains its executors: bodies
get `shutdown_timeout` to finish, and resumable ones continue at other nodes. Meanwhile the gateway serves
clients. A body that ignores its cancellation is logged, and ends with the process. The second signal stops
the server immediately.
"""

from __future__ import annotations

import logging
import random
import signal
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import trio

from .. import __version__
from ..actors.engine.api import Engine
from ..actors.engine.leadership import Leadership
from ..actors.engine.open import open_engine
from ..actors.jobs import Jobs
from ..commands.exits import Exit
from ..config.clusters import read_secret
from ..config.reading import Read
from ..config.secrets import webhook_secret
from ..executor.failures import ProcessEnding
from ..garbage_collection import tuned_collector
from ..gateway.auth.tokens import Caller, Role
from ..gateway.background import background
from ..gateway.server import Gateway, listen, open_gateway
from ..logs import end_process
from ..persistence.elections import Election
from ..persistence.failures import StoreDown
from ..persistence.redis_leases import RedisLeases
from ..persistence.sqlstore import SqlStore
from ..persistence.storelease import TermRefused
from ..protocol.commands import ResetLanes
from ..protocol.errors import GreenroomError
from ..reloading import Reloading
from .dialing import Dialer, origin_of
from .election import RedisElection
from .executing import Executing, Here, InChildren, Nothing
from .node import ClusterBroken, Identity, Node
from .reachability import watch_address

logger = logging.getLogger("greenroom.cluster")

_STOP_TIMEOUT = 2.0
"""Seconds from the second signal, or from a failure of the node, to the exit of the process."""
_ABANDONED = 1.0
"""Seconds from the moment when only abandoned bodies remain to the end of the drain."""
_STEP_DOWN_TIMEOUT = 5.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0
"""Seconds between two attempts to reach the store at the start."""


class NodeServer:
    """The process of a node. `reread` reads the configuration again, for SIGHUP."""

    def __init__(self, jobs: Jobs, read: Read, reread: Callable[[], Read]) -> None:
        self._jobs = jobs
        self._config = read.config
        self._reloading = Reloading(read, reread, jobs)
        self._secret = read_secret(read.config.cluster.secret_file)
        self._stop = trio.Event()
        self._signal: int | None = None  # the second one, which stops the server immediately
        self._scope = trio.CancelScope()
        self._node: Node | None = None
        self._gateway: Gateway | None = None
        self._executing: Executing | None = None
        self._executing_scope = trio.CancelScope()
        self._executed = trio.Event()  # nothing executes, or nothing that obeys
        self._bodies_ended = trio.Event()
        self._failure: Exception | None = None
        self._elections: RedisElection | None = None  # if a lease in Redis decides who leads

    async def run(self) -> int:
        """Serve until a signal stops the server. Returns the exit code. Raises errors of the start; a later
        failure is logged."""
        with trio.open_signal_receiver(*_handled_signals()) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._handle_signals, signals, nursery)
                try:
                    with self._scope, tuned_collector() as started:
                        await self._serve(nursery, started)
                except Exception as error:  # raised below, not in a group
                    self._failure = self._failure or error
                await self._end_bodies()
                nursery.cancel_scope.cancel()
        failure = self._failure
        if failure is not None and self._gateway is None and isinstance(failure, GreenroomError | OSError):
            raise failure
        return self._code()

    async def _serve(self, nursery: trio.Nursery, started: Callable[[], None]) -> None:
        config = self._config
        listeners = await listen(config.gateway)
        secure = config.gateway.tls_certificate is not None
        address = config.cluster.advertise or origin_of(listeners[0], secure=secure)
        identity = Identity(config.cluster.node or address.partition("://")[2], address, __version__)
        stores = config.engine.store if isinstance(config.engine.store, str) else list(config.engine.store)
        reading = SqlStore(stores, member=address)
        if config.cluster.lease is not None:
            leases = RedisLeases(config.cluster.lease, config.cluster.name)
            self._elections = RedisElection(leases, reading, address, config.cluster.lease_ttl)
        try:
            await self._open_to_read(reading)
            async with background() as connections:
                dialer = Dialer(self._secret, config.cluster.ca_file, connections)
                node = self._node = Node(
                    identity,
                    dial=dialer.node,
                    dial_executor=dialer.executor,
                    reading=reading,
                    leased_to=None if self._elections is None else self._elections.leased_to,
                    lead=self._open_engine,
                    lease_ttl=config.cluster.lease_ttl,
                    max_value_bytes=config.engine.max_value_bytes,
                    random=random.Random(),
                )
                node.router.start = uuid.uuid4().hex
                executing = self._make_executing(node, dialer)
                await executing.load()
                nursery.start_soon(self._execute, executing)
                async with background() as tasks:
                    tasks.start_soon(self._run_node, node)
                    await node.has_state.wait()
                    async with open_gateway(
                        cast(Engine, node.engine),
                        config.gateway,
                        listeners=listeners,
                        router=node.router,
                        secret=self._secret,
                    ) as gateway:
                        self._gateway = gateway
                        started()
                        tasks.start_soon(
                            watch_address, address, node.router.start, dialer.node, node.can_be_reached
                        )
                        await self._stop.wait()
                        await self._drain(node, executing)
        finally:
            for listener in listeners:
                await trio.aclose_forcefully(listener)
            with trio.CancelScope(shield=True):
                await reading.close()

    async def _open_to_read(self, reading: SqlStore) -> None:
        """Open the store when it can be reached."""
        pause = _SHORTEST_PAUSE
        while True:
            try:
                await reading.open_to_read()
                return
            except StoreDown as error:
                logger.warning("waiting for the store: %s", error.message)
            await reading.close()
            await trio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _run_node(self, node: Node) -> None:
        try:
            await node.run()
        except Exception as error:  # raised by `run`, not in a group
            self._fail(error)

    @asynccontextmanager
    async def _open_engine(self, leadership: Leadership) -> AsyncIterator[tuple[Engine, int]]:
        """Open the engine with the lease of the store, or with one in Redis."""
        elections = self._elections
        if elections is None:
            async with self._open_elected(leadership, None) as opened:
                yield opened
            return
        election = await elections.win()
        begun = False
        try:
            async with self._open_elected(leadership, election) as opened:
                begun = True  # the lease is released with the store
                yield opened
        except TermRefused:
            await elections.block(election)
            raise
        except BaseException:
            if not begun:
                with trio.CancelScope(shield=True):
                    await elections.give_up(election)
            raise

    @asynccontextmanager
    async def _open_elected(
        self, leadership: Leadership, election: Election | None
    ) -> AsyncIterator[tuple[Engine, int]]:
        settings, cluster = self._config.engine, self._config.cluster
        stores = settings.store if isinstance(settings.store, str) else list(settings.store)
        store = SqlStore(stores, lease_ttl=cluster.lease_ttl, member=leadership.address, election=election)
        async with open_engine(
            self._jobs,
            store,
            max_concurrent=settings.max_concurrent,
            lanes=settings.lanes,
            schedules=self._config.schedules,
            data_dir=settings.data_dir,
            runs_dir=settings.runs_dir,
            keep_runs=settings.keep_runs,
            keep_events=settings.keep_events,
            max_pending=settings.max_pending,
            max_value_bytes=settings.max_value_bytes,
            shutdown_timeout=settings.shutdown_timeout,
            executors=0,
            executor_ttl=settings.executor_ttl,
            allow_scripts=settings.allow_scripts,
            worker_networks=settings.worker_networks,
            webhook_secret=webhook_secret(settings),
            webhook_networks=settings.webhook_networks,
            on_lease_lost="exit",
            leadership=leadership,
        ) as engine:
            yield engine, store.engine_lease.term

    def _fail(self, error: Exception) -> None:
        """Stop the server because of this error."""
        if self._failure is None:
            self._failure = error
            # For these, the message is sufficient.
            known = isinstance(error, GreenroomError | ClusterBroken | ProcessEnding)
            logger.critical("the node has failed: %s", error, exc_info=None if known else error)
        self._scope.cancel()

    # Bodies.

    def _make_executing(self, node: Node, dialer: Dialer) -> Executing:
        settings, id = self._config.engine, node.identity.id
        if settings.executors == 0:
            return Nothing()
        if settings.executors is not None:
            return InChildren(
                self._jobs,
                settings.executors,
                id,
                node.router,
                data_dir=settings.data_dir,
                shutdown_timeout=settings.shutdown_timeout,
            )
        return Here(
            self._jobs,
            id,
            __version__,
            node.router,
            dialer.executor,
            secret=self._secret,
            ca_file=self._config.cluster.ca_file,
            data_dir=settings.data_dir,
            shutdown_timeout=settings.shutdown_timeout,
        )

    async def _execute(self, executing: Executing) -> None:
        """Execute bodies until they are drained. Not in a task of the gateway's block: it must not wait for a
        body that ignores its cancellation."""
        self._executing = executing
        try:
            with self._executing_scope:
                await executing.run()
            if not self._stop.is_set() and not self._scope.cancel_called:
                logger.warning(
                    "the executor of this node has drained: this node executes no more bodies until it "
                    "restarts"
                )
        except Exception as error:  # raised by `run`, not in a group
            self._fail(error)
        finally:
            self._bodies_ended.set()
            self._executed.set()

    async def _end_bodies(self) -> None:
        """End what still executes; the process exits although bodies ignore that."""
        if self._executing is None:
            return
        self._executing_scope.cancel()
        with trio.move_on_after(_STOP_TIMEOUT):
            await self._bodies_ended.wait()
            return
        self._exit_without_bodies()

    def _exit_without_bodies(self) -> None:
        for run in self._executing.remaining if self._executing is not None else ():
            logger.error("body of run %s has not ended; exiting without it", run)
        end_process(self._code())

    # The drain.

    async def _drain(self, node: Node, executing: Executing) -> None:
        """Hand the leadership over, and wait until nothing executes here."""
        logger.info("draining this node")
        if not self._bodies_ended.is_set():
            executing.drain()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._notice_abandoned, executing)
            with trio.move_on_after(_STEP_DOWN_TIMEOUT):
                await node.drain()
            await self._executed.wait()
            nursery.cancel_scope.cancel()
        with trio.move_on_after(_STEP_DOWN_TIMEOUT):
            await node.drain()  # to a node that has joined in the meantime

    async def _notice_abandoned(self, executing: Executing) -> None:
        await executing.only_abandoned_remain()
        await trio.sleep(_ABANDONED)
        self._executed.set()

    # Signals.

    async def _handle_signals(self, signals: AsyncIterator[int], nursery: trio.Nursery) -> None:
        async for number in signals:
            if number in (signal.SIGTERM, signal.SIGINT):
                self._handle_stop(number, nursery)
            elif self._gateway is not None and self._node is not None and not self._stop.is_set():
                if number == signal.SIGHUP:
                    nursery.start_soon(self._reloading.reload, self._gateway, self._node.router.engine)
                else:
                    nursery.start_soon(self._reset, self._node)

    def _handle_stop(self, number: int, nursery: trio.Nursery) -> None:
        if self._stop.is_set():
            self._signal = number
            logger.warning("received a second signal: stopping immediately")
            self._scope.cancel()
            nursery.start_soon(self._stop_at_once)
            return
        self._stop.set()
        if self._gateway is None:  # nothing is to be drained
            self._scope.cancel()

    async def _stop_at_once(self) -> None:
        await trio.sleep(_STOP_TIMEOUT)
        self._exit_without_bodies()

    async def _reset(self, node: Node) -> None:
        """Reset the lanes, at whichever node leads."""

        async def here() -> None:
            assert node.router.engine is not None, "this node leads"
            await node.router.engine.reset_lanes(by="SIGUSR1")

        try:
            await node.router.request(here, lambda following: following.forward(_SIGUSR1, ResetLanes(id=0)))
        except GreenroomError as error:
            logger.error("lanes not reset: %s", error.message)
        else:
            logger.warning("lanes reset")

    def _code(self) -> int:
        """The exit code: 0 after a drain, 1 after a failure, 128 and the signal's number after a second
        signal."""
        if self._signal is not None:
            return 128 + self._signal
        return 0 if self._failure is None else Exit.FAILED


_SIGUSR1 = Caller("SIGUSR1", Role.ADMIN)


def _handled_signals() -> list[signal.Signals]:
    """The signals that the server handles. Windows has only the first two."""
    names = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1")
    return [signal.Signals[name] for name in names if hasattr(signal, name)]
