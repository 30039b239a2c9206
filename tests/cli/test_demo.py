"""`greenroom demo --once` as a process: it prints all messages, leaves no files behind, and exits."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.served import PATIENCE


def test_the_demo_prints_its_messages_and_exits_with_0(tmp_path: Path):
    played = subprocess.run(
        [sys.executable, "-m", "greenroom", "demo", "--once"],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )
    assert (played.returncode, played.stderr) == (0, "")
    for told in (
        "gateway  http://127.0.0.1:",
        "in another terminal:  ",
        "alice is submitted again: conflict, run …",
        "bob is cancelled with files=keep: cancelled, its 2 finished files are kept.",
        "carol is cancelled with files=delete: cancelled, 0 of its files remain.",
        "erin opens an interrupt, and waits for an answer.",
        "The demo answers yes: resolved.",
        "Files on disk: alice 7, bob 2, carol 0, dave 7, erin 7; unfinished files: 0.",
    ):
        assert told in played.stdout
    assert list(tmp_path.iterdir()) == []
