"""An engine in front of a browser that shows its console, for the tests."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import trio

from greenroom import Engine, Jobs, Run, open_engine
from greenroom.gateway import Gateway, GatewayConfig, open_gateway

from .chromium import Browser, Tab, open_browser

PRINTABLE = "<img src=x onerror=\"document.title='owned'\"> \u05e9\u05dc\u05d5\u05dd " + "w" * 60
HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\">"
    "</script><script>document.title='owned'</script>"
    "\u202eevil\u202c \u05e9\u05dc\u05d5\u05dd \u0007\u001b[31m" + "w" * 300
)


ADDED = {"a": 1, "b": 2}
"""Parameters of the job `add`."""


def make_jobs(over: trio.Event) -> Jobs:
    """The jobs of a test. A stubborn body ignores its cancellation until the test is `over`."""
    jobs = Jobs()

    @jobs.job("add")
    async def add(run: Run, params: Any) -> Any:
        await run.log("adding")
        return {"sum": params["a"] + params["b"]}

    @jobs.job("wait")
    async def wait(run: Run, params: Any) -> Any:
        await run.progress(1, 4, speed="slow")
        return await run.next_message()

    @jobs.job("ask")
    async def ask(run: Run, params: Any) -> Any:
        return dict(await run.interrupt({"question": "Publish?"}))

    @jobs.job("fail")
    async def fail(run: Run, params: Any) -> Any:
        raise ValueError(params)

    @jobs.job("stubborn", grace=0.05)
    async def stubborn(run: Run) -> None:
        with trio.CancelScope(shield=True):
            await over.wait()

    @jobs.job("hostile")
    async def hostile(run: Run, params: Any) -> Any:
        await run.log(HOSTILE)
        await run.progress(1, 2, note=HOSTILE)
        await run.interrupt({HOSTILE: HOSTILE}, key=PRINTABLE)

    return jobs


class House:
    """An engine with its gateway, and a tab that shows the console."""

    def __init__(self, engine: Engine, gateway: Gateway, browser: Browser, tab: Tab) -> None:
        self.engine = engine
        self.gateway = gateway
        self.url = gateway.url
        self.browser = browser
        self.tab = tab

    async def path(self) -> str:
        """The address of the page without its origin."""
        return str(await self.tab.run("location.pathname + location.search"))


@cache
def _port() -> int:
    """A free port that all tests of this process use, so that the browser has the files in its cache."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@asynccontextmanager
async def visited(engine: Engine, **config: Any) -> AsyncIterator[House]:
    """An engine with its gateway and a tab, in which no problem may remain."""
    settings = GatewayConfig(port=_port(), **config)
    async with open_gateway(engine, settings) as gateway, open_browser() as browser:
        home = House(engine, gateway, browser, await browser.tab())
        yield home
        assert home.tab.problems == []


@asynccontextmanager
async def house(**config: Any) -> AsyncIterator[House]:
    """An engine with the jobs of `make_jobs`, visited."""
    over = trio.Event()
    async with open_engine(
        make_jobs(over), "memory:", max_concurrent=4, lanes={"images": 2}, shutdown_timeout=0
    ) as engine:
        try:
            async with visited(engine, **config) as home:
                yield home
        finally:
            over.set()


async def log_in(home: House, token: str, path: str) -> None:
    """Open a view, and log in with a token."""
    await home.tab.open(f"{home.url}/{path}")
    await home.tab.fill("#token", token)
    await home.tab.click("Log in")


def delete_store(folder: Path) -> None:
    """Let the server begin with an empty store."""
    for file in folder.glob("runs.db*"):
        file.unlink()


async def flood(home: House, count: int, job: str = "add", params: Any = ADDED) -> None:
    """Let so many runs of other handles end that the state has only them."""
    for first in range(0, count, 1000):
        numbers = range(first, min(count, first + 1000))
        runs = [{"job": job, "handle": f"other {number}", "params": params} for number in numbers]
        for ticket in await home.engine.submit_many(runs):
            await ticket.result()


async def pass_runs(home: House, count: int) -> None:
    """Let so many runs be submitted and end."""
    runs = [{"job": "add", "handle": f"h{number}", "params": ADDED} for number in range(count)]
    for ticket in await home.engine.submit_many(runs):
        await ticket.wait(60)


def without_failed_connections(problems: list[str]) -> list[str]:
    """The problems of a tab whose connection a test has cut."""
    return [one for one in problems if "WebSocket connection" not in one and "net::ERR_" not in one]
