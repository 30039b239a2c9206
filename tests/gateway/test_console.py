"""How the gateway serves the console: addresses, headers, caching, compression."""

from __future__ import annotations

import gzip
import re
import time
from email.utils import parsedate_to_datetime
from importlib.resources import files

import pytest

from greenroom.gateway import Role, add_token
from greenroom.gateway.http import console

from .support import Answer, House, house

CONSOLE = files("greenroom.gateway").joinpath("console")
LARGEST = 350_000


@pytest.fixture
async def home():
    async with house() as home:
        yield home


def links(page: bytes) -> list[str]:
    return re.findall(r'(?:href|src)="([^"]+)"', page.decode())


async def page(home: House, path: str = "/", **headers: str) -> Answer:
    return await home.http("GET", path, **headers)


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/runs", "/runs/", "/runs/x", "/runs/a%2Fb", "/runs?status=failed", "/runs/x/y"),
        *("/flows/x", "/flows/a%2Fb?version=2", "/schedules/x", "/events", "/settings"),
    ],
)
async def test_every_address_of_a_view_returns_the_page(path, home):
    answer = await page(home, path)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    depth = path.partition("?")[0].count("/") - 1
    start = "../" * depth or "./"
    assert all(link.startswith(f"{start}console/{console.version()}/") for link in links(answer.body))
    for link in links(answer.body):
        assert (await home.http("GET", "/" + link.removeprefix(start))).status == 200


@pytest.mark.parametrize(
    "path", ["/api", "/nothing", "/runs/x/y/z", "/console", "/console/0/app/main.js", "/console/"]
)
async def test_other_addresses_are_not_found(path, home):
    answer = await page(home, path)
    assert (answer.status, answer.json["code"]) == (404, "not_found")


async def test_a_file_outside_of_the_console_is_not_found(home):
    for name in ("../config.py", "%2e%2e/config.py", "package.json", "app", "app/", "greenroom.d.ts"):
        assert (await page(home, f"/console/{console.version()}/{name}")).status == 404


async def test_the_api_keeps_its_addresses(home):
    assert (await home.http("GET", "/api/runs")).json == {"runs": [], "seq": 0}
    assert (await home.http("GET", "/healthz")).json == {"status": "ok"}
    assert (await home.http("POST", "/")).status == 405
    assert (await home.http("POST", "/runs")).headers["allow"] == "GET, HEAD, OPTIONS"
    async with home.socket() as talk:
        assert (await talk.receive())["type"] == "welcome"


HTML = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize("path", ["/flows", "/flows?limit=5", "/flows/version", "/flows/version/get"])
@pytest.mark.parametrize(
    ("headers", "is_page"),
    [
        ({"accept": HTML, "sec_fetch_mode": "navigate"}, True),
        ({"accept": HTML}, True),  # browsers send no Sec-Fetch-Mode over HTTP to another machine
        ({"accept": HTML, "sec_fetch_mode": "cors"}, False),
        ({"accept": "application/json"}, False),
        ({"accept": "*/*"}, False),
        ({}, False),
    ],
)
async def test_people_who_open_an_address_of_the_task_api_get_the_page(path, headers, is_page, home):
    answer = await page(home, path, **headers)
    kind = "text/html; charset=utf-8" if is_page else "application/json"
    assert answer.headers["content-type"] == kind
    head = await home.http("HEAD", path, **headers)
    assert (head.status, head.headers["content-type"]) == (answer.status, kind)


async def test_without_the_console_people_get_the_task_api_too():
    async with house(console=False) as home:
        answer = await page(home, "/flows", accept=HTML, sec_fetch_mode="navigate")
        assert answer.headers["content-type"] == "application/json"


async def test_the_task_api_creates_flows_whatever_a_client_accepts(home):
    answer = await home.http("POST", "/flows", {"name": "mail"}, accept=HTML)
    assert answer.headers["content-type"] == "application/json"
    assert (await home.http("GET", "/flows")).json["total"] == 1


async def test_the_page_needs_no_token_and_its_data_need_one(tmp_path):
    add_token(tmp_path / "tokens", "someone", Role.VIEWER)
    async with house(token_file=str(tmp_path / "tokens")) as home:
        answer = await page(home)
        assert answer.status == 200
        for link in links(answer.body):
            assert (await home.http("GET", link.removeprefix("."))).status == 200
        assert (await home.http("GET", "/api/runs")).status == 401


async def test_the_page_permits_no_code_but_its_own(home):
    headers = (await page(home)).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert (policy["require-trusted-types-for"], policy["trusted-types"]) == ("'script'", "'none'")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"


async def test_the_page_is_checked_each_time_and_its_files_never(home):
    answer = await page(home)
    assert answer.headers["cache-control"] == "no-cache"
    for link in links(answer.body):
        file = await home.http("GET", link.removeprefix("."))
        assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert file.headers["etag"]


async def test_a_client_that_has_the_page_gets_304(home):
    tag = (await page(home)).headers["etag"]
    known = await page(home, if_none_match=f'"other", W/{tag}')
    assert (known.status, known.body, known.headers["etag"]) == (304, b"", tag)
    assert (await page(home, if_none_match='"other"')).status == 200
    assert (await page(home, "/runs/x", if_none_match=tag)).status == 200  # its links differ


@pytest.mark.parametrize(
    ("accepted", "packs"),
    [
        *[("gzip", True), ("br, GZIP;q=0.5", True), ("*", True), ("*;q=0, gzip", True)],
        *[("br", False), ("gzip;q=0", False), ("", False), ("gzip;Q=0", False), ("gzip;level=1;q=0", False)],
        *[("gzip;q=0.000, *", False), ("gzip ; q = 0", False), ("gzip;q=much", False)],
    ],
)
async def test_files_are_compressed_for_who_accepts_that(accepted, packs, home):
    plain = await page(home)
    answer = await page(home, accept_encoding=accepted)
    assert answer.headers["vary"] == "Accept, Accept-Encoding, Sec-Fetch-Mode"
    assert (answer.headers.get("content-encoding") == "gzip") is packs
    assert (gzip.decompress(answer.body) if packs else answer.body) == plain.body
    assert (answer.headers["etag"] != plain.headers["etag"]) is packs


@pytest.mark.parametrize("path", ["/nonsense", "/runs/a/b/c", "/api/nonsense"])
async def test_a_person_at_a_wrong_address_gets_a_page_that_says_so(path, home):
    answer = await page(home, path, accept=HTML)
    assert (answer.status, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    root = "../" * (path.count("/") - 1) or "./"
    assert f'<a href="{root}">Go to the overview.</a>' in answer.body.decode()
    assert f'href="{root}console/{console.version()}/app/style/base.css"' in answer.body.decode()
    called = await home.http("GET", path)
    assert (called.status, called.json["code"]) == (404, "not_found")


async def test_head_has_the_headers_of_get(home):
    answer, head = await page(home), await home.http("HEAD", "/")
    assert (head.status, head.body) == (200, b"")
    assert head.headers | {"date": ""} == answer.headers | {"date": ""}


async def test_the_page_says_when_it_is(home):
    at = parsedate_to_datetime((await page(home)).headers["date"])
    assert abs(at.timestamp() - time.time()) < 60


@pytest.mark.parametrize(
    ("headers", "trusted"),
    [
        ({"host": "127.0.0.1:8440"}, True),
        ({"host": "[::1]:8440"}, True),
        ({"host": "runs.localhost"}, True),
        ({"host": "192.168.0.7:8440"}, False),
        ({"host": "192.168.0.7", "x_forwarded_proto": "https"}, True),
    ],
)
async def test_the_page_is_isolated_where_browsers_support_that(headers, trusted, home):
    answer = await page(home, **headers)
    assert answer.status == 200
    assert ("cross-origin-opener-policy" in answer.headers) is trusted


async def test_without_the_console_its_addresses_are_not_found():
    async with house(console=False) as home:
        for path in ("/", "/runs", "/runs/x", f"/console/{console.version()}/app/main.js"):
            answer = await page(home, path)
            assert (answer.status, answer.json["code"]) == (404, "not_found")
        assert (await home.http("GET", "/greenroom.js")).status == 200


def test_everything_that_the_console_loads_is_small():
    sizes = {name: len(file.compressed) for name, file in console._files().items()}
    assert sum(sizes.values()) < LARGEST
    later = ("vendor/", *console.LATER)
    first = {
        name: size for name, size in sizes.items() if not name.startswith(later) or name == "vendor/ui.js"
    }
    assert sum(first.values()) < LARGEST / 2  # the rest is loaded by the views that need it


def test_modules_are_served_without_comments_and_with_all_their_code():
    served = console._files()
    shorter = 0
    for name, file in served.items():
        lines = CONSOLE.joinpath(name).read_bytes().split(b"\n")
        kept = file.body.split(b"\n")
        assert len(kept) == len(lines), f"{name}: the numbers of its lines differ"
        lost = [line.strip() for line, same in zip(lines, kept, strict=True) if line != same]
        assert all(line.startswith((b"/**", b"*")) for line in lost), name
        shorter += bool(lost)
    assert shorter > 100


def test_the_version_is_a_hash_of_names_and_contents(monkeypatch):
    before = console.version()
    changed = {**console._files(), "app/more.js": console.File.of(b"", "more.js")}
    monkeypatch.setattr(console, "_files", lambda: changed)
    assert console.version.__wrapped__() != before
