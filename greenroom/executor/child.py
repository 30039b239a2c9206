"""The start of a child process of an engine, or of a cluster's node: import its jobs, then execute bodies.

`actors/executors/spawning.py` starts it. It ends with its parent, also if the parent is killed: Linux kills
it then, and on every system a thread ends the process when a pipe from the parent is closed.
"""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import random
import signal
import socket
import sys
import threading
import uuid
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import trio

from .. import __version__
from ..actors.executors import spawning
from ..actors.executors.connection import StreamConnection
from ..actors.executors.handing import connection_over, hand_over
from ..actors.executors.spawning import ERROR, Plan
from ..actors.jobs import Jobs
from ..config.logs import LogsConfig
from ..logs import begin_logs, end_process
from ..persistence.files import DiskFiles
from ..persistence.folder import folder_id
from ..protocol.errors import Invalid
from .beats import Beats, HandedBeats, InheritedBeats
from .executor import Executor, Identity
from .loading import load_jobs
from .process import Process

logger = logging.getLogger("greenroom.executor")

_PR_SET_PDEATHSIG = 1
_NO_PARENT = 1
"""The exit code without a parent; no process reads it."""


def main(given: dict[str, Any]) -> None:
    """Execute bodies for the engine that has written this plan, until it ends this process."""
    plan = msgspec.convert(given, Plan)
    for file in _files(plan):
        os.set_inheritable(file, False)  # programs that bodies start must not keep them open
    os.register_at_fork(after_in_child=lambda: _close(plan))
    _end_with_parent(plan)
    multiprocessing.current_process().name = plan.executor
    sys.argv[:] = plan.argv
    if plan.logs is not None:
        begin_logs(msgspec.convert(plan.logs, LogsConfig), executor=plan.executor)
    jobs = _load(plan)
    if not logging.getLogger().handlers:
        text = f"%(levelname)s:%(name)s:{plan.executor}: %(message)s"
        logging.basicConfig(level=plan.log_level, format=text)
    process = Process(_executor(plan, jobs), report=lambda reason: _report(plan, reason))
    code = trio.run(process.run)
    end_process(code)  # threads of bodies that were abandoned can still execute


def _end_with_parent(plan: Plan) -> None:
    """End this process when its parent ends, also while the event loop is blocked."""
    if sys.platform == "linux":
        # The signal is sent when the thread ends that has started this process: the engine's.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != plan.parent:  # it had ended before
        os._exit(_NO_PARENT)
    threading.Thread(target=_wait_for_parent, args=(plan.life,), name="greenroom parent", daemon=True).start()


def _wait_for_parent(life: int) -> None:
    os.read(life, 1)  # nothing is ever written
    os._exit(_NO_PARENT)


def _load(plan: Plan) -> Jobs:
    """Import the jobs. If that fails, report the error instead, and exit."""
    spawning.importing = True
    try:
        return load_jobs(plan.jobs)
    except Invalid as error:
        _report(plan, error.message)
        end_process(1)
    finally:
        spawning.importing = False


def _report(plan: Plan, reason: str) -> None:
    """Tell the parent for which reason this process ends, in the place of the plan."""
    os.ftruncate(plan.plan, 0)
    os.pwrite(plan.plan, f"{ERROR}{reason}".encode(errors="replace"), 0)


def _files(plan: Plan) -> list[int]:
    files = [plan.plan, plan.link, plan.beats, plan.life]
    return files if plan.lock is None else [*files, plan.lock]


def _close(plan: Plan) -> None:
    """In a process that a body has forked: close its copies of the files, which belong to this process."""
    for file in _files(plan):
        with suppress(OSError):
            os.close(file)


class _Link:
    """The inherited connection. It cannot be opened again: the process ends when the engine has closed it."""

    def __init__(self, file: int) -> None:
        self._socket: socket.socket | None = socket.socket(fileno=file)

    async def connect(self) -> StreamConnection:
        inherited, self._socket = self._socket, None
        if inherited is None:
            logger.error("the engine has closed the connection: this process ends")
            end_process(_NO_PARENT)
        return connection_over(inherited)


class _Links:
    """The connections to a node, which relays them to the leader."""

    def __init__(self, file: int) -> None:
        self._inherited = socket.socket(fileno=file)
        self._inherited.setblocking(False)

    async def connect(self) -> StreamConnection:
        await trio.lowlevel.checkpoint()
        return connection_over(hand_over(self._inherited))


def _executor(plan: Plan, jobs: Jobs) -> Executor:
    beats = socket.socket(fileno=plan.beats)
    folder = folder_id(plan.data_dir) if plan.reconnects else ""  # an engine knows that the folder is its own
    identity = Identity(node=plan.executor, start=uuid.uuid4().hex, folder=folder, version=__version__)
    link = _Links(plan.link) if plan.reconnects else _Link(plan.link)

    def beats_over(patience: float) -> Beats:
        if plan.reconnects:
            return HandedBeats(identity.node, identity.start, patience, beats)
        end = partial(os._exit, _NO_PARENT)
        return InheritedBeats(identity.node, identity.start, patience, beats, end)

    return Executor(
        jobs,
        link.connect,
        identity,
        DiskFiles(plan.data_dir, in_threads=True),
        random=random.Random(),
        shutdown_timeout=plan.shutdown_timeout,
        reconnects=plan.reconnects,
        beats=beats_over,
    )
