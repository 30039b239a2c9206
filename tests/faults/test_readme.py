"""The first program of the README works as described: a killed run resumes at the next start."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
PATIENCE = 60


def first_program() -> str:
    """Return the first block of Python, which is a complete program."""
    found = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def test_a_killed_program_resumes_its_run_and_prints_the_result(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(first_program())
    command = [sys.executable, "-u", "program.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        seen = [killed.stdout.readline() for _ in range(4)]
        killed.kill()
        seen += killed.stdout.readlines()
    again = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=True
    ).stdout.splitlines()

    assert seen[0] == "page 1 of 10\n"
    assert again[-1] == "{'pages': 10}"
    pages = [int(line.split()[1]) for line in again[:-1]]
    # The page whose checkpoint was being committed can be fetched twice; none is omitted.
    assert pages == list(range(pages[0], 11))
    assert len(seen) <= pages[0] <= len(seen) + 1
