"""Several versions of the package, each in its own folder with the layout of an installed package.

In a process that measures a version, `PYTHONPATH` begins with the folder of the version. Everything else is
the same: Python, the dependencies, and the benchmarks.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class NoHistory(Exception):
    """The commit is missing: this is not a clone of the repository, or a shallow one."""


def lay_out(sources: Path, folder: Path) -> Path:
    """Copy a version's packages into a folder, as its `pyproject.toml` maps them; returns the folder."""
    project = tomllib.loads((sources / "pyproject.toml").read_text())
    for package, source in project["tool"]["setuptools"]["package-dir"].items():
        target = folder.joinpath(*package.split("."))
        target.mkdir(parents=True)
        for file in (sources / source).iterdir():
            if file.is_file():
                shutil.copy(file, target)
    return folder


def lay_out_commit(commit: str, folder: Path) -> Path:
    """The same with the version of a commit."""
    done = subprocess.run(
        ["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True, check=False
    )
    if done.returncode:
        raise NoHistory(f"commit {commit} not found: fetch the history ({done.stderr.decode().strip()})")
    sources = folder.with_name(f"{folder.name}-sources")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(sources, filter="data")
    return lay_out(sources, folder)


def call(version: Path, module: str, *arguments: str) -> bytes:
    """The output of a module of the benchmarks in a process that imports this version."""
    path = os.pathsep.join([str(version), str(ROOT)])
    command = [sys.executable, "-P", "-m", f"{__package__}.{module}", *arguments]
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, cwd=version, env=os.environ | {"PYTHONPATH": path}
    ).stdout
