"""The console in a real Chromium, in front of a real server: each view, actions, roles, lost connections, and
hostile text. No test leaves an error on the console, or a violation of the Content-Security-Policy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom import Engine, Jobs, Run, connect, open_engine
from greenroom.gateway import Gateway, GatewayConfig, Role, add_token, open_gateway

from ..clients.browser import needs_browser
from ..clients.javascript import ROOT
from ..clients.proxy import proxy
from ..clients.test_killed_server import server
from ..clients.test_prefix import REFUSALS, behind_proxy
from ..support import until
from .chromium import Browser, Tab, open_browser

pytestmark = needs_browser

AXE = ROOT / ".venv" / "node_modules" / "axe-core" / "axe.min.js"
"""The package `axe-core`, which `python3 -m tests` fetches."""
needs_axe = pytest.mark.skipif(not AXE.exists(), reason="there is no axe-core")

PRINTABLE = "<img src=x onerror=\"document.title='owned'\"> \u05e9\u05dc\u05d5\u05dd " + "w" * 60
HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\">"
    "</script><script>document.title='owned'</script>"
    "\u202eevil\u202c \u05e9\u05dc\u05d5\u05dd \u0007\u001b[31m" + "w" * 300
)


def make_jobs() -> Jobs:
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
    async def stubborn(run: Run, params: Any) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(params)

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


@asynccontextmanager
async def house(folder: Path, **config: Any) -> AsyncIterator[House]:
    settings = GatewayConfig(port=0, **config)
    async with (
        open_engine(
            make_jobs(), "memory:", max_concurrent=4, lanes={"images": 2}, shutdown_timeout=0
        ) as engine,
        open_gateway(engine, settings) as gateway,
        open_browser(folder) as browser,
    ):
        tab = await browser.tab()
        yield House(engine, gateway, browser, tab)
        assert tab.problems == []


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path) as home:
        yield home


# The overview.


async def test_the_overview_shows_numbers_that_move(home):
    await home.tab.open(home.url)
    await home.tab.until_text("0 of 4")
    ticket = await home.engine.submit("wait", handle="alice")
    await home.tab.until_text("1 of 4")
    await home.engine.inject("alice", "go")
    await ticket.result()
    await home.tab.until_text("0 of 4")
    await home.engine.submit("fail", handle="bob", params="no")
    await home.tab.until("document.querySelector('.tile.failed strong')?.innerText === '1'")


async def test_a_limit_is_moved_with_a_slider(home):
    await home.tab.open(home.url)
    await home.tab.until("document.querySelector('[aria-label=\"Change the limit of lane images\"]')")
    await home.tab.run(
        """(() => {
            const slider = document.querySelector('[aria-label="Change the limit of lane images"]');
            slider.value = 5;
            slider.dispatchEvent(new Event("input", { bubbles: true }));
            slider.dispatchEvent(new Event("change", { bubbles: true }));
        })()"""
    )
    await home.tab.until("document.querySelector('[aria-label=\"the limit of lane images\"]')?.value === '5'")
    assert (await home.engine.snapshot()).lanes["images"].limit == 5


async def test_a_limit_that_is_being_written_is_kept_while_runs_start_and_end(home):
    field = '[aria-label="the limit of lane images"]'
    await home.tab.open(home.url)
    await home.tab.until(f"document.querySelector('{field}')?.value === '2'")
    await home.tab.run(f"document.querySelector('{field}').select()")
    await home.tab.call("Input.insertText", text="7")
    ticket = await home.engine.submit("wait", handle="alice", lane="images")
    await home.tab.until_text("1 of 4")
    assert await home.tab.run(f"document.querySelector('{field}').value") == "7"
    await home.engine.inject("alice", "go")
    await ticket.result()
    await home.tab.until_text("0 of 4")
    await home.tab.run(f"document.querySelector('{field}').blur()")
    await home.tab.until(f"document.querySelector('{field}').value === '7'")
    await until(home.engine, lambda snapshot: snapshot.lanes["images"].limit == 7)


async def test_what_is_wrong_comes_first(home):
    await home.engine.set_concurrency("images", 0)
    await home.engine.submit("add", handle="alice", lane="images", params={"a": 1, "b": 2})
    await home.tab.open(home.url)
    await home.tab.until_text("Lane images has the limit 0; 1 queued.", ".problems")
    await home.engine.drain()
    await home.tab.until_text("The engine is draining", ".problems")
    await home.engine.resume()
    await home.engine.set_concurrency("images", 1)
    await home.tab.until("!document.querySelector('.problems')")


async def test_a_body_that_ignores_its_cancellation_is_named_until_its_handle_is_free(home):
    ticket = await home.engine.submit("stubborn", handle="alice", params=3)
    await home.tab.open(home.url)
    await home.tab.until_text("1 of 4")
    await ticket.cancel()
    await home.tab.until_text("A body did not end when told to", ".problems")
    assert ticket.id[-8:] in await home.tab.text(".problems")
    await home.engine.release_handle("alice")
    await home.tab.until("!document.querySelector('.problems')")


async def test_an_interrupt_is_answered_in_the_overview(home):
    ticket = await home.engine.submit("ask", handle="alice")
    await home.tab.open(home.url)
    await home.tab.until_text("Publish?", ".interrupt")
    await home.tab.click("Approve", ".interrupt")
    assert await ticket.result() == {"approved": True}
    await home.tab.until("!document.querySelector('.interrupt')")


# The list of runs.


async def test_the_list_follows_runs_and_its_filter_is_in_the_address(home):
    await home.tab.open(f"{home.url}/runs?status=failed")
    await home.tab.until_text("No run matches the filter.")
    failed = await home.engine.submit("fail", handle="alice", params="no")
    await home.engine.submit("wait", handle="bob")
    await home.tab.until(f"document.getElementById('row-{failed.id}')")
    assert await home.tab.run("document.querySelectorAll('.virtual-rows .row').length") == 1
    await home.tab.click("running")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 2")
    assert await home.path() == "/runs?status=failed&status=running"
    await home.tab.fill(".field input", "wait")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 1")
    assert await home.path() == "/runs?status=failed&status=running&job=wait"


async def test_selected_runs_are_cancelled_together(home):
    tickets = [await home.engine.submit("wait", handle=f"handle {number}") for number in range(6)]
    await home.tab.open(f"{home.url}/runs?job=wait")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 6")
    await home.tab.click("Select all")
    await home.tab.click("Cancel 6", ".bulk")
    await home.tab.click("Cancel, keep files", "dialog")
    await home.tab.until_text("6 runs cancelled", ".toasts")
    for ticket in tickets:
        await ticket.wait()
        assert (await home.engine.get_run(ticket.id)).status == "cancelled"
    await home.tab.click("Select all")
    await home.tab.click("Rerun 6", ".bulk")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 12")


async def test_the_keyboard_moves_in_the_list_and_opens_a_run(home):
    tickets = [await home.engine.submit("wait", handle=f"handle {number}") for number in range(3)]
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 3")
    for key in "jjk":
        await home.tab.press(key)
    await home.tab.until(f"document.querySelector('.row.active')?.id === 'row-{tickets[2].id}'")
    await home.tab.press("j")
    await home.tab.press("Enter")
    await home.tab.until_text(tickets[1].id, ".about")
    await home.tab.press("/")
    await home.tab.call("Input.insertText", text="handle 0")
    await home.tab.press("Enter")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 1")
    assert await home.path() == "/runs?text=handle+0"
    await home.tab.press("?")
    await home.tab.until_text("Next run", "dialog")


async def test_a_long_list_has_few_rows_in_the_page(home):
    await home.engine.set_max_concurrent(0)
    runs = [{"job": "add", "handle": f"h{number}", "params": {"a": 1, "b": 2}} for number in range(5000)]
    await home.engine.submit_many(runs)
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until_text("5,000", ".title")
    await home.tab.until("document.querySelector('.virtual-rows')?.clientHeight === 5000 * 36")
    assert await home.tab.run("document.querySelectorAll('.virtual-rows .row').length") < 80
    await home.tab.run("document.querySelector('.virtual').scrollTop = 1e9")
    await home.tab.until("[...document.querySelectorAll('[href$=\"handle=h0\"]')].length === 1")
    shown = "document.querySelector('[aria-rowindex=\"4000\"]')?.id"
    await home.tab.run("document.querySelector('.virtual').scrollTop = 3990 * 36")
    before = await home.tab.until(shown)
    await home.engine.submit("add", handle="new", params={"a": 1, "b": 2})
    await home.tab.until_text("5,001", ".title")
    assert await home.tab.run(f"document.getElementById('{before}').getAttribute('aria-rowindex')") == "4001"
    assert await home.tab.run("document.querySelector('.virtual').scrollTop") == 3991 * 36  # it did not move


async def test_runs_that_the_state_has_no_more_are_read_from_the_store(home):
    for _ in range(3):
        runs = [{"job": "fail", "handle": "x", "params": "no", "on_conflict": "queue"} for _ in range(500)]
        tickets = await home.engine.submit_many(runs)
        await tickets[-1].wait(60)
    await home.tab.open(f"{home.url}/runs?job=fail")
    await home.tab.until_text("1,000", ".title")
    await home.tab.run("document.querySelector('.virtual').scrollTop = 1e9")
    await home.tab.until_text("1,500", ".title")


# One run.


async def test_a_run_shows_what_happened_and_its_result(home):
    ticket = await home.engine.submit("add", handle="alice", params={"a": 1, "b": 2}, tags={"user": "u1"})
    await ticket.result()
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("adding", ".log")
    text = await home.tab.text("main")
    for expected in ("succeeded", "alice", "user=u1", "sum: 3", "attempt 1"):
        assert expected in text
    await home.tab.click("Rerun")
    await home.tab.until(f"!location.pathname.endsWith('{ticket.id}')")
    await home.tab.until_text("succeeded", ".title")


async def test_a_run_is_followed_while_it_executes(home):
    ticket = await home.engine.submit("wait", handle="alice")
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("1 / 4")
    await home.tab.fill("#message", '{"go": true}')
    await home.tab.click("Send", ".message")
    await home.tab.until_text("succeeded", ".title")
    assert await ticket.result() == {"go": True}
    await home.tab.until_text("go: true")


async def test_a_run_is_cancelled_and_its_files_are_kept_or_deleted(home):
    for files in ("keep", "delete"):
        ticket = await home.engine.submit("wait", handle="alice")
        await home.tab.open(f"{home.url}/runs/{ticket.id}")
        await home.tab.click("Cancel", ".title")
        await home.tab.click(f"Cancel, {files} files", "dialog")
        await home.tab.until_text("cancelled", ".title")


async def test_an_interrupt_is_answered_with_any_json(home):
    ticket = await home.engine.submit("ask", handle="alice")
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.click("Another answer")
    await home.tab.fill(".interrupt textarea", "{not json")
    await home.tab.click("Send", ".interrupt")
    await home.tab.until_text("the answer is not valid JSON", ".interrupt")
    await home.tab.fill(".interrupt textarea", '{"pages": [1, 2]}')
    await home.tab.click("Send", ".interrupt")
    assert await ticket.result() == {"pages": [1, 2]}


async def test_a_refused_command_says_why(home):
    ticket = await home.engine.submit("wait", handle="alice")
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("running", ".title")
    await home.engine.drain()
    await home.engine.inject("alice", "go")
    await home.tab.click("Rerun")
    await home.tab.until_text("draining: ", ".toast.error")


async def test_an_unknown_run_and_an_unknown_address_say_so(home):
    await home.tab.open(f"{home.url}/runs/nothing")
    await home.tab.until_text("not found", ".error-text")
    await home.tab.open(f"{home.url}/runs/nothing/else")
    await home.tab.until_text("No view has this address.")


# Hostile text.


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
    width = await home.tab.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width == 0  # a long word does not widen the page


# Login and roles.


async def test_a_token_is_asked_for_and_can_be_forgotten(tmp_path: Path):
    token = add_token(tmp_path / "tokens", "eve", Role.OPERATOR)
    async with house(tmp_path, token_file=str(tmp_path / "tokens")) as home:
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
    async with house(tmp_path, token_file=str(tmp_path / "tokens")) as home:
        ticket = await home.engine.submit("ask", handle="alice")
        await home.tab.open(home.url)
        await home.tab.fill("#token", token)
        await home.tab.click("Log in")
        await home.tab.until_text("Publish?")
        found = {"limit": await home.tab.run("!!document.querySelector('.limit input')")}
        await home.tab.open(f"{home.url}/runs/{ticket.id}")
        await home.tab.until_text("Publish?")
        buttons = "[...document.querySelectorAll('main button')].some((one) => one.innerText === %r)"
        found["cancel"] = await home.tab.run(buttons % "Cancel")
        found["answer"] = await home.tab.run(buttons % "Approve")
        assert found == offered


async def test_a_revoked_token_ends_the_session(tmp_path: Path):
    file = tmp_path / "tokens"
    token = add_token(file, "eve", Role.VIEWER)
    async with house(tmp_path, token_file=str(file)) as home:
        await home.tab.open(home.url)
        await home.tab.fill("#token", token)
        await home.tab.click("Log in")
        await home.tab.until_text("viewer", "header")
        file.write_text("", encoding="utf-8")
        home.gateway.reconfigure(GatewayConfig(port=0, token_file=str(file)))
        await home.tab.until("document.querySelector('#token')")


# Connections.


async def test_a_lost_connection_is_shown_and_the_page_converges_when_it_is_back(home):
    async with proxy(home.gateway.port) as between:
        await home.tab.open(f"http://127.0.0.1:{between.port}/runs")
        await home.tab.until_text("There are no runs yet.")
        ticket = await home.engine.submit("wait", handle="alice")
        await home.tab.until(f"document.getElementById('row-{ticket.id}')")
        between.refuses = True
        between.cut()
        await home.tab.until_text("reconnecting", ".connection")
        await home.engine.inject("alice", "go")
        await ticket.result()
        between.refuses = False
        await home.tab.until_text("succeeded", ".virtual-rows")
        await home.tab.until_text("live", ".connection")
    home.tab.problems = [one for one in home.tab.problems if "WebSocket connection" not in one]


async def test_the_console_works_behind_a_proxy_that_removes_a_prefix(tmp_path: Path):
    async with behind_proxy(REFUSALS["nginx"]) as (url, _), open_browser(tmp_path) as browser:
        tab = await browser.tab()
        for path in ("runs?job=add", "runs/nothing", "flows", ""):
            await tab.open(f"{url.replace('ws', 'http')}/green/room/{path}")
            await tab.until_text("live")
        await tab.run("document.querySelector('.views a[href$=\"/runs\"]').click()")
        await tab.until_text("There are no runs yet.")
        assert await tab.run("location.pathname") == "/green/room/runs"
        assert tab.problems == []


async def test_the_page_converges_after_the_server_was_killed(tmp_path: Path):
    with server(tmp_path) as program:
        async with open_browser(tmp_path) as browser:
            tab = await browser.tab()
            await program.listens()
            async with connect(program.url) as client:
                await client.submit("count", handle="alice", params={"to": 100_000})
                await tab.open(f"{program.url.replace('ws', 'http')}/runs")
                await tab.until("document.querySelector('.status.running')")
            program.kill()
            await tab.until_text("reconnecting", ".connection")
            program.start()
            await program.listens()
            await tab.until_text("live", ".connection")
            await tab.until("document.querySelector('.status.running')")
            [row] = await tab.run("[...document.querySelectorAll('.virtual-rows .row')].map((one) => one.id)")
            async with connect(program.url) as client:
                await client.cancel(row.removeprefix("row-"))
            await tab.until("document.querySelector('.status.cancelled')")


@pytest.mark.long("GREENROOM_CONSOLE")
async def test_100_000_pending_runs_open_within_3_seconds(home):
    await home.engine.set_max_concurrent(0)
    for part in range(10):
        handles = [f"{part} {number}" for number in range(9_999)]
        await home.engine.submit_many([{"job": "add", "handle": handle, "params": {}} for handle in handles])
    with trio.fail_after(3):
        await home.tab.open(f"{home.url}/runs")
        await home.tab.until("document.querySelectorAll('.virtual-rows .row').length > 10")


RECORD_FRAMES = """(() => {
    window.frames_ = [];
    let last = performance.now();
    const next = () => {
        const at = performance.now();
        window.frames_.push(at - last);
        last = at;
        requestAnimationFrame(next);
    };
    requestAnimationFrame(next);
})()"""


async def pass_runs(home: House, count: int) -> None:
    """Let so many runs be submitted and end."""
    runs = [{"job": "add", "handle": f"h{number}", "params": {"a": 1, "b": 2}} for number in range(count)]
    for ticket in await home.engine.submit_many(runs):
        await ticket.wait(60)


async def longest_frame(tab: Tab) -> float:
    """The 95th percentile of the times between frames, in milliseconds."""
    frames = sorted(await tab.run("window.frames_"))
    return float(frames[int(0.95 * len(frames))])


async def test_many_events_render_few_times(home):
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until_text("There are no runs yet.")
    await home.tab.run(RECORD_FRAMES)
    await pass_runs(home, 1000)
    await home.tab.until("document.querySelectorAll('.row .status.succeeded').length > 10")
    assert await longest_frame(home.tab) < 100
    counts = await home.tab.run("document.querySelector('.virtual').getAttribute('aria-rowcount')")
    assert counts == "1001"


@pytest.mark.long("GREENROOM_CONSOLE")
@pytest.mark.parametrize("view", ["", "runs", "events", "executors"])
async def test_10_000_runs_pass_while_a_view_is_open_in_bounded_memory(view, home):
    await home.tab.call("HeapProfiler.enable")
    await home.tab.open(f"{home.url}/{view}")
    await home.tab.until_text("live")
    await pass_runs(home, 5000)  # until then, what the page keeps grows
    before = await heap(home.tab)
    await home.tab.run(RECORD_FRAMES)
    await pass_runs(home, 10_000)
    assert await longest_frame(home.tab) < 100
    assert await heap(home.tab) - before < 20_000_000
    assert await home.tab.run("document.querySelectorAll('*').length") < 3000


async def heap(tab: Tab) -> int:
    """The bytes of the page's objects that are in use."""
    await tab.call("HeapProfiler.collectGarbage")
    return int((await tab.call("Runtime.getHeapUsage"))["usedSize"])


# Appearance.


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


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_serious(scheme, home):
    asks = await home.engine.submit("ask", handle="alice", params={"a": [1]}, tags={"user": "u1"})
    fails = await home.engine.submit("fail", handle="bob", params="no")
    waits = await home.engine.submit("wait", handle="carol")
    await home.tab.resize(1280, 800, scheme)
    axe = await trio.Path(AXE).read_text(encoding="utf-8")
    for view in ("", "runs", *(f"runs/{ticket.id}" for ticket in (asks, fails, waits))):
        await home.tab.open(f"{home.url}/{view}")
        await home.tab.until_text("live")
        await home.tab.call("Runtime.evaluate", expression=axe)
        found = await home.tab.run(
            """axe.run().then(({ violations }) => violations
                .filter(({ impact }) => ["serious", "critical"].includes(impact))
                .flatMap(({ id, nodes }) => nodes.map((node) => [id, node.html, node.failureSummary])))"""
        )
        assert found == [], view


async def test_every_control_has_a_name_and_every_view_a_heading(home):
    ticket = await home.engine.submit("ask", handle="alice")
    for view in ("", "runs", f"runs/{ticket.id}"):
        await home.tab.open(f"{home.url}/{view}")
        await home.tab.until_text("live")
        tree = (await home.tab.call("Accessibility.getFullAXTree"))["nodes"]
        controls = ("button", "link", "textbox", "searchbox", "checkbox", "slider", "spinbutton")
        found = [(one["role"]["value"], one.get("name", {}).get("value")) for one in tree if "role" in one]
        assert [role for role, name in found if role in controls and not name] == []
        assert [name for role, name in found if role == "main"]
        assert await home.tab.run("document.querySelectorAll('h1').length") == 1
