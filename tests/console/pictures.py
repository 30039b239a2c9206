"""`python -m tests.console.pictures`: take the screenshots of the console for the documentation.

They show a small site of mirrors at work, and differ a little each time: take them again after a change of
the console's appearance. `test_pictures.py` takes them into another folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from greenroom import Engine, Jobs, Run, open_engine
from greenroom.gateway import GatewayConfig, open_gateway

from .chromium import Tab, open_browser

PICTURES = Path(__file__).resolve().parent.parent.parent / "docs" / "pictures"
jobs = Jobs()


@jobs.job("mirror", lane="images")
async def mirror(run: Run, params: dict[str, Any]) -> dict[str, Any]:
    for page in range(params["pages"]):
        await run.progress(page, params["pages"], bytes=48_211 * page)
        await run.log(f"{params['url']}/page/{page + 1}", "warning" if page == 3 else "info")
        await trio.sleep(0.2)
    return {"pages": params["pages"]}


@jobs.job("publish")
async def publish(run: Run, params: dict[str, Any]) -> bool:
    return await run.confirm({"question": "Publish the site?", "pages": 120}, timeout=900)


@jobs.job("mail", lane="mail")
async def mail(run: Run, params: dict[str, Any]) -> None:
    await trio.sleep(0.3)
    if params["number"] % 9 == 4:
        raise ConnectionError("smtp.example.org: connection refused")


async def work(engine: Engine) -> None:
    for number in range(9):
        params = {"url": f"https://example.org/{number}", "pages": 60}
        await engine.submit("mirror", handle=f"account-{number}", params=params, tags={"team": "web"})
    await engine.submit("publish", handle="example.org", params={})
    site = {"url": "https://example.org", "pages": 60}
    for name, times in (
        ("nightly mirror", {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}),
        ("prices", {"every": 600}),
        ("weekly check", {"cron": "30 8 * * MON", "timezone": "Asia/Tokyo", "paused": True}),
    ):
        await engine.schedules.put(name, job="mirror", params=site, **times)
    await engine.schedules.put("often", job="mail", params={"number": 1}, every=5)
    number = 0
    while True:
        number += 1
        await engine.submit("mail", handle=f"user-{number}", params={"number": number})
        await trio.sleep(0.15 if number % 20 < 12 else 0.5)


RELEASE = {
    "start": "build",
    "nodes": {
        "build": {"kind": "timer", "params": {"delay_ms": 40}},
        "check": {"kind": "choice", "choice_cases": [{"action": "urgent", "expr": "$params.urgent eq true"}]},
        "test": {
            "kind": "subflow",
            "subflow": {
                "start": "pages",
                "nodes": {
                    "pages": {"kind": "timer", "params": {"delay_ms": 30}},
                    "links": {"kind": "timer", "params": {"delay_ms": 60}},
                },
                "edges": [{"from": "pages", "to": "links"}],
            },
        },
        "approve": {"kind": "approval", "params": {"approval_key": "$shared.approved"}},
        "publish": {"kind": "timer", "params": {"delay_ms": 50}},
    },
    "edges": [
        {"from": "build", "to": "check"},
        {"from": "check", "to": "test"},
        {"from": "check", "action": "urgent", "to": "publish"},
        {"from": "test", "to": "approve"},
        {"from": "approve", "action": "approved", "to": "publish"},
        {"from": "approve", "action": "denied", "to": "build"},
        {"from": "publish", "to": ""},
    ],
}


async def take(tab: Tab, url: str, engine: Engine, folder: Path) -> None:
    [run] = await engine.list_runs(handle="account-0")
    for name, address, scheme in (
        ("overview", "", "light"),
        ("runs", "runs", "light"),
        ("run", f"runs/{run.id}", "dark"),
        ("handle", f"handles/{run.handle}", "light"),
        ("schedules", "schedules", "light"),
    ):
        await tab.resize(1200, 750, scheme)
        await tab.open(f"{url}/{address}")
        await trio.sleep(0.5)
        await tab.screenshot(folder / f"console-{name}.png")
    await engine.flows.publish("release", RELEASE)
    ticket = await engine.flows.start("release", params={"urgent": False})
    await tab.resize(1200, 750, "light")
    await tab.open(f"{url}/runs/{ticket.id}")
    await tab.until("document.querySelector('.box.suspended')")
    await tab.run("document.querySelector('.flow-graph').scrollIntoView()")
    await trio.sleep(0.5)
    await tab.screenshot(folder / "console-flow.png")


async def take_all(folder: Path, history: float) -> list[str]:
    """Take all pictures, after so many seconds of work. Returns the problems that the browser reported."""
    async with (
        open_engine(jobs, "memory:", max_concurrent=6, lanes={"images": 3, "mail": 2}) as engine,
        open_gateway(engine, GatewayConfig(port=0)) as gateway,
        open_browser() as browser,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(work, engine)
        tab = await browser.tab()
        await trio.sleep(history)
        await take(tab, gateway.url, engine, folder)
        nursery.cancel_scope.cancel()
    return tab.problems


if __name__ == "__main__":
    trio.run(take_all, PICTURES, 9)
