"""The finished files of a run, for people who look at it: their names and sizes, and where they are on disk.

Names are recorded before a file gets its final name, and stay recorded when it is deleted. So a file of the
engine's own data folder is listed only if it exists now. Those in data folders of executors are listed as
they are recorded.
"""

from __future__ import annotations

from pathlib import Path

from ...persistence.files import Files
from ...persistence.store import Store
from ...protocol.errors import NotFound
from ...protocol.records import RunFile, RunRecord
from ...protocol.validation import check_text
from ...protocol.values import shown


class FinishedFiles:
    """See the module's docstring."""

    def __init__(self, files: Files, store: Store) -> None:
        self._files = files
        self._store = store

    async def of(self, run: RunRecord) -> list[RunFile]:
        """The files of a run, by their paths."""
        recorded = sorted(await self._store.files(run.id))
        own = [path for path, folder in recorded if not folder]
        sizes = await self._files.sizes(run.handle, own)
        return [
            RunFile(path, sizes.get(path) if not folder else None, folder)
            for path, folder in recorded
            if folder or path in sizes
        ]

    async def locate(self, run: RunRecord, path: str) -> Path:
        """Where a file of a run is on this machine. Raises `NotFound`."""
        check_text("path", path)
        folders = {folder for recorded, folder in await self._store.files(run.id) if recorded == path}
        if "" in folders:
            found = await self._files.locate(run.handle, path)
            if found is not None:
                return found
        elsewhere = (
            f": it is in the data folder {min(folders)} of an executor" if min(folders, default="") else ""
        )
        raise NotFound(
            f"run {run.id} has no file {shown(path)} in the engine's data folder{elsewhere}", value=path
        )
