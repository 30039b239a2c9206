"""New runs in the console: the choice of a job, the form for its parameters, and a run again with changes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import msgspec
import pytest
from trio_websocket import open_websocket_url

from greenroom import Jobs, Run, open_engine
from greenroom.gateway import Role, add_token

from ..clients.browser import needs_browser
from ..support import until
from .house import House, log_in, visited
from .judging import SIDEWAYS, long, needs_axe, serious, unnamed

pytestmark = needs_browser

JOBS = Jobs()


class Site(msgspec.Struct):
    host: str


class Crawl(msgspec.Struct):
    url: str
    pages: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10
    ratio: float | None = None
    deep: bool = False
    order: Literal["newest", "oldest"] = "newest"
    tags: list[str] = []
    site: Site | None = None
    big: int = 0


@JOBS.job("crawl", lane="web")
async def crawl(run: Run, params: Crawl) -> None: ...


@JOBS.job("loose")
async def loose(run: Run, params: Any) -> None: ...


@JOBS.job("bare")
async def bare(run: Run) -> None: ...


@JOBS.job("wait")
async def wait(run: Run, params: Any) -> None:
    await run.next_message()


@pytest.fixture
async def home() -> AsyncIterator[House]:
    async with (
        open_engine(JOBS, "memory:", max_concurrent=4, shutdown_timeout=0) as engine,
        visited(engine) as home,
    ):
        yield home


async def started(home: House) -> Any:
    """The run that the page shows, once it does."""
    await home.tab.until("/^.runs.[0-9a-f]{32}$/.test(location.pathname)")
    return await home.engine.get_run((await home.path()).rpartition("/")[2])


async def fill(home: House, label: str, text: str) -> None:
    """Fill the field of the form with this label."""
    await home.tab.until("document.querySelector('form.form')")
    number = await home.tab.run(
        f"""[...document.querySelectorAll("form.form :is(input, textarea, select)")].findIndex((one) =>
            one.closest("label")?.querySelector("span")?.textContent.startsWith({json.dumps(label)}))"""
    )
    assert number >= 0, label
    await home.tab.run(
        f"""(() => {{
            const field = [...document.querySelectorAll("form.form :is(input, textarea, select)")][{number}];
            field.value = {json.dumps(text)};
            field.dispatchEvent(new Event(field.matches("select") ? "change" : "input", {{ bubbles: true }}));
        }})()"""
    )


async def test_a_job_is_chosen_and_a_run_is_started_with_typed_parameters(home):
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until("document.querySelector('.title a.button')")
    await home.tab.press("n")
    await home.tab.until_text("url, pages?, ratio?", ".jobs")
    names = "[...document.querySelectorAll('.jobs a')].map((one) => one.innerText)"
    assert await home.tab.run(names) == ["bare", "crawl", "loose", "wait"]
    await home.tab.fill("[name=find]", "WEB")
    await home.tab.until("document.querySelectorAll('.jobs li').length === 1")
    await home.tab.run("document.querySelector('[name=find]').form.requestSubmit()")
    await home.tab.until("location.search === '?new=1&job=crawl'")
    await fill(home, "Handle", " alice ")
    for label, text in {
        "url": "123",
        "pages": "7",
        "ratio": "1.50",
        "deep": "true",
        "order": '"oldest"',
        "tags": '["a"]',
        "site": '{"host": "h"}',
        "big": "12345678901234567890",
    }.items():
        await fill(home, label, text)
    await home.tab.click("More")
    for label, text in {"Lane": "side", "Priority": "5", "Key": "k", "Tags": "team=web\nuser=a=b\n"}.items():
        await fill(home, label, text)
    await home.tab.click("Start")
    run = await started(home)
    assert run.params == {
        "url": "123",
        "pages": 7,
        "ratio": 1.5,
        "deep": True,
        "order": "oldest",
        "tags": ["a"],
        "site": {"host": "h"},
        "big": 12345678901234567890,
    }
    assert (run.job, run.handle, run.lane, run.priority, run.key) == ("crawl", "alice", "side", 5, "k")
    assert run.tags == {"team": "web", "user": "a=b"}


async def test_omitted_fields_are_not_sent(home):
    await home.tab.open(f"{home.url}/runs?new=1&job=crawl")
    await fill(home, "Handle", "alice")
    await fill(home, "url", "https://example.org")
    await home.tab.click("Start")
    assert (await started(home)).params == {"url": "https://example.org"}


async def test_a_refusal_is_shown_at_the_form_and_keeps_what_was_typed(home):
    await home.tab.open(f"{home.url}/runs?new=1&job=crawl")
    await fill(home, "Handle", "alice")
    await fill(home, "url", "u")
    await fill(home, "pages", "1000")
    await home.tab.click("Start")
    await home.tab.until_text("invalid: parameters of job", "form.form .error-text[role=alert]")
    assert "params.pages" in await home.tab.text("form.form .error-text[role=alert]")
    assert await home.engine.list_runs() == []
    await fill(home, "pages", "50")
    await home.tab.click("Start")
    assert (await started(home)).params == {"url": "u", "pages": 50}


async def test_a_field_says_what_it_expects(home):
    await home.tab.open(f"{home.url}/runs?new=1&job=crawl")
    await fill(home, "Handle", "alice")
    await fill(home, "url", "u")
    for label, text, problem in (
        ("pages", "1.5", "must be a whole number"),
        ("tags", "a, b", "must be a JSON list"),
    ):
        await fill(home, label, text)
        await home.tab.until_text(problem, "form.form")
        assert not await home.tab.run("document.querySelector('form.form').checkValidity()")
        await fill(home, label, "")
    assert await home.tab.run("document.querySelector('form.form').checkValidity()")


async def test_a_repeated_click_submits_once(home):
    await home.tab.open(f"{home.url}/runs?new=1&job=bare")
    await fill(home, "Handle", "alice")
    await home.tab.until_text("The job takes no parameters.")
    await home.tab.run(
        "for (let n = 0; n < 3; n++) document.querySelector('form.form button.primary').click()"
    )
    await started(home)
    assert len(await home.engine.list_runs()) == 1


async def test_parameters_can_be_written_as_json_and_back(home):
    await home.tab.open(f"{home.url}/runs?new=1&job=crawl")
    await fill(home, "Handle", "alice")
    await fill(home, "url", "u")
    await fill(home, "big", "1e2")
    await home.tab.click("As JSON")
    await home.tab.until_text("must be a whole number", "fieldset [role=alert]")
    await fill(home, "big", "12345678901234567890")
    await home.tab.click("As JSON")
    await home.tab.until("document.querySelector('[name=params]')")
    assert '"big": 12345678901234567890' in await home.tab.run(
        "document.querySelector('[name=params]').value"
    )
    await fill(home, "JSON", '{"url": "two\\nlines"}')
    await home.tab.click("As fields")
    await home.tab.until_text("the fields cannot show these parameters", "fieldset [role=alert]")
    await fill(home, "JSON", '{"url": "w", "pages": 3}')
    await home.tab.click("As fields")
    await home.tab.until("document.querySelector('[name=\"parameter 0\"]')?.value === 'w'")
    await home.tab.click("Start")
    assert (await started(home)).params == {"url": "w", "pages": 3}


async def test_a_job_of_any_parameters_takes_json_or_the_draft(home):
    await home.engine.set_params("alice", {"from": "draft"})
    await home.tab.open(f"{home.url}/runs?new=1&job=loose")
    await fill(home, "Handle", "alice")
    await home.tab.click("Start")
    assert (await started(home)).params == {"from": "draft"}
    await home.tab.open(f"{home.url}/runs?new=1&job=loose")
    await fill(home, "Handle", "bob")
    await fill(home, "JSON", "[1.0")
    await home.tab.click("Start")
    await home.tab.until_text("the parameters are not valid JSON", "form.form [role=alert]")
    await fill(home, "JSON", '{"a": 98765432109876543210e-2}')
    await home.tab.click("Start")
    assert (await started(home)).params == {"a": 98765432109876543210e-2}


async def test_a_busy_handle_refuses_until_another_choice_is_made(home):
    await home.engine.submit("wait", handle="alice", params={})
    await home.tab.open(f"{home.url}/runs?new=1&job=bare")
    await fill(home, "Handle", "alice")
    await home.tab.until_text("Running", "form.form label")
    await home.tab.until_text("Start: run …", "form.form")
    assert await home.tab.run("document.querySelector('form.form button.primary').disabled")
    await home.tab.click("More")
    await fill(home, "If the handle is busy", "queue")
    await home.tab.click("Start")
    run = await started(home)
    assert (await home.engine.snapshot()).handles["alice"].waiting == [run.id]


async def test_a_run_can_start_later(home):
    await home.tab.open(f"{home.url}/runs?new=1&job=bare")
    await fill(home, "Handle", "alice")
    await home.tab.click("More")
    await fill(home, "Start not before", "2040-01-02T03:04:05")
    await home.tab.click("Start")
    run = await started(home)
    assert run.not_before == await home.tab.run("new Date(2040, 0, 2, 3, 4, 5).getTime() / 1000")


async def test_a_run_is_edited_and_rerun(home):
    first = await home.engine.submit(
        "crawl",
        handle="alice",
        params={"url": "https://example.org", "pages": 3, "deep": True, "big": 2**60 + 1},
        lane="side",
        tags={"team": "web"},
        priority=-3,
        key="k",
    )
    await first.wait(30)
    await home.tab.open(f"{home.url}/runs/{first.id}")
    await home.tab.click("Edit and rerun")
    await home.tab.until_text("New run of crawl", "h1")
    await fill(home, "pages", "4")
    await home.tab.click("Start")
    await home.tab.until(
        f"location.pathname.startsWith('/runs/') && !location.pathname.endsWith('{first.id}')"
    )
    run = await started(home)
    assert run.params == {"url": "https://example.org", "pages": 4, "deep": True, "big": 2**60 + 1}
    assert (run.handle, run.lane, run.tags, run.priority, run.key) == (
        "alice",
        "side",
        {"team": "web"},
        -3,
        "k",
    )


async def test_parameters_that_the_fields_cannot_show_begin_as_json(home):
    first = await home.engine.submit("crawl", handle="alice", params={"url": "", "tags": ["\u202ea"]})
    await first.wait(30)
    await home.tab.open(f"{home.url}/runs?new=1&of={first.id}")
    await home.tab.until("document.querySelector('[name=params]')?.value.includes('\"url\": \"\"')")
    await home.tab.until_text("contains invisible characters", "fieldset")
    await home.tab.click("Start")
    await home.tab.until(
        f"location.pathname.startsWith('/runs/') && !location.pathname.endsWith('{first.id}')"
    )
    assert (await started(home)).params == {"url": "", "tags": ["\u202ea"]}


async def test_a_form_stays_when_the_executor_that_has_its_job_leaves(home):
    url = home.url.replace("http", "ws", 1) + "/executor"
    attach = {"type": "attach", "executor": "gpu", "start": "1", "jobs": [{"name": "render"}], "slots": 1}
    await home.tab.open(f"{home.url}/runs?new=1&job=render")
    await home.tab.until_text("There is no job render")
    async with open_websocket_url(url) as socket:
        await socket.send_message(json.dumps(attach))
        await fill(home, "Handle", "alice")
        assert "crawl" not in await home.tab.text("main")
        frame = {"type": "frame", "first": 1, "ack": 0, "messages": [{"type": "draining"}]}
        await socket.send_message(json.dumps(frame))
    await until(home.engine, lambda now: not now.executors)
    await home.tab.click("Start")
    await home.tab.until_text('invalid: job "render" not found', "form.form")
    assert await home.tab.run("document.querySelector('[name=handle]').value") == "alice"


async def test_unknown_jobs_and_runs_are_named(home):
    await home.tab.open(f"{home.url}/runs?new=1&job=nothing")
    await home.tab.until_text("There is no job nothing: choose another one.")
    await home.tab.until("document.querySelectorAll('.jobs li').length === 4")
    await home.tab.open(f"{home.url}/runs?new=1&of={'0' * 32}")
    await home.tab.until_text("could not be read")


async def test_edits_are_not_lost_without_a_question(home):
    await home.tab.open(f"{home.url}/runs?new=1&job=crawl")
    await fill(home, "url", "u")
    await home.tab.click("Choose another job")
    await home.tab.until_text("Leave without saving?", "dialog")
    await home.tab.click("Back", "dialog")
    assert await home.tab.run("document.querySelector('[name=\"parameter 0\"]').value") == "u"


async def test_the_page_of_a_handle_offers_the_jobs_and_says_what_is_missing(home):
    await home.tab.open(f"{home.url}/handles/nobody")
    await home.tab.until("document.querySelectorAll('#jobs option').length === 4")
    assert "Start: choose a job" in await home.tab.text(".draft")
    await home.tab.fill("#job", "bare")
    await home.tab.click("Start", ".draft")
    assert (await started(home)).handle == "nobody"


async def test_a_limited_token_gets_its_jobs_and_a_viewer_gets_none(tmp_path):
    file = tmp_path / "tokens"
    limited = add_token(file, "some", Role.OPERATOR, jobs=["b*"], handles=["alice"])
    viewer = add_token(file, "viewer", Role.VIEWER)
    async with (
        open_engine(JOBS, "memory:", shutdown_timeout=0) as engine,
        visited(engine, token_file=str(file)) as home,
    ):
        await log_in(home, limited, "runs?new=1")
        await home.tab.until("document.querySelectorAll('.jobs li').length === 1")
        await home.tab.click("bare")
        await fill(home, "Handle", "bob")
        await home.tab.until_text("Your token is limited to", "form.form")
        await fill(home, "Handle", "alice")
        await home.tab.click("Start")
        assert (await started(home)).job == "bare"
        await home.tab.click("Log out")
        await log_in(home, viewer, "runs?new=1")
        await home.tab.until_text("Only the role operator and above can start runs.")
        await home.tab.open(f"{home.url}/runs")
        await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 1")
        assert "New run" not in await home.tab.text("main")


@needs_axe
@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        pytest.param(1280, "light", marks=long),
        (1280, "dark"),
        (360, "light"),
        pytest.param(360, "dark", marks=long),
    ],
)
async def test_the_form_can_be_read_and_used_by_all(home, width, scheme):
    first = await home.engine.submit(
        "crawl", handle="a" * 150, params={"url": "u" * 300}, tags={"t": "v" * 100}
    )
    await first.wait(30)
    await home.tab.resize(width, 900, scheme)
    for query in ("new=1", "new=1&job=crawl", f"new=1&of={first.id}", "new=1&job=loose", "new=1&job=nothing"):
        await home.tab.open(f"{home.url}/runs?{query}")
        await home.tab.until("document.querySelector('main :is(form.form, .jobs)')")
        assert await home.tab.run("document.querySelector('[name=find]')?.checkVisibility() ?? true")
        assert await serious(home.tab) == []
        assert await unnamed(home.tab) == []
        assert await home.tab.run(SIDEWAYS) == 0
