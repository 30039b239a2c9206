"""How the console looks, on a phone, with hostile text, and to a screen reader."""

from __future__ import annotations

import pytest

from ..clients.browser import needs_browser
from .house import HOSTILE, PRINTABLE
from .judging import SCHEMES, SIDEWAYS, needs_axe, serious, unnamed

pytestmark = needs_browser


@pytest.mark.parametrize("view", ["", "runs?status=running", "runs/{id}"])
async def test_hostile_text_is_only_ever_text(view, home):
    ticket = await home.engine.submit(
        "hostile",
        handle=PRINTABLE,
        lane=PRINTABLE[:60],
        params={HOSTILE: [HOSTILE]},
        tags={"user": PRINTABLE[:60]},
        key=PRINTABLE[:60],
    )
    await home.tab.open(home.url)
    await home.tab.until("document.querySelector('.tile.asks strong')?.innerText === '1'")
    await home.tab.run("localStorage.setItem('greenroom.columns', 'id status job handle lane tags reason')")
    await home.tab.open(f"{home.url}/{view.format(id=ticket.id)}")
    await home.tab.until_text("<img src=x onerror=")
    assert await home.tab.run("document.querySelectorAll('main img, main script').length") == 0
    assert await home.tab.run("document.title") != "owned"
    text = await home.tab.text("main")
    assert not any(letter in text for letter in "\u202e\u202c\u0007\u001b")
    assert await home.tab.run(SIDEWAYS) == 0  # a long word does not widen the page


async def test_the_theme_follows_the_system_unless_one_is_chosen(home):
    color = "getComputedStyle(document.documentElement).backgroundColor"
    await home.tab.open(home.url)
    light = await home.tab.run(color)
    await home.tab.resize(1280, 800, "dark")
    dark = await home.tab.until(f"{color} !== {light!r} && {color}")
    await home.tab.click("Theme: system")
    await home.tab.until(f"{color} === {light!r}")
    await home.tab.click("Theme: light")
    await home.tab.until(f"{color} === {dark!r}")
    await home.tab.open(home.url)
    assert await home.tab.run(color) == dark


@pytest.mark.parametrize("view", ["", "runs", "runs/{id}"])
async def test_a_phone_shows_every_view_without_scrolling_sideways(view, home):
    ticket = await home.engine.submit("ask", handle="alice", params={"a": [1, {"b": 2}]})
    await home.tab.resize(390, 800)
    await home.tab.open(f"{home.url}/{view.format(id=ticket.id)}")
    await home.tab.until_text("live")
    assert await home.tab.run("document.documentElement.scrollWidth") == 390


def inside(selector: str) -> str:
    """Whether the window of a phone shows all of each of these elements."""
    return f"""(() => {{
        const found = [...document.querySelectorAll({selector!r})];
        const edges = found.map((one) => one.getBoundingClientRect());
        const seen = ({{ left, right, width }}) => width > 0 && left >= 0 && right <= 390;
        return found.length > 0 && edges.every(seen);
    }})()"""


async def test_a_phone_shows_rows_as_cards_and_the_filter_when_asked(home):
    await home.engine.submit("fail", handle="alice", params="no")
    await home.engine.submit("ask", handle="bob")
    await home.tab.resize(390, 800)
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until_text("ValueError: no", ".virtual-rows")
    assert await home.tab.run(inside(".virtual-rows .cell-reason"))
    assert await home.tab.run(inside(".virtual-rows .cell-handle"))
    assert await home.tab.run("document.querySelector('.virtual').getBoundingClientRect().top") < 320
    assert not await home.tab.run(inside(".filters .chips"))
    await home.tab.click("Filter")
    await home.tab.until(inside(".filters .chips"))
    await home.tab.click("failed")
    await home.tab.until_text("Filter (1)", ".fold")
    assert await home.tab.run(inside(".views .badge"))
    for view in ("handles", "events"):
        await home.tab.open(f"{home.url}/{view}")
        await home.tab.until_text("live")
        await home.engine.submit("add", handle="carol", params={"a": 1, "b": 2}, on_conflict="queue")
        await home.tab.until(inside(".virtual-rows .cells > span:not(:empty)"))


async def test_the_overview_shows_the_three_newest_interrupts_before_charts(home):
    for number in range(4):
        await home.engine.submit("ask", handle=f"h{number}")
    await home.tab.open(home.url)
    await home.tab.until_text("All 4 open interrupts")
    await home.tab.until("document.querySelectorAll('.interrupt').length === 3")
    handles = (
        "[...document.querySelectorAll('.interrupt-head a[href*=\"/handles/\"]')].map((one) => one.innerText)"
    )
    assert await home.tab.run(handles) == ["h3", "h2", "h1"]
    top = "document.querySelector('%s').getBoundingClientRect().top"
    assert await home.tab.run(f"{top % '.interrupt'} < {top % '.charts'}")


@needs_axe
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_axe_finds_nothing_serious(scheme, home):
    asks = await home.engine.submit("ask", handle="alice", params={"a": [1]}, tags={"user": "u1"})
    fails = await home.engine.submit("fail", handle="bob", params="no")
    waits = await home.engine.submit("wait", handle="carol")
    await home.tab.resize(1280, 800, scheme)
    for view in ("", "runs", *(f"runs/{ticket.id}" for ticket in (asks, fails, waits))):
        await home.tab.open(f"{home.url}/{view}")
        await home.tab.until_text("live")
        assert await serious(home.tab) == [], view


async def test_every_control_has_a_name_and_every_view_a_heading(home):
    ticket = await home.engine.submit("ask", handle="alice")
    for view in ("", "runs", f"runs/{ticket.id}"):
        await home.tab.open(f"{home.url}/{view}")
        await home.tab.until_text("live")
        assert await unnamed(home.tab) == [], view
        assert await home.tab.run("document.querySelectorAll('main').length") == 1
        assert await home.tab.run("document.querySelectorAll('h1').length") == 1
