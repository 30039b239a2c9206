"""The tutorial about flows works as written: its files are saved, its commands run, its outputs compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.cli.served import PATIENCE, Served, Worker

TUTORIAL = Path(__file__).resolve().parent.parent.parent / "docs" / "tutorial" / "flows.md"
BLOCKS = re.compile(r"((?:[^\n]+\n)*)\n```(\w+)\n(.*?)```", re.DOTALL)
SERVER, WORKER = "greenroom serve app:jobs\n", "greenroom worker services:services --id packer\n"


def test_every_step_of_the_tutorial_does_what_it_shows(tmp_path: Path):
    shown = 0
    with ExitStack() as stack:
        environment = dict(os.environ)
        printed = ""
        for before, language, block in BLOCKS.findall(TUTORIAL.read_text(encoding="utf-8")):
            if saved := re.search(r"[Ss]ave this as\s+`([\w.]+)`", before):
                (tmp_path / saved[1]).write_text(block, encoding="utf-8")
            elif block == SERVER:
                app = (tmp_path / "app.py").read_text(encoding="utf-8")
                server = stack.enter_context(Served(tmp_path, app=app, patience=5 * PATIENCE))
                environment["GREENROOM_URL"] = server.url
                folder = Path(sys.executable).parent
                environment["PATH"] = f"{folder}{os.pathsep}{environment['PATH']}"
            elif block == WORKER:
                stack.enter_context(Worker(tmp_path, server.url, "services:services", "--id", "packer"))
            elif language == "sh":
                printed = run(block, tmp_path, environment)
            elif language == "text":
                lines = printed.splitlines()
                expected = [comparable(line) for line in block.splitlines()]
                assert [line for line in expected if line not in map(comparable, lines)] == [], printed
                shown += 1
    assert shown == len(re.findall("```text", TUTORIAL.read_text(encoding="utf-8"))) > 5


def run(commands: str, folder: Path, environment: dict[str, str]) -> str:
    """What the commands print. Those that fail say so in a comment."""
    printed = ""
    for command in commands.splitlines():
        expected = re.search(r"# exits with code (\d+)$", command)
        done = execute(command, folder, environment)
        while command.startswith("greenroom answer") and done.stdout == "not_found\n":
            done = execute(command, folder, environment)  # a person looks first
        assert done.returncode == (int(expected[1]) if expected else 0), (command, done.stdout, done.stderr)
        printed += done.stdout
    return printed


def execute(command: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def comparable(line: str) -> str:
    """A line without durations and ports, and with single spaces."""
    return " ".join(re.sub(r"\b[\d.]+ m?s\b|(?<=127\.0\.0\.1):\d+", "…", line).split())
