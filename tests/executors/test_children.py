"""The child processes of an engine: they execute its bodies, are replaced when they end, and end with it."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom import BlockingRun, Engine, Jobs, Run, open_engine
from greenroom.errors import Invalid, RunFailed, Unavailable
from greenroom.persistence.executor_lock import ExecutorLock
from greenroom.protocol.events import ExecutorChanged

jobs = Jobs()


@jobs.job
async def where(run: Run) -> int:
    return os.getpid()


@jobs.job
async def waits(run: Run) -> Any:
    await run.progress(0, 1, pid=os.getpid())
    return await run.next_message()


@jobs.job
async def ends_process(run: Run, how: str) -> None:
    await run.progress(0, 1)
    match how:
        case "exit":
            os._exit(0)
        case "segfault":
            ctypes.string_at(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise SystemExit(3)


@jobs.job(resumable=True)
async def dies_once(run: Run) -> Any:
    if run.checkpoint is None:
        await run.save_checkpoint("saved")
        os.kill(os.getpid(), signal.SIGKILL)
    return run.checkpoint


@jobs.job
def starts_program(run: BlockingRun) -> int:
    program = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    return program.pid


_others: set[int] = set()
"""The child processes that existed before the test, such as a database server of other tests."""


def processes() -> set[int]:
    """The child processes of the test, including those that have ended and were not waited for."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            found.update(map(int, (task / "children").read_text().split()))
    return found - _others


@pytest.fixture(autouse=True)
def _no_process_remains() -> Iterator[None]:
    _others.clear()
    _others.update(processes())
    yield
    assert not processes()


class Attaches:
    """The attaches of executors, in order."""

    def __init__(self, engine: Engine) -> None:
        self._events = engine.events()

    async def next(self) -> str:
        with trio.fail_after(30):
            async for event in self._events:
                if isinstance(event, ExecutorChanged) and event.status == "attached":
                    return event.executor
        raise AssertionError("the engine has ended")


@asynccontextmanager
async def opened(count: int = 1, store: str = "memory:", **options: Any) -> AsyncIterator[Engine]:
    options = {"shutdown_timeout": 0, "max_concurrent": 100, **options}
    async with open_engine(jobs, store, executors=count, **options) as engine:
        yield engine


async def result(engine: Engine, job: Any, params: Any = None, *, handle: str = "a") -> Any:
    with trio.fail_after(30):
        return await (await engine.submit(job, handle=handle, params=params)).result()


async def pid_of(engine: Engine, handle: str = "a") -> int:
    """Start a run that waits; returns the process in which its body executes."""
    events = engine.events(filter={"handles": [handle]})
    await engine.submit(waits, handle=handle)
    with trio.fail_after(30):
        async for event in events:
            stats = getattr(event, "stats", None)
            if stats:
                return int(stats["pid"])
    raise AssertionError("the engine has ended")


async def test_bodies_execute_in_the_children(tmp_path: Path):
    async with opened(2) as engine:
        ids = [executor.id for executor in await engine.executors.list()]
        assert sorted(ids) == ["local-1", "local-2"]
        assert await result(engine, where) in processes()
        assert {await pid_of(engine, f"h{number}") for number in range(4)} == processes()
        engine.check_ready()


@pytest.mark.parametrize("limit", [1, 2])
async def test_a_global_limit_below_the_number_of_children_is_logged(
    limit: int, caplog: pytest.LogCaptureFixture
):
    async with opened(2, max_concurrent=limit):
        pass
    logged = "max_concurrent is 1: at most as many of the 2 child processes execute bodies at a time"
    assert (logged in caplog.text) == (limit == 1)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("kill", "was killed by SIGKILL"),
        ("segfault", "was killed by SIGSEGV"),
        ("exit", "exited with code 0"),
    ],
)
async def test_a_child_that_ends_affects_only_its_runs_and_is_replaced(
    how: str, text: str, caplog: pytest.LogCaptureFixture
):
    async with opened(2) as engine:
        attaches = Attaches(engine)
        survivor = await pid_of(engine, "survivor")
        ticket = await engine.submit(ends_process, handle="a", params=how)
        with pytest.raises(RunFailed) as failed, trio.fail_after(30):
            await ticket.result()
        assert failed.value.run.reason == "crashed"
        assert failed.value.run.error == f"its executor local-2 {text}"
        (logged,) = [text for text in caplog.messages if text.startswith("executor local-2 ")]
        assert text in logged
        assert logged.endswith(f"; it executed run {ticket.id}; it restarts now")
        assert await attaches.next() == "local-2"
        assert survivor in processes()
        assert len(processes()) == 2
        await engine.inject("survivor", "done")
        assert (await engine.wait("survivor")).result == "done"


async def test_a_body_that_raises_system_exit_is_named_in_the_error_of_the_run_and_in_the_log(
    caplog: pytest.LogCaptureFixture,
):
    async with opened() as engine:
        attaches = Attaches(engine)
        ticket = await engine.submit(ends_process, handle="a", params="raise")
        why = (
            f"exited with code 1: body of run {ticket.id} of job 'ends_process' raised SystemExit: 3, which "
            "ends this process like a crash: raise an Exception to fail only the run"
        )
        with pytest.raises(RunFailed, match=re.escape(f"its executor local-1 {why}")):
            await ticket.result()
        await attaches.next()
    assert f"{why}; it executed run {ticket.id}; it restarts now" in caplog.text


async def test_a_resumable_run_continues_from_its_checkpoint_in_another_process():
    async with opened(2) as engine:
        assert await result(engine, dies_once) == "saved"


async def test_further_crashes_delay_the_restart(caplog: pytest.LogCaptureFixture):
    async with opened() as engine:
        attaches = Attaches(engine)
        for delay in ("now", "in 1 s"):
            pid = await pid_of(engine, delay)
            os.kill(pid, signal.SIGKILL)
            with trio.fail_after(30):
                await engine.wait(delay)
            if delay != "now":
                with pytest.raises(Unavailable, match=r"no executor is attached: local-1 \(restarts in "):
                    engine.check_ready()
            await attaches.next()
            assert caplog.messages[-1].endswith(f"; it restarts {delay}")


async def test_a_drained_child_is_replaced_immediately(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    async with opened() as engine:
        attaches = Attaches(engine)
        pids = {await result(engine, where)}
        for _ in range(3):
            await engine.executors.drain("local-1")
            await attaches.next()
            pids.add(await result(engine, where))
    assert len(pids) == 4
    texts = [record for record in caplog.records if "it restarts" in record.message]
    assert [record.levelname for record in texts] == ["INFO"] * 3
    assert all(record.message.endswith("exited with code 0; it restarts now") for record in texts)


async def test_sigterm_drains_a_child():
    async with opened() as engine:
        attaches = Attaches(engine)
        pid = await pid_of(engine)
        os.kill(pid, signal.SIGTERM)
        await engine.inject("a", "done")
        with trio.fail_after(30):
            assert (await engine.wait("a")).result == "done"
        await attaches.next()
        assert await result(engine, where) != pid


async def test_a_child_that_is_silent_is_killed_and_replaced(caplog: pytest.LogCaptureFixture):
    async with opened(executor_ttl=3) as engine:
        attaches = Attaches(engine)
        pid = await pid_of(engine)
        os.kill(pid, signal.SIGSTOP)
        with trio.fail_after(30):
            assert (await engine.wait("a", timeout=None)).reason == "crashed"
        await attaches.next()
        assert await result(engine, where) != pid
        assert f"executor local-1 (pid {pid}) was killed by SIGKILL; it restarts now" in caplog.messages


async def test_a_stopped_child_does_not_delay_the_end_of_the_engine():
    with trio.fail_after(30):
        async with opened() as engine:
            os.kill(await result(engine, where), signal.SIGSTOP)


async def test_a_program_that_a_body_has_started_does_not_delay_the_restart():
    async with opened() as engine:
        attaches = Attaches(engine)
        program = await result(engine, starts_program)
        try:
            await engine.executors.drain("local-1")
            await attaches.next()
        finally:
            os.kill(program, signal.SIGKILL)


async def test_a_process_that_the_engine_has_forked_does_not_keep_the_children():
    with trio.fail_after(30):
        async with opened() as engine:
            await result(engine, where)
            forked = os.fork()
            if forked == 0:
                signal.pause()
                os._exit(0)
    os.kill(forked, signal.SIGKILL)
    os.waitpid(forked, 0)  # noqa: ASYNC222 # it was killed


async def test_jobs_that_children_do_not_have_are_logged_once(caplog: pytest.LogCaptureFixture):
    later = "later"
    jobs.job(later)(where.function)
    try:
        async with opened(2):
            (text,) = [text for text in caplog.messages if "does not have these jobs" in text]
            assert f"so their runs wait: {later}" in text
    finally:
        del jobs._jobs[later]


IMPORTED = """
from greenroom import Jobs, open_engine
jobs = Jobs()
"""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import nonsense", "cannot import app:jobs: ModuleNotFoundError: No module named 'nonsense'"),
        ("import os; os._exit(3)", "exited with code 3 while it imported app:jobs"),
        ("import ctypes; ctypes.string_at(0)", "was killed by SIGSEGV while it imported app:jobs"),
        (
            "import trio\nasync def main():\n  async with open_engine(jobs, 'memory:', executors=1): ...\n"
            "trio.run(main)",
            "open the engine under `if __name__",
        ),
    ],
)
async def test_an_engine_whose_children_cannot_start_does_not_open(tmp_path: Path, text: str, error: str):
    (tmp_path / "app.py").write_text(IMPORTED + text)
    program = Jobs()
    program.import_path = "app:jobs"
    sys.path.append(str(tmp_path))
    try:
        with pytest.raises(Invalid, match=r"executor local-[12] ") as caught:
            async with open_engine(program, "memory:", executors=2):
                pass
    finally:
        sys.path.remove(str(tmp_path))
    assert error in caught.value.message


async def test_jobs_that_no_module_has_are_refused():
    with pytest.raises(Invalid, match="no module has this Jobs object"):
        async with open_engine(Jobs(), "memory:", executors=1):
            pass


async def test_an_engine_without_children_executes_no_bodies_itself():
    async with opened(0) as engine:
        await engine.submit(where, handle="a")
        assert (await engine.wait("a", timeout=0.1)).waiting_for == "executor"
        assert processes() == set()


SCRIPT = """
import os, sys, trio
from greenroom import Jobs, open_engine

jobs = Jobs()

@jobs.job
async def marks(run):
    print(os.getpid(), flush=True)
    await trio.sleep_forever()

async def main():
    async with open_engine(jobs, "sqlite:///script.db", executors=1, shutdown_timeout=0) as engine:
        await engine.submit(marks, handle="a")
        await trio.sleep_forever()

if __name__ == "__main__":
    trio.run(main)
"""


class Script:
    """A program with an engine and a body in its child. Its own process group is as in a terminal."""

    def __init__(self, folder: Path) -> None:
        (folder / "script.py").write_text(SCRIPT)
        self.process = subprocess.Popen(
            [sys.executable, "script.py"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self.lock = ExecutorLock(folder / "script.db.executors.lock")

    def body(self) -> int:
        """The process of the body, when it has begun."""
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    script = Script(tmp_path)
    with script.process:
        yield script
        script.process.kill()


def exists(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("blocked", [False, True])
def test_children_of_a_killed_engine_end_and_release_the_lock(script: Script, blocked: bool):
    pid = script.body()
    assert not script.lock.is_free()
    if blocked:
        os.kill(pid, signal.SIGSTOP)
    script.process.kill()
    script.process.wait()
    assert trio.run(script.lock.wait, 30)
    assert not exists(pid)


def test_ctrl_c_in_a_terminal_ends_the_engine_and_then_its_children(script: Script):
    pid = script.body()
    os.killpg(script.process.pid, signal.SIGINT)
    _, errors = script.process.communicate(timeout=30)
    assert errors.rstrip().splitlines()[-1] == "KeyboardInterrupt"
    assert "greenroom:" not in errors, "neither the engine nor its child has anything to report"
    assert not exists(pid)
    assert script.lock.is_free()


class Releases(logging.Handler):
    """Releases a lock when the engine logs that it waits for it."""

    def __init__(self, held: int) -> None:
        super().__init__(logging.WARNING)
        self.held: int | None = held

    def emit(self, record: logging.LogRecord) -> None:
        if "waiting until the child processes of an earlier engine have ended" in record.getMessage():
            assert self.held is not None
            os.close(self.held)
            self.held = None


@pytest.mark.parametrize("count", [None, 1])
async def test_the_next_engine_waits_until_the_children_of_the_last_one_have_ended(
    tmp_path: Path, count: int | None
):
    releases = Releases(ExecutorLock(tmp_path / "jobs.db.executors.lock").hold())  # as a child does
    logger = logging.getLogger("greenroom")
    logger.addHandler(releases)
    try:
        async with open_engine(jobs, f"sqlite:///{tmp_path}/jobs.db", executors=count):
            assert releases.held is None
    finally:
        logger.removeHandler(releases)


async def test_the_next_engine_does_not_wait_longer_than_the_ttl(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    held = ExecutorLock(tmp_path / "jobs.db.executors.lock").hold()
    async with open_engine(jobs, f"sqlite:///{tmp_path}/jobs.db", executor_ttl=0.5):
        assert "child processes of an earlier engine still exist after 0.5 s" in caplog.text
    os.close(held)
