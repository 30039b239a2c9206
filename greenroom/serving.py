"""The server: an engine, its gateway, and signals for shutdown, reload and reset.

The first SIGTERM (or Ctrl-C) drains: new runs are refused, executing runs get `shutdown_timeout` seconds, and
the gateway stays open until the engine has ended. If a body does not end, the server logs its run and exits
without it, after everything else is committed. The second signal stops the server immediately.
"""

from __future__ import annotations

import logging
import math
import signal
from collections.abc import AsyncIterator, Callable

import trio

from .actors.engine.api import Engine
from .actors.engine.open import open_engine
from .actors.jobs import Jobs
from .actors.scheduling.stored_bodies import is_child
from .commands.exits import Exit
from .config.reading import Read
from .config.secrets import webhook_secret
from .garbage_collection import tuned_collector
from .gateway.server import Gateway, open_gateway
from .logs import end_process
from .protocol.errors import GreenroomError
from .protocol.fold import Projection
from .protocol.states import Status
from .reloading import Reloading

logger = logging.getLogger("greenroom.serve")

_LINGER = 1.0
"""Seconds from the engine's last commit to the exit of the process, for bodies that end in the meantime."""
_INFINITE_GRACE = 60.0
"""Seconds for bodies with an infinite `grace`, after `shutdown_timeout` and the longest finite `grace`."""
_STOP_TIMEOUT = 2.0
"""Seconds from the second signal to the exit of the process."""
_DRAIN_TIMEOUT = 1.0
"""Seconds to commit that the engine drains; while the store is down, that is not possible."""


class Server:
    """The server process. `reread` reads the configuration again, for SIGHUP."""

    def __init__(
        self, jobs: Jobs, read: Read, reread: Callable[[], Read], *, accept_store: bool = False
    ) -> None:
        self._jobs = jobs
        self._accept_store = accept_store
        self._config = read.config
        self._reloading = Reloading(read, reread, jobs)
        self._stop = trio.Event()
        self._patience = trio.CancelScope()
        self._signal: int | None = None  # the second one, which stops the server immediately
        self._engine_ended = trio.Event()
        self._gateway_closed = trio.Event()
        self._engine: Engine | None = None
        self._gateway: Gateway | None = None

    async def run(self) -> int:
        """Serve until a signal stops the server. Returns the exit code. Raises errors of the start; a later
        failure is logged."""
        failure: BaseException | None = None
        with trio.open_signal_receiver(*_handled_signals()) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._handle_signals, signals, nursery)
                try:
                    with self._patience, tuned_collector() as started:
                        await self._serve(nursery, started)
                except (Exception, SystemExit, KeyboardInterrupt) as error:  # raised below, not in a group
                    failure = error
                self._engine_ended.set()
                if self._gateway is not None:
                    await self._gateway_closed.wait()
                nursery.cancel_scope.cancel()
        if failure is None:
            return self._code()
        if self._gateway is None:
            raise failure
        known = isinstance(failure, GreenroomError)  # its message is sufficient
        logger.critical("the engine has failed: %s", failure, exc_info=None if known else failure)
        return Exit.FAILED

    async def _serve(self, nursery: trio.Nursery, started: Callable[[], None]) -> None:
        settings = self._config.engine
        async with open_engine(
            self._jobs,
            settings.store if isinstance(settings.store, str) else list(settings.store),
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
            executors=settings.executors,
            executor_ttl=settings.executor_ttl,
            allow_scripts=settings.allow_scripts,
            worker_networks=settings.worker_networks,
            webhook_secret=webhook_secret(settings),
            webhook_networks=settings.webhook_networks,
            accept_store=self._accept_store,
            on_lease_lost="exit",
        ) as engine:
            self._gateway = await nursery.start(self._open_gateway, engine)
            self._engine = engine
            started()
            try:
                await self._stop.wait()
            finally:  # a signal was received, or the engine has failed
                nursery.start_soon(self._exit_without_bodies, engine)
            with trio.move_on_after(_DRAIN_TIMEOUT):
                await engine.drain(by="serve")
            here, elsewhere = await engine.look(_executing)
            logger.info("draining: %s", _what_follows(here, elsewhere, settings.shutdown_timeout))
        logger.info("engine stopped")

    async def _open_gateway(
        self, engine: Engine, task_status: trio.TaskStatus[Gateway] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run the gateway in its own task, so that it stays open until the engine has ended."""
        try:
            async with open_gateway(engine, self._config.gateway) as gateway:
                task_status.started(gateway)
                await self._engine_ended.wait()
        finally:
            self._gateway_closed.set()

    # Signals.

    async def _handle_signals(self, signals: AsyncIterator[int], nursery: trio.Nursery) -> None:
        async for number in signals:
            if number in (signal.SIGTERM, signal.SIGINT):
                if self._stop.is_set():
                    self._signal = number
                    logger.warning("received a second signal: stopping immediately")
                    self._patience.cancel()
                    nursery.start_soon(self._stop_at_once)
                else:
                    self._stop.set()
            elif self._engine is not None and self._gateway is not None and not self._stop.is_set():
                if number == signal.SIGHUP:
                    nursery.start_soon(self._reloading.reload, self._gateway, self._engine)
                else:
                    nursery.start_soon(self._reset, self._engine)

    async def _reset(self, engine: Engine) -> None:
        try:
            await engine.reset_lanes(by="SIGUSR1")
        except GreenroomError as error:
            logger.error("lanes not reset: %s", error.message)
        else:
            logger.warning("lanes reset")

    # Exit with bodies that do not end.

    async def _exit_without_bodies(self, engine: Engine) -> None:
        """Exit the process when only bodies remain that do not end."""
        with trio.move_on_after(self._config.engine.shutdown_timeout):
            await engine.settled()
        graces = [body.patience for body in engine.bodies() if body.patience != math.inf]
        with trio.move_on_after(max(graces, default=0.0) + _INFINITE_GRACE):
            await engine.settled()
        await trio.sleep(_LINGER)
        if self._engine_ended.is_set():
            return
        for body in engine.bodies():
            logger.error("body of run %s did not end within its grace period; exiting without it", body.run)
        self._engine_ended.set()
        await self._gateway_closed.wait()  # bounded by its `close_timeout`
        end_process(self._code() if self._stop.is_set() else Exit.FAILED)

    async def _stop_at_once(self) -> None:
        await trio.sleep(_STOP_TIMEOUT)
        for body in self._engine.bodies() if self._engine is not None else ():
            logger.error("body of run %s has not ended; exiting without it", body.run)
        end_process(self._code())

    def _code(self) -> int:
        """The exit code: 0 after a drain; 128 and the signal's number after a second signal."""
        return 0 if self._signal is None else 128 + self._signal


def _executing(committed: Projection) -> tuple[int, int]:
    """How many runs execute in this process and its children, and how many in attached executors."""
    executing = (Status.RUNNING, Status.CANCELLING)
    executors = [run.executor for run in committed.runs.values() if run.status in executing]
    here = sum(executor is None or is_child(executor) for executor in executors)
    return here, len(executors) - here


def _what_follows(here: int, elsewhere: int, timeout: float) -> str:
    """What the shutdown waits for, and what continues without this server."""
    text = f"{_count(here)} {timeout:g} s to finish" if here else "no run executes here"
    return f"{text}; {_count(elsewhere)} a body that continues in an attached executor" if elsewhere else text


def _count(runs: int) -> str:
    return "1 run has" if runs == 1 else f"{runs:,} runs have"


def _handled_signals() -> list[signal.Signals]:
    """The signals that the server handles. Windows has only the first two."""
    names = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1")
    return [signal.Signals[name] for name in names if hasattr(signal, name)]
