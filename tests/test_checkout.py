"""A program in a checkout imports all of Greenroom from there, even if another version is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import trio

ROOT = Path(__file__).resolve().parent.parent

PROGRAM = """
import greenroom, greenroom.actors.jobs, greenroom.protocol.flow.check
from greenroom import Jobs, open_engine, connect
from greenroom.demo import scenario
for module in (greenroom, greenroom.actors, greenroom.gateway, greenroom.demo):
    print(module.__file__)
assert Jobs is greenroom.actors.jobs.Jobs
"""


def test_a_program_in_the_checkout_finds_its_sub_packages():
    installed = str(Path(trio.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM],  # without the import hooks of `pip install -e`
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), installed))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    assert [Path(line).parent.relative_to(ROOT).as_posix() for line in done.stdout.splitlines()] == [
        "greenroom",
        "actors",
        "gateway",
        "greenroom/demo",
    ]
