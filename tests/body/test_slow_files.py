"""A disk that is slow, or never answers, delays only the run that waits for it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from greenroom import Engine, Jobs, Run
from greenroom.errors import Conflict, GreenroomError, NotInteractive, RunTimedOut
from greenroom.persistence.files import DiskFiles, PartFile
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.store import Checkpoint
from tests.support import open_engine, until_status

MOST_SECONDS = 1000


class SlowFiles:
    """Files whose deletes wait until the test releases them."""

    def __init__(self, folder) -> None:
        self._files = DiskFiles(folder, in_threads=False)
        self.goes_on = trio.Event()
        self.waiting: list[str] = []

    async def create(self, handle: str, path: str, run: str, *, overwrite: bool) -> PartFile:
        part = await self._files.create(handle, path, run, overwrite=overwrite)
        return SlowPart(part, self)

    async def delete(self, handle: str, paths: Sequence[str]) -> None:
        await self.wait(f"delete of {handle}")
        await self._files.delete(handle, paths)

    async def remove_parts(self, handle: str, run: str) -> list[str]:
        await self.wait(f"parts of {handle}")
        return await self._files.remove_parts(handle, run)

    async def wait(self, what: str) -> None:
        self.waiting.append(what)
        with trio.move_on_after(MOST_SECONDS):  # so that a test that fails ends
            await self.goes_on.wait()
        self.waiting.remove(what)


class SlowPart:
    def __init__(self, part: PartFile, files: SlowFiles) -> None:
        self._part = part
        self._files = files
        self.path = part.path

    async def write(self, data: bytes) -> int:
        return await self._part.write(data)

    async def finish(self) -> None:
        await self._part.finish()

    async def discard(self) -> None:
        await self._files.wait(f"discard of {self.path}")
        await self._part.discard()


class SlowStore(MemoryStore):
    """A store whose reads of checkpoints wait until the test releases them."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = trio.Event()
        self.goes_on.set()

    async def checkpoint(self, handle: str, job: str) -> Checkpoint | None:
        with trio.move_on_after(MOST_SECONDS):
            await self.goes_on.wait()
        return await super().checkpoint(handle, job)


@pytest.fixture
def jobs() -> Jobs:
    jobs = Jobs()

    @jobs.job("writes")
    async def writes(run: Run) -> None:
        async with run.open_file("a.txt") as file:
            await file.write(b"mine")
        await trio.sleep_forever()

    @jobs.job("retries", max_attempts=2, backoff=1.0)
    async def retries(run: Run) -> None:
        async with run.open_file("a.txt", overwrite=True) as file:
            await file.write(b"mine")
        raise ValueError("try again")

    @jobs.job("clings", grace=1)
    async def clings(run: Run) -> None:
        async with run.open_file("half.txt") as file:
            await file.write(b"half")
            with trio.CancelScope(shield=True), trio.move_on_after(50):
                await trio.sleep_forever()

    @jobs.job("holds")
    async def holds(run: Run) -> None:
        await trio.sleep(3)

    @jobs.job("quick")
    async def quick(run: Run) -> str:
        return "done"

    return jobs


async def all_of_these_execute(engine, *, lane: str = "main") -> None:
    """Check that other runs are submitted and end immediately."""
    with trio.fail_after(1):
        for number in range(5):
            ticket = await engine.submit("quick", handle=f"other {number}", lane=lane)
            assert await ticket.result() == "done"


async def test_a_delete_that_never_returns_delays_no_other_start(autojump_clock, jobs, tmp_path):
    files = SlowFiles(tmp_path)
    async with open_engine(jobs, max_concurrent=2, data_dir=files) as engine:
        ticket = await engine.submit("writes", handle="slow")
        await wait_all_tasks_blocked()
        await ticket.cancel(files="delete")
        await trio.sleep(100)
        assert files.waiting == ["delete of slow"]

        await all_of_these_execute(engine)

        assert (await engine.get_run(ticket.id)).status == "cancelling"
        assert (tmp_path / "slow" / "a.txt").exists()
        files.goes_on.set()
        await until_status(engine, ticket, "cancelled")
        assert not (tmp_path / "slow" / "a.txt").exists()


async def test_a_slot_that_is_granted_during_a_delete_is_released_immediately(autojump_clock, jobs, tmp_path):
    """Otherwise the journal would delay all later starts."""
    files = SlowFiles(tmp_path)
    async with open_engine(jobs, max_concurrent=1, data_dir=files) as engine:
        ticket = await engine.submit("retries", handle="slow")
        holder = await engine.submit("holds", handle="holder")
        await until_status(engine, ticket, "suspended")
        await trio.sleep(2)  # now it waits for a slot for its second attempt

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ticket.cancel, "delete")
            await holder.result()  # and it gets the slot that becomes free
            await all_of_these_execute(engine)
            assert files.waiting == ["delete of slow"]
            assert (await engine.get_run(ticket.id)).status == "suspended"
            files.goes_on.set()
        assert (await engine.get_run(ticket.id)).status == "cancelled"
        assert not (tmp_path / "slow" / "a.txt").exists()
        await all_of_these_execute(engine)


async def test_a_run_that_is_ending_refuses_messages(autojump_clock, jobs, tmp_path):
    files = SlowFiles(tmp_path)
    async with open_engine(jobs, max_concurrent=1, data_dir=files) as engine:
        ticket = await engine.submit("retries", handle="slow")
        await until_status(engine, ticket, "suspended")
        refused: list[Conflict] = []

        async def cancel_too() -> None:
            with pytest.raises(Conflict) as info:
                await ticket.cancel()
            refused.append(info.value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ticket.cancel, "delete")
            await wait_all_tasks_blocked()
            nursery.start_soon(cancel_too)
            await wait_all_tasks_blocked()
            with pytest.raises(NotInteractive):
                await engine.inject(ticket.id, "hello")
            await trio.sleep(10)  # its backoff has ended
            files.goes_on.set()
        assert refused[0].details["run"].status == "cancelled"
        assert (await engine.get_run(ticket.id)).attempt == 1


async def test_files_of_an_abandoned_body_are_deleted_in_the_background(autojump_clock, jobs, tmp_path):
    files = SlowFiles(tmp_path)
    async with open_engine(jobs, max_concurrent=2, data_dir=files) as engine:
        ticket = await engine.submit("clings", handle="slow")
        await wait_all_tasks_blocked()
        await ticket.cancel()
        await trio.sleep(2)
        assert files.waiting == ["discard of half.txt"]

        await all_of_these_execute(engine)

        files.goes_on.set()
        snapshot = await until_status(engine, ticket, "cancelled")
        assert snapshot.handles["slow"].active_run == ticket.id  # its body continues
        await trio.sleep(60)
        assert (await engine.snapshot()).handles["slow"].active_run is None


async def test_a_body_that_ends_while_its_parts_are_deleted_frees_its_handle(autojump_clock, jobs, tmp_path):
    files = SlowFiles(tmp_path)
    async with open_engine(jobs, max_concurrent=2, data_dir=files) as engine:
        ticket = await engine.submit("clings", handle="slow")
        await wait_all_tasks_blocked()
        await ticket.cancel()
        await trio.sleep(60)
        assert files.waiting

        files.goes_on.set()
        snapshot = await until_status(engine, ticket, "cancelled")
        assert snapshot.runs[ticket.id].reason == "abandoned"
        assert snapshot.handles["slow"].active_run is None


async def test_a_checkpoint_that_is_read_slowly_delays_no_other_start(autojump_clock, jobs, tmp_path):
    store = SlowStore()
    async with open_engine(jobs, store, max_concurrent=2, data_dir=tmp_path) as engine:
        store.goes_on = trio.Event()
        ticket = await engine.submit("quick", handle="slow", kind="continue")
        await until_status(engine, ticket, "running")

        await all_of_these_execute(engine)

        cancelled = await engine.submit("writes", handle="cancelled", kind="continue")
        await until_status(engine, cancelled, "running")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancelled.cancel)
            await wait_all_tasks_blocked()
            store.goes_on.set()
        assert await ticket.result() == "done"
        await until_status(engine, cancelled, "cancelled")


async def test_no_body_begins_if_its_deadline_passes_before_its_checkpoint_is_read(
    autojump_clock, jobs, tmp_path
):
    store, begun = SlowStore(), []

    @jobs.job("begins")
    async def begins(run):
        begun.append(run.id)

    async with open_engine(jobs, store, data_dir=tmp_path) as engine:
        store.goes_on = trio.Event()
        ticket = await engine.submit("begins", handle="late", kind="continue", run_timeout=5)
        await trio.sleep(6)
        store.goes_on.set()
        with pytest.raises(RunTimedOut) as raised:
            await ticket.result()
        assert raised.value.run.reason == "run_timeout"
        assert begun == []


class Resumed:
    """A run that resumes after a restart, while its checkpoint is being read."""

    def __init__(self, folder) -> None:
        self.store, self.folder, self.jobs = SlowStore(), folder, Jobs()
        self.seen: list[Any] = []
        self.answers: dict[str, Any] = {}

        @self.jobs.job("resumes", resumable=True)
        async def resumes(run: Run) -> None:
            self.seen.append(run.checkpoint)
            await run.save_checkpoint("saved")
            while True:
                self.seen.append(await run.next_message())

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Engine]:
        async with open_engine(self.jobs, self.store, data_dir=self.folder) as engine:
            self.ticket = await engine.submit("resumes", handle="slow")
            await wait_all_tasks_blocked()
        self.seen.clear()
        self.store.goes_on = trio.Event()
        async with open_engine(self.jobs, self.store, data_dir=self.folder) as self.engine:
            await until_status(self.engine, self.ticket, "running")
            yield self.engine

    async def ask(self, *asks: tuple[str, Callable[[], Awaitable[Any]]]) -> None:
        """Start these calls in order; release the read if none is answered before the read has ended."""

        async def ask(name: str, send: Callable[[], Awaitable[Any]]) -> None:
            try:
                self.answers[name] = await send()
            except GreenroomError as error:
                self.answers[name] = type(error)

        async with trio.open_nursery() as nursery:
            for name, send in asks:
                nursery.start_soon(ask, name, send)
                await wait_all_tasks_blocked()
            assert (self.answers, self.seen) == ({}, [])
            self.store.goes_on.set()

    def inject(self) -> Awaitable[Any]:
        return self.engine.inject(self.ticket.id, "hello")

    def cancel(self) -> Awaitable[Any]:
        return self.engine.cancel(self.ticket.id)


async def test_a_message_that_arrives_while_a_resumed_runs_checkpoint_is_read_reaches_its_body(
    autojump_clock, tmp_path
):
    resumed = Resumed(tmp_path)
    async with resumed.opened():
        await resumed.ask(("message", resumed.inject))
        await wait_all_tasks_blocked()
        assert resumed.answers == {"message": "accepted"}
        assert resumed.seen == ["saved", "hello"]


async def test_a_cancel_that_arrives_while_a_resumed_runs_checkpoint_is_read_cancels_it_and_refuses_messages(
    autojump_clock, tmp_path
):
    resumed = Resumed(tmp_path)
    async with resumed.opened() as engine:
        await resumed.ask(("cancel", resumed.cancel), ("message", resumed.inject), ("again", resumed.cancel))
        assert resumed.answers["cancel"].status == "cancelling"
        assert (resumed.answers["message"], resumed.answers["again"]) == (NotInteractive, Conflict)
        await until_status(engine, resumed.ticket, "cancelled")
        assert "hello" not in resumed.seen


async def test_a_message_before_a_cancel_while_a_resumed_runs_checkpoint_is_read_was_accepted(
    autojump_clock, tmp_path
):
    resumed = Resumed(tmp_path)
    async with resumed.opened() as engine:
        await resumed.ask(("message", resumed.inject), ("cancel", resumed.cancel))
        assert resumed.answers["message"] == "accepted"
        assert resumed.answers["cancel"].status == "cancelling"
        await until_status(engine, resumed.ticket, "cancelled")
