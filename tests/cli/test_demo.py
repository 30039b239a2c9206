"""`greenroom demo --once` as a process: it tells its whole story, leaves nothing behind, and ends."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.served import PATIENCE


def test_the_demo_tells_its_story_and_ends_by_itself_with_0(tmp_path: Path):
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
        "alice is submitted again: refused, because run …",
        "bob is cancelled with files=keep: cancelled, its 2 finished files stay.",
        "carol is cancelled with files=delete: cancelled, 0 of its files are left.",
        "erin asks, and waits for an answer.",
        "The demo itself answers yes: resolved.",
        "Files on the disk: alice 7, bob 2, carol 0, dave 7, erin 7; unfinished ones: 0.",
    ):
        assert told in played.stdout
    assert list(tmp_path.iterdir()) == []
