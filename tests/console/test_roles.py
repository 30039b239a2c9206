"""Login, and what each role and each limited token is offered."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.gateway import GatewayConfig, Role, add_token

from ..clients.browser import needs_browser
from .house import house, log_in

pytestmark = needs_browser


async def test_a_token_is_asked_for_and_can_be_forgotten(tmp_path: Path):
    token = add_token(tmp_path / "tokens", "eve", Role.OPERATOR)
    async with house(token_file=str(tmp_path / "tokens")) as home:
        await home.tab.open(f"{home.url}/runs?job=add")
        await home.tab.fill("#token", "gr_wrong")
        await home.tab.click("Log in")
        await home.tab.until_text("invalid or revoked token", ".alone")
        await home.tab.fill("#token", token)
        await home.tab.click("Log in")
        await home.tab.until_text("operator", "header")
        assert "eve" in await home.tab.text("header")
        assert await home.path() == "/runs?job=add"
        await home.tab.open(f"{home.url}/runs")  # the token is kept for this tab
        await home.tab.until_text("operator", "header")
        assert token not in await home.tab.run("document.documentElement.outerHTML")
        await home.tab.click("Log out")
        await home.tab.until("document.querySelector('#token')")
        await home.tab.open(home.url)
        await home.tab.until("document.querySelector('#token')")


@pytest.mark.parametrize(
    ("role", "offered"),
    [
        (Role.VIEWER, {"cancel": False, "answer": False, "limit": False}),
        (Role.OPERATOR, {"cancel": True, "answer": True, "limit": False}),
        (Role.ADMIN, {"cancel": True, "answer": True, "limit": True}),
    ],
)
async def test_only_what_a_role_permits_is_offered(role, offered, tmp_path: Path):
    token = add_token(tmp_path / "tokens", "eve", role)
    async with house(token_file=str(tmp_path / "tokens")) as home:
        ticket = await home.engine.submit("ask", handle="alice")
        await log_in(home, token, "")
        await home.tab.until_text("Publish?")
        found = {"limit": await home.tab.run("!!document.querySelector('.limit input')")}
        await home.tab.open(f"{home.url}/runs/{ticket.id}")
        await home.tab.until_text("Publish?")
        buttons = "[...document.querySelectorAll('main button')].some((one) => one.innerText === %r)"
        found["cancel"] = await home.tab.run(buttons % "Cancel")
        found["answer"] = await home.tab.run(buttons % "Approve")
        assert found == offered


async def test_a_limited_token_is_told_what_it_may_not_see(tmp_path: Path):
    file = tmp_path / "tokens"
    token = add_token(file, "eve", Role.OPERATOR, handles=["alice", "a/*"])
    async with house(token_file=str(file)) as home:
        await home.engine.submit("wait", handle="bob")
        await log_in(home, token, "handles/bob")
        await home.tab.until_text("Your token may not see this handle: it is limited to handles alice, a/*.")
        assert "free" not in await home.tab.text("main")
        assert not await home.tab.run("document.querySelector('main button')")
        for view in ("executors", "workers", "webhooks"):
            await home.tab.open(f"{home.url}/{view}")
            await home.tab.until_text("Your token may not see this: it is limited to handles alice, a/*.")
            assert not await home.tab.run(f"document.querySelector('.views a[href$=\"/{view}\"]')")
        await home.tab.open(f"{home.url}/settings")
        await home.tab.until_text("It is limited to handles alice, a/*.")
        for handle in ("alice", "a/b"):
            await home.tab.open(f"{home.url}/handles/{handle.replace('/', '%2F')}")
            await home.tab.until_text("The handle is free.")


async def test_a_token_for_a_job_is_not_told_that_a_handle_is_free(tmp_path: Path):
    token = add_token(tmp_path / "tokens", "eve", Role.OPERATOR, jobs=["add"])
    async with house(token_file=str(tmp_path / "tokens")) as home:
        await home.engine.submit("wait", handle="bob")
        await log_in(home, token, "handles/bob")
        await home.tab.until_text("None that your token may see.")
        assert await home.tab.run("document.querySelector('#draft').readOnly")


async def test_an_admin_with_limits_is_offered_nothing_that_concerns_all_runs(tmp_path: Path):
    token = add_token(tmp_path / "tokens", "eve", Role.ADMIN, handles=["alice"])
    async with house(token_file=str(tmp_path / "tokens")) as home:
        await home.engine.set_max_concurrent(0)
        await home.engine.submit("wait", handle="alice")
        await home.engine.schedules.put("tick", job="add", handle="alice", every=3600)
        await home.engine.schedules.put("tock", job="add", handle="bob", every=3600)
        await log_in(home, token, "settings")
        await home.tab.until_text("Lanes and their rules")
        await home.tab.run("document.querySelectorAll('main details').forEach((one) => (one.open = true))")
        await home.tab.until("document.querySelectorAll('main details[open]').length > 0")
        assert await home.tab.run("document.querySelectorAll('main button, main input').length") == 0
        await home.tab.open(home.url)
        await home.tab.until_text("Lanes")
        assert await home.tab.run("document.querySelectorAll('main button, main input').length") == 0
        await home.tab.open(f"{home.url}/schedules")
        await home.tab.click("Pause tick")
        await home.tab.until_text("paused", ".grid")
        assert "tock" not in await home.tab.text("main")
        await home.tab.click("tick")
        await home.tab.until_text("Parameters", ".columns")
        await home.tab.click("Resume tick")
        await home.tab.until("!document.querySelector('.state.paused')")


async def test_a_viewer_reads_in_plain_words_who_sees_webhooks(tmp_path: Path):
    token = add_token(tmp_path / "tokens", "eve", Role.VIEWER)
    async with house(token_file=str(tmp_path / "tokens")) as home:
        await log_in(home, token, "webhooks")
        await home.tab.until_text("Webhooks are only for the role operator and above. Your role is viewer.")
        await home.tab.open(f"{home.url}/settings")
        await home.tab.until_text("reads everything except webhooks")
        for part in ("flows", "drafts", "messages"):
            assert part in await home.tab.text("[aria-labelledby=session-title]")


async def test_the_login_and_the_page_of_a_wrong_address_fit_in_the_window(tmp_path: Path):
    add_token(tmp_path / "tokens", "eve", Role.VIEWER)
    async with house(token_file=str(tmp_path / "tokens")) as home:
        for path in ("", "nonsense/address"):
            await home.tab.open(f"{home.url}/{path}")
            page = "document.documentElement"
            assert await home.tab.run(f"{page}.scrollHeight <= {page}.clientHeight")
        await home.tab.until_text("Not found")
        home.tab.problems = [one for one in home.tab.problems if "404" not in one]
        await home.tab.click("Go to the overview.")
        await home.tab.until("document.querySelector('#token')")


async def test_the_badge_of_the_navigation_stays_inside(home):
    await home.engine.set_max_concurrent(40)
    for number in range(31):
        await home.engine.submit("ask", handle=f"h{number}")
    await home.tab.open(home.url)
    await home.tab.until_text("31", ".badge")
    right = "document.querySelector('%s').getBoundingClientRect().right"
    assert await home.tab.run(f"{right % '.badge'} <= {right % '.views a[aria-current]'} - 5")


async def test_a_revoked_token_ends_the_session(tmp_path: Path):
    file = tmp_path / "tokens"
    token = add_token(file, "eve", Role.VIEWER)
    async with house(token_file=str(file)) as home:
        await log_in(home, token, "")
        await home.tab.until_text("viewer", "header")
        file.write_text("", encoding="utf-8")
        home.gateway.reconfigure(GatewayConfig(port=home.gateway.port, token_file=str(file)))
        await home.tab.until("document.querySelector('#token')")
