"""The data folders of executors: which files the engine deletes itself."""

import random
from contextlib import asynccontextmanager

import pytest
import trio

from greenroom import Jobs, Run, open_engine
from greenroom.errors import RunFailed
from greenroom.executor.executor import Executor, Identity
from greenroom.persistence.files import DiskFiles
from greenroom.persistence.folder import folder_id
from greenroom.protocol.events import RunProgress

from .cable import Cable


class RecordedFiles(DiskFiles):
    """Files that record what is deleted."""

    def __init__(self, folder) -> None:
        super().__init__(folder, in_threads=False)
        self.deleted = []

    async def delete(self, handle, paths) -> None:
        self.deleted += paths
        await super().delete(handle, paths)


jobs = Jobs()


@jobs.job
async def writes(run: Run) -> None:
    async with run.open_file("a.txt") as file:
        await file.write(b"a")
    await run.progress(1)
    await trio.sleep_forever()


@asynccontextmanager
async def served(files: DiskFiles, folder: str, data_dir):
    """An engine that executes its bodies in an executor with these files."""
    cable = Cable()
    identity = Identity(node="e", start="1", folder=folder)
    async with (
        open_engine(jobs, "memory:", executors=0, data_dir=data_dir) as engine,
        trio.open_nursery() as nursery,
        cable.plugged(engine),
    ):
        nursery.start_soon(Executor(jobs, cable, identity, files, random=random.Random(1)).run)
        yield engine
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("shared", [True, False])
async def test_the_engine_deletes_the_files_in_its_own_folder(autojump_clock, tmp_path, shared):
    folder = tmp_path / ("engine" if shared else "executor")
    files = RecordedFiles(folder)
    async with served(files, folder_id(folder), tmp_path / "engine") as engine:
        ticket = await engine.submit("writes", handle="h")
        async for event in engine.events():
            if isinstance(event, RunProgress):
                break
        assert (folder / "h" / "a.txt").exists()
        await ticket.cancel("delete")
        await ticket.wait()
        await trio.sleep(1)
        assert not (folder / "h" / "a.txt").exists()
        assert files.deleted == ([] if shared else ["a.txt"])


async def test_an_executor_without_a_data_folder_cannot_finish_files(autojump_clock, tmp_path):
    async with served(RecordedFiles(tmp_path / "executor"), "", tmp_path) as engine:
        ticket = await engine.submit("writes", handle="h")
        with pytest.raises(RunFailed, match='executor "e" has no data folder'):
            await ticket.result()
        assert not list(tmp_path.rglob("a.txt*"))
