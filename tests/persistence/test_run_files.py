"""The order of syncs and renames of runs' files, so that they survive a power failure."""

import os
from pathlib import Path

import pytest

from greenroom.persistence.files import DiskFiles
from greenroom.persistence.runs_dir import RunFiles


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, str]]:
    """The operations on files and folders, in order."""
    done: list[tuple[str, str]] = []
    sync, replace, unlink = os.fsync, Path.replace, Path.unlink
    names = {}

    def note(what: str, path: Path) -> None:
        done.append((what, path.relative_to(tmp_path).as_posix()))

    def noted_sync(descriptor: int) -> None:
        here = os.fstat(descriptor)
        for path in (tmp_path, *tmp_path.rglob("*")):
            names[path.stat().st_ino] = path
        note("sync", names[here.st_ino])
        sync(descriptor)

    def noted_replace(part: Path, target: Path) -> Path:
        note("rename", part)
        return replace(part, target)

    def noted_unlink(path: Path, missing_ok: bool = False) -> None:
        note("unlink", path)
        unlink(path, missing_ok)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    monkeypatch.setattr(Path, "unlink", noted_unlink)
    return done


async def test_a_finished_file_is_synced_before_the_rename_and_its_folder_after_it(
    tmp_path: Path, done: list[tuple[str, str]]
) -> None:
    part = await DiskFiles(tmp_path, in_threads=True).create("h", "a/b.txt", "r1", overwrite=False)
    assert done[:] == [("sync", "."), ("sync", "h")] or done[:] == [("sync", "h"), ("sync", ".")]
    done.clear()
    await part.write(b"whole")
    await part.finish()
    name = "h/a/b.txt.r1.part"
    assert done == [("sync", name), ("rename", name), ("sync", "h/a")]


async def test_the_folders_of_a_deleted_file_and_of_a_discarded_part_are_synced(
    tmp_path: Path, done: list[tuple[str, str]]
) -> None:
    disk = DiskFiles(tmp_path, in_threads=True)
    for path in ("a.txt", "b.txt"):
        await (await disk.create("h", path, "r1", overwrite=False)).finish()
    done.clear()
    await disk.delete("h", ["a.txt", "b.txt", "gone.txt"])
    assert done[-1] == ("sync", "h")
    assert [what for what, _ in done].count("sync") == 1
    part = await disk.create("h", "c.txt", "r1", overwrite=False)
    done.clear()
    await part.discard()
    assert done == [("unlink", "h/c.txt.r1.part"), ("sync", "h")]
    part = await disk.create("h", "c.txt", "r2", overwrite=False)
    part._file.close()  # type: ignore[attr-defined]  # as after the process was killed
    done.clear()
    assert await disk.unfinished("h", "r2") == ["c.txt"]
    await disk.remove_parts("h", "r2")
    assert done == [("unlink", "h/c.txt.r2.part"), ("sync", "h")]


async def test_with_a_store_in_memory_nothing_is_synced(tmp_path: Path, done: list[tuple[str, str]]) -> None:
    disk = DiskFiles(tmp_path, in_threads=False)
    await (await disk.create("h", "a.txt", "r1", overwrite=False)).finish()
    await disk.delete("h", ["a.txt"])
    assert "sync" not in [what for what, _ in done]


async def test_the_mark_of_a_runs_folder_is_written_after_the_files_that_it_covers(
    tmp_path: Path, done: list[tuple[str, str]]
) -> None:
    runs = RunFiles(tmp_path, in_threads=True)
    await runs.mark("epoch", 7)
    assert [what for what, _ in done] == ["sync", "sync", "rename"]
    assert done[0] == ("sync", ".")
