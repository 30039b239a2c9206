"""The child processes of an engine, its executors `local-1` to `local-N`, or of a node of a cluster.

`load` starts them and waits until each has imported the jobs, so that an engine with jobs that cannot be
imported does not open. `run` then connects them to the engine and replaces each that ends: after a crash, and
also after `drain`, which so restarts them one by one. `stop` ends them with the engine.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import trio

from ...persistence.executor_lock import ExecutorLock
from ...protocol.errors import Invalid, Unavailable
from ...protocol.executors import Attach, Attached, EngineSends, ExecutorSends, Refused
from ..jobs import Jobs
from ..scheduling.stored_bodies import CHILD_PREFIX
from .connection import Connection
from .spawning import Process, Program, how_it_ended

logger = logging.getLogger("greenroom")

_LOAD_TIMEOUT = 60.0
"""Seconds for the first import of the jobs. Afterwards the engine opens without the missing children."""
_LOG_LOADING_AFTER = 5.0
_HEALTHY_AFTER = 60.0
"""Seconds without a crash after which earlier crashes of the child no longer count."""
_LONGEST_DELAY = 30.0
_LAST_FRAMES = 1.0
"""Seconds to receive what a child has sent before its end. Programs that it forked can keep its link open."""
_EXIT_TIMEOUT = 2.0
"""Seconds from SIGTERM to SIGKILL, for a child that has no bodies."""


class Links(Protocol):
    """The parent's side of the links."""

    async def serve(self, connection: Connection) -> None:
        """Serve a child until its connection ends, or the engine gives up on it."""

    def died(self, executor: str, how: str) -> Sequence[str]:
        """The process of this executor has ended. Returns the runs of which it executed a body."""


def _local(number: int) -> str:
    return f"{CHILD_PREFIX}{number}"


class Children:
    """See the module's docstring. `jobs` are those of the engine. `name` gives the process that is about to
    start as this child its id."""

    def __init__(
        self,
        count: int,
        program: Program,
        lock: ExecutorLock | None,
        jobs: Jobs,
        name: Callable[[int], str] = _local,
    ) -> None:
        self._program = program
        self._lock = lock
        self._jobs = jobs
        self._name = name
        self._children = [_Child(number, name(number)) for number in range(1, count + 1)]
        self._missing_jobs: set[str] = set()  # those that were logged
        self._closing = trio.Event()
        self._attaching = trio.CancelScope()
        self._ended = trio.Event()

    def __len__(self) -> int:
        return len(self._children)

    async def load(self) -> None:
        """Start all children. Returns when they have imported the jobs, or after a time limit; raises
        `Invalid` with the error of a child that has ended instead."""
        failed: list[str] = []
        with trio.move_on_after(_LOAD_TIMEOUT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._log_loading, nursery.cancel_scope)
                for child in self._children:
                    try:
                        child.process = self._start(child)
                    except OSError as error:
                        raise Invalid(f"executor {child.id} cannot be started: {error}") from error
                    nursery.start_soon(self._load, child, child.process, failed, nursery.cancel_scope)
        if failed:
            raise Invalid(f"executor {failed[0]}")

    @trio.lowlevel.enable_ki_protection
    async def run(self, links: Links, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Connect the children and replace those that end, until `stop`. Started when all that have loaded
        their jobs are attached."""
        try:
            async with trio.open_nursery() as nursery:
                for child in self._children:
                    nursery.start_soon(self._keep, child, links)
                with trio.move_on_after(_LOAD_TIMEOUT), self._attaching:
                    for child in self._children:
                        if child.loaded:
                            await child.attached.wait()
                attached = len(self._children) - len(self.missing())
                logger.info("bodies execute in child processes: %d executors are attached", attached)
                if self.missing():
                    logger.warning("these executors are not attached yet: %s", ", ".join(self.missing()))
                task_status.started()
        finally:
            self.kill()
            self._ended.set()

    def close(self) -> None:
        """Start no more processes: the parent shuts down."""
        self._closing.set()
        self._attaching.cancel()

    async def drain(self) -> None:
        """Have the children finish their bodies within the shutdown timeout, and exit. Returns when they have
        ended, and `run` with them."""
        self.close()
        self._ask_to_end()
        await self._ended.wait()

    async def stop(self) -> None:
        """End all children, which have no more bodies."""
        self.close()
        self._ask_to_end()
        with trio.move_on_after(_EXIT_TIMEOUT):
            await self._ended.wait()
        self.kill()
        await self._ended.wait()

    def _ask_to_end(self) -> None:
        for child in self._children:
            if child.process is not None:
                child.process.ask_to_end()

    def kill(self) -> None:
        """Kill all children."""
        self.close()
        for child in self._children:
            if child.process is not None:
                child.process.kill()

    async def aclose(self) -> None:
        """Kill all children that remain, and release their resources."""
        self.close()
        for child in self._children:
            if child.process is not None:
                await child.process.close()
                child.process = None

    def missing(self) -> list[str]:
        """The children that are not attached, each with the reason."""
        return [f"{child.id} ({child.state()})" for child in self._children if not child.attached.is_set()]

    def check_ready(self) -> None:
        """Raise `Unavailable` while no child is attached."""
        missing = self.missing()
        if missing and len(missing) == len(self._children):
            raise Unavailable(f"no executor is attached: {', '.join(missing)}")

    # The life of one child.

    def _start(self, child: _Child) -> Process:
        child.id = self._name(child.number)
        lock = None if self._lock is None else self._lock.hold()
        try:
            return Process(child.id, self._program, lock)
        finally:
            if lock is not None:
                os.close(lock)

    @trio.lowlevel.enable_ki_protection
    async def _keep(self, child: _Child, links: Links) -> None:
        while not self._closing.is_set():
            began = trio.current_time()
            child.pid = None
            if child.process is None:
                try:
                    child.process = self._start(child)
                except OSError as error:
                    code, how = 1, f"cannot be started: {error}"
            if child.process is not None:
                child.pid = child.process.pid
                code, how = await self._connected(child, child.process, links)
                await child.process.close()
                child.process = None
            runs = links.died(child.id, how)
            drained = code == 0 and child.attached.is_set() and not runs
            if trio.current_time() - began >= _HEALTHY_AFTER or drained:
                child.crashes = 0
            if not drained:
                child.crashes += 1
            delay = child.delay()
            child.ended(trio.current_time() + delay)
            self._log_end(child, how, runs, delay, expected=drained)
            with trio.move_on_after(delay):
                await self._closing.wait()

    async def _connected(self, child: _Child, process: Process, links: Links) -> tuple[int, str]:
        """Serve the connections of a process until it has ended; returns its code, and how it ended."""
        watch = _Watch(lambda attach: self._check_jobs(child, attach), child.attached)
        exited = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._serve, process, watch, links, exited)
            nursery.start_soon(process.beats.serve, links.serve)
            code = await process.ended()
            exited.set()
            nursery.cancel_scope.deadline = trio.current_time() + _LAST_FRAMES
        reason = process.error or watch.refusal
        return code, f"{how_it_ended(code)}: {reason}" if reason else how_it_ended(code)

    @trio.lowlevel.enable_ki_protection
    async def _serve(self, process: Process, watch: _Watch, links: Links, exited: trio.Event) -> None:
        await process.link.serve(lambda connection: links.serve(_Link(connection, watch)))
        if watch.ended:  # by the child, which exits
            with trio.move_on_after(_EXIT_TIMEOUT):
                await exited.wait()
        process.kill()

    @trio.lowlevel.enable_ki_protection
    async def _load(
        self, child: _Child, process: Process, failed: list[str], all_loads: trio.CancelScope
    ) -> None:
        await process.loaded()
        if process.has_closed_link():
            code = await process.ended()
            reason = process.error or f"{how_it_ended(code)} while it imported {self._program.jobs}"
            failed.append(f"{child.id} {reason}")
            all_loads.cancel()
        child.loaded = True
        if all(child.loaded for child in self._children):
            all_loads.cancel()

    @trio.lowlevel.enable_ki_protection
    async def _log_loading(self, all_loads: trio.CancelScope) -> None:
        await trio.sleep(_LOG_LOADING_AFTER)
        if not all_loads.cancel_called:
            loading = ", ".join(child.id for child in self._children if not child.loaded)
            logger.info("executors that still import %s: %s", self._program.jobs, loading)

    def _check_jobs(self, child: _Child, attach: Attach) -> None:
        names = {job.name for job in attach.jobs}
        missing = [job.name for job in self._jobs.all if job.name not in names | self._missing_jobs]
        if missing:
            self._missing_jobs.update(missing)
            logger.warning(
                "executor %s does not have these jobs, so their runs wait: %s; register them when %s is "
                "imported",
                child.id,
                ", ".join(missing),
                self._program.jobs,
            )

    def _log_end(self, child: _Child, how: str, runs: Sequence[str], delay: float, *, expected: bool) -> None:
        if self._closing.is_set() and not runs:
            return
        affected = f"; it executed {'run' if len(runs) == 1 else 'runs'} {', '.join(runs)}" if runs else ""
        then = "" if self._closing.is_set() else f"; it restarts {'now' if not delay else f'in {delay:g} s'}"
        level = logging.INFO if expected else logging.ERROR
        pid = "" if child.pid is None else f" (pid {child.pid})"
        logger.log(level, "executor %s%s %s%s%s", child.id, pid, how, affected, then)


class _Child:
    """An executor, and its current process."""

    def __init__(self, number: int, id: str) -> None:
        self.number = number
        self.id = id
        self.process: Process | None = None
        self.pid: int | None = None
        self.loaded = False
        self.attached = trio.Event()
        self.crashes = 0
        self._restarts_at: float | None = None

    def delay(self) -> float:
        """Seconds until the next start: none after the first crash, then 1, 2, 4 … 30."""
        later = self.crashes - 1 if self.attached.is_set() else self.crashes
        return 0.0 if later <= 0 else min(2.0 ** (later - 1), _LONGEST_DELAY)

    def ended(self, restarts_at: float) -> None:
        """Its process has ended."""
        self.attached = trio.Event()
        self._restarts_at = restarts_at

    def state(self) -> str:
        """What it does until it is attached."""
        if self.process is None and self._restarts_at is not None:
            return f"restarts in {max(self._restarts_at - trio.current_time(), 0):.0f} s"
        return "starting"


class _Watch:
    """What the connections of a process have shown: that it is attached, or why the engine refuses it, and
    whether it has closed one. `attaches` is called with the first message of each."""

    def __init__(self, attaches: Callable[[Attach], None], attached: trio.Event) -> None:
        self.attaches = attaches
        self.attached = attached
        self.refusal = ""
        self.ended = False


class _Link:
    """A connection of a child that is watched."""

    def __init__(self, connection: Connection, watch: _Watch) -> None:
        self._connection = connection
        self._watch = watch
        self._is_new = True

    async def send(self, frame: bytes) -> None:
        await self._connection.send(frame)
        if not self._watch.attached.is_set():
            sent = _SENT.decode(frame)
            if isinstance(sent, Attached):
                self._watch.attached.set()
            elif isinstance(sent, Refused):
                self._watch.refusal = sent.message

    async def receive(self) -> bytes:
        try:
            frame = await self._connection.receive()
        except (trio.EndOfChannel, trio.BrokenResourceError):
            self._watch.ended = True
            raise
        if self._is_new:
            first = _RECEIVED.decode(frame)
            if isinstance(first, Attach):
                self._watch.attaches(first)
            self._is_new = False
        return frame

    async def aclose(self) -> None:
        await self._connection.aclose()


_SENT = msgspec.json.Decoder(EngineSends)
_RECEIVED = msgspec.json.Decoder(ExecutorSends)
