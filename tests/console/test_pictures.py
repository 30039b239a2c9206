"""The screenshots of the documentation can be taken from the console as it is now."""

from __future__ import annotations

from pathlib import Path

from ..clients.browser import needs_browser
from .pictures import PICTURES, take_all

PNG = b"\x89PNG\r\n\x1a\n"


@needs_browser
async def test_the_pictures_of_the_documentation_are_taken(tmp_path: Path) -> None:
    problems = await take_all(tmp_path, history=1)

    taken = pictures(tmp_path)
    assert taken.keys() == pictures(PICTURES).keys()
    assert all(content.startswith(PNG) for content in taken.values())
    assert problems == []


def pictures(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("console-*.png")}
