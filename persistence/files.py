"""The files that runs write: each under its handle's folder, whole or not at all.

A file grows as `<name>.<run id>.part` and gets its own name when it is complete. No path leaves the folder of
its handle. On a disk beside a durable store the work is done in threads, a file is synced before it gets its
name, and a folder after names in it have changed, so that what was done survives a power cut; beside a store
in memory it is done at once, so that nothing there depends on threads.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol, TypeVar
from urllib.parse import quote

import trio

from ..protocol.errors import Invalid

T = TypeVar("T")

_LONGEST_FOLDER = 200
_SAFE = "@+=, ~()" if os.name == "nt" else "@+=, :~()"
"""What a folder's name can contain besides letters and digits: on Windows, no colon."""


class PartFile(Protocol):
    """A file that is being written."""

    @property
    def path(self) -> str:
        """Its path under the handle's folder, in the form that is recorded."""

    async def write(self, data: bytes) -> int:
        """Append bytes."""

    async def finish(self) -> None:
        """Give it its own name."""

    async def discard(self) -> None:
        """Leave nothing of it."""


class Files(Protocol):
    """Where runs write their files."""

    async def create(self, handle: str, path: str, run: str, *, overwrite: bool) -> PartFile:
        """Begin a file. An existing one is refused unless it may be overwritten."""

    async def delete(self, handle: str, paths: Sequence[str]) -> None:
        """Delete finished files; one that isn't there any more is no error."""

    async def unfinished(self, handle: str, run: str) -> list[str]:
        """The paths that the files would have had which a run left unfinished."""

    async def remove_parts(self, handle: str, run: str) -> None:
        """Delete whatever a run left unfinished."""


def folder_name(handle: str) -> str:
    """The folder of a handle: its name, made harmless for a file system, and different for each handle."""
    name = quote(handle, safe=_SAFE)
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) > _LONGEST_FOLDER:
        digest = hashlib.blake2b(handle.encode(), digest_size=8).hexdigest()
        name = f"{name[: _LONGEST_FOLDER - 20]}%~{digest}"
    return name


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the system can do that."""
    if os.name == "nt":
        return  # folders can't be opened there
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def inside(path: str) -> PurePosixPath:
    """A relative path that stays below where it starts; else `Invalid`."""
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or not pure.name or "\0" in path:
        raise Invalid(f"path {path!r} must name a file below the handle's folder", value=path)
    return pure


class DiskFiles:
    """Files below a folder of a disk."""

    def __init__(self, root: str | os.PathLike[str], *, in_threads: bool) -> None:
        self._root = Path(root)
        self._in_threads = in_threads

    async def create(self, handle: str, path: str, run: str, *, overwrite: bool) -> PartFile:
        relative = inside(path)
        final = self._root / folder_name(handle) / relative
        part = final.with_name(f"{final.name}.{run}.part")
        file = await self._do(self._open, handle, final, part, overwrite)
        return _DiskPart(str(relative), final, part, file, overwrite, self)

    async def delete(self, handle: str, paths: Sequence[str]) -> None:
        await self._do(self._unlink_all, self._root / folder_name(handle), paths)

    async def unfinished(self, handle: str, run: str) -> list[str]:
        return await self._do(self._list_parts, self._root / folder_name(handle), run)

    async def remove_parts(self, handle: str, run: str) -> None:
        await self._do(self._unlink_parts, self._root / folder_name(handle), run)

    def _open(self, handle: str, final: Path, part: Path, overwrite: bool) -> BinaryIO:
        if not overwrite and final.exists():
            raise FileExistsError(f"{final} exists already: open it with overwrite=True to replace it")
        folder = (self._root / folder_name(handle)).resolve()
        if not part.parent.resolve().is_relative_to(folder):
            raise Invalid(f"path {final} leaves its handle's folder through a link", value=str(final))
        self._make_folder(part.parent)
        return open(part, "xb")

    def _make_folder(self, folder: Path) -> None:
        missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        self.sync_folders({made.parent for made in missing})

    def _unlink_all(self, folder: Path, paths: Sequence[str]) -> None:
        errors: list[OSError] = []
        changed: set[Path] = set()
        for path in paths:
            try:
                (folder / path).unlink()
                changed.add((folder / path).parent)
            except FileNotFoundError:
                pass
            except OSError as error:
                errors.append(error)
        self.sync_folders(changed)
        if errors:
            raise OSError("; ".join(map(str, errors)))

    @staticmethod
    def _list_parts(folder: Path, run: str) -> list[str]:
        ending = f".{run}.part"
        parts = folder.rglob(f"*{ending}")
        return [part.relative_to(folder).as_posix().removesuffix(ending) for part in parts]

    def _unlink_parts(self, folder: Path, run: str) -> None:
        parts = list(folder.rglob(f"*.{run}.part"))
        for part in parts:
            part.unlink(missing_ok=True)
        self.sync_folders({part.parent for part in parts})

    def sync_folders(self, folders: Collection[Path]) -> None:
        """Make the names in these folders durable."""
        for folder in folders if self._in_threads else ():
            sync_folder(folder)

    async def _do(self, function: Callable[..., T], *args: object) -> T:
        if self._in_threads:
            return await trio.to_thread.run_sync(partial(function, *args))
        await trio.lowlevel.checkpoint()
        return function(*args)


class _DiskPart:
    """A file that is being written on a disk."""

    def __init__(
        self, path: str, final: Path, part: Path, file: BinaryIO, overwrite: bool, files: DiskFiles
    ) -> None:
        self.path = path
        self._final = final
        self._part = part
        self._file = file
        self._overwrite = overwrite
        self._files = files

    async def write(self, data: bytes) -> int:
        return await self._files._do(self._file.write, data)

    async def finish(self) -> None:
        await self._files._do(self._close_and_rename)

    async def discard(self) -> None:
        await self._files._do(self._close_and_unlink)

    def _close_and_rename(self) -> None:
        with self._file as file:
            file.flush()
            if self._files._in_threads:
                os.fsync(file.fileno())
        if not self._overwrite and self._final.exists():
            raise FileExistsError(f"{self._final} has come into being meanwhile: it is left as it is")
        self._part.replace(self._final)
        self._files.sync_folders([self._final.parent])

    def _close_and_unlink(self) -> None:
        try:
            self._file.close()  # which may want to write, and find the disk full
        finally:
            self._part.unlink(missing_ok=True)
            self._files.sync_folders([self._part.parent])
