"""The parts of one engine and their lifetime: two nurseries, and an orderly shutdown.

The actors run in a nursery inside the nursery of the bodies. Both are shielded from cancellation of the
caller, because leaving is a procedure (see `_shut_down`). A failure of an actor ends both immediately.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random

import trio

from ...persistence.executor_lock import ExecutorLock
from ...persistence.failures import StoreBroken
from ...persistence.files import Files
from ...persistence.runs_dir import RunFiles
from ...persistence.store import Retention, Store, Stored, StoredRun
from ...protocol.events import Event, LeaderChanged
from ...protocol.fold import Projection
from ...protocol.lane_settings import LaneConfig
from ...protocol.lanes import DEFAULT_RULES
from .. import tracing
from ..actor import Actor, Directory
from ..aio.bodies import AsyncioBodies
from ..alarms import Alarms
from ..channel import Reply
from ..executors.announced import AnnouncedJobs
from ..executors.api import Executors
from ..executors.child_links import ChildLinks
from ..executors.children import Children
from ..executors.registry import Registry as ExecutorRegistry
from ..executors.remote_execution import RemoteExecution
from ..flow.catalog import Catalog
from ..flow.job import FlowJob
from ..flow.services import FlowServices, Graphs
from ..jobs import EngineJobs, Jobs
from ..journal.change import Change
from ..journal.journal import Journal
from ..journal.messages import Answer, StoreIsDamaged
from ..journal.stream import Stream
from ..messages import Closing, Stop, Submission, WaitForActive
from ..run.actor import RunActor
from ..run.execution import Execution, LiveBodies, LocalExecution
from ..run.services import Services, Surroundings
from ..schedules.actor import SchedulesActor
from ..schedules.configured import Tables, all_declared, check_declared, configured, continued
from ..scheduling.supervisor import Supervisor
from ..webhooks.api import Webhooks
from ..webhooks.deliveries import Deliveries
from ..webhooks.holds import Holds
from ..webhooks.subscribing import Subscriptions
from ..workers.api import Workers
from ..workers.dispatch import Dispatch
from ..workers.messages import End
from ..workers.networks import Networks
from ..workers.push import HttpPush, Push
from ..workers.registry import Registry
from ..workers.workqueue import WorkQueue
from .api import Engine
from .entry_point import EntryPoint
from .finished_files import FinishedFiles
from .ids import Uuid7
from .leadership import Leadership
from .lease import Leasing
from .recovery import lanes_after_restart, projection_of, recall, restart_events, submissions
from .retention import Pruning
from .run_files import RunsDir
from .suspends import Suspended, Suspends
from .watchdog import Watch

logger = logging.getLogger("greenroom")

Clock = Callable[[], float]

_MOST_MISSED = 4096
"""The number of events that a node's stream gets from the store; behind that, clients get a snapshot."""

_MAX_CONCURRENT = 3
"""The global limit, unless one is configured or stored."""

_LOG_CHILDREN_AFTER = 1.0
"""Seconds after which the wait for the children of an earlier engine is logged."""
_LOG_REMAINING_AFTER = 15.0
"""Seconds after which a body that delays the shutdown is named in the log."""


class Runtime:
    """See the module's docstring. `leave` ends the engine; `failure` is the error that ended it, if any."""

    def __init__(
        self,
        jobs: Jobs,
        store: Store,
        *,
        max_concurrent: int | None,
        lanes: dict[str, LaneConfig],
        schedules: Tables,
        files: Files,
        run_files: RunFiles | None,
        retention: Retention | None,
        max_pending: int,
        max_value_bytes: int,
        shutdown_timeout: float,
        clock: Clock,
        watched: bool,
        ids: Callable[[], str],
        random: Random,
        epoch: str,
        push: Push | None,
        allow_scripts: bool,
        networks: Networks,
        webhook_secret: bytes | None,
        webhook_networks: Networks,
        suspends: Suspends | None,
        exits_on_lease_lost: bool,
        gathers: bool,
        executors: int | None,
        executor_ttl: float,
        executor_lock: ExecutorLock | None,
        children: Children | None,
        leadership: Leadership | None,
    ) -> None:
        self.failure: BaseException | None = None
        self.opened = trio.Event()
        self._store = store
        self._executor_lock = executor_lock
        self._children = children
        self._epoch = epoch
        self._max_concurrent = max_concurrent
        self._lanes = lanes
        self._clock = clock
        self._ids = ids
        self._shutdown_timeout = shutdown_timeout
        self._leaving = trio.Event()
        self._ended = trio.Event()
        self._patience = trio.CancelScope()  # around the wait for executing runs
        self._stop: Stop | None = None
        self._watch = Watch()
        self._live_bodies = LiveBodies(self._watch.body_ends)
        self._leasing = Leasing(store, self._live_bodies, exits_on_lease_lost, self._fail)
        self._watched = watched
        self._settled = trio.Event()  # no more commits follow
        self._alarms = Alarms()
        self._directory = Directory(self._start)
        self._leadership = leadership
        stream = self._stream = Stream() if leadership is None else leadership.stream
        self._journal = Journal(
            store,
            stream,
            self._directory,
            clock,
            self._spawn_helper,
            gathers=gathers,
            ends_stream=leadership is None,
        )
        if suspends is not None:
            self._journal.look_for_suspends = partial(self._look_for_suspends, suspends)
        self._runs_dir = RunsDir(run_files, store, stream, self._journal) if run_files else None
        self._pruning = None
        if retention is not None:
            pruned = self._runs_dir.pruned if self._runs_dir is not None else lambda _: None
            self._pruning = Pruning(retention, store, stream, clock, pruned)
        self._supervisor = Supervisor(
            max_pending=max_pending,
            directory=self._directory,
            spawn=self._spawn_helper,
            local_jobs=jobs if executors is None else (),
            clock=clock,
            recall=self._recall,
        )
        self._catalog = Catalog(self._journal, ids, clock)
        flow_job = FlowJob(store, clock, max_value_bytes)
        announced = AnnouncedJobs(jobs)
        in_code = [job.schedule for job in jobs.all if job.schedule is not None]
        self._jobs = jobs = EngineJobs(jobs, flow_job.job(), announced)
        subscriptions = Subscriptions(
            webhook_networks,
            signs=webhook_secret is not None,
            notify_of=self._journal.notify_of,
        )
        subscriptions.check_lanes(lanes)
        entry = self._entry = EntryPoint(
            jobs, self._supervisor, self._journal, ids, clock, max_value_bytes, subscriptions
        )
        in_code = [check_declared(declared, entry.checks) for declared in in_code]
        self._declared = all_declared(in_code, configured(schedules, entry.checks))
        self._asyncio_bodies = AsyncioBodies(self.interrupt)
        surroundings = Surroundings(files, self._asyncio_bodies)
        self._executors = ExecutorRegistry(
            epoch,
            executor_ttl,
            max_value_bytes,
            self._directory,
            self._spawn_helper,
            announced,
            files if leadership is None else None,
            self._leasing.is_good,
        )
        self._services = Services(
            entry,
            self._journal,
            files,
            clock,
            self._directory,
            surroundings,
            self._executors,
            random.random,
            self._alarms.now,
        )
        self._http = HttpPush(networks)
        self._hooks_http = HttpPush(webhook_networks, reads_bodies=False)
        self._deliveries = None
        holds = Holds()
        if webhook_secret is not None:
            sends = push or self._hooks_http
            self._deliveries = Deliveries(
                self._journal, store, sends, webhook_secret, clock, random.random, holds
            )
            self._journal.machine.wake_webhooks = self._deliveries.wake
        self._registry = Registry(self._journal, clock)
        self._queue = WorkQueue(ids)
        dispatch = Dispatch(entry, self._registry, self._queue, push or self._http)
        functions = None if executors is None else self._executors.functions
        flow_services = FlowServices(
            Graphs(store), self._catalog, dispatch, jobs, self._journal, allow_scripts, functions
        )
        flow_job.begin(flow_services)
        self._schedules = SchedulesActor(entry, self._directory, self._spawn_helper, clock)
        # Created once: a bound method per run would be one more object for the garbage collector.
        self._actor_args = (self._alarms, self._directory.remove, self._actor_failed)
        self._run_args = (self._spawn_helper, self._spawn_body, self.interrupt)
        self._directory.makes("run", self._make_run)
        self._directory.makes("schedules", lambda _: self._schedules)
        self.engine = Engine(
            entry,
            self._journal,
            stream,
            store,
            self._directory,
            self._live_bodies,
            self._watch,
            self._settled,
            Workers(entry, self._registry, self._queue, clock, networks),
            flow_services,
            Webhooks(entry, self._journal, store, clock, holds, self._deliveries),
            Executors(self._executors),
            ids,
            clock,
            children,
            self._leasing,
            FinishedFiles(files, store),
        )

    # Lifetime.

    @trio.lowlevel.enable_ki_protection
    async def run(self, block: trio.CancelScope) -> None:
        """Run until the block is left and everything has ended, or until an actor fails."""
        self._block = block
        with trio.CancelScope(shield=True):
            try:
                async with trio.open_nursery() as self._bodies:
                    try:
                        async with trio.open_nursery() as self._actors:
                            self._actors.start_soon(self._alarms.run)
                            if self._leasing.needs_task:
                                self._actors.start_soon(self._leasing.keep)
                            await self._recover()
                            self._start_background_tasks()
                            if self._children is not None:
                                await self._actors.start(self._children.run, ChildLinks(self._executors))
                            self.opened.set()
                            await self._leaving.wait()
                            await self._shut_down()
                            await self._end_queue()
                            if self._children is not None:
                                await self._children.stop()
                            if self._runs_dir is not None:
                                await self._runs_dir.finish()
                            self._actors.cancel_scope.cancel()
                    finally:
                        self._refuse_callers()
                        self._settled.set()
                    self._bodies.cancel_scope.cancel()
            except BaseException:
                if self.failure is None:
                    raise
            finally:
                try:
                    await self._close()
                except Exception as error:
                    self.failure = self.failure or error
                finally:
                    self._ended.set()
                    self.opened.set()  # if it failed before: the block is cancelled, and `open_engine` raises

    async def leave(self, *, immediately: bool) -> None:
        """Shut down; `immediately` gives executing runs no more time. Returns when everything has ended."""
        if immediately:
            self._patience.cancel()
        self._leaving.set()
        await self._ended.wait()

    def interrupt(self, error: BaseException) -> None:
        """A body raised something that is not an `Exception`: shut down immediately and raise it."""
        if self.failure is None:
            self.failure = error
        self._patience.cancel()
        self._leaving.set()
        self._block.cancel()

    def store_is_damaged(self, error: StoreBroken) -> None:
        """A call found that the stored data is damaged: stop the engine."""
        self._journal.tell(StoreIsDamaged(error))

    async def _recover(self) -> None:
        """Continue from the state of the store, or make the engine fail with the error."""
        try:
            await self._restore()
        except Exception as error:
            self.failure = self.failure or error
            self._block.cancel()
            raise

    async def _restore(self) -> None:
        """Restore the stored state: first the projection at the last seq, then the changes of the restart."""
        now = self._clock()
        stored = await self._store.open(self._epoch, self._max_concurrent or _MAX_CONCURRENT, now)
        await self._replace_children(stored)
        continues = self._leadership is not None and self._leadership.continues
        limit, configured = self._max_concurrent, {} if continues else self._lanes
        if continues or limit is None:
            limit = stored.max_concurrent
        lanes = lanes_after_restart(stored, configured)
        self._compare_with_children(limit)
        if isinstance(self._ids, Uuid7):
            self._ids.continue_after(stored.last_id)
        projection = projection_of(stored)
        await self._begin_stream(stored, projection)
        self._journal.begin(projection)
        if self._runs_dir is not None:
            self._runs_dir.begin(stored)
        self._actors.start_soon(self._journal.committer.run, name="committer")
        self._directory.add(self._journal)
        for event in restart_events(stored, limit, lanes, draining=stored.draining and continues):
            self._journal.tell(Change((event,)))
        if self._leadership is not None:
            self._journal.tell(Change((self._leader_changed(self._leadership),)))
        self._registry.restore(stored.workers)
        self._directory.add(self._registry)
        self._catalog.restore(stored)
        self._directory.add(self._catalog)
        self._directory.add(self._queue)
        supervisor = self._supervisor
        order = supervisor.machine.order
        supervisor.machine.settings.drain(draining=stored.draining and continues)
        order.limit = limit
        order.generations = {name: lane.generation for name, lane in lanes.items() if lane.generation}
        order.limits = {name: lane.limit for name, lane in lanes.items()}
        order.paused = {name for name, lane in lanes.items() if lane.paused}
        order.rules = {name: lane.rules for name, lane in lanes.items() if lane.rules != DEFAULT_RULES}
        self._journal.machine.webhooks = dict(stored.webhooks)
        if self._deliveries is None:
            notifying = sorted(name for name, lane in lanes.items() if lane.rules.notify is not None)
            _warn_of_webhooks(notifying, owed=stored.owes_deliveries)
        self._directory.add(supervisor)
        self._executors.restore(stored)
        supervisor.restore(stored, *submissions(stored, self._jobs, now), now)
        declared = continued(self._declared, stored.schedules) if continues else self._declared
        if stored.schedules or declared:
            self._schedules.restore(stored.schedules, declared, self._ids)
            self._directory.add(self._schedules)
        await self._journal.look(lambda committed: committed.seq)

    def _recall(self, stored: StoredRun) -> Submission:
        return recall(stored, self._jobs, self._clock())

    async def _begin_stream(self, stored: Stored, projection: Projection) -> None:
        """Continue the numbering; the stream of a node also continues with the events that it has missed."""
        stream, leadership, last_seq = self._stream, self._leadership, stored.last_seq
        missed: Sequence[Event] = ()
        if leadership is not None and stream.last_seq not in (0, last_seq):
            missed = await self._store.events(stream.last_seq, _MOST_MISSED)
        if leadership is not None:
            leadership.restored(stored.epoch, projection)
        if stream.last_seq == 0:
            stream.begin(last_seq)
        elif stream.last_seq != last_seq:
            stream.continue_at(last_seq, missed)

    def _leader_changed(self, leadership: Leadership) -> LeaderChanged:
        lease = self._store.lease
        term = 0 if lease is None else lease.term
        return LeaderChanged(
            seq=0, at=0, by="engine", node=leadership.node, address=leadership.address, term=term
        )

    async def _replace_children(self, stored: Stored) -> None:
        """Wait until the children of a killed engine have ended, then start those of this one."""
        lock = self._executor_lock
        if lock is not None and not await lock.wait(_LOG_CHILDREN_AFTER):
            logger.warning("waiting until the child processes of an earlier engine have ended: %s", lock.path)
            ttl = max((known.ttl or 0 for known in stored.executors.values()), default=0)
            ttl = max(ttl, self._executors.ttl)
            if not await lock.wait(ttl):
                logger.error(
                    "child processes of an earlier engine still exist after %g s, and can execute bodies; "
                    "end the processes that have %s open",
                    ttl,
                    lock.path,
                )
        if self._children is not None:
            await self._children.load()

    def _compare_with_children(self, limit: int) -> None:
        """Log a global limit that leaves child processes without work."""
        if self._children is not None and limit < len(self._children):
            logger.warning(
                "max_concurrent is %d: at most as many of the %d child processes execute bodies at a time",
                limit,
                len(self._children),
            )

    def _start_background_tasks(self) -> None:
        """Start the tasks that no actor waits for."""
        self._actors.start_soon(self._executors.watch)
        if self._watched:
            self._watch.begin(self._live_bodies)
        if self._runs_dir is not None:
            self._actors.start_soon(self._runs_dir.follow)
            self._actors.start_soon(self._runs_dir.write)
        if self._pruning is not None:
            self._actors.start_soon(self._pruning.run)
        if self._deliveries is not None:
            self._actors.start_soon(self._deliveries.run)

    async def _shut_down(self) -> None:
        """Refuse new runs, let executing ones finish until the timeout, then suspend or cancel them, and wait
        until every body has ended or was abandoned. Afterwards nothing more is committed."""
        if self._children is not None:
            self._children.close()
        patience = 0.0 if self._patience.cancel_called else self._shutdown_timeout
        self._journal.hurry(trio.current_time() + patience)
        self._supervisor.tell(Closing(False, Reply()))
        self._send_to_runs(Stop(now=False))
        with self._patience:
            self._patience.deadline = trio.current_time() + self._shutdown_timeout
            await self._nothing_executes()
        self._executors.leave()
        closed: Reply[object] = Reply()
        self._supervisor.tell(Closing(True, closed))
        await closed.get()
        self._send_to_runs(Stop(now=True))
        with trio.move_on_after(_LOG_REMAINING_AFTER):
            await self._directory.none_awake("run")
        self._log_remaining_bodies()
        while True:  # the end of one run may cause messages to another
            await self._directory.none_awake("run")
            answered: Reply[None] = Reply()
            self._supervisor.tell(Answer(answered))
            await answered.get()
            if not self._directory.awake("run"):
                return

    async def _end_queue(self) -> None:
        """Release the workers that poll: no more work is offered."""
        ended: Reply[None] = Reply()
        self._queue.tell(End(ended))
        await ended.get()

    async def _nothing_executes(self) -> None:
        while True:
            idle: Reply[bool] = Reply()
            self._supervisor.tell(WaitForActive(idle, ending=True))
            await idle.get()
            await self._live_bodies.none()
            if not self._supervisor.machine.active.here():
                return

    def _send_to_runs(self, stop: Stop) -> None:
        self._stop = stop  # also for runs that wake up later
        for id in list(self._directory.awake("run")):
            self._directory.tell("run", id, stop)

    def _log_remaining_bodies(self) -> None:
        for execution in self._live_bodies:
            logger.error(
                "the body of run %s, attempt %d, has not ended after its cancellation; shutdown waits for it",
                execution.id,
                execution.attempt,
            )

    def _refuse_callers(self) -> None:
        """Fail everything that waits for a reply: none will follow."""
        for execution in self._live_bodies:
            execution.close("engine has stopped")
        self._executors.leave()  # a node's gateway outlives its engine: executors must not wait for this one
        self._executors.functions.close()
        self._entry.close()
        self._journal.close()

    async def _close(self) -> None:
        """Release external resources, which are no longer used."""
        self._watch.end()
        try:
            if self._children is not None:
                await self._children.aclose()
            await self._asyncio_bodies.aclose()
            await self._http.aclose()
            await self._hooks_http.aclose()
        finally:
            await self._store.close()

    def _look_for_suspends(self, suspends: Suspends) -> None:
        seconds = suspends.since_last_look()
        if seconds:
            logger.info("the machine was suspended for %.1f s", seconds)
            for id in list(self._directory.awake("run")):
                self._directory.tell("run", id, Suspended(seconds))

    def _start(self, actor: Actor) -> None:
        self._actors.start_soon(actor.run, *self._actor_args, name=f"{actor.kind} {actor.name}")

    def _actor_failed(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self._refuse_callers()
        self._block.cancel()

    def _fail(self, error: Exception) -> None:
        """Stop immediately, because of a failure outside the actors."""
        if self.failure is None:
            self.failure = error
            if self._leadership is None:  # otherwise the node logs it, and continues
                logger.critical("%s", error)
        self._refuse_callers()
        self._block.cancel()
        self._actors.cancel_scope.cancel()

    def _spawn_helper(self, call: Callable[[], Awaitable[object]]) -> None:
        self._actors.start_soon(self._help, call)

    @trio.lowlevel.enable_ki_protection
    async def _help(self, call: Callable[[], Awaitable[object]]) -> None:
        try:
            await call()
        except trio.Cancelled:
            raise
        except BaseException as error:
            self.interrupt(error)

    def _spawn_body(self, execution: Execution) -> None:
        if tracing.API in sys.modules:
            self._trace_wait(execution)
        if not isinstance(execution, LocalExecution):
            assert isinstance(execution, RemoteExecution), "there are two kinds of executions"
            if not execution.continues:
                self._live_bodies.begin_elsewhere(execution)
            self._executors.start(execution)
            return
        self._live_bodies.add(execution)
        if self.failure is not None:
            execution.close("engine has stopped")
        self._bodies.start_soon(execution, self._live_bodies, name=f"body of run {execution.id}")

    def _trace_wait(self, execution: Execution) -> None:
        """Make the span of the wait in the queue that this body ends, if the run is traced."""
        submission = self._supervisor.submission(execution.id)
        if submission is None or submission.terms.trace is None:
            return
        if submission.place == submission.traced_place:
            return  # it continues: this is not the first body with that place
        since = submission.waits_since if submission.traced_place is None else submission.placed_at
        submission.traced_place = submission.place
        tracing.record(
            f"wait {submission.job.name}",
            submission.terms.trace,
            trio.current_time() - since,
            run=submission.id,
            handle=submission.handle,
            lane=submission.lane,
            job=submission.job.name,
            attempt=execution.attempt,
        )

    # Actors that the directory starts on demand.

    def _make_run(self, id: str) -> RunActor | None:
        submission = self._supervisor.submission(id)
        if submission is None or submission.over:
            return None
        if submission.begun and self._stop is not None and self._stop.now:
            return None  # it was suspended by the shutdown and resumes at the next start
        run = RunActor(submission, self._services, self._live_bodies, *self._run_args)
        if self._stop is not None:
            run.tell(self._stop)
        return run


def _warn_of_webhooks(lanes: Sequence[str], *, owed: bool) -> None:
    """Without a secret, nothing is delivered: say so if there is something to deliver."""
    whose = [f"lanes with notify ({', '.join(lanes)})"] if lanes else []
    if owed:
        whose.append("earlier runs")
    if whose:
        logger.warning(
            "webhooks of %s are stored but not delivered, because there is no secret to sign them: set "
            "webhook_secret, or webhook_secret_file in the configuration",
            " and of ".join(whose),
        )
