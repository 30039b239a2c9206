"""The commands in a folder whose files have the names of modules of Python and of Greenroom."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.served import PATIENCE

COMMAND = Path(sys.executable).with_name("greenroom")
SHADOWS = ("types.py", "queue.py", "greenroom.py", "trio/__init__.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files that fail when they are imported."""
    for name in SHADOWS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"raise RuntimeError('{name} of the current folder was imported')\n")
    (tmp_path / "my_shop.py").write_text("async def nothing(world):\n    world.note('hello')\n")
    (tmp_path / "greenroom.toml").write_text('[engine]\njobs = "my_app:jobs"\n')
    (tmp_path / "my_app.py").write_text("from greenroom import Jobs\n\njobs = Jobs()\n")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        "simulate --hunt 0.5",
        "simulate --hunt 0.5 --scenario my_shop:nothing",
        "flow demo --once",
        "config check",
    ],
)
def test_files_named_like_modules_replace_none(folder: Path, arguments: str) -> None:
    command = [COMMAND, *arguments.split()]
    ended = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=3 * PATIENCE, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
