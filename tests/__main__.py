"""Run the tests: `python3 -m tests [arguments for pytest]`.

It needs only Python. It makes `.venv` in the project's folder unless one is there, installs the project with
its test tools into it when `pyproject.toml` has changed since the last time, and then becomes pytest. As root
on Debian, it also installs the database servers that some tests start; without them those are skipped.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "installed.sha256"
OLDEST_PYTHON = (3, 11)


def main() -> None:
    if sys.version_info < OLDEST_PYTHON:
        sys.exit(f"Greenroom needs Python 3.11 or newer, and {sys.executable} is {sys.version.split()[0]}.")
    # The folder counts as well: a copied `.venv` would go on importing from where it was copied from.
    wanted = hashlib.sha256(bytes(ROOT) + (ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if not (PYTHON.exists() and STAMP.exists() and STAMP.read_text() == wanted):
        make_environment()
        install_project()
        STAMP.write_text(wanted)
    install_servers()
    os.chdir(ROOT)
    os.execv(PYTHON, [str(PYTHON), "-m", "pytest", "-n", "auto", *sys.argv[1:]])


def make_environment() -> None:
    if PYTHON.exists() and succeeds(PYTHON, "-c", "import pip"):
        return
    if find_spec("ensurepip") is None:
        install_venv_package()
    say(f"making {VENV}")
    # Whatever is left of an interrupted attempt is completed; only one without a Python is begun afresh.
    if not succeeds(sys.executable, "-m", "venv", *([] if PYTHON.exists() else ["--clear"]), VENV):
        sys.exit(f"{sys.executable} could not make {VENV}; its message stands above.")


def install_venv_package() -> None:
    """Debian and its relatives ship Python without what `venv` needs, in a package of its own."""
    if not may_install_packages():
        sys.exit(
            f"{sys.executable} has no ensurepip, so it can't make {VENV}. Install it "
            "(on Debian and Ubuntu, as root: apt-get install python3-venv), then run this again."
        )
    say("installing python3-venv, which this Python needs to make a virtual environment")
    if not install_packages("python3-venv"):
        sys.exit("apt-get could not install python3-venv; its message stands above.")


def install_servers() -> None:
    missing = []
    if not (shutil.which("postgres") or any(Path("/usr/lib/postgresql").glob("*/bin/postgres"))):
        missing.append("postgresql")
    if not (shutil.which("mariadbd") or Path("/usr/sbin/mariadbd").exists()):
        missing.append("mariadb-server")
    if missing and may_install_packages():
        say(f"installing {' and '.join(missing)}, of which the tests start servers of their own")
        if not install_packages(*missing):
            say("apt-get could not install them; its message stands above. Tests that need them are skipped.")


def may_install_packages() -> bool:
    return shutil.which("apt-get") is not None and os.geteuid() == 0


def install_packages(*names: str) -> bool:
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    return succeeds("apt-get", "update") and succeeds("apt-get", "install", "-y", *names)


def install_project() -> None:
    say(f"installing the project and its test tools into {VENV}")
    if not succeeds(PYTHON, "-m", "pip", "install", "--quiet", "-e", f"{ROOT}[test]"):
        sys.exit("pip could not install the project and its test tools; its message stands above.")


def succeeds(*command: str | Path) -> bool:
    return subprocess.run(command, check=False).returncode == 0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


main()
