"""The files of runs on a simulated machine, in memory. They behave like those of `persistence/files.py`.

Files outlive the engines that write them, and unfinished files remain after a crash. The calls of an engine
whose process has died never return.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from ...persistence.files import inside

if TYPE_CHECKING:
    from .disk import Owner, SimulatedDisk


@attrs.define
class StoredFile:
    """A file on the disk, and the run that wrote it."""

    run: str
    content: bytes = b""


class DiskFiles:
    """The files as one engine sees them (`persistence.files.Files`)."""

    def __init__(self, disk: SimulatedDisk, owner: Owner) -> None:
        self._disk = disk
        self._owner = owner

    async def reach(self, what: str, *, writes: bool = False) -> None:
        """Wait until an operation reaches the disk, and raise `OSError` if the disk fails."""
        await self._disk.reach(self._owner)
        self._disk.refuse_file(what, writes)

    async def create(self, handle: str, path: str, run: str, *, overwrite: bool) -> DiskPart:
        path = str(inside(path))
        await self.reach(f"create {path}", writes=True)
        disk = self._disk
        if not overwrite and (handle, path) in disk.files:
            raise FileExistsError(f"{path} already exists: open it with overwrite=True to replace it")
        if (handle, path, run) in disk.parts:
            raise FileExistsError(errno.EEXIST, "the run is writing this file already", path)
        disk.parts[handle, path, run] = StoredFile(run)
        return DiskPart(disk, self, handle, path, run, overwrite)

    async def reach_to_delete(
        self, what: str, doomed: Iterable[tuple[str, ...]], runs: Sequence[str]
    ) -> None:
        """Like `reach`, for a deletion. If it fails, the disk remembers the files, so that the rules do not
        blame the engine for them."""
        try:
            if runs and not self._owner.dead:  # deleting nothing takes no time
                await self._disk.take_time_to_delete(runs)
            await self.reach(what)
        except BaseException:
            if not self._owner.dead:
                self._disk.undeleted.update(doomed)
            raise

    async def delete(self, handle: str, paths: Sequence[str]) -> None:
        doomed = [(handle, path) for path in paths]
        found = [self._disk.files[key].run for key in doomed if key in self._disk.files]
        await self.reach_to_delete(f"delete {list(paths)}", doomed, found)
        for path in paths:
            self._disk.files.pop((handle, path), None)

    async def unfinished(self, handle: str, run: str) -> list[str]:
        finished = [key for key, file in self._disk.files.items() if file.run == run]
        doomed = [*finished, *self._parts_of(handle, run)]  # only files that are known to be the run's
        await self.reach_to_delete(f"list the parts of {run}", doomed, [run])
        return [path for _, path, _ in self._parts_of(handle, run)]

    async def sizes(self, handle: str, paths: Sequence[str]) -> dict[str, int]:
        await self.reach(f"look at {list(paths)}")
        found = {path: self._disk.files.get((handle, path)) for path in paths}
        return {path: len(file.content) for path, file in found.items() if file is not None}

    async def locate(self, handle: str, path: str) -> Path | None:
        await self.reach(f"locate {path}")
        return None

    async def folder_id(self) -> str | None:
        return None

    async def remove_parts(self, handle: str, run: str) -> None:
        left = self._parts_of(handle, run)
        await self.reach_to_delete(f"remove the parts of {run}", left, [run])
        for key in left:
            self._disk.parts.pop(key, None)

    def _parts_of(self, handle: str, run: str) -> list[tuple[str, str, str]]:
        return [key for key in self._disk.parts if (key[0], key[2]) == (handle, run)]


class DiskPart:
    """An unfinished file, which a run is writing."""

    def __init__(
        self, disk: SimulatedDisk, files: DiskFiles, handle: str, path: str, run: str, overwrite: bool
    ) -> None:
        self.path = path
        self._disk = disk
        self._files = files
        self._key = (handle, path, run)
        self._file = disk.parts[self._key]
        self._overwrite = overwrite

    async def write(self, data: bytes) -> int:
        await self._files.reach(f"write {self.path}", writes=True)
        self._file.content += data
        return len(data)

    async def finish(self) -> None:
        await self._files.reach(f"finish {self.path}", writes=True)
        handle, path, _ = self._key
        if not self._overwrite and (handle, path) in self._disk.files:
            raise FileExistsError(f"{path} already exists: it was created while this file was written")
        if self._disk.parts.pop(self._key, None) is None:
            raise FileNotFoundError(errno.ENOENT, "the file was deleted while it was written", path)
        self._disk.files[handle, path] = self._file

    async def discard(self) -> None:
        await self._files.reach_to_delete(f"discard {self.path}", [self._key], [self._key[2]])
        if self._disk.parts.get(self._key) is self._file:
            del self._disk.parts[self._key]
