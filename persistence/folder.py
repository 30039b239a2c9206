"""The id of a data folder, which identifies the files in it also for engines on other machines."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path

NAME = ".greenroom-folder"
"""The file in a data folder that contains its id."""


def folder_id(folder: str | os.PathLike[str]) -> str:
    """The id of a data folder. Creates the folder and its id if there is none; processes that do so at the
    same time get the same id."""
    file = Path(folder) / NAME
    known = read_id(folder)
    if known is None:
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f"{NAME}.{uuid.uuid4().hex}")
        new.write_text(uuid.uuid4().hex, encoding="ascii")
        with suppress(FileExistsError):  # another process was first
            os.link(new, file)
        new.unlink()
        known = read_id(folder)
        assert known is not None, "it was created"
    return known


def read_id(folder: str | os.PathLike[str]) -> str | None:
    """The id of a data folder, if it has one."""
    try:
        return (Path(folder) / NAME).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
