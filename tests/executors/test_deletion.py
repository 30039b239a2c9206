"""Files in the data folder of an executor are deleted by an executor with that folder, even much later."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from greenroom import Jobs, Run
from greenroom.persistence.store import DeletionOwed
from tests.support import until

from .lives import Lives, lives
from .worlds import world


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped"])
@pytest.mark.parametrize("restarts", [0, 1, 2])
async def test_files_are_deleted_by_an_executor_that_attaches_later(
    autojump_clock: trio.testing.MockClock, tmp_path: Path, killed: bool, restarts: int
):
    jobs = Jobs()

    @jobs.job(resumable=True)
    async def writes(run: Run) -> None:
        async with run.open_file("a.txt") as file:
            await file.write(b"a")
        await run.sleep(3600)

    async with lives(jobs, tmp_path, Lives) as site:
        executor = site.start_executor("e1", folder="other")
        async with site.engine_opened() as engine:
            ticket = await engine.submit("writes", handle="h")
            await until(engine, lambda snapshot: snapshot.runs[ticket.id].waiting_for == "time")
            [written] = (tmp_path / "other").rglob("a.txt")
            executor.cancel()
            await trio.sleep(40)
            await engine.cancel(ticket.id, files="delete")
            assert (await engine.wait(ticket.id, timeout=60)).ended
            if killed:
                await site.kill()
        for _ in range(restarts):
            async with site.engine_opened():
                site.start_executor("e2", folder="a different one")
                await trio.sleep(10)
                if killed:
                    await site.kill()
        assert written.exists()
        async with site.engine_opened():
            site.start_executor("e3", folder="other")
            await trio.sleep(10)
            assert not written.exists()
        assert not site.store._deletions


async def test_deletions_are_sent_in_parts_and_a_failed_one_waits_for_the_next_executor(
    autojump_clock: trio.testing.MockClock,
):
    async with world() as home:
        for number in range(600):
            home.engine.executors._registry.owe(DeletionOwed("other", "h", f"r{number}", ()))
        executor = await home.executor("e1", folder="other")
        done: list[str] = []
        for part in (256, 256, 88, 0):
            await trio.sleep(1)
            assert executor.has("delete_files") == part
            for _ in range(part):
                asked = await executor.receive("delete_files")
                error = "read-only" if asked["run"] == "r7" else None
                await executor.send({"type": "files_deleted", "id": asked["id"], "error": error})
                done.append(asked["run"])
        assert done == [f"r{number}" for number in range(600)]
        other = await home.executor("e2", folder="other")
        assert (await other.receive("delete_files"))["run"] == "r7"


async def test_files_are_deleted_by_an_attached_executor_when_the_one_that_was_asked_leaves(
    autojump_clock: trio.testing.MockClock,
):
    async with world() as home:
        executor = await home.executor("e1", folder="other")
        other = await home.executor("e2", folder="other")
        home.engine.executors._registry.owe(DeletionOwed("other", "h", "r1", ()))
        await executor.receive("delete_files")
        await executor.send({"type": "draining"})
        await trio.sleep(1)
        await executor.leave()
        assert (await other.receive("delete_files"))["run"] == "r1"
