"""A whole day in the console: five accounts of which three run at once, by hand in a real Chromium, in front
of a server that is killed. After each step, the page shows exactly the engine's state."""

from __future__ import annotations

from pathlib import Path

import trio

from greenroom import connect

from ..clients.browser import needs_browser
from ..clients.test_killed_server import Server, server
from . import mirrors
from .chromium import Tab, open_browser

pytestmark = needs_browser

ACCOUNTS = [f"account-{number}" for number in range(1, 6)]
SHOWN = """(() => {
    const rows = [...document.querySelectorAll(".virtual-rows .row")];
    const word = (element) => element.innerText.replace(/^\\W+/, "");
    return Object.fromEntries(
        rows.map((row) => [row.id.slice(4), [...row.querySelectorAll(".status, .tag")].map(word)]),
    );
})()"""


class Accounts:
    """The server, the page, and a client that knows the truth."""

    def __init__(self, program: Server, tab: Tab) -> None:
        self.program = program
        self.tab = tab
        self.url = program.url.replace("ws", "http")

    async def expect(self, **statuses: str) -> None:
        """Wait until the list of handles shows these statuses, and compare it with the engine's snapshot."""
        wanted = {f"account-{name[1:]}": status for name, status in statuses.items()}
        await self.open("handles")
        deadline = trio.current_time() + 30
        while True:
            shown = await self.tab.run(SHOWN)
            async with connect(self.program.url) as client:
                truth = {
                    name: [str(one.status), *(["locked"] if one.locked else [])]
                    for name, one in (await client.snapshot()).handles.items()
                }
            if shown == truth and {name: one[0] for name, one in shown.items()} == wanted:
                return
            assert trio.current_time() < deadline, (shown, truth, wanted)
            await trio.sleep(0.05)

    async def open(self, view: str) -> None:
        """Go to a view by its address, without loading the page again."""
        await self.tab.run(
            f"history.pushState(null, '', '/{view}'); dispatchEvent(new PopStateEvent('popstate'))"
        )

    async def start(self, account: str) -> None:
        await self.open(f"handles/{account}")
        await self.tab.until_text(account, "h1")
        await self.tab.fill("#draft", f'{{"url": "https://example.org/{account}"}}')
        await self.tab.fill("#job", "mirror")
        await self.tab.click("Start", ".draft")
        await self.tab.until("location.pathname.startsWith('/runs/')")

    async def cancel(self, account: str, files: str) -> None:
        await self.open(f"handles/{account}")
        await self.tab.until_text(account, "h1")
        await self.tab.until_text("1 / 2", ".active-run")  # its first file is finished
        await self.tab.click("Cancel", ".active-run")
        await self.tab.click(f"Cancel, {files} files", "dialog")
        await self.tab.until_text("The handle is free.")

    async def finish(self, account: str, message: str) -> None:
        await self.open(f"handles/{account}")
        await self.tab.until_text(account, "h1")
        await self.tab.until("document.querySelector('.active-run .status.running')")
        await self.tab.run("document.querySelector('.active-run a').click()")
        await self.tab.fill("[name=message]", message)
        await self.tab.click("Send", ".message")
        await self.tab.until_text("failed" if message == "fail" else "succeeded", ".title")

    async def limit(self, limit: int) -> None:
        await self.open("")
        await self.tab.fill('[aria-label="the global limit"]', str(limit))
        await self.tab.until_text(f"of {limit}", ".tiles")

    def files(self) -> set[str]:
        return {f"{one.parent.name}/{one.name}" for one in (self.program.folder / "data").rglob("*.html")}


async def test_five_accounts_by_hand(tmp_path: Path):
    with server(tmp_path, mirrors.__name__) as program:
        async with open_browser() as browser:
            tab = await browser.tab()
            await program.listens()
            it = Accounts(program, tab)
            await tab.open(it.url)

            for account in ACCOUNTS:  # three at once; the others wait in order
                await it.start(account)
            await it.expect(_1="Running", _2="Running", _3="Running", _4="Queued", _5="Queued")

            for account, status in (("account-1", "running"), ("account-4", "queued")):  # locked
                await it.open(f"handles/{account}")
                await tab.until(
                    "document.querySelector('.draft .primary')?.innerText.startsWith('Start: run …')"
                )
                await tab.until_text(f"is {status}", ".draft .primary")
                assert await tab.run("document.querySelector('.draft .primary').disabled")
                assert await tab.run("document.querySelector('#draft').readOnly")

            await it.cancel("account-1", "keep")
            await it.expect(_1="Cancelled", _2="Running", _3="Running", _4="Running", _5="Queued")
            await it.cancel("account-2", "delete")
            await it.expect(_1="Cancelled", _2="Cancelled", _3="Running", _4="Running", _5="Running")
            assert not any(one.startswith("account-2/") for one in it.files())
            assert "account-1/first.html" in it.files()

            await it.start("account-2")  # a limit is moved while runs execute
            await it.expect(_1="Cancelled", _2="Queued", _3="Running", _4="Running", _5="Running")
            await it.limit(4)
            await it.expect(_1="Cancelled", _2="Running", _3="Running", _4="Running", _5="Running")
            await it.limit(1)  # interrupts nobody
            await it.expect(_1="Cancelled", _2="Running", _3="Running", _4="Running", _5="Running")
            await it.limit(3)

            await tab.reload()
            await tab.until_text("live", ".connection")
            await it.expect(_1="Cancelled", _2="Running", _3="Running", _4="Running", _5="Running")

            program.kill()
            await tab.until_text("reconnecting", ".connection")
            program.start()
            await program.listens()
            await tab.until_text("live", ".connection")
            await it.expect(_1="Cancelled", _2="Running", _3="Running", _4="Running", _5="Running")

            # After a crash, the runs that it interrupted start one after the other.
            for account in ("account-3", "account-4", "account-5", "account-2"):
                await it.finish(account, "fail" if account == "account-5" else "finish")
            await it.expect(_1="Cancelled", _2="Done", _3="Done", _4="Done", _5="Failed")
            assert "account-3/second.html" in it.files()
            assert not list((tmp_path / "data").rglob("*.part"))
