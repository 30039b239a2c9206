"""Handles in the console: the list, the draft, starts and their conflicts, who waits, and the history."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from greenroom.gateway import Role, add_token

from ..clients.browser import needs_browser
from .house import HOSTILE, PRINTABLE, House, house, log_in, pass_runs
from .judging import SCHEMES, SIDEWAYS, needs_axe, serious

pytestmark = needs_browser

START = "document.querySelector('.draft button.primary')"

RUNS = "document.querySelector('.views a[href$=\"/runs\"]').click()"


async def choose(home: House, option: str) -> None:
    """Choose what happens if the handle is busy."""
    await home.tab.until("document.querySelector('#on-conflict')")
    await home.tab.run(
        f"""(() => {{
            const field = document.querySelector("#on-conflict");
            field.value = {json.dumps(option)};
            field.dispatchEvent(new Event("change", {{ bubbles: true }}));
        }})()"""
    )


async def test_the_list_is_searched_and_follows_the_handles(home):
    await home.engine.set_params("zoe", {"a": 1})
    await home.engine.submit("wait", handle="alice")
    await home.tab.open(f"{home.url}/handles")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 2")
    await home.engine.submit("fail", handle="bob", params="no")
    await home.tab.until_text("Failed", "#row-bob")
    assert "locked" in await home.tab.text("#row-alice")
    assert "draft" in await home.tab.text("#row-zoe")
    await home.tab.fill(".filters input", "O")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 2")
    assert await home.path() == "/handles?text=O"
    await home.tab.click("Failed")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 1")
    await home.tab.press("j")
    await home.tab.press("Enter")
    await home.tab.until("location.pathname === '/handles/bob'")


async def test_a_draft_is_saved_and_a_run_is_started_with_it(home):
    await home.tab.open(f"{home.url}/handles/alice")
    await home.tab.fill("#draft", "{not json")
    await home.tab.until_text("the draft is not valid JSON", ".draft")
    assert await home.tab.run(f"{START}.disabled")
    await home.tab.fill("#draft", '{"a": 1, "b": 2}')
    await home.tab.click("Save draft")
    await home.tab.until("document.querySelector('#draft').value.includes('\\n')")  # as it is stored
    assert (await home.engine.snapshot()).handles["alice"].params == {"a": 1, "b": 2}
    await home.tab.fill("#draft", '{"a": 3, "b": 4}')
    await home.tab.fill("#job", "add")
    await home.tab.click("Start")  # saves what is shown first
    await home.tab.until_text("sum: 7")
    assert (await home.engine.snapshot()).handles["alice"].params == {"a": 3, "b": 4}


async def test_a_run_continues_from_the_checkpoint(home):
    await home.engine.submit("add", handle="alice", params={"a": 1, "b": 2})
    await home.tab.open(f"{home.url}/handles/alice")
    await home.tab.until("document.querySelector('#job')?.value === 'add'")  # the job of the last run
    await home.tab.fill("#draft", '{"a": 1, "b": 1}')
    await home.tab.click("Continue from the checkpoint")
    await home.tab.until_text("sum: 2")
    assert (await home.engine.list_runs(handle="alice"))[0].kind == "continue"


async def test_an_empty_draft_offers_the_parameters_of_the_last_run(home):
    await home.tab.open(f"{home.url}/handles/alice")
    await home.tab.until("document.querySelector('#draft')?.value === ''")
    assert "Continue" not in await home.tab.text(".draft")
    await (await home.engine.submit("add", handle="alice", params={"a": 1, "b": 2})).wait(30)
    await home.tab.until_text("These are the parameters of the last run", ".draft")
    await home.tab.click("Continue from the checkpoint")
    await home.tab.until_text("sum: 3")
    run = (await home.engine.list_runs(handle="alice"))[0]
    assert (run.kind, run.params) == ("continue", {"a": 1, "b": 2})
    assert "alice" not in {name for name, one in (await home.engine.snapshot()).handles.items() if one.params}
    await home.tab.open(f"{home.url}/handles/alice")
    await home.tab.until_text("These are the parameters of the last run", ".draft")
    await home.tab.fill("#draft", "[]")
    await home.tab.fill("#draft", " ")
    await home.tab.fill("#job", "wait")
    await home.tab.click("Start")
    await home.tab.until_text("running", ".title")
    assert (await home.engine.list_runs(handle="alice"))[0].params == {}


async def test_edits_of_a_draft_are_not_lost_without_a_question(home):
    await home.tab.open(f"{home.url}/handles")
    await home.tab.until_text("There are no handles yet.")
    await home.tab.run("history.pushState(null, '', '/handles/alice'); dispatchEvent(new Event('popstate'))")
    await home.tab.fill("#draft", '{"a": 1}')
    await home.tab.run(RUNS)
    await home.tab.until_text("Leave without saving?", "dialog")
    await home.tab.click("Back", "dialog")
    assert await home.path() == "/handles/alice"
    await home.tab.run("history.back()")
    await home.tab.until_text("Leave without saving?", "dialog")
    await home.tab.click("Back", "dialog")
    await home.tab.until("location.pathname === '/handles/alice'")
    closing = "(() => dispatchEvent(new Event('beforeunload', { cancelable: true })))()"
    assert await home.tab.run(f"document.querySelector('#draft').value + {closing}") == '{"a": 1}false'
    await home.tab.run("history.back()")
    await home.tab.click("Leave, and lose the edits", "dialog")
    await home.tab.until("!document.querySelector('#draft')")
    await home.tab.until(closing)
    await home.tab.run(RUNS)
    await home.tab.until("location.pathname === '/runs'")


async def test_the_start_button_shows_the_conflict_until_the_handle_is_free(home):
    ticket = await home.engine.submit("wait", handle="alice")
    await home.tab.open(f"{home.url}/handles/alice")
    await home.tab.until_text(f"Start: run …{ticket.id[-8:]} is running", ".draft")
    assert await home.tab.run(f"{START}.disabled && document.querySelector('#draft').readOnly")
    await home.engine.inject("alice", "go")
    await home.tab.until(f"{START}.innerText === 'Start' && !document.querySelector('#draft').readOnly")


async def test_a_conflict_that_the_page_could_not_know_yet_is_said(home):
    await (await home.engine.submit("add", handle="alice", params={"a": 1, "b": 2})).result()
    await home.tab.open(f"{home.url}/handles/alice")
    await home.tab.fill("#job", "wait")
    await home.tab.run(
        f"""(() => {{
            {START}.click();
            {START}.nextElementSibling.click();
        }})()"""
    )
    await home.tab.until_text("conflict: ", ".toast.error")


async def test_runs_that_wait_are_shown_and_cleared(home):
    await home.engine.submit("wait", handle="alice")
    await home.tab.open(f"{home.url}/handles/alice")
    await choose(home, "queue")
    for count in (1, 2):
        await home.tab.click("Start", ".draft")
        await home.tab.until(f"document.querySelectorAll('.waiting li').length === {count}")
    await home.tab.click("Clear 2 waiting")
    await home.tab.click("Cancel those that wait", "dialog")
    await home.tab.until_text("2 runs cancelled", ".toasts")
    await home.tab.until("document.querySelectorAll('.waiting li').length === 0")
    await home.tab.until("document.querySelectorAll('tbody tr').length === 3")


async def test_the_active_run_is_cancelled_and_an_abandoned_body_is_released(home):
    await home.engine.submit("stubborn", handle="alice")
    await home.tab.open(f"{home.url}/handles/alice")
    await home.tab.click("Cancel", ".active-run")
    await home.tab.click("Cancel, delete files", "dialog")
    await home.tab.click("Release", ".title")
    await home.tab.click("Release", "dialog")
    await home.tab.until_text("The handle is free.")
    assert not (await home.engine.snapshot()).handles["alice"].locked


async def test_the_history_is_read_page_by_page(home):
    runs = [{"job": "fail", "handle": "alice", "params": "no", "on_conflict": "queue"} for _ in range(60)]
    tickets = await home.engine.submit_many(runs)
    await tickets[-1].wait(60)
    await home.tab.open(f"{home.url}/handles/alice")
    for shown in (25, 50, 60):
        await home.tab.until(f"document.querySelectorAll('tbody tr').length === {shown}")
        if shown < 60:
            await home.tab.click("Older runs")
    await home.tab.until(
        "![...document.querySelectorAll('button')].some((one) => one.innerText === 'Older runs')"
    )


async def test_the_history_follows_the_runs_of_the_handle(home):
    await home.tab.open(f"{home.url}/handles/alice")
    await home.tab.until_text("There are no runs yet.")
    ticket = await home.engine.submit("wait", handle="alice")
    await home.tab.until_text("running", "tbody")
    await home.engine.inject("alice", "go")
    await ticket.result()
    await home.tab.until_text("succeeded", "tbody")
    await home.engine.submit("wait", handle="alice")
    await home.tab.until("document.querySelectorAll('tbody tr').length === 2")
    await pass_runs(home, 1000)  # the state has only the ended runs of other handles now
    last = (await home.engine.snapshot()).seq
    await home.tab.until(f"document.querySelector('.connection').title.endsWith(' {last}')")
    assert "succeeded" in await home.tab.text("tbody")
    assert await home.tab.run("document.querySelectorAll('tbody tr').length") == 2


async def test_an_old_handle_is_found_and_has_its_last_outcome(home):
    await home.engine.submit("fail", handle="old", params="no")
    await home.engine.set_params("draft", {"a": 1})
    await home.engine.submit("fail", handle="draft", params="no")
    await pass_runs(home, 1000)
    await home.tab.open(f"{home.url}/handles")
    await home.tab.until_text("last outcome not loaded", "#row-draft")
    await home.tab.open(f"{home.url}/handles?text=old")
    await home.tab.until_text("Failed", "#row-old")
    await home.tab.run("document.querySelector('main a[href$=\"/handles/old\"]').click()")
    await home.tab.until_text("Failed", ".title")
    await home.tab.open(f"{home.url}/handles?text=draft")
    await home.tab.until_text("Failed", "#row-draft")


@pytest.mark.parametrize("name", ["a/b", "c d?e#f%2F", "ключ", PRINTABLE])
async def test_every_name_has_an_address(name, home):
    await home.engine.submit("wait", handle=name, params={HOSTILE: HOSTILE})
    await home.engine.set_params(f"{name} draft", {HOSTILE: HOSTILE})
    for view in ("handles", "handles?text=draft"):
        await home.tab.open(f"{home.url}/{view}")
        await home.tab.until("document.querySelector('.virtual-rows a')")
        await home.tab.run("document.querySelector('.virtual-rows a').click()")
        await home.tab.until("document.querySelector('#draft')")
        await home.tab.open(str(await home.tab.run("location.href")))  # also as the first page
        await home.tab.until("document.querySelector('#draft')")
        await home.tab.until_text("draft" if "draft" in view else "Running", ".title")
        assert await home.tab.run("document.querySelectorAll('main img, main script').length") == 0
        assert await home.tab.run(SIDEWAYS) == 0


async def test_a_viewer_can_only_read(tmp_path: Path):
    token = add_token(tmp_path / "tokens", "eve", Role.VIEWER)
    async with house(token_file=str(tmp_path / "tokens")) as home:
        await home.engine.submit("ask", handle="alice")
        await log_in(home, token, "handles/alice")
        await home.tab.until_text("Publish?")
        assert await home.tab.run("document.querySelector('#draft').readOnly")
        assert await home.tab.run("document.querySelectorAll('main button:not(.copy)').length") == 0
        await home.tab.open(f"{home.url}/interrupts")
        await home.tab.until_text("Publish?")
        assert await home.tab.run("document.querySelectorAll('main button:not(.copy)').length") == 0


@pytest.mark.parametrize("view", ["handles", "handles/alice", "interrupts"])
async def test_a_phone_shows_every_view_without_scrolling_sideways(view, home):
    await home.engine.submit("ask", handle="alice", params={"a": [1, {"b": 2}]})
    await home.tab.resize(390, 800)
    await home.tab.open(f"{home.url}/{view}")
    await home.tab.until_text("alice")
    assert await home.tab.run("document.documentElement.scrollWidth") == 390


@needs_axe
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_axe_finds_nothing_serious(scheme, home):
    await home.engine.submit("ask", handle="alice", params={"a": [1]})
    await home.engine.submit("wait", handle="alice", on_conflict="queue")
    await home.engine.submit("fail", handle="bob", params="no")
    await home.tab.resize(1280, 800, scheme)
    for view in ("handles", "handles/alice", "handles/bob", "handles/new", "interrupts"):
        await home.tab.open(f"{home.url}/{view}")
        await home.tab.until_text("live")
        assert await serious(home.tab) == [], view
