"""`open_engine`: validates its arguments, builds the engine's parts, and runs them for the block.

`runtime.py` describes how the parts run together and how they end.
"""

from __future__ import annotations

import math
import os
import random as random_module
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Literal

import trio

from ...persistence.executor_lock import ExecutorLock, executor_lock_path
from ...persistence.files import DiskFiles, Files
from ...persistence.memory import MemoryStore
from ...persistence.runs_dir import RunFiles
from ...persistence.sqlstore import SqlStore
from ...persistence.store import Store
from ...protocol.errors import Invalid
from ...protocol.lane_settings import LaneConfig, LaneSettings, read_lane
from ...protocol.names import check_name, lane_name
from ...protocol.validation import check_limit, check_seconds
from ...protocol.values import shown
from ...protocol.webhooks import check_secret
from ..executors.children import Children
from ..executors.locating import locate
from ..executors.spawning import check_supported, program
from ..jobs import Jobs
from ..schedules.configured import Tables
from ..workers.networks import LOOPBACK, Networks
from ..workers.push import Push
from .api import Engine
from .ids import uuid7_hex
from .leadership import Leadership
from .retention import Keep, check_retention
from .runtime import Clock, Runtime
from .suspends import Suspends
from .watchdog import real_time

_MOST_EXECUTORS = 1000
_SHORTEST_TTL = 0.5


@asynccontextmanager
@trio.lowlevel.enable_ki_protection
async def open_engine(
    jobs: Jobs,
    store: str | Sequence[str] | Store = "sqlite:///greenroom.db",
    *,
    max_concurrent: int | None = None,
    lanes: Mapping[str, LaneSettings] | None = None,
    schedules: Tables | None = None,
    data_dir: str | os.PathLike[str] | Files = "data",
    runs_dir: str | os.PathLike[str] | None = None,
    keep_runs: int | Keep | None = None,
    keep_events: int | Keep | None = None,
    max_pending: int = 100_000,
    max_value_bytes: int = 1 << 20,
    shutdown_timeout: float = 30,
    clock: Clock | None = None,
    ids: Callable[[], str] | None = None,
    random: random_module.Random | None = None,
    push: Push | None = None,
    allow_scripts: bool = False,
    worker_networks: Sequence[str] | None = None,
    webhook_secret: str | None = None,
    webhook_networks: Sequence[str] | None = None,
    accept_store: bool = False,
    on_lease_lost: Literal["cancel", "exit"] = "cancel",
    executors: int | None = None,
    executor_ttl: float = 30,
    leadership: Leadership | None = None,
) -> AsyncIterator[Engine]:
    """Run an engine for as long as the block lasts.

    Leaving the block drains the engine: executing runs get `shutdown_timeout` seconds to end. Cancelling the
    block does the same without waiting. An exception of the block is raised unchanged. So is the error that
    stops the engine: a crash of an actor, or an exception of a body that is not an `Exception`, such as
    `SystemExit`. Ctrl-C is raised as a plain `KeyboardInterrupt`, also if it arrives in a nursery of a body.

    Runs in the store continue. `max_concurrent` and `lanes` override what is stored; without either, the
    defaults apply (3 for `max_concurrent`). A lane has a limit, as in `{"images": 4}`, or a table of a limit
    and rules, as in `{"images": {"limit": 4, "fair_by": "tenant", "rate": "100/min"}}`.

    `schedules` has a table for each schedule, as in `{"nightly": {"job": "report", "cron": "0 3 * * *"}}`,
    with the arguments of `schedules.put` except `paused`. The engine puts them when it opens, and deletes
    those that an earlier engine had from its `schedules`.

    The store deletes ended runs and events beyond `keep_runs` and `keep_events`: a number, or `Keep` with a
    count and an age in seconds. By default it keeps everything. `runs_dir` contains each run's latest state
    as `<run id>.json`.

    `clock` returns Unix seconds, `ids` returns ids for runs (strings that sort in the order of creation),
    `random` is the source of randomness, and `push` calls the workers of flows. All have defaults.
    `allow_scripts` permits flow nodes to start programs on this machine.
    `worker_networks` lists the networks in which the engine calls workers; the default is loopback only. It
    does not apply to a custom `push`.

    `webhook_secret` signs the webhooks that `notify` of a submission or a lane asks for. They are sent to
    public addresses, and to those in `webhook_networks`; a custom `push` sends them, too.

    The engine refuses a store that is emptier or older than its lock file or `runs_dir` shows.
    `accept_store` opens such a store as it is.

    An engine that cannot renew its lease on the store cancels its bodies before the lease expires.
    `on_lease_lost` defines what happens if a body still executes then: `"cancel"` does nothing more, `"exit"`
    ends the process with code 6.

    With `executors`, bodies execute in this number of child processes instead of this process, except walks
    of flows. The children import the jobs: `jobs` must be a variable of a module. They end with the engine.
    With 0, bodies execute only in executors that attach over the gateway. An executor that is silent for
    `executor_ttl` seconds is lost, and its runs continue as after a crash.

    `leadership` is for the nodes of a cluster (`greenroom serve --cluster`).
    """
    watched = clock is None and real_time()
    suspends = Suspends() if watched else None
    clock = clock or _wall_clock()
    random = random or random_module.Random()
    if max_concurrent is not None:
        check_limit("max_concurrent", max_concurrent)
    secret = check_secret(webhook_secret)
    receivers = Networks(webhook_networks or (), setting="webhook_networks", public=True)
    opened = _open_store(store)
    lock = _executor_lock(opened, data_dir)
    run_files = _open_run_files(runs_dir, opened)
    runtime = Runtime(
        jobs,
        opened,
        max_concurrent=max_concurrent,
        lanes=_check_lanes(lanes or {}),
        schedules={} if schedules is None else schedules,
        files=_open_files(data_dir, opened),
        run_files=run_files,
        retention=check_retention(keep_runs, keep_events),
        max_pending=check_limit("max_pending", max_pending),
        max_value_bytes=check_limit("max_value_bytes", max_value_bytes),
        shutdown_timeout=check_seconds("shutdown_timeout", shutdown_timeout, 30),
        clock=clock,
        watched=watched,
        ids=ids or uuid7_hex(clock, random),
        random=random,
        epoch=f"{random.getrandbits(64):016x}",
        push=push,
        allow_scripts=allow_scripts,
        networks=Networks(LOOPBACK if worker_networks is None else worker_networks),
        webhook_secret=secret,
        webhook_networks=receivers,
        suspends=suspends,
        exits_on_lease_lost=_exits(on_lease_lost),
        gathers=_in_threads(opened),
        executors=_check_executors(executors),
        executor_ttl=_check_ttl(executor_ttl),
        executor_lock=lock,
        children=_children(jobs, executors, data_dir, lock, shutdown_timeout, watched=watched)
        if executors
        else None,
        leadership=leadership,
    )
    if isinstance(opened, SqlStore):
        opened.when_damaged(runtime.store_is_damaged)
        opened.expect(run_files, accept=accept_store)
    error: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.run, nursery.cancel_scope)
            try:
                with trio.CancelScope(shield=True):  # a half-started engine could not shut down in order
                    await runtime.opened.wait()
                await trio.lowlevel.checkpoint_if_cancelled()
                yield runtime.engine
            except BaseException as raised:  # raised again below, after the engine has ended
                error = raised
            try:
                await runtime.leave(immediately=isinstance(error, trio.Cancelled))
            except BaseException as raised:  # cancelled, or Ctrl-C: stop waiting
                error = raised
                with trio.CancelScope(shield=True):
                    await runtime.leave(immediately=True)
    except BaseExceptionGroup as group:  # the nursery is an implementation detail
        error = _plain(group)
    if runtime.failure is not None:
        raise _plain(runtime.failure)
    if error is not None:
        raise error


def _plain(error: BaseException) -> BaseException:
    """Ctrl-C without the nurseries in which it arrived. Other errors are returned unchanged."""
    if isinstance(error, BaseExceptionGroup) and error.split(KeyboardInterrupt)[1] is None:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
    return error


def _exits(on_lease_lost: str) -> bool:
    if on_lease_lost not in ("cancel", "exit"):
        raise Invalid(
            f'on_lease_lost must be "cancel" or "exit" (got {on_lease_lost!r})', value=repr(on_lease_lost)
        )
    return on_lease_lost == "exit"


def _check_executors(executors: object) -> int | None:
    if executors is None:
        return None
    if isinstance(executors, bool) or not isinstance(executors, int) or not 0 <= executors <= _MOST_EXECUTORS:
        raise Invalid(
            f"executors must be a number from 0 to {_MOST_EXECUTORS}, or None to execute bodies in this "
            f"process (got {shown(executors)})",
            value=shown(executors),
        )
    return executors


def _check_ttl(ttl: object) -> float:
    seconds = check_seconds("executor_ttl", ttl, 30)
    if not _SHORTEST_TTL <= seconds < math.inf:
        raise Invalid(
            f"executor_ttl must be at least {_SHORTEST_TTL:g} s and finite (got {shown(ttl)})",
            value=shown(ttl),
        )
    return seconds


def _wall_clock() -> Clock:
    """Unix seconds: the machine's clock, which can be set at any time; under a test's clock, in step with it.

    It dates events. Durations are measured by trio's clock, which cannot be set."""
    if real_time():
        return lambda: time.time()  # looked up each time, so that a test can set it
    offset = time.time() - trio.current_time()
    return lambda: trio.current_time() + offset


def _open_store(store: str | Sequence[str] | Store) -> Store:
    if not isinstance(store, str | Sequence):
        return store
    return MemoryStore() if store == "memory:" else SqlStore(store)


def _open_files(data_dir: str | os.PathLike[str] | Files, store: Store) -> Files:
    if isinstance(data_dir, str | os.PathLike):
        return DiskFiles(data_dir, in_threads=_in_threads(store))
    return data_dir


def _open_run_files(runs_dir: str | os.PathLike[str] | None, store: Store) -> RunFiles | None:
    if runs_dir is None:
        return None
    if not isinstance(runs_dir, str | os.PathLike) or not os.fspath(runs_dir):
        raise Invalid(
            f"runs_dir must be the path of a folder, or None (got {runs_dir!r})", value=repr(runs_dir)
        )
    return RunFiles(runs_dir, in_threads=_in_threads(store))


def _in_threads(store: Store) -> bool:
    """Whether the files next to a store may be written in threads, as the store itself is."""
    return isinstance(store, SqlStore) and store.in_threads


def _executor_lock(store: Store, data_dir: str | os.PathLike[str] | Files) -> ExecutorLock | None:
    """The lock of the engine's children, if they can outlive it and another engine can open the store."""
    if not isinstance(store, SqlStore) or not isinstance(data_dir, str | os.PathLike):
        return None
    path = executor_lock_path(store.address, data_dir)
    return None if path is None else ExecutorLock(path)


def _children(
    jobs: Jobs,
    count: int,
    data_dir: str | os.PathLike[str] | Files,
    lock: ExecutorLock | None,
    shutdown_timeout: float,
    *,
    watched: bool,
) -> Children:
    check_supported()
    if not watched:
        raise Invalid("executors requires the system's clock: child processes have no other")
    if not isinstance(data_dir, str | os.PathLike):
        raise Invalid(
            "executors requires data_dir to be the path of a folder, which the child processes use, too "
            f"(got {type(data_dir).__name__})"
        )
    return Children(count, program(locate(jobs), data_dir, shutdown_timeout), lock, jobs)


def _check_lanes(lanes: Mapping[str, LaneSettings]) -> dict[str, LaneConfig]:
    read: dict[str, LaneConfig] = {}
    for name, settings in lanes.items():
        lane = check_name("lane", lane_name(name))
        read[lane] = read_lane(lane, settings)
    return read
