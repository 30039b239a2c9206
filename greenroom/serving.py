"""The server: an engine, a gateway to it, and the signals that tell them to end, to reload, to reset.

The first SIGTERM (or Ctrl-C) drains: nothing new is taken, what executes gets `shutdown_timeout` seconds, and
people can watch through the gateway until the engine has ended. A body that can't be ended is named in the
log and left behind with the process: everything else is committed by then. The second one stops at once.
"""

from __future__ import annotations

import logging
import math
import signal
from collections.abc import AsyncIterator, Callable

import attrs
import trio

from .actors.engine.api import Engine
from .actors.engine.open import open_engine
from .actors.jobs import Jobs
from .collecting import tuned_collector
from .commands.exits import Exit
from .config.mistakes import ConfigMistakes
from .config.reading import Read
from .config.settings import Config, EngineConfig
from .gateway.server import Gateway, open_gateway
from .logs import begin_logs, end_process
from .protocol.errors import GreenroomError

logger = logging.getLogger("greenroom.serve")

_LAST_WORDS = 1.0
"""Seconds from the engine's last commit to the end of the process, for bodies that end only now."""
_NEVER_ABANDONED = 60.0
"""Seconds for bodies with an endless `grace`, after `shutdown_timeout` and what the others have."""
_AT_ONCE = 2.0
"""Seconds from the second signal to the end of the process, whatever is still going on then."""
_TELLING = 1.0
"""Seconds for telling everybody that the engine drains; it can't be told while the store is down."""

_LIVE = frozenset({"max_concurrent", "lanes"})
_AT_START = {
    "engine": [field.name for field in attrs.fields(EngineConfig) if field.name not in _LIVE],
    "gateway": ["host", "port", "tls_certificate", "tls_key"],
}
"""The settings that hold from the start to the end."""


class Server:
    """One life of the server. `reread` reads the configuration anew, for SIGHUP."""

    def __init__(
        self, jobs: Jobs, read: Read, reread: Callable[[], Read], *, accept_store: bool = False
    ) -> None:
        self._jobs = jobs
        self._accept_store = accept_store
        self._config = read.config
        self._reread = reread
        self._stop = trio.Event()
        self._patience = trio.CancelScope()
        self._signal: int | None = None  # the second one, which ends the patience
        self._engine_ended = trio.Event()
        self._gateway_closed = trio.Event()
        self._engine: Engine | None = None
        self._gateway: Gateway | None = None

    async def run(self) -> int:
        """Serve until told to stop; returns the exit code. Raises what keeps it from beginning; a failure
        after that is logged."""
        failure: BaseException | None = None
        with trio.open_signal_receiver(*_obeyed()) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._obey, signals, nursery)
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
        known = isinstance(failure, GreenroomError)  # it says everything in its one sentence
        logger.critical("the engine has failed: %s", failure, exc_info=None if known else failure)
        return Exit.FAILED

    async def _serve(self, nursery: trio.Nursery, started: Callable[[], None]) -> None:
        settings = self._config.engine
        async with open_engine(
            self._jobs,
            settings.store if isinstance(settings.store, str) else list(settings.store),
            max_concurrent=settings.max_concurrent,
            lanes=settings.lanes,
            data_dir=settings.data_dir,
            runs_dir=settings.runs_dir,
            keep_runs=settings.keep_runs,
            keep_events=settings.keep_events,
            max_pending=settings.max_pending,
            max_value_bytes=settings.max_value_bytes,
            shutdown_timeout=settings.shutdown_timeout,
            allow_scripts=settings.allow_scripts,
            worker_networks=settings.worker_networks,
            accept_store=self._accept_store,
            on_lease_lost="exit",
        ) as engine:
            self._gateway = await nursery.start(self._open_gateway, engine)
            self._engine = engine
            started()
            try:
                await self._stop.wait()
            finally:  # told to stop, or the engine has failed
                nursery.start_soon(self._leave_behind, engine)
            with trio.move_on_after(_TELLING):
                await engine.drain(by="serve")
            logger.info("draining: what executes has %g s to finish", settings.shutdown_timeout)
        logger.info("the engine has ended")

    async def _open_gateway(
        self, engine: Engine, task_status: trio.TaskStatus[Gateway] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """In a task of its own, so that it can be there until the engine has ended."""
        try:
            async with open_gateway(engine, self._config.gateway) as gateway:
                task_status.started(gateway)
                await self._engine_ended.wait()
        finally:
            self._gateway_closed.set()

    # Signals.

    async def _obey(self, signals: AsyncIterator[int], nursery: trio.Nursery) -> None:
        async for number in signals:
            if number in (signal.SIGTERM, signal.SIGINT):
                if self._stop.is_set():
                    self._signal = number
                    logger.warning("told to stop a second time: stopping at once")
                    self._patience.cancel()
                    nursery.start_soon(self._stop_at_once)
                else:
                    self._stop.set()
            elif self._engine is not None and self._gateway is not None and not self._stop.is_set():
                if number == signal.SIGHUP:
                    nursery.start_soon(self._reload, self._engine, self._gateway)
                else:
                    nursery.start_soon(self._reset, self._engine)

    async def _reload(self, engine: Engine, gateway: Gateway) -> None:
        """Take the configuration anew, as far as that can be done while everything runs."""
        try:
            config = self._reread().config
            gateway.reconfigure(config.gateway)
            begin_logs(config.logs)
            if config.engine.max_concurrent is not None:
                await engine.set_max_concurrent(config.engine.max_concurrent, by="SIGHUP")
            for lane, limit in config.engine.lanes.items():
                await engine.set_concurrency(lane, limit, by="SIGHUP")
        except ConfigMistakes as error:
            for mistake in error.mistakes:
                logger.error("the configuration stays as it is: %s", mistake)
        except GreenroomError as error:
            logger.error("the configuration could not be taken: %s", error.message)
        else:
            for setting in needs_restart(self._config, config):
                logger.warning("%s has changed, which takes effect at the next start only", setting)
            logger.info("the configuration has been reloaded")

    async def _reset(self, engine: Engine) -> None:
        try:
            await engine.reset_lanes(by="SIGUSR1")
        except GreenroomError as error:
            logger.error("the lanes could not be reset: %s", error.message)
        else:
            logger.warning("the lanes have been reset")

    # The end of a process with bodies that don't end.

    async def _leave_behind(self, engine: Engine) -> None:
        """End the process when only bodies are left that can't be ended."""
        with trio.move_on_after(self._config.engine.shutdown_timeout):
            await engine.settled()
        graces = [body.patience for body in engine.bodies() if body.patience != math.inf]
        with trio.move_on_after(max(graces, default=0.0) + _NEVER_ABANDONED):
            await engine.settled()
        await trio.sleep(_LAST_WORDS)
        if self._engine_ended.is_set():
            return
        for body in engine.bodies():
            logger.error("the body of run %s can't be ended; the server ends without it", body.run)
        self._engine_ended.set()
        await self._gateway_closed.wait()  # bounded by its `close_timeout`
        end_process(self._code() if self._stop.is_set() else Exit.FAILED)

    async def _stop_at_once(self) -> None:
        await trio.sleep(_AT_ONCE)
        for body in self._engine.bodies() if self._engine is not None else ():
            logger.error("the body of run %s has not ended; the server ends without it", body.run)
        end_process(self._code())

    def _code(self) -> int:
        """0 for an end in order; that of the signal, as shells have it, for one that was hurried."""
        return 0 if self._signal is None else 128 + self._signal


def _obeyed() -> list[signal.Signals]:
    """The signals that the server obeys: Windows has only the first two."""
    names = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1")
    return [signal.Signals[name] for name in names if hasattr(signal, name)]


def needs_restart(before: Config, after: Config) -> list[str]:
    """The settings that differ and are not live."""
    return [
        f"{section}.{name}"
        for section, names in _AT_START.items()
        for name in names
        if getattr(getattr(before, section), name) != getattr(getattr(after, section), name)
    ]
