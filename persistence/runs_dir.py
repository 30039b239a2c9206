"""The files of `runs_dir`: each run's latest state as `<run id>.json`, to be read with `cat`.

They are copies; the engine never reads a state from them. Each file is written under another name and then
renamed, so a reader always sees a committed state, also after a crash. With a durable store, the work is done
in a thread, and files are synced before they are renamed. With a store in memory, it is done immediately.

A hidden file records the epoch and the seq up to which the folder is complete.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote

import msgspec
import trio

from ..protocol.records import RunRecord
from .files import sync_folder
from .traces import Trace

T = TypeVar("T")

_MARK = ".greenroom"
_ENDING = ".json"
_UNFINISHED = ".part"


class RunFiles:
    """One folder with the states of one store's runs. Failures raise `OSError`."""

    def __init__(self, folder: str | os.PathLike[str], *, in_threads: bool) -> None:
        self.folder = Path(os.path.abspath(folder))
        self._in_threads = in_threads
        self._limiter = trio.CapacityLimiter(1)

    @property
    def where(self) -> str:
        return f"the folder {self.folder}"

    def trace(self) -> Trace | None:
        """Return the epoch and the seq up to which the folder is complete, if known. Blocks."""
        try:
            return msgspec.json.decode((self.folder / _MARK).read_bytes(), type=Trace)
        except (OSError, msgspec.MsgspecError):
            return None

    async def complete_until(self, epoch: str) -> int | None:
        """Return the seq up to which the folder is complete for this epoch, or `None` if it is unknown.

        Also removes unfinished files of a crashed process.
        """
        return await self._do(lambda: self._begin(epoch))

    async def mark(self, epoch: str, seq: int) -> None:
        """Record that the folder is complete up to this seq."""
        content = msgspec.json.encode(Trace(epoch, seq))
        await self._do(lambda: self._replace_mark(content))

    async def write(self, runs: Sequence[RunRecord]) -> dict[str, OSError]:
        """Write the files of these runs; returns the errors by run id."""
        return await self._do(lambda: self._each([run.id for run in runs], runs, self._write))

    async def remove(self, ids: Collection[str]) -> dict[str, OSError]:
        """Remove the files of these runs; returns the errors by run id. Foreign files stay."""
        return await self._do(lambda: self._each(ids, list(ids), self._remove))

    async def ids(self) -> set[str]:
        """Return the ids of the runs that have a file."""
        return await self._do(self._ids)

    def _begin(self, epoch: str) -> int | None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for file in os.scandir(self.folder):
            if file.name.startswith(".") and file.name.endswith(_UNFINISHED):
                os.unlink(file.path)
        mark = self.trace()
        return mark.seq if mark is not None and mark.epoch == epoch else None

    def _ids(self) -> set[str]:
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return set()
        return {
            unquote(name.removesuffix(_ENDING))
            for name in names
            if name.endswith(_ENDING) and not name.startswith(".")
        }

    @staticmethod
    def _each(
        ids: Collection[str], items: Sequence[T], function: Callable[[T], object]
    ) -> dict[str, OSError]:
        failed: dict[str, OSError] = {}
        for id, item in zip(ids, items, strict=True):
            try:
                function(item)
            except OSError as error:
                failed[id] = error
        return failed

    def _write(self, run: RunRecord) -> None:
        path = self._path(run.id)
        content = msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n"
        try:
            if path.read_bytes() == content:
                return
        except FileNotFoundError:
            pass
        self._replace(path, content)

    def _remove(self, id: str) -> None:
        path = self._path(id)
        try:
            is_ours = msgspec.json.decode(path.read_bytes(), type=RunRecord).id == id
        except FileNotFoundError:
            return
        except msgspec.MsgspecError:
            is_ours = False  # a foreign file with a similar name
        if is_ours:
            path.unlink(missing_ok=True)

    def _replace_mark(self, content: bytes) -> None:
        if self._in_threads and self.folder.exists():
            sync_folder(self.folder)  # after a power cut, the mark must not be newer than the files
        self._replace(self.folder / _MARK, content)

    def _replace(self, path: Path, content: bytes) -> None:
        part = path.with_name(f".{path.name}{_UNFINISHED}")
        try:
            file = open(part, "wb")  # noqa: SIM115  # closed below
        except FileNotFoundError:  # the folder was removed
            self.folder.mkdir(parents=True, exist_ok=True)
            file = open(part, "wb")  # noqa: SIM115
        try:
            with file:
                file.write(content)
                file.flush()
                if self._in_threads:
                    os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def _path(self, id: str) -> Path:
        name = quote(id, safe="@+=, :~()")
        return self.folder / ((f"%2E{name[1:]}" if name.startswith(".") else name) + _ENDING)

    async def _do(self, function: Callable[[], T]) -> T:
        if self._in_threads:
            return await trio.to_thread.run_sync(function, limiter=self._limiter)
        await trio.lowlevel.checkpoint()
        return function()
