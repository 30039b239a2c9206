"""Run the tests: `python3 -m tests [arguments for pytest]`.

It needs only Python. It makes `.venv` in the project's folder unless one is there, installs the project with
its test tools into it when `pyproject.toml` has changed since the last time, and then becomes pytest. As root
on Debian, it also installs the database servers that some tests start; without them those are skipped.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from environment import ROOT, install_packages, may_install_packages, prepare, say


def main() -> None:
    python = prepare(tests=True)
    install_servers()
    os.chdir(ROOT)
    os.execv(python, [str(python), "-m", "pytest", "-n", "auto", *sys.argv[1:]])


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


main()
