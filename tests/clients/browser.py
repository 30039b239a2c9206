"""A headless browser for the tests, and a web server with the page that it opens."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import h11
import pytest
import trio

from .javascript import MODULE

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE = 60

needs_browser = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")

PAGE = """<!doctype html>
<meta charset="utf-8">
<script type="module">
  const argument = ARGUMENT;
  const answer = (value) => fetch("/answer", { method: "POST", body: JSON.stringify(value) });
  try {
    PROGRAM
  } catch (error) {
    answer({ error: String(error), stack: error.stack });
  }
</script>
"""


class Pages:
    """A web server with one page, the client's module, and the answer that the page posts."""

    def __init__(self) -> None:
        self.page = ""
        self.port = 0
        self.answer: Any = None
        self.answered = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._serve, listeners)

    async def _serve(self, stream: trio.SocketStream) -> None:
        machine = h11.Connection(h11.SERVER)
        target, body = b"", b""
        async with stream:
            while True:
                event = machine.next_event()
                if event is h11.NEED_DATA:
                    machine.receive_data(await stream.receive_some())
                elif isinstance(event, h11.Request):
                    target = event.target
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                else:
                    break
            if not isinstance(event, h11.EndOfMessage):
                return  # the browser opened the connection without a request
            status, kind, content = self._respond(target, body)
            headers = [("Content-Type", kind), ("Content-Length", str(len(content))), ("Connection", "close")]
            parts = (
                h11.Response(status_code=status, headers=headers),
                h11.Data(data=content),
                h11.EndOfMessage(),
            )
            await stream.send_all(b"".join(machine.send(part) or b"" for part in parts))

    def _respond(self, target: bytes, body: bytes) -> tuple[int, str, bytes]:
        if target == b"/":
            return 200, "text/html", self.page.encode()
        if target == b"/greenroom.js":
            return 200, "text/javascript", MODULE.read_bytes()
        if target == b"/answer":
            self.answer = json.loads(body)
            self.answered.set()
            return 200, "text/plain", b"thanks"
        return 404, "text/plain", b"no"

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def pages() -> AsyncIterator[Pages]:
    async with trio.open_nursery() as nursery:
        it = Pages()
        await nursery.start(it.run)
        yield it
        nursery.cancel_scope.cancel()


async def browse(its: Pages, program: str, argument: Any, folder: Path) -> Any:
    """Open a page with this program, with `argument` in scope; returns what it passes to `answer`."""
    its.page = PAGE.replace("ARGUMENT", json.dumps(argument)).replace("PROGRAM", program)
    assert BROWSER is not None, "the tests are skipped without one"
    command = [
        BROWSER,
        "--headless=new",
        "--no-sandbox",  # the sandbox does not work for root, and the only page is ours
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        f"--user-data-dir={folder / 'profile'}",
        its.origin + "/",
    ]
    environment = {**os.environ, "HOME": str(folder)}
    with (folder / "browser.log").open("wb") as log:
        options = {
            "stdout": log,
            "stderr": log,
            "env": environment,
            "start_new_session": True,
            "check": False,
        }
        async with trio.open_nursery() as nursery:
            browser = await nursery.start(partial(trio.run_process, command, **options))
            with trio.move_on_after(PATIENCE):
                await its.answered.wait()
            os.killpg(browser.pid, signal.SIGKILL)  # its child processes, too
    assert its.answered.is_set(), (folder / "browser.log").read_text(errors="replace")
    return its.answer
