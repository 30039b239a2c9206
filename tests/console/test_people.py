"""What people rely on after a lost connection, after a login, and beside others who edit the same."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from greenroom.gateway import GatewayConfig, Role, add_token, remove_token
from greenroom.gateway.http import console

from ..clients.browser import needs_browser
from ..clients.proxy import Proxy, proxy
from ..flow.definitions import TIMER, flow
from .house import House, house, pass_runs, without_failed_connections
from .judging import SIDEWAYS, needs_axe, serious
from .test_flows import CONTENT, SHIP, write

pytestmark = needs_browser

LARGE = 2**53 + 1

IMPATIENT = """(() => {
    const wait = setTimeout;
    window.setTimeout = (call, delay) => wait(call, delay === 30_000 ? 100 : delay);
})()"""
"""Let what waits for a connection give up sooner."""


async def go(home: House, path: str) -> None:
    """Show a view without loading the page."""
    await home.tab.run(f"history.pushState(null, '', '{path}'); dispatchEvent(new PopStateEvent('popstate'))")


@asynccontextmanager
async def behind(home: House, path: str, text: str) -> AsyncIterator[Proxy]:
    """A page that shows a text, behind a proxy."""
    async with proxy(home.gateway.port) as between:
        await home.tab.open(f"http://127.0.0.1:{between.port}/{path}")
        await home.tab.until_text(text, "main")
        yield between
    home.tab.problems = without_failed_connections(home.tab.problems)


@asynccontextmanager
async def cut_off(home: House, path: str, text: str) -> AsyncIterator[Proxy]:
    """A page that has shown a text, and has no connection now."""
    async with behind(home, path, text) as between:
        await cut(home, between)
        yield between


async def cut(home: House, between: Proxy) -> None:
    """Let the page lose its connection, and soon give up what waits for one."""
    between.refuses = True
    between.cut()
    await home.tab.until_text("reconnecting", ".connection")
    await home.tab.run(IMPATIENT)


# After a lost connection.


async def test_the_history_of_a_handle_is_read_when_the_connection_is_back(home):
    await home.engine.submit("fail", handle="old", params="no")
    await pass_runs(home, 1000)
    async with cut_off(home, "handles", "Handles") as between:
        await go(home, "/handles/old")
        await home.tab.until_text("last outcome not loaded", ".title")
        assert "There are no runs yet" not in await home.tab.text("main")
        await home.tab.until_text("was not carried out", "main")
        assert "There are no runs yet" not in await home.tab.text("main")
        between.refuses = False
        await home.tab.until_text("Failed", ".title")
        await home.tab.until("!document.querySelector('main .error-text[role]')")
        assert not await home.tab.run("document.querySelector('.toast.error')")


async def test_older_runs_that_a_person_asked_for_are_read_when_the_connection_is_back(home):
    await pass_runs(home, 1100)
    async with cut_off(home, "runs", "Runs") as between:
        await go(home, "/runs?text=nothing-like-this")
        await home.tab.until_text("Older runs could not be read.", "main")
        between.refuses = False
        await home.tab.until_text("No run matches the filter.", "main")


async def test_a_version_of_a_flow_is_read_when_the_connection_is_back(home):
    await home.engine.flows.publish("ship", flow("", first=TIMER))
    await home.engine.flows.publish("ship", flow("", second=TIMER))
    async with cut_off(home, "flows/ship", "version 1") as between:
        await go(home, "/flows/ship?version=1")
        await home.tab.until_text("was not carried out", "main")
        between.refuses = False
        await home.tab.until("document.querySelector('[data-path=\"first\"]')")


async def test_a_list_of_flows_is_read_when_the_connection_is_back(home):
    await home.engine.flows.publish("ship", flow("", first=TIMER))
    async with behind(home, "flows", "ship") as between:
        await go(home, "/runs")
        await cut(home, between)
        await go(home, "/flows")
        await home.tab.until_text("was not carried out", "main")
        between.refuses = False
        await home.tab.until_text("ship", "table")
        assert not await home.tab.run("document.querySelector('main .error-text')")


async def test_the_graph_and_the_node_runs_of_a_run_are_read_when_the_connection_is_back(home):
    await home.engine.flows.publish("ship", flow("", first=TIMER))
    ticket = await home.engine.flows.start("ship")
    await ticket.wait(30)
    async with cut_off(home, f"runs/{ticket.id}", "first") as between:
        await home.tab.run("document.querySelector('.node-runs details').open = true")
        await home.tab.until_text("was not carried out", ".node-runs")
        between.refuses = False
        await home.tab.until_text("Input", ".node-runs")
        await cut(home, between)
        await go(home, "/runs")
        await go(home, f"/runs/{ticket.id}")
        await home.tab.until_text("get_task was not carried out", "main")
        between.refuses = False
        await home.tab.until("document.querySelector('[data-path=\"first\"]')")


async def test_a_definition_is_checked_when_the_connection_is_back(home):
    async with cut_off(home, "flows?edit=1", "No errors.") as between:
        await home.tab.run(f"{CONTENT}.focus()")
        await home.tab.call("Input.insertText", text="# more\n")
        await home.tab.until_text("was not carried out", ".edit")
        between.refuses = False
        await home.tab.until_text("No errors.", ".edit")
        await home.tab.until("!document.querySelector('.edit > .error-text')")


async def test_the_jobs_for_a_new_run_are_read_when_the_connection_is_back(home):
    async with cut_off(home, "runs", "There are no runs yet.") as between:
        await go(home, "/runs?new=1")
        await home.tab.until_text("The jobs could not be read", "main")
        between.refuses = False
        await home.tab.until_text("stubborn", "main")


async def test_next_times_are_read_when_the_connection_is_back(home):
    async with cut_off(home, "schedules", "Schedules") as between:
        await home.tab.click("New schedule")
        await home.tab.fill("[name=cron]", "0 3 * * *")
        await home.tab.until_text("was not carried out", ".preview")
        between.refuses = False
        await home.tab.until("document.querySelector('.preview time')")


@pytest.mark.parametrize("width", [1280, 390])
async def test_nothing_moves_below_the_pointer_when_the_connection_is_lost(width, home):
    await home.engine.submit("ask", handle="alice")
    await home.tab.resize(width, 800)
    place = "JSON.stringify(document.querySelector('.interrupt').getBoundingClientRect())"
    async with behind(home, "interrupts", "Publish?") as between:
        before = await home.tab.run(place)
        between.refuses = True
        between.cut()
        await home.tab.until_text("The connection is lost.", ".lost-bar")
        assert await home.tab.run(place) == before
        assert await home.tab.run(SIDEWAYS) == 0


# Beside others who edit the same.

HOLD_SUBMIT = """(() => {
    const { send } = WebSocket.prototype;
    WebSocket.prototype.send = function (data) {
        if (JSON.parse(data).type === "submit") window.late = () => send.call(this, data);
        else send.call(this, data);
    };
})()"""
"""Keep the next submission of the page until `late()`."""


async def start(home: House, button: str, meanwhile: Any) -> Any:
    """Click a button that starts a run; on the way, the draft changes. Returns the run's parameters."""
    await home.tab.run(HOLD_SUBMIT)
    await home.tab.click(button)
    await home.tab.until("'late' in window")
    await home.engine.set_params("alice", meanwhile)
    await home.tab.run("late()")
    await home.tab.until("location.pathname.startsWith('/runs/')")
    return (await home.engine.list_runs(handle="alice"))[0].params


@pytest.mark.parametrize(
    ("shown", "text"),
    [({"a": 1, "b": LARGE}, f'"b": {LARGE}'), ({}, "{}"), (None, "")],
)
@pytest.mark.parametrize("button", ["Start", "Continue from the checkpoint"])
async def test_a_run_gets_the_parameters_that_were_shown_at_the_click(button, shown, text, home):
    await (await home.engine.submit("fail", handle="alice", params={})).wait(30)
    await home.engine.set_params("alice", shown)
    await home.tab.open(f"{home.url}/handles/alice")
    await home.tab.until(f"document.querySelector('#draft')?.value.includes({json.dumps(text)})")
    assert await start(home, button, {"a": 5, "b": 5}) == (shown or {})
    assert (await home.engine.snapshot()).handles["alice"].params == {"a": 5, "b": 5}


async def test_a_run_gets_the_numbers_that_were_typed(home):
    await home.tab.open(f"{home.url}/handles/alice")
    await home.tab.fill("#draft", f'{{"a": 1.0, "b": {LARGE}}}')
    await home.tab.fill("#job", "wait")
    assert json.dumps(await start(home, "Start", None)) == f'{{"a": 1.0, "b": {LARGE}}}'


async def test_the_editor_warns_when_someone_else_changes_the_draft_of_a_flow(home):
    await home.engine.flows.publish("ship", flow("", first=TIMER), status="draft")
    await home.tab.open(f"{home.url}/flows/ship?version=1&edit=1")
    await home.tab.until_text("No errors.", ".edit")
    await home.engine.flows.publish("other", flow("", first=TIMER), status="draft")
    await write(
        home,
        "start: mine\nnodes: {mine: {kind: timer, params: {delay_ms: 1}}}\nedges: [{from: mine, to: ''}]",
    )
    await home.tab.until_text("No errors.", ".edit")
    assert "someone else" not in await home.tab.text(".edit")
    await home.engine.flows.publish("ship", flow("", second=TIMER), version=1, status="draft")
    await home.tab.until_text("The draft was changed by someone else. Save or Publish replaces it.", ".edit")
    await home.tab.click("Save as draft")
    await home.tab.until("document.querySelector('[data-path=\"mine\"]')")
    await home.tab.click("Edit", "main")
    await home.tab.until_text("No errors.", ".edit")
    assert "someone else" not in await home.tab.text(".edit")


async def test_the_editor_warns_of_a_change_that_happened_during_a_login(tmp_path: Path):
    async with visited_by("ada", "flows/ship?version=1&edit=1", tmp_path / "tokens") as (home, people):
        await edit_flow(home)
        await people.revoke("ada")
        await home.engine.flows.publish("ship", flow("", second=TIMER), version=1, status="draft")
        await people.log_in("ada")
        await home.tab.until_text("The draft was changed by someone else.", ".edit")


# A login, and another one.

DRAFT = "document.querySelector('#draft')?.value"


class People:
    """Who may use a server; they log in with the same page."""

    def __init__(self, home: House, tokens: Path) -> None:
        self._home = home
        self._config = GatewayConfig(token_file=tokens)
        self._tokens = tokens

    async def log_in(self, name: str, role: Role = Role.OPERATOR) -> None:
        """Log in with a new token."""
        token = add_token(self._tokens, name, role)
        self._home.gateway.reconfigure(self._config)
        await self._home.tab.fill("#token", token)
        await self._home.tab.click("Log in")
        await self._home.tab.until_text(name, "header")

    async def revoke(self, name: str) -> None:
        """Take the token away, and wait until the page asks for another one."""
        remove_token(self._tokens, name)
        self._home.gateway.reconfigure(self._config)
        await self._home.tab.until_text("token has been revoked", "form")


@asynccontextmanager
async def visited_by(name: str, path: str, tokens: Path) -> AsyncIterator[tuple[House, People]]:
    """A page that this person has opened with a token."""
    add_token(tokens, "root", Role.ADMIN)
    async with house(token_file=tokens) as home:
        people = People(home, tokens)
        await home.engine.flows.publish("ship", SHIP, status="draft")
        await home.tab.open(f"{home.url}/{path}")
        await people.log_in(name)
        yield home, people


async def edit_draft(home: House) -> None:
    await home.tab.until("document.querySelector('#draft')")
    await home.tab.fill("#draft", '{"hours": 1}')


async def edit_flow(home: House) -> None:
    await write(home, "start: typed")


EDITS = [
    ("handles/free", edit_draft, DRAFT, '{"hours": 1}'),
    ("flows/ship?version=1&edit=1", edit_flow, f"{CONTENT}?.innerText", "start: typed"),
    ("flows?edit=1", edit_flow, f"{CONTENT}?.innerText", "start: typed"),
]


@pytest.mark.parametrize(("path", "edit", "shown", "text"), EDITS)
async def test_edits_are_not_lost_by_a_logout_without_a_question(path, edit, shown, text, tmp_path: Path):
    async with visited_by("ada", path, tmp_path / "tokens") as (home, people):
        await edit(home)
        await home.tab.click("Log out", "header")
        await home.tab.click("Back", "dialog")
        assert await home.tab.run(shown) == text
        await home.tab.click("Log out", "header")
        await home.tab.click("Leave, and lose the edits", "dialog")
        await home.tab.until("document.querySelector('#token')")
        assert "kept" not in await home.tab.text()
        remove_token(tmp_path / "tokens", "ada")
        await people.log_in("ada")
        await home.tab.until(f"![undefined, {json.dumps(text)}].includes({shown})")


@pytest.mark.parametrize(("path", "edit", "shown", "text"), EDITS)
async def test_edits_survive_a_revoked_token_for_the_same_person(path, edit, shown, text, tmp_path: Path):
    async with visited_by("ada", path, tmp_path / "tokens") as (home, people):
        await edit(home)
        await people.revoke("ada")
        await home.tab.until_text("What you have edited is kept until you log in as ada again.")
        await people.log_in("ada")
        await home.tab.until(f"{shown} === {json.dumps(text)}")
        await home.tab.click("Log out", "header")  # they are still not saved
        await home.tab.until_text("Leave without saving?", "dialog")


@pytest.mark.parametrize(("name", "role"), [("bob", Role.OPERATOR), ("ada", Role.VIEWER)])
async def test_who_cannot_save_edits_after_a_login_learns_that_they_are_lost(name, role, tmp_path: Path):
    async with visited_by("ada", "handles/free", tmp_path / "tokens") as (home, people):
        await edit_draft(home)
        await people.revoke("ada")
        await people.log_in(name, role)
        await home.tab.until_text("What ada had edited before this login was not saved", ".toast.error")
        await home.tab.until(f"{DRAFT} === ''")


async def test_a_question_is_closed_when_the_person_changes(tmp_path: Path):
    async with visited_by("ada", "", tmp_path / "tokens") as (home, people):
        ticket = await home.engine.submit("wait", handle="alice")
        await go(home, f"/runs/{ticket.id}")
        await home.tab.click("Cancel", "main")
        await home.tab.until("document.querySelector('dialog[open]')")
        await people.revoke("ada")
        assert not await home.tab.run("document.querySelector('dialog')")
        await people.log_in("bob")
        await home.tab.until_text("running", ".title")
        assert not await home.tab.run("document.querySelector('dialog')")
        await home.tab.click("Cancel", "main")
        await home.tab.click("Cancel, keep files", "dialog")
        await home.tab.until_text("cancelled", ".title")
        by = {event.by for event in await home.engine.history(ticket.id)}
        assert by & {"ada", "bob"} == {"bob"}


# After an upgrade.

NEWER = "The server has a newer console."


def forget_version() -> None:
    console.version.cache_clear()
    console._page.cache_clear()


@asynccontextmanager
async def upgraded(home: House, path: str, text: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """A page that shows a text, and is connected again to a server with other files."""
    async with behind(home, path, text) as between:
        between.refuses = True
        between.cut()
        await home.tab.until_text("reconnecting", ".connection")
        files = {**console._files(), "app/new.css": console.File.of(b"", "new.css")}
        monkeypatch.setattr(console, "_files", lambda: files)
        forget_version()
        try:
            between.refuses = False
            await home.tab.until_text("live", ".connection")
            yield
        finally:
            monkeypatch.undo()
            forget_version()


async def test_a_page_of_an_older_console_offers_to_reload(home, monkeypatch):
    async with upgraded(home, "handles/free", "free", monkeypatch):
        await home.tab.until_text(NEWER, "main")
        await edit_draft(home)
        await home.tab.click("Reload the page")
        await home.tab.click("Back", "dialog")
        assert await home.tab.run(DRAFT) == '{"hours": 1}'
        await home.tab.click("Reload the page")
        await home.tab.click("Leave, and lose the edits", "dialog")
        await home.tab.until(f"{DRAFT} === ''")
        assert console.version() in await home.tab.run("document.querySelector('script[src]').src")
        assert NEWER not in await home.tab.text()


@needs_axe
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
async def test_axe_finds_nothing_serious_in_the_bars(width, scheme, home, monkeypatch):
    await home.tab.resize(width, 800, scheme)
    async with upgraded(home, "handles/free", "free", monkeypatch):
        await home.tab.until_text(NEWER, "main")
        assert await serious(home.tab) == []
        assert await home.tab.run(SIDEWAYS) == 0


async def test_a_part_that_only_an_older_server_had_offers_to_reload(home, monkeypatch):
    async with upgraded(home, "runs", "There are no runs yet.", monkeypatch):
        await home.tab.run("document.querySelector('.views a[href$=\"/flows\"]').click()")
        await home.tab.until_text(
            "cannot be loaded, because the server has a newer console", "main [role=alert]"
        )
        await home.tab.run("document.querySelector('main > button').click()")
        await home.tab.until_text("There are no flows yet.")
    home.tab.problems = [one for one in home.tab.problems if "404" not in one]


async def test_a_page_of_the_same_console_does_not_offer_to_reload(home):
    async with behind(home, "runs", "There are no runs yet.") as between:
        between.refuses = True
        between.cut()
        await home.tab.until_text("reconnecting", ".connection")
        between.refuses = False
        await home.tab.until_text("live", ".connection")
        await home.tab.run("fetch(location.href)")
        assert NEWER not in await home.tab.text()


# Names for screen readers.

NAMES = """[...document.querySelectorAll('.interrupt, .interrupt :is(button, textarea), .json > .copy')]
    .map((one) => one.ariaLabel)"""


async def test_the_cards_of_interrupts_and_their_controls_have_different_names(home):
    for handle in ("alice", "bob"):
        await home.engine.submit("ask", handle=handle)
    await home.tab.open(f"{home.url}/interrupts")
    await home.tab.until("document.querySelectorAll('.interrupt').length === 2")
    names = await home.tab.run(NAMES)
    assert len(names) == len(set(names)) == 12
    wanted = {f"{what}: ask of alice, 1" for what in ("Open interrupt", "Approve", "Deny", "JSON", "Send")}
    assert {*wanted, "copy the data of ask of alice, 1"} < set(names)


async def test_the_copy_buttons_of_a_run_have_different_names(home):
    ticket = await home.engine.submit("wait", handle="alice", params={"a": 1})
    await home.engine.inject("alice", {"one": 1})
    await ticket.result()
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until("document.querySelectorAll('.json > .copy').length > 3")
    names = await home.tab.run(NAMES)
    assert len(names) == len(set(names))
    assert {"copy the parameters", "copy the result", "copy the progress"} < set(names)
