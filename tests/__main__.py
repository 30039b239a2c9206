"""Run the tests: `python3 -m tests [arguments for pytest]`.

It requires only Python. It creates `.venv` in the project's folder if there is none, installs the project
with its test tools into it if `pyproject.toml` has changed since the last time, and then executes pytest. As
root on Debian, it also installs the database servers, the proxies, the shells and the browser that some tests
start. It also installs the npm packages `ws` and `typescript` for the JavaScript client, and `axe-core`
for the console. Tests whose programs are missing are skipped.

Compiled modules are kept, because the tests start hundreds of processes that import the same modules. They
are next to their sources, or in `.venv` if PYTHONDONTWRITEBYTECODE is set, as in many container images.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from environment import ROOT, install_packages, may_install_packages, prepare, say

from .npm import fetch_packages


def main() -> None:
    python = prepare(tests=True)
    install_programs()
    problem = fetch_packages(python.parent.parent)
    if problem is not None:
        say(f"{problem}; tests that need it are skipped")
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        os.environ["PYTHONPYCACHEPREFIX"] = str(python.parent.parent / "compiled")
    os.chdir(ROOT)
    workers = 2 * (os.cpu_count() or 1)  # many tests wait for servers, disks and real time
    os.execv(python, [str(python), "-m", "pytest", "-n", str(workers), "--dist", "worksteal", *sys.argv[1:]])


def install_programs() -> None:
    missing = []
    if not (shutil.which("postgres") or any(Path("/usr/lib/postgresql").glob("*/bin/postgres"))):
        missing.append("postgresql")
    if not (shutil.which("mariadbd") or Path("/usr/sbin/mariadbd").exists()):
        missing.append("mariadb-server")
    if not shutil.which("redis-server"):
        missing.append("redis-server")
    if not any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")):
        missing.append("chromium")
    for name in ("nginx", "haproxy", "zsh", "fish"):
        if not (shutil.which(name) or Path("/usr/sbin", name).exists()):
            missing.append(name)
    if missing and may_install_packages():
        say(f"installing {' and '.join(missing)}, which some tests start")
        if not install_packages(*missing):
            say("apt-get could not install them: see its message above; tests that need them are skipped")


main()
