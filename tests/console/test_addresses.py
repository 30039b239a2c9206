"""The addresses of the console: names of any characters, also behind proxies that add a prefix."""

from __future__ import annotations

import pytest

from ..clients.browser import needs_browser
from ..gateway.proxies import NAMES, proxied
from .house import House, house

pytestmark = needs_browser

HANDLES = ("..", ".", "alice/photos", "a\\b", "~alice", "~2Fx", "100%", "a b?#&=+", "\u05e9/\u05d5")


async def opens(home: House, handle: str) -> None:
    """Follow the link of a handle, load its page again, and go back."""
    heading = f"document.querySelector('h1')?.innerText === {handle!r}"
    await home.tab.click(handle, "main")
    await home.tab.until(heading)
    await home.tab.reload()
    await home.tab.until(heading)
    await home.tab.run("history.back()")
    await home.tab.until("document.querySelector('h1')?.innerText === 'Handles'")


@pytest.mark.parametrize("handle", HANDLES)
async def test_a_handle_of_any_name_opens(handle, home):
    await home.engine.set_params(handle, {})
    await home.tab.open(f"{home.url}/handles")
    await opens(home, handle)


@pytest.mark.parametrize("name", NAMES)
async def test_a_proxy_that_adds_a_prefix_changes_no_address(name, tmp_path):
    async with house() as home, proxied(name, home.gateway.port, tmp_path) as proxy:
        await home.tab.call("Security.setIgnoreCertificateErrors", ignore=True)
        site = f"https://127.0.0.1:{proxy.port}/greenroom"
        await home.tab.open(site)
        await home.tab.until_text("live", ".connection")
        assert await home.path() == "/greenroom/"
        for handle in HANDLES:
            await home.engine.set_params(handle, {})
        await home.tab.open(f"{site}/handles")
        for handle in HANDLES:
            await opens(home, handle)
        await home.tab.call(
            "Page.navigate", url="about:blank"
        )  # it requests nothing of a proxy that has ended
