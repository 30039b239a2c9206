"""Sessions of pytest in processes of their own, without the configuration of this project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

CONFIGURATION = "[pytest]\naddopts = -p no:cacheprovider\nfilterwarnings = error\n"

PATIENCE = 120.0
"""Seconds after which a session is ended that hangs."""


def pytest_in(
    folder: Path, *arguments: str, configuration: str = CONFIGURATION, autoload: bool = True, **files: str
) -> str:
    """What pytest prints for these test files, `name="text"`. Plugins are loaded that are installed, unless
    `autoload` is false."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    if not autoload:
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    (folder / "pytest.ini").write_text(configuration)
    for name, text in files.items():
        file = folder / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--color=no", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    return done.stdout + done.stderr
