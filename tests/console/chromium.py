"""A headless Chromium that tests drive over the DevTools protocol.

A tab keeps what must never appear: errors on the console, exceptions, and violations of the
Content-Security-Policy.
"""

from __future__ import annotations

import atexit
import base64
import ctypes
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, open_websocket_url

from ..clients.browser import BROWSER

PATIENCE = 30.0
_PAUSE = 0.04
_PR_SET_PDEATHSIG = 1
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # the sandbox does not work for root, and the only pages are ours
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--remote-debugging-port=0",
)


class Tab:
    """One page."""

    def __init__(self, browser: Browser, session: str, context: str) -> None:
        self.problems: list[str] = []
        self._browser = browser
        self._session = session
        self._context = context
        self._loaded = trio.Event()

    async def call(self, method: str, **params: Any) -> Any:
        """Call a method of the DevTools protocol."""
        return await self._browser.call(method, params, self._session)

    async def open(self, url: str) -> None:
        """Load a page, and wait until the console shows a heading."""
        await self.call("Page.navigate", url=url)
        await self.until("document.querySelector('h1') && document.readyState === 'complete'")

    async def reload(self) -> None:
        """Load the page again, and wait until it is loaded."""
        self._loaded = trio.Event()
        await self.call("Page.reload")
        with trio.fail_after(PATIENCE):
            await self._loaded.wait()

    async def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        found = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, script: str) -> Any:
        """Wait until an expression is true; returns its value."""
        deadline = trio.current_time() + PATIENCE
        while True:
            value = await self.run(f"((it) => it instanceof Element || it)({script})")
            if value or trio.current_time() > deadline:
                break
            await trio.sleep(_PAUSE)
        assert value, f"never true: {script}\npage: {await self.text()}\nproblems: {self.problems}"
        return value

    async def until_text(self, text: str, where: str = "body") -> None:
        """Wait until a text is in the page."""
        shown = f"document.querySelector({json.dumps(where)})?.innerText"
        await self.until(f"{shown}.includes({json.dumps(text)})")

    async def text(self, where: str = "body") -> str:
        """The text of an element, as people see it."""
        return str(await self.run(f"document.querySelector({json.dumps(where)})?.innerText"))

    async def click(self, label: str, where: str = "body") -> None:
        """Click the button, link or summary with this text or label, once it is there and enabled."""
        await self.until(
            f"""(() => {{
                const controls = {json.dumps(where)} + " :is(a, button, summary, input)";
                const found = [...document.querySelectorAll(controls)]
                    .find((one) => [one.innerText?.trim(), one.ariaLabel].includes({json.dumps(label)}));
                if (!found || found.disabled || found.ariaDisabled === "true") return false;
                found.click();
                return true;
            }})()"""
        )

    async def fill(self, field: str, text: str) -> None:
        """Replace the text of a field, as a person who leaves the field afterwards."""
        await self.until(f"document.querySelector({json.dumps(field)})")
        await self.run(f"document.querySelector({json.dumps(field)}).select()")
        await self.call("Input.insertText", text=text)
        await self.run(f"document.querySelector({json.dumps(field)}).blur()")

    async def press(self, key: str) -> None:
        """Press a key."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if kind == "keyDown" and text else {}
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, **typed)

    async def resize(self, width: int, height: int, scheme: str = "light") -> None:
        """Change the size of the window, and the color scheme of the system."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def save_downloads(self, folder: Path) -> None:
        """Save downloads in a folder."""
        where = {"browserContextId": self._context, "downloadPath": str(folder)}
        await self._browser.call("Browser.setDownloadBehavior", {"behavior": "allow", **where})

    async def screenshot(self, file: Path) -> None:
        """Write what the window shows into a file."""
        found = await self.call("Page.captureScreenshot", format="png")
        await trio.Path(file).write_bytes(base64.b64decode(found["data"]))

    def heard(self, method: str, params: Any) -> None:
        """Keep an event that reports a problem, and note that the page is loaded."""
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(one.get("value", one)) for one in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Audits.issueAdded":
            issue = params["issue"]
            if issue["code"] == "ContentSecurityPolicyIssue":
                self.problems.append(json.dumps(issue["details"]))


class Browser:
    """A running browser."""

    def __init__(self, socket: WebSocketConnection, process: _Process) -> None:
        self._socket = socket
        self._process = process
        self._calls: dict[int, trio.MemorySendChannel[Any]] = {}
        self._tabs: dict[str, Tab] = {}
        self._contexts: list[str] = []
        self._first: tuple[str, Tab] | None = None

    async def receive(self) -> None:
        """Pass on what the browser sends."""
        try:
            while True:
                message = json.loads(await self._socket.get_message())
                if "id" in message:
                    self._calls.pop(message["id"]).send_nowait(message)
                elif message.get("sessionId") in self._tabs:
                    self._tabs[message["sessionId"]].heard(message["method"], message["params"])
        except ConnectionClosed:
            pass

    async def call(self, method: str, params: Any, session: str | None = None) -> Any:
        """Call a method of the DevTools protocol."""
        number = max(self._calls, default=self._number) + 1
        self._number = number
        send, receive = trio.open_memory_channel[Any](1)
        self._calls[number] = send
        message = {"id": number, "method": method, "params": params}
        await self._socket.send_message(
            json.dumps({**message, **({"sessionId": session} if session else {})})
        )
        with trio.fail_after(PATIENCE):
            answer = await receive.receive()
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    _number = 0

    async def tab(self) -> Tab:
        """A new page, with storage of its own. The first one shares the cache of the tests before."""
        if self._first is None:
            context = self._process.context = self._process.context or await self._window()
        else:
            context = (await self.call("Target.createBrowserContext", {}))["browserContextId"]
            self._contexts.append(context)
        made = await self.call("Target.createTarget", {"url": "about:blank", "browserContextId": context})
        attach = {"targetId": made["targetId"], "flatten": True}
        session = (await self.call("Target.attachToTarget", attach))["sessionId"]
        tab = self._tabs[session] = Tab(self, session, context)
        if self._first is None:
            self._first = (made["targetId"], tab)
        for domain in ("Page", "Runtime", "Log", "Audits"):
            await tab.call(f"{domain}.enable")
        await tab.resize(1280, 800)
        return tab

    async def _window(self) -> str:
        """Open the window of the first pages. It stays open, since a window costs more than a page."""
        context: str = (await self.call("Target.createBrowserContext", {}))["browserContextId"]
        await self.call("Target.createTarget", {"url": "about:blank", "browserContextId": context})
        return context

    async def close(self) -> None:
        """Close the pages, and forget what they stored."""
        if self._first is not None:
            target, tab = self._first
            origin = (await tab.call("Runtime.evaluate", expression="location.origin"))["result"]["value"]
            if origin.startswith("http"):
                await tab.call(
                    "Storage.clearDataForOrigin", origin=origin, storageTypes="local_storage,cookies"
                )
            await self.call("Target.closeTarget", {"targetId": target})
        for context in self._contexts:
            await self.call("Target.disposeBrowserContext", {"browserContextId": context})
        await self._socket.aclose()


def _end_with_parent() -> None:
    """Let the kernel end this process with the one that started it, also if that one is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class _Process:
    """The browser that the tests of this process share, because a start costs seconds of the processor."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        self.profile = folder / "profile"
        self.context: str | None = None
        """The context of the first page of each test: a cache of the console's files that the tests share."""
        assert BROWSER is not None, "the tests are skipped without one"
        with (folder / "browser.log").open("wb") as log:
            self._process = subprocess.Popen(
                [BROWSER, *_OPTIONS, f"--user-data-dir={self.profile}", "about:blank"],
                stdout=log,
                stderr=log,
                env={**os.environ, "HOME": str(folder)},
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        atexit.register(self.stop)

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # its child processes, too
        self._process.wait()
        self._folder.cleanup()


_shared: _Process | None = None


@asynccontextmanager
async def open_browser() -> AsyncIterator[Browser]:
    """The browser that all tests share. The pages that are opened in it here are closed at the end."""
    global _shared
    if _shared is None or not _shared.runs:
        _shared = _Process()
    address = await _address(_shared.profile)
    async with (
        open_websocket_url(address, max_message_size=1 << 28) as socket,
        trio.open_nursery() as nursery,
    ):
        browser = Browser(socket, _shared)
        nursery.start_soon(browser.receive)
        try:
            yield browser
        finally:
            with trio.move_on_after(PATIENCE, shield=True):
                await browser.close()


async def _address(profile: Path) -> str:
    """The address of the DevTools protocol, once the browser has written it."""
    file = trio.Path(profile / "DevToolsActivePort")
    deadline = trio.current_time() + PATIENCE
    while trio.current_time() < deadline:
        lines = (await file.read_text()).splitlines() if await file.exists() else []
        if len(lines) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        await trio.sleep(_PAUSE)
    raise AssertionError("the browser did not start")
