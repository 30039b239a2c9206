"""The files that runs write, each in its handle's folder, complete or not at all.

A file is written as `<name>.<run id>.part` and renamed when it is complete. No path leaves the folder of its
handle. With a durable store, the work is done in threads; a file is synced before it is renamed, and a folder
after a change of its names, so that the result survives a power failure. With a store in memory, the work is
done immediately, so that nothing depends on threads.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol, TypeVar
from urllib.parse import quote

import trio

from ..protocol.errors import Invalid
from .folder import read_id

T = TypeVar("T")

_LONGEST_FOLDER = 200
_SAFE = "@+=, ~()" if os.name == "nt" else "@+=, :~()"
"""The characters of a folder's name in addition to letters and digits; on Windows without the colon."""


class PartFile(Protocol):
    """A file that is being written."""

    @property
    def path(self) -> str:
        """Its path in the handle's folder, as it is recorded."""

    async def write(self, data: bytes) -> int:
        """Append bytes."""

    async def finish(self) -> None:
        """Rename it to its final name."""

    async def discard(self) -> None:
        """Delete it."""


class Files(Protocol):
    """Where runs write their files."""

    async def create(self, handle: str, path: str, run: str, *, overwrite: bool) -> PartFile:
        """Create a file. An existing one is refused unless `overwrite`."""

    async def delete(self, handle: str, paths: Sequence[str]) -> None:
        """Delete finished files; a missing one is no error."""

    async def unfinished(self, handle: str, run: str) -> list[str]:
        """Return the final paths of the files that a run left unfinished."""

    async def remove_parts(self, handle: str, run: str) -> None:
        """Delete the files that a run left unfinished."""

    async def sizes(self, handle: str, paths: Sequence[str]) -> dict[str, int]:
        """Return the sizes in bytes of those of these finished files that exist."""

    async def locate(self, handle: str, path: str) -> Path | None:
        """Return where a finished file is on disk; `None` if it is not."""

    async def folder_id(self) -> str | None:
        """The id of the data folder, if an executor has given it one."""


def folder_name(handle: str) -> str:
    """Return the folder name of a handle: its name, escaped for the file system, unique for each handle."""
    name = quote(handle, safe=_SAFE)
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) > _LONGEST_FOLDER:
        digest = hashlib.blake2b(handle.encode(), digest_size=8).hexdigest()
        name = f"{name[: _LONGEST_FOLDER - 20]}%~{digest}"
    return name


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, if the system can."""
    if os.name == "nt":
        return  # folders cannot be opened there
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def inside(path: str) -> PurePosixPath:
    """Return a relative path within a folder. Raises `Invalid` for any other path."""
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or not pure.name or "\0" in path:
        raise Invalid(f"path must be a file inside the handle's folder (got {path!r})", value=path)
    return pure


class DiskFiles:
    """Files in a folder on disk."""

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

    async def sizes(self, handle: str, paths: Sequence[str]) -> dict[str, int]:
        return await self._do(self._sizes, handle, paths) if paths else {}

    async def locate(self, handle: str, path: str) -> Path | None:
        return await self._do(self._find, handle, path)

    async def folder_id(self) -> str | None:
        return await self._do(read_id, self._root)

    def _find(self, handle: str, path: str) -> Path | None:
        """The file, unless it leaves the handle's folder through a symbolic link."""
        folder = (self._root / folder_name(handle)).resolve()
        found = (folder / inside(path)).resolve()
        return found if found.is_file() and found.is_relative_to(folder) else None

    def _sizes(self, handle: str, paths: Sequence[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for path in paths:
            with suppress(FileNotFoundError):  # it can be deleted meanwhile
                if (file := self._find(handle, path)) is not None:
                    found[path] = file.stat().st_size
        return found

    def _open(self, handle: str, final: Path, part: Path, overwrite: bool) -> BinaryIO:
        if not overwrite and final.exists():
            raise FileExistsError(f"{final} already exists: open it with overwrite=True to replace it")
        folder = (self._root / folder_name(handle)).resolve()
        if not part.parent.resolve().is_relative_to(folder):
            raise Invalid(
                f"path {final} leaves its handle's folder through a symbolic link", value=str(final)
            )
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
    """A file on disk that is being written."""

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
            raise FileExistsError(
                f"{self._final} already exists: another writer created it, and it stays unchanged"
            )
        self._part.replace(self._final)
        self._files.sync_folders([self._final.parent])

    def _close_and_unlink(self) -> None:
        try:
            self._file.close()  # flushes, which fails if the disk is full
        finally:
            self._part.unlink(missing_ok=True)
            self._files.sync_folders([self._part.parent])
