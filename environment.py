"""The project's virtual environment, created with Python's standard library only.

`demo.py` and `python3 -m tests` call `prepare` before anything else, so it uses only the standard library.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
OLDEST_PYTHON = (3, 11)


def prepare(*, tests: bool) -> Path:
    """Install the project in `.venv`, with its test tools if `tests`; returns the Python of `.venv`.

    Does nothing if the installation exists and `pyproject.toml` has not changed since.
    """
    if sys.version_info < OLDEST_PYTHON:
        sys.exit(f"Greenroom requires Python 3.11 or newer ({sys.executable} is {sys.version.split()[0]}).")
    # The hash includes the folder: a copied `.venv` would still import from the original folder.
    wanted = hashlib.sha256(bytes(ROOT) + (ROOT / "pyproject.toml").read_bytes()).hexdigest()
    stamps = {kind: VENV / f"installed-{kind}.sha256" for kind in ("with-tests", "alone")}
    good = [stamps["with-tests"]] if tests else list(stamps.values())
    if not (PYTHON.exists() and any(stamp.exists() and stamp.read_text() == wanted for stamp in good)):
        _make_environment()
        _install_project(tests)
        stamps["with-tests" if tests else "alone"].write_text(wanted)
    return PYTHON


def may_install_packages() -> bool:
    """Whether this is root on Debian or a distribution based on it."""
    return shutil.which("apt-get") is not None and os.geteuid() == 0


def install_packages(*names: str) -> bool:
    """Install packages of the system; returns whether this succeeded."""
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    return succeeds("apt-get", "update") and succeeds("apt-get", "install", "-y", *names)


def succeeds(*command: str | Path) -> bool:
    """Run a command; returns whether it succeeded."""
    return subprocess.run(command, check=False).returncode == 0


def say(text: str) -> None:
    """Print a progress message on standard error."""
    print(text, file=sys.stderr, flush=True)


def _make_environment() -> None:
    if PYTHON.exists() and succeeds(PYTHON, "-c", "import pip"):
        return
    if find_spec("ensurepip") is None:
        _install_venv_package()
    say(f"creating {VENV}")
    # An interrupted attempt is completed; only a folder without a Python is cleared first.
    if not succeeds(sys.executable, "-m", "venv", *([] if PYTHON.exists() else ["--clear"]), VENV):
        sys.exit(f"{sys.executable} could not create {VENV}: see its message above")


def _install_venv_package() -> None:
    """Install `venv`, which Debian and distributions based on it have in a separate package."""
    if not may_install_packages():
        sys.exit(
            f"{sys.executable} has no ensurepip, so it cannot create {VENV}: install it "
            "(on Debian and Ubuntu, as root: apt-get install python3-venv), then run this command again"
        )
    say("installing python3-venv, which this Python requires to create a virtual environment")
    if not install_packages("python3-venv"):
        sys.exit("apt-get could not install python3-venv: see its message above")


def _install_project(tests: bool) -> None:
    what = "the project and its test tools" if tests else "the project"
    say(f"installing {what} into {VENV}")
    if not succeeds(PYTHON, "-m", "pip", "install", "--quiet", "-e", f"{ROOT}[test]" if tests else ROOT):
        sys.exit(f"pip could not install {what}: see its message above")
