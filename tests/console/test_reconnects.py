"""What a lost connection or a wrong token leaves behind: nothing that a person has to reload the page for."""

from __future__ import annotations

from pathlib import Path

from greenroom.gateway import Role, add_token

from ..clients.browser import needs_browser
from ..clients.proxy import proxy
from .house import House, house

pytestmark = needs_browser


def ignore_lost_connections(home: House) -> None:
    home.tab.problems = [
        one for one in home.tab.problems if "WebSocket connection" not in one and "net::ERR_" not in one
    ]


async def test_a_view_that_could_not_be_loaded_is_loaded_when_the_connection_is_back(home):
    await home.engine.flows.create("ship")
    async with proxy(home.gateway.port) as between:
        await home.tab.open(f"http://127.0.0.1:{between.port}/")
        await home.tab.until_text("executing")
        between.refuses = True
        between.cut()
        await home.tab.until_text("reconnecting", ".connection")
        await home.tab.run("document.querySelector('.views a[href$=\"/flows\"]').click()")
        await home.tab.until_text("This part of the console cannot be loaded.")
        between.refuses = False
        await home.tab.until_text("ship", "table")
    ignore_lost_connections(home)


async def test_a_view_that_could_not_be_loaded_can_be_loaded_again(home):
    await home.tab.open(home.url)
    await home.tab.until_text("live")
    await home.tab.call("Network.enable")
    await home.tab.call("Network.setBlockedURLs", urls=["*/views/flows/flows.js"])
    await home.tab.run("document.querySelector('.views a[href$=\"/flows\"]').click()")
    await home.tab.until_text("This part of the console cannot be loaded.")
    await home.tab.call("Network.setBlockedURLs", urls=[])
    await home.tab.click("Load it again")
    await home.tab.until_text("There are no flows yet.")
    ignore_lost_connections(home)


async def test_the_history_of_a_run_is_read_when_the_connection_is_back(home):
    ticket = await home.engine.submit("add", handle="alice", params={"a": 1, "b": 2})
    await ticket.result()
    async with proxy(home.gateway.port) as between:
        await home.tab.open(f"http://127.0.0.1:{between.port}/")
        await home.tab.until_text("executing")
        # The command waits for a connection, for a shorter time than usual.
        between.refuses = True
        between.cut()
        await home.tab.until_text("reconnecting", ".connection")
        await home.tab.run(
            """(() => {
                const wait = setTimeout;
                window.setTimeout = (call, delay) => wait(call, delay === 30_000 ? 100 : delay);
            })()"""
        )
        await home.tab.run(
            f"""(() => {{
                history.pushState(null, "", "/runs/{ticket.id}");
                dispatchEvent(new PopStateEvent("popstate"));
            }})()"""
        )
        await home.tab.until_text("was not carried out", ".columns")
        between.refuses = False
        await home.tab.until_text("adding", ".log")
        await home.tab.until("!document.querySelector('.columns').innerText.includes('was not carried out')")
    ignore_lost_connections(home)


async def test_a_text_that_is_much_too_long_for_a_token_is_refused(tmp_path: Path):
    tokens = tmp_path / "tokens"
    token = add_token(tokens, "ada", Role.ADMIN)
    async with house(token_file=tokens) as home:
        await home.tab.open(home.url)
        await home.tab.fill("#token", "x" * 70_000)
        await home.tab.click("Log in")
        await home.tab.until_text("this is no token: it has 70,000 characters", "[role=alert]")
        await home.tab.fill("#token", token)
        await home.tab.click("Log in")
        await home.tab.until_text("live")


async def test_a_person_whose_login_cannot_connect_can_use_another_token(tmp_path: Path):
    tokens = tmp_path / "tokens"
    token = add_token(tokens, "ada", Role.ADMIN)
    async with house(token_file=tokens) as home, proxy(home.gateway.port) as between:
        await home.tab.open(f"http://127.0.0.1:{between.port}/")
        await home.tab.until("document.querySelector('#token')")
        between.refuses = True
        between.cut()
        await home.tab.fill("#token", "gr_other")
        await home.tab.click("Log in")
        await home.tab.click("Log in with another token")
        between.refuses = False
        await home.tab.fill("#token", token)
        await home.tab.click("Log in")
        await home.tab.until_text("live")
        await home.tab.until_text("ada", "header")
        ignore_lost_connections(home)
