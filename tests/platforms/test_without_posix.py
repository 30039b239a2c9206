"""Greenroom works in a Python without the features that only POSIX has. It has not been tested on Windows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0


def process(what: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.platforms.without_posix", what],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def shown(what: str, folder: Path) -> str:
    """The output of the program without POSIX."""
    running = process(what, folder)
    out, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, err
    return out


def test_every_module_can_be_imported(tmp_path: Path):
    count, _ = shown("import_everything", tmp_path).split()
    assert int(count) > 300


def test_an_engine_in_memory_serves_a_client(tmp_path: Path):
    assert shown("serve_and_connect", tmp_path) == "hello Alice\n"


def test_a_sqlite_file_is_opened_by_one_engine_at_a_time(tmp_path: Path):
    first, refusal, last = shown("share_a_file", tmp_path).splitlines()
    assert first == "hello"
    assert "shared.db is in use by another engine (pid " in refusal
    assert last == "1 run"


def test_a_unix_socket_is_refused_with_the_remedy(tmp_path: Path):
    assert shown("open_a_unix_socket", tmp_path) == (
        "this system has no Unix sockets (unix_socket=/run/mysqld.sock): use a host and a port\n"
    )


def test_a_server_starts_and_ends_in_order(tmp_path: Path):
    running = process("serve", tmp_path)
    assert running.stderr is not None
    try:
        for line in running.stderr:
            if "http://" in line:
                break
        running.send_signal(signal.SIGTERM)
        _, err = running.communicate(timeout=PATIENCE)
        assert running.returncode == 0, err
        assert "draining" in err
    finally:
        running.kill()
        running.wait()
