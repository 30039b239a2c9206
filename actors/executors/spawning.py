"""Start a child process that executes bodies, and describe how it ended.

A child runs `greenroom/executor/child.py`. It inherits the environment, standard output, standard error, and
open files: its plan, its link to the engine, the connection for its beats, a pipe that is closed when the
engine's process ends, and the lock that shows the next engine that it still exists. It has its own process
group: Ctrl-C in a terminal reaches only the engine, which ends its children in order.

The parent of a child that `reconnects` is a node of a cluster, which relays its connections to the leader.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import trio

from ...protocol.errors import Invalid
from . import child_logs
from .handing import Handed, Inherited
from .locating import Location

importing = False
"""Whether this process is a child that imports its jobs. The import of a program must not open engines."""

_START = (
    "import json, sys; plan = json.load(open(int(sys.argv[1]), 'rb', closefd=False)); "
    "sys.path[:] = plan['path']; from greenroom.executor.child import main; main(plan)"
)
"""What the interpreter of a child executes. Greenroom itself can depend on the import path."""

_MAX_ERROR_BYTES = 1 << 16


class Program(msgspec.Struct, frozen=True):
    """What all children of an engine have in common. `folder` is the working directory."""

    jobs: Location
    data_dir: str
    shutdown_timeout: float
    folder: str
    path: list[str]
    argv: list[str]
    reconnects: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a child reads when it starts. Numbers are those of open files; `parent` is a process id."""

    executor: str
    parent: int
    plan: int
    link: int
    beats: int
    life: int
    lock: int | None
    jobs: Location
    data_dir: str
    shutdown_timeout: float
    path: list[str]
    argv: list[str]
    logs: dict[str, str] | None
    log_level: int
    reconnects: bool


def check_supported() -> None:
    """Raise `Invalid` in a process that cannot start children."""
    if not hasattr(socket, "AF_UNIX") or os.name == "nt":
        raise Invalid(
            "executors requires a Unix system: on this one, start executors as separate processes with "
            "greenroom executor"
        )
    if importing:
        raise Invalid(
            "the program opens an engine with executors when it is imported, so each of its children would "
            'start more of them: open the engine under `if __name__ == "__main__":`'
        )


def program(
    jobs: Location, data_dir: str | os.PathLike[str], shutdown_timeout: float, *, reconnects: bool = False
) -> Program:
    """The program of children: this process's import path, arguments and working directory, as of now."""
    folder = os.getcwd()
    path = [str(Path(folder, entry)) if entry in ("", ".") else entry for entry in sys.path]
    return Program(
        jobs, os.path.abspath(data_dir), shutdown_timeout, folder, path, list(sys.argv), reconnects
    )


class Process:
    """A child process. `link` and `beats` are the parent's ends of its connections."""

    def __init__(self, executor: str, program: Program, lock: int | None) -> None:
        """Start the process. It runs until the thread that calls this ends, at most."""
        # Not with `trio.lowlevel.open_process`: that starts the process in a thread that ends before it, and
        # Linux would kill the child with that thread: see `end_with_parent` in `greenroom/executor/child.py`.
        link, its_link = socket.socketpair()
        beats, its_beats = socket.socketpair()
        its_life, self._life = os.pipe()
        self._plan = tempfile.TemporaryFile()  # noqa: SIM115 # closed by `close`
        files = [its_link.fileno(), its_beats.fileno(), its_life, self._plan.fileno()]
        try:
            plan = Plan(
                executor=executor,
                parent=os.getpid(),
                plan=self._plan.fileno(),
                link=its_link.fileno(),
                beats=its_beats.fileno(),
                life=its_life,
                lock=lock,
                jobs=program.jobs,
                data_dir=program.data_dir,
                shutdown_timeout=program.shutdown_timeout,
                path=program.path,
                argv=program.argv,
                logs=child_logs.settings,
                log_level=logging.getLogger().level,
                reconnects=program.reconnects,
            )
            self._plan.write(json.dumps(msgspec.to_builtins(plan)).encode())  # any path, even if not UTF-8
            self._plan.seek(0)
            self._process = subprocess.Popen(
                [sys.executable, *_flags(), "-c", _START, str(self._plan.fileno()), executor],
                stdin=subprocess.DEVNULL,
                pass_fds=files if lock is None else [*files, lock],
                cwd=program.folder,
                process_group=0,
            )
        except BaseException:
            link.close()
            beats.close()
            os.close(self._life)
            self._plan.close()
            raise
        finally:
            its_link.close()
            its_beats.close()
            os.close(its_life)
        self.pid = self._process.pid
        self._ends = (link, beats)
        self._link = link
        _open.add(self)
        connections = Handed if program.reconnects else Inherited
        self.link = connections(link)
        self.beats = connections(beats)

    async def loaded(self) -> None:
        """Wait until the child has sent its first frame, which shows that it has its jobs, or has ended."""
        await trio.lowlevel.wait_readable(self._link)

    def has_closed_link(self) -> bool:
        """After `loaded`: whether it has ended instead of sending a frame."""
        try:
            return not self._link.recv(1, socket.MSG_PEEK)
        except ConnectionResetError:
            return True

    async def ended(self) -> int:
        """Wait for the end; returns the exit code, or the negative number of the signal that killed it."""
        return await trio.to_thread.run_sync(
            self._process.wait, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1)
        )

    @property
    def error(self) -> str:
        """After its end: why it ended or could not start, as reported by the child itself."""
        text = os.pread(self._plan.fileno(), _MAX_ERROR_BYTES, 0).decode(errors="replace")
        return text.removeprefix(ERROR) if text.startswith(ERROR) else ""

    def ask_to_end(self) -> None:
        """Send SIGTERM: the child exits when it has no bodies."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()

    def leave_to_parent(self) -> None:
        """In a forked process: close its copies of the connections, whose end is the end of a child."""
        for end in self._ends:
            os.close(end.detach())
        os.close(self._life)

    async def close(self) -> None:
        """Kill the process if it still runs, and release all resources."""
        with trio.CancelScope(shield=True):
            self.kill()
            await self.ended()
            _open.discard(self)
            await self.link.aclose()
            await self.beats.aclose()
            os.close(self._life)
            self._plan.close()


_open: set[Process] = set()
"""The children of this process whose connections are open."""


def _leave_to_parent() -> None:
    for inherited in list(_open):
        inherited.leave_to_parent()
    _open.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_leave_to_parent)


ERROR = "error: "
"""The beginning of the text with which a child that ends because of an error replaces its plan."""


def how_it_ended(code: int) -> str:
    """How a process with this return code ended, as in "was killed by SIGSEGV"."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _flags() -> list[str]:
    """The interpreter's flags of this process, and `-P`: the working directory must not hide any module."""
    flags: Any = subprocess
    return ["-P", *flags._args_from_interpreter_flags()]  # as `multiprocessing` does
