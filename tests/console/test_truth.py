"""Lists and pages that say the whole truth: what is not read is said to be unknown, and never shown as something else."""

from __future__ import annotations

import pytest

from ..clients.browser import needs_browser
from .test_run import home

__all__ = ["home"]

pytestmark = needs_browser

STATUSES = "[...document.querySelectorAll('.timeline .bar')].map((one) => one.classList[1])"


@pytest.mark.parametrize("ends", [False, True])
async def test_the_time_line_of_a_long_history_claims_nothing_about_what_is_not_read(home, ends):
    ticket = await home.engine.submit("talk", handle="alice")
    logs = home.engine.events(filter={"types": ["run_log"]})
    await home.engine.inject("alice", 1600)
    async for log in logs:
        if log.text == "line 1599":
            break
    if ends:
        await home.engine.cancel(ticket.id)
        await ticket.wait(30)
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("line 1599", ".log")
    expected = ["queued", "running", "unread", "running", *(["cancelling"] if ends else [])]
    await home.tab.until(f"JSON.stringify({STATUSES}) === {str(expected).replace(chr(39), chr(34))!r}.replaceAll(' ', '')")
    assert "not read yet" in await home.tab.text(".timeline")
    for _ in range(3):
        await home.tab.click("Read earlier events")
        await home.tab.until("!document.querySelector('button[disabled]')")
    await home.tab.until("!document.querySelector('.timeline .unread')")
    assert "not read yet" not in await home.tab.text(".timeline")
