"""Odd content in every view: hostile and long texts, blank choices, and long errors. No view scrolls
sideways, axe finds nothing, and what cannot be seen is named."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from greenroom import Jobs, Run, open_engine

from ..clients.browser import needs_browser
from .house import HOSTILE, PRINTABLE, House, visited
from .judging import SIDEWAYS, needs_axe, violations

pytestmark = needs_browser

CHOICES = ["", " ", "\u202e", "constructor", "w" * 400, *map(str, range(20))]
LONG = "w" * 90
FLOW = "<img src=x onerror=alert(1)>" + "w" * 80

jobs = Jobs()


@jobs.job("ask")
async def ask(run: Run, params: Any) -> Any:
    await run.log(HOSTILE)
    for number in range(100):
        await run.log(f"line {number}")
    await run.progress(1, 3, **{"stat": HOSTILE})
    return dict(await run.interrupt({"question": HOSTILE, "choices": CHOICES, HOSTILE: HOSTILE}))


@jobs.job("fail")
async def fail(run: Run, params: Any) -> Any:
    raise ValueError(params)


@pytest.fixture
async def home() -> AsyncIterator[House]:
    async with (
        open_engine(jobs, "memory:", max_concurrent=10, shutdown_timeout=0) as engine,
        visited(engine) as home,
    ):
        yield home


async def fill(home: House) -> list[str]:
    """Fill every view; returns their addresses."""
    asks = await home.engine.submit("ask", handle=PRINTABLE, lane=PRINTABLE, tags={"<b>": PRINTABLE})
    fails = await home.engine.submit(
        "fail", handle="__proto__", params="a line\n" * 100 + HOSTILE, lane="constructor"
    )
    await fails.wait()
    await home.engine.set_params("draft", {HOSTILE: HOSTILE})
    await home.engine.schedules.put(FLOW, job="ask", every=3600, params=HOSTILE, handle=PRINTABLE)
    await home.engine.workers.register("w" * 100, "http://127.0.0.1:9/" + "w" * 200, ["<svg onload=x>"])
    approval = {
        "kind": "approval",
        "params": {"approval_key": "w" * 200},
        "prep": {"input_map": {"x": f'$params["{LONG}"]'}},
    }
    nodes = {"<b>a</b>": approval, "constructor": {"kind": "timer", "params": {"delay_ms": 1}}}
    edges = [{"from": "<b>a</b>", "to": "constructor", "action": "<i>" + "w" * 60}]
    await home.engine.flows.publish(FLOW, {"start": "<b>a</b>", "nodes": nodes, "edges": edges})
    walk = await home.engine.flows.start(FLOW, params={LONG: HOSTILE})
    odd = quote(HOSTILE)
    return [
        *("", "runs", "handles", "interrupts", "schedules", "workers", "events", "settings", "flows"),
        *(f"runs/{one.id}" for one in (asks, fails, walk)),
        *(f"handles/{quote(PRINTABLE, safe='')}", "handles/draft", f"schedules/{quote(FLOW, safe='')}"),
        *(f"flows/{quote(FLOW, safe='')}", f"flows/{quote(FLOW, safe='')}?edit=1"),
        *(f"runs?text={odd}&handle={odd}&tag={odd}", f"events?handle={odd}"),
    ]


@needs_axe
async def test_odd_content_is_reachable_and_fits_in_every_view(home):
    addresses = await fill(home)
    found: list[Any] = []
    for address in addresses:
        await home.tab.resize(1280, 800)
        await home.tab.open(f"{home.url}/{address}")
        await home.tab.until_text("live")
        await home.tab.run(
            """new Promise((resolve) => {
                for (const one of document.querySelectorAll("main details:not(.menu)")) one.open = true;
                setTimeout(() => requestAnimationFrame(resolve), 300);
            })"""
        )
        for width, height in ((1280, 800), (360, 740)):
            await home.tab.resize(width, height)
            await home.tab.run("new Promise((resolve) => setTimeout(resolve, 100))")
            if (sideways := await home.tab.run(SIDEWAYS)) > 0:
                found.append((address, width, "sideways", sideways))
            found += [(address, width, one) for one in await violations(home.tab)]
    assert found == []


async def test_menus_fit_on_a_phone(home):
    await home.tab.resize(360, 740)
    await home.tab.open(f"{home.url}/runs")
    await home.tab.click("Filter", ".filters")
    await home.tab.until("document.querySelectorAll('details.menu').length === 2")
    for number in range(2):
        menus = "document.querySelectorAll('details.menu')"
        await home.tab.run(f"{menus}.forEach((one, index) => (one.open = index === {number}))")
        left, right = await home.tab.run(
            f"""(() => {{
                const body = document.querySelectorAll(".menu-body")[{number}];
                const {{ left, right }} = body.getBoundingClientRect();
                return [left, right];
            }})()"""
        )
        assert left >= 0
        assert right <= 360
        assert await home.tab.run(SIDEWAYS) == 0


async def test_choices_without_a_button_and_without_text_are_named(home):
    await home.engine.submit("ask", handle="alice")
    await home.tab.open(f"{home.url}/interrupts")
    await home.tab.until_text("5 more choices are in the data above", ".interrupt")
    await home.tab.click("“ ”, without text", ".interrupt")
    (run,) = await home.engine.list_runs(handle="alice")
    await home.tab.until_text("Approved “ ” by", ".interrupt")
    assert (await home.engine.get_run(run.id)).result == {"approved": True, "choice": " "}


@pytest.mark.parametrize("letter", ["\u202e", "\u061c", "\u200b"])
async def test_invisible_letters_of_a_field_are_named_beside_it(letter, home):
    await home.engine.set_params("alice", {"a": f"x{letter}y"})
    await home.engine.schedules.put("nightly", job="ask", every=3600, params=f"x{letter}y")
    name = f"⟨U+{ord(letter):04X}⟩"
    addresses = {
        "handles/alice": ".draft",
        "schedules/nightly": "form",
        f"runs?handle=x{quote(letter)}": ".filters",
    }
    for address, where in {**addresses, f"events?handle=x{quote(letter)}": ".filters"}.items():
        await home.tab.open(f"{home.url}/{address}")
        await home.tab.until(f"document.querySelector('{where} .invisible')?.textContent.includes('{name}')")
    run = await home.engine.submit("fail", handle="bob", params=f"x{letter}y")
    await home.tab.open(f"{home.url}/runs/{run.id}")
    await home.tab.until_text(f"x{name}y")
    await home.tab.fill("[type=search]", "nothing")
    await home.tab.open(f"{home.url}/handles/carol")
    await home.tab.until("document.querySelector('#draft')")
    assert not await home.tab.run("document.querySelector('.invisible') !== null")


async def test_an_address_with_too_many_parts_is_unknown(home):
    await home.engine.set_params("a", 1)
    await home.tab.open(f"{home.url}/handles/a/b")
    await home.tab.until_text("No view has this address.")
    await home.tab.open(f"{home.url}/handles/{quote('a/b', safe='')}")
    await home.tab.until_text("a/b", "h1")


async def test_a_limit_that_cannot_be_is_refused_and_the_field_shows_the_engines(home):
    await home.tab.open(home.url)
    field = ".limit input[type=number]"
    await home.tab.until(f"document.querySelector('{field}')?.value === '10'")
    for text in ("-1", "1.5", "", "1e20"):
        await home.tab.fill(field, text)
        await home.tab.until(f"document.querySelector('{field}').value === '10'")
        await home.tab.until_text(f"(got {text or 'nothing'})", ".toasts")
    assert (await home.engine.snapshot()).engine.max_concurrent == 10
    await home.tab.fill(field, "4")
    await home.tab.until(f"document.querySelector('{field}').value === '4'")
    await home.tab.until_text("0 of 4")
    assert (await home.engine.snapshot()).engine.max_concurrent == 4
