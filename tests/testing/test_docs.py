"""The programs in docs/testing.md are tests that do what the page says."""

from __future__ import annotations

import re
from pathlib import Path

from tests.testing.sessions import pytest_in

[PAGE] = (Path(__file__).parents[2] / "docs").rglob("testing.md")
FILES = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))


def test_every_program_of_the_page_is_tried():
    expected = ["test_greeting", "test_import", "test_dead_webhook", "test_greeting_aio", "test_shop"]
    assert list(FILES) == expected


def test_the_tests_of_the_page_pass(tmp_path: Path):
    working = {name: text for name, text in FILES.items() if name != "test_shop"}
    assert "5 passed" in pytest_in(tmp_path, **working)


def test_the_simulation_of_the_page_fails_as_the_page_shows(tmp_path: Path):
    shown = pytest_in(tmp_path, test_shop=FILES["test_shop"])
    page = PAGE.read_text(encoding="utf-8").partition("```text\n")[2].partition("```")[0]
    lines = [line for line in page.splitlines() if line.strip() not in ("", "…")]
    assert len(lines) > 4
    assert [line for line in lines if without_numbers(line) not in without_numbers(shown)] == []


def without_numbers(text: str) -> str:
    """The text without what depends on the seed, and without the lengths of rules."""
    return re.sub(r"[\d,\s-]+", " ", text)
