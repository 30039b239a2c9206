"""The documentation agrees with the code, and its links are valid."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import get_args

import msgspec
import pytest
import trio
from trio.testing import MockClock

from greenroom import errors
from greenroom.protocol import errors as protocol_errors
from greenroom.protocol import events, records

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def rows(page: str, *header: str) -> list[list[str]]:
    """The rows of the table with this header in a page of the reference."""
    lines = iter((REFERENCE / page).read_text(encoding="utf-8").splitlines())
    wanted = list(header)
    for line in lines:
        if cells(line) == wanted:
            next(lines)
            return [cells(row) for row in _while_table(lines)]
    raise AssertionError(f"{page} has no table headed {header}")


def _while_table(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if not line.startswith("|"):
            return
        yield line


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def names(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def test_the_table_of_errors_is_that_of_the_code():
    told = [
        (*names(name), *names(code), int(status))
        for name, code, status, _ in rows("errors.md", "class", "code", "HTTP status", "when")
    ]
    assert told == [(cls.__name__, cls.code, cls.http_status) for cls in protocol_errors.BY_CODE.values()]


def test_every_public_error_is_documented():
    text = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    assert [name for name in errors.__all__ if f"`{name}`" not in text] == []


def test_the_table_of_events_names_every_event_with_its_own_fields():
    told = {names(kind)[0]: names(fields) for kind, fields, _ in rows("events.md", "type", "fields", "when")}
    common = {field.encode_name for field in msgspec.structs.fields(events.RunEvent)}
    in_code = {}
    for event in get_args(events.Event):
        shared = common if issubclass(event, events.RunEvent) else common - {"run", "handle", "lane"}
        own = [field.encode_name for field in msgspec.structs.fields(event)]
        in_code[event.__struct_config__.tag] = [name for name in own if name not in shared]
    assert told == in_code


def test_the_table_of_a_run_names_all_of_its_fields():
    tables = (REFERENCE / "events.md").read_text(encoding="utf-8").partition("\nA run:\n")[2]
    told = [name for line in tables.splitlines() if line.startswith("| `") for name in names(cells(line)[0])]
    assert sorted(told) == sorted(records.RunRecord.__struct_fields__)


def test_the_table_of_a_snapshot_names_all_of_its_fields():
    told = [name for field, _ in rows("events.md", "field", "contents") for name in names(field)]
    assert told == list(records.Snapshot.__struct_fields__)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_project_lead_somewhere(page: Path):
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def anchors(page: Path) -> set[str]:
    """The headings of a page, converted to anchors as GitHub does."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_map_names_every_page_and_every_example():
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    examples = [file.stem for file in (ROOT / "tests" / "examples").glob("*.py")]
    wanted = [f"({page.relative_to(DOCS)})" for page in PAGES[1:] if page.name != "index.md"]
    wanted += [f"[{name}]" for name in examples if name != "__init__" and not name.startswith("test_")]
    assert [name for name in wanted if name not in text] == []


PROGRAMS = (
    "README.md",
    "docs/tutorial/first-engine.md",
    "docs/how-to/asyncio.md",
    "docs/how-to/integrations.md",
)


def programs() -> list[tuple[str, str]]:
    """The blocks of Python in the documentation that are whole programs."""
    return [
        (page, block)
        for page in PROGRAMS
        for block in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
        if "trio.run(main)" in block or "asyncio.run(main())" in block
    ]


@pytest.mark.parametrize(("page", "program"), programs(), ids=[page for page, _ in programs()])
def test_a_whole_program_in_the_documentation_runs(
    page: str,
    program: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
):
    monkeypatch.chdir(tmp_path)
    if "sqlite://" not in program:  # SQLite works in threads, which a mock clock does not control
        monkeypatch.setattr(trio, "run", partial(trio.run, clock=MockClock(autojump_threshold=0)))
    exec(compile(program, page, "exec"), {"__name__": "program"})
    assert capsys.readouterr().out
