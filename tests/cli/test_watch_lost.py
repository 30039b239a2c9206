"""Watching a server that dies: every output reports the lost connection, and the restored one."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from greenroom.commands.watch import WithConnection

from .served import PATIENCE, Served

_COMMAND = [sys.executable, "-m", "greenroom", "watch"]


class Twice:
    """A server that dies, and its replacement."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.server = Served(folder)
        self.port = self.server.url.rpartition(":")[2]
        self.environment = os.environ | {"GREENROOM_URL": self.server.url}

    def dies(self) -> None:
        self.server.signal(signal.SIGKILL)
        self.server.ends()
        self.server.__exit__()

    def is_back(self) -> None:
        self.server = Served(self._folder, "--port", self.port)


@pytest.fixture
def twice(tmp_path: Path) -> Iterator[Twice]:
    twice = Twice(tmp_path)
    yield twice
    twice.server.__exit__()


@contextmanager
def watching(twice: Twice, *arguments: str, **given: Any) -> Iterator[subprocess.Popen[str]]:
    """A `greenroom watch` process that always ends with the block."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*_COMMAND, *arguments], **({"env": twice.environment} | pipes | given)) as watch:
        last_resort = threading.Timer(PATIENCE, watch.kill)
        last_resort.start()
        try:
            yield watch
        finally:
            last_resort.cancel()
            watch.kill()


def submit(twice: Twice) -> None:
    command = [sys.executable, "-m", "greenroom", "submit", "quick", "-H", "a", "--params", "{}"]
    subprocess.run(command, env=twice.environment, check=True, capture_output=True, timeout=PATIENCE)


def test_lines_are_followed_by_one_on_standard_error(twice: Twice):
    with watching(twice) as watch:
        assert watch.stdout is not None
        assert watch.stderr is not None
        while not select.select([watch.stdout], [], [], 0.5)[0]:  # only later events are shown
            submit(twice)
        twice.dies()
        lost = watch.stderr.readline()
        assert lost.startswith(f"connection lost: connection to ws://127.0.0.1:{twice.port} failed")
        assert lost.endswith("; retrying\n")
        twice.is_back()
        assert watch.stderr.readline() == "connection restored\n"
        submit(twice)
        while "succeeded" not in watch.stdout.readline():
            pass
        watch.send_signal(signal.SIGINT)
        watch.wait(PATIENCE)
    assert watch.returncode == 130


def test_with_json_it_is_a_line_among_the_others(twice: Twice):
    with watching(twice, "--json") as watch:
        assert watch.stdout is not None
        lines = (json.loads(line) for line in watch.stdout)
        assert next(lines)["type"] == "resync"
        twice.dies()
        lost = next(lines)
        assert lost.pop("at") > 0
        assert lost.pop("reason").startswith(f"connection to ws://127.0.0.1:{twice.port} failed")
        assert lost == {"type": "connection_lost"}
        twice.is_back()
        assert next(line for line in lines if line["type"] == "connection_restored").keys() == {"type", "at"}
        submit(twice)
        assert next(line for line in lines if line["type"] == "run_state_changed")["handle"] == "a"
        watch.terminate()


def test_the_table_shows_the_lost_connection_above(twice: Twice):
    terminal, inside = pty.openpty()
    environment = twice.environment | {"TERM": "xterm-256color", "COLUMNS": "160", "LINES": "20"}
    with watching(twice, stdout=inside, stderr=None, env=environment) as watch:
        os.close(inside)
        shown = b""
        while b"executing" not in shown:
            shown += os.read(terminal, 65_536)
        assert b"connection lost" not in shown
        twice.dies()
        while b"; retrying" not in shown:
            shown += os.read(terminal, 65_536)
        assert re.search(rb"connection lost .* ago: connection to ws://127.0.0.1:", shown)
        twice.is_back()
        pictures = [b"connection lost"]
        while b"connection lost" in pictures[-1] or b"executing" not in pictures[-1]:
            pictures.append(os.read(terminal, 65_536))
        watch.send_signal(signal.SIGINT)
        watch.wait(PATIENCE)
    os.close(terminal)


def test_a_table_without_a_connection_is_frozen_and_dim():
    def drawn() -> str:
        with terminal.capture() as captured:
            terminal.print(picture.draw(10))
        return captured.get()

    terminal = Console(force_terminal=True, width=80, color_system="standard", legacy_windows=False)
    heights: list[int] = []
    picture = WithConnection(lambda height: heights.append(height) or Text(f"picture {len(heights)}"))
    assert drawn() == "picture 1\n"
    picture.report("no route")
    assert ["\x1b[2mpicture 2" in drawn() for _ in range(3)] == [True] * 3
    assert "connection lost" in drawn()
    picture.report(None)
    assert drawn() == "picture 3\n"
    assert heights == [10, 9, 10]
