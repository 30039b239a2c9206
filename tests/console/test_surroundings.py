"""What differs between browsers: clocks, clipboards, and time zones."""

from __future__ import annotations

import pytest

from ..clients.browser import needs_browser

pytestmark = needs_browser


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_wrong_clock_of_the_browser_changes_no_span(hours, home):
    await home.engine.set_max_concurrent(0)
    await home.engine.submit("add", handle="alice", params={"a": 1, "b": 2})
    clock = f"""{{
        const real = Date.now.bind(Date);
        Date.now = () => real() + {hours} * 3_600_000;
    }}"""
    await home.tab.call("Page.addScriptToEvaluateOnNewDocument", source=clock)
    await home.tab.open(home.url)
    await home.tab.until_text("has waited", "[aria-labelledby=queues-title]")
    await home.tab.until("/has waited (\\d\\.)?\\d+ s/.test(document.body.innerText)")
    assert "1 h" not in await home.tab.text("main")


async def test_a_value_is_selected_where_pages_cannot_copy(home):
    ticket = await home.engine.submit("add", handle="alice", params={"a": 1, "b": 2})
    await ticket.result()
    absent = "Object.defineProperty(navigator, 'clipboard', { value: undefined })"
    await home.tab.call("Page.addScriptToEvaluateOnNewDocument", source=absent)
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.click("copy", "main")
    await home.tab.until("String(getSelection()).includes('\"b\": 2')")


async def test_the_times_of_a_filter_are_local_in_the_form_and_not_in_the_address(home):
    await home.tab.call("Emulation.setTimezoneOverride", timezoneId="America/Los_Angeles")
    await home.tab.open(f"{home.url}/runs?since=1795161600")
    await home.tab.until("document.querySelector('[type=datetime-local]')?.value === '2026-11-20T00:00'")
    await home.tab.run(
        """(() => {
            const field = document.querySelector("[type=datetime-local]");
            field.value = "2026-11-20T01:30";
            field.dispatchEvent(new Event("change", { bubbles: true }));
        })()"""
    )
    await home.tab.until("location.search === '?since=2026-11-20T09%3A30Z'")
    assert await home.tab.run("document.querySelector('[type=datetime-local]').value") == "2026-11-20T01:30"
