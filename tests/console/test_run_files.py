"""The finished files of a run: listed, and downloaded by HTTP and in the console."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from greenroom import Jobs, Run, open_engine
from greenroom.gateway import Role, add_token

from ..clients.browser import needs_browser
from ..cluster.world import until
from .house import PRINTABLE, House, visited
from .judging import SCHEMES, needs_axe, serious

pytestmark = needs_browser

jobs = Jobs()


@jobs.job("write")
async def write(run: Run, params: dict[str, str]) -> None:
    for path, text in params.items():
        async with run.open_file(path) as file:
            await file.write(text.encode())


@jobs.job("family")
async def family(run: Run, params: Any) -> None:
    await run.call("write", handle=PRINTABLE, params={})
    async with run.open_file(PRINTABLE) as file:
        await file.write(b"content")


@asynccontextmanager
async def family_house(folder: Path, **config: Any) -> AsyncIterator[House]:
    async with (
        open_engine(jobs, "memory:", data_dir=folder / "data", shutdown_timeout=0) as engine,
        visited(engine, **config) as home,
    ):
        yield home


@pytest.mark.parametrize("token", [False, True])
async def test_a_file_is_downloaded_by_its_link(token: bool, tmp_path: Path):
    config = {}
    if token:
        config = {"token_file": tmp_path / "tokens"}
        secret = add_token(tmp_path / "tokens", "eve", Role.VIEWER)
    async with family_house(tmp_path, **config) as home:
        ticket = await home.engine.submit("write", handle="alice", params={"a/ü <b>.txt": "content" * 9999})
        await ticket.result()
        await home.tab.save_downloads(tmp_path / "downloads")
        await home.tab.open(f"{home.url}/runs/{ticket.id}")
        if token:
            await home.tab.fill("#token", secret)
            await home.tab.click("Log in")
        await home.tab.until_text("70 kB", "[aria-labelledby=files-title]")
        await home.tab.click("a/ü <b>.txt")
        await until(lambda: [*(tmp_path / "downloads").glob("*.txt")])  # Chromium renames it at the end
        [found] = (tmp_path / "downloads").iterdir()
        assert found.read_text() == "content" * 9999


async def test_a_file_that_is_gone_is_told_and_leaves_the_list(tmp_path: Path):
    async with family_house(tmp_path) as home:
        ticket = await home.engine.submit("write", handle="alice", params={"a.txt": "a", "b.txt": "b"})
        await ticket.result()
        await home.tab.open(f"{home.url}/runs/{ticket.id}")
        await home.tab.until_text("a.txt", ".files")
        [file] = (tmp_path / "data").rglob("a.txt")
        file.unlink()
        await home.tab.click("a.txt", ".files")
        await home.tab.until_text("the file a.txt does not exist any more", ".toast.error")
        await home.tab.until("!document.querySelector('.files').innerText.includes('a.txt')")


@needs_axe
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_children_and_files_with_hostile_names_are_only_text_and_axe_finds_nothing_serious(
    scheme: str, tmp_path: Path
):
    async with family_house(tmp_path) as home:
        ticket = await home.engine.submit("family", handle="alice", params={})
        await ticket.result()
        await home.tab.resize(390, 800, scheme)
        await home.tab.open(f"{home.url}/runs/{ticket.id}")
        await home.tab.until_text("<img src=x", "[aria-labelledby=files-title]")
        await home.tab.until_text("<img src=x", "[aria-labelledby=children-title]")
        assert await home.tab.run("document.querySelectorAll('main img').length") == 0
        assert await home.tab.run("document.documentElement.scrollWidth") == 390
        assert await serious(home.tab) == []
