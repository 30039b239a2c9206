"""The site of the documentation is built without a warning, shows every example, and needs no other host."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "tests" / "examples"
PLACEHOLDER = "https://greenroom.example/"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site. The first process of pytest-xdist that needs it builds it for all of them."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "site"
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            build(own / "built")
            (own / "built").rename(folder)
    return folder


def build(folder: Path) -> None:
    """Build the site with all checks of links and anchors, where each warning is an error."""
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={
            **os.environ,
            "NO_MKDOCS_2_WARNING": "1",
        },  # a note about later releases, which pyproject.toml excludes
        capture_output=True,
        text=True,
        check=False,
    )
    # Not with --quiet, with which warnings are neither shown nor counted.
    assert built.returncode == 0, built.stderr
    assert "Documentation built" in built.stderr


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, str]:
    """The text of each page."""
    return {str(page.relative_to(site)): page.read_text(encoding="utf-8") for page in site.rglob("*.html")}


def test_the_pages_load_nothing_from_another_host(site: Path, pages: dict[str, str]) -> None:
    loaded = [
        (name, address)
        for name, text in pages.items()
        for tag in re.findall(r"<(?:script|img|iframe|source|link)\b[^>]*>", text)
        for address in re.findall(r'(?:src|href)="?((?:https?:)?//[^"\s>]+)', tag)
        if not address.startswith(PLACEHOLDER)
    ]
    assert loaded == []
    for style in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import\s*)[\"']?(?:https?:)?//[^)]*", style.read_text("utf-8")) == []


def test_no_page_has_a_diagram_for_which_a_library_is_loaded(pages: dict[str, str]) -> None:
    assert [name for name, text in pages.items() if 'class="mermaid"' in text] == []


def test_the_navigation_has_a_section_for_each_heading_of_the_map_that_has_pages(
    pages: dict[str, str],
) -> None:
    shown = re.findall(
        r'<a href="[^"]*" class="md-tabs__link">\s*(.*?)\s*</a>', pages["index.html"], re.DOTALL
    )
    headings = re.findall(r"^## (.*)", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert shown == ["Greenroom", *(heading for heading in headings if heading != "Words")]


def test_every_example_program_is_a_page(pages: dict[str, str]) -> None:
    for file in EXAMPLES.iterdir():
        if file.suffix in {".py", ".ipynb"} and not file.name.startswith(("_", "test_")):
            assert f"examples/{file.stem}/index.html" in pages


def test_every_example_flow_is_shown_and_drawn(pages: dict[str, str]) -> None:
    shown = pages["examples/flows/index.html"]
    for file in EXAMPLES.glob("flows/*.*"):
        if file.suffix in {".yaml", ".json"}:
            assert f"pictures/flows/{file.stem}.svg" in shown
            assert f"tests/examples/flows/{file.name}" in shown


def test_a_link_to_an_example_leads_to_its_page(pages: dict[str, str]) -> None:
    assert 'href="examples/mirror/"' in pages["index.html"]


def test_a_link_to_another_file_leads_to_the_source(pages: dict[str, str]) -> None:
    assert f'href="{PLACEHOLDER}source/protocol/fold.py"' in pages["how-to/write-a-client/index.html"]


def test_a_method_is_shown_with_its_types_and_its_docstring(pages: dict[str, str]) -> None:
    text = re.sub(r"<[^>]+>", "", pages["reference/python/engine/index.html"])
    assert re.search(r"get_run\(\s*run_id:\s*str\s*\)\s*-&gt;\s*RunRecord", text)
    assert "Submit a run of a job" in text


def test_a_method_of_a_wrapper_is_shown_as_the_method_that_it_calls(pages: dict[str, str]) -> None:
    for page in ("aio", "sync"):
        text = re.sub(r"<[^>]+>", "", pages[f"reference/python/{page}/index.html"])
        assert re.search(r"get_run\(\s*run_id:\s*str\s*\)\s*-&gt;\s*RunRecord", text)


def test_the_search_finds_guides_and_methods(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = {entry["location"] for entry in index["docs"]}
    assert "how-to/lanes/" in places
    assert "reference/python/engine/#greenroom.actors.engine.api.Engine.submit" in places
