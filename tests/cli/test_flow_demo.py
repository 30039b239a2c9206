"""`greenroom flow demo` as a process: it shows both branches, removes its files, and exits."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.cli.served import PATIENCE


def test_the_demo_takes_both_branches_shows_the_node_runs_and_exits_with_0(tmp_path: Path):
    played = subprocess.run(
        [sys.executable, "-m", "greenroom", "flow", "demo", "--once"],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )
    assert (played.returncode, played.stderr) == (0, "")
    output, large, small = played.stdout.split("\n\nThe ")
    assert "node size: ok → large" in output
    assert "node size: ok → small" in output
    for order, status, nodes in (
        (large, '{"total": 162.0, "prices": [54.0, 72.0, 36.0]}', "discount reduced push-worker pull-worker"),
        (small, '{"total": 42, "label": "BOB"}', "label push-worker"),
    ):
        heading, result, *table = order.splitlines()
        assert heading.endswith("succeeded")
        assert result == status
        assert [name for name in nodes.split() if name not in "\n".join(table)] == []
    assert "discount" not in small
    assert list(tmp_path.iterdir()) == []
    assert workers_of(output) == []


def test_ending_the_demo_ends_its_workers(tmp_path: Path):
    with subprocess.Popen(
        [sys.executable, "-m", "greenroom", "flow", "demo", "--once"],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as played:
        assert played.stdout is not None
        output = played.stdout.readline()
        while " started" not in output.splitlines()[-1]:
            output += played.stdout.readline()
        played.send_signal(signal.SIGINT)
        assert played.wait(PATIENCE) == 130
    assert list(tmp_path.iterdir()) == []
    assert workers_of(output) == []


def workers_of(output: str) -> list[str]:
    """The processes that still work for the server of the demo."""
    [url] = re.findall(r"^server  (\S+)", output)
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # the process has ended
            found.append(file.read_bytes().decode(errors="replace"))
    return [command for command in found if url in command.split("\0")]
