"""The project's own virtual environment, made with nothing but Python.

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
    """Have the project installed in `.venv`, with its test tools if wanted; returns the Python in there.

    That takes no time if it has been done already and `pyproject.toml` is the same.
    """
    if sys.version_info < OLDEST_PYTHON:
        sys.exit(f"Greenroom needs Python 3.11 or newer, and {sys.executable} is {sys.version.split()[0]}.")
    # The folder counts as well: a copied `.venv` would go on importing from where it was copied from.
    wanted = hashlib.sha256(bytes(ROOT) + (ROOT / "pyproject.toml").read_bytes()).hexdigest()
    stamps = {kind: VENV / f"installed-{kind}.sha256" for kind in ("with-tests", "alone")}
    good = [stamps["with-tests"]] if tests else list(stamps.values())
    if not (PYTHON.exists() and any(stamp.exists() and stamp.read_text() == wanted for stamp in good)):
        _make_environment()
        _install_project(tests)
        stamps["with-tests" if tests else "alone"].write_text(wanted)
    return PYTHON


def may_install_packages() -> bool:
    """Whether this is root on Debian or a relative of it."""
    return shutil.which("apt-get") is not None and os.geteuid() == 0


def install_packages(*names: str) -> bool:
    """Install packages of the system; whether that went well."""
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    return succeeds("apt-get", "update") and succeeds("apt-get", "install", "-y", *names)


def succeeds(*command: str | Path) -> bool:
    """Run a command; whether it went well."""
    return subprocess.run(command, check=False).returncode == 0


def say(text: str) -> None:
    """Tell whoever waits what is going on."""
    print(text, file=sys.stderr, flush=True)


def _make_environment() -> None:
    if PYTHON.exists() and succeeds(PYTHON, "-c", "import pip"):
        return
    if find_spec("ensurepip") is None:
        _install_venv_package()
    say(f"making {VENV}")
    # Whatever is left of an interrupted attempt is completed; only one without a Python is begun afresh.
    if not succeeds(sys.executable, "-m", "venv", *([] if PYTHON.exists() else ["--clear"]), VENV):
        sys.exit(f"{sys.executable} could not make {VENV}; its message stands above.")


def _install_venv_package() -> None:
    """Debian and its relatives ship Python without what `venv` needs, in a package of its own."""
    if not may_install_packages():
        sys.exit(
            f"{sys.executable} has no ensurepip, so it can't make {VENV}. Install it "
            "(on Debian and Ubuntu, as root: apt-get install python3-venv), then run this again."
        )
    say("installing python3-venv, which this Python needs to make a virtual environment")
    if not install_packages("python3-venv"):
        sys.exit("apt-get could not install python3-venv; its message stands above.")


def _install_project(tests: bool) -> None:
    what = "the project and its test tools" if tests else "the project"
    say(f"installing {what} into {VENV}")
    if not succeeds(PYTHON, "-m", "pip", "install", "--quiet", "-e", f"{ROOT}[test]" if tests else ROOT):
        sys.exit(f"pip could not install {what}; its message stands above.")
