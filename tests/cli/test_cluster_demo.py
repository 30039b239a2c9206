"""`greenroom demo cluster --once` as a process: a leader is killed, nothing is lost, and nothing remains."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from greenroom.demo import postgresql as private
from tests.cli.served import PATIENCE
from tests.servers import Server, postgresql

__all__ = ["postgresql"]


def played(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "GREENROOM_STORE"}
    return subprocess.run(
        [sys.executable, "-m", "greenroom", "demo", "cluster", "--once"],
        cwd=folder,
        env=environ | {"TMPDIR": str(folder)} | variables,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        check=False,
    )


def check(done: subprocess.CompletedProcess[str]) -> None:
    """The demo has killed a leader, and nothing was lost."""
    assert (done.returncode, done.stderr) == (0, "")
    killed = re.search(r"^(n\d) is killed \(SIGKILL\)\.$", done.stdout, re.MULTILINE)
    after = re.search(r"^(n\d) leads in term (\d+), [\d.]+ s later\.", done.stdout, re.MULTILINE)
    assert killed is not None
    assert after is not None
    assert killed[1] != after[1]
    assert int(after[2]) >= 2
    kept = re.search(
        r"^(\d+) runs were acknowledged: (\d+) succeeded, 0 were lost, 0 happened", done.stdout, re.M
    )
    assert kept is not None
    assert int(kept[1]) == int(kept[2]) > 0
    assert "arrived with 0 gaps." in done.stdout
    assert f"{killed[1]} is started again, and follows." in done.stdout


def test_the_demo_with_its_own_server_loses_nothing_and_leaves_no_files(tmp_path: Path):
    if not private.is_installed():
        pytest.skip("PostgreSQL is not installed (on Debian: apt-get install postgresql)")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o777 == 0o700:
            folder.chmod(0o711)  # the server has another user if root plays the demo
    check(played(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_demo_uses_the_store_that_is_named(tmp_path: Path, postgresql: Server):
    store = postgresql.fresh_database()
    check(played(tmp_path, GREENROOM_STORE=store))
    database = store.rpartition("/")[2]
    assert postgresql.execute("SELECT count(*) FROM runs WHERE status <> 'succeeded'", database) == [(0,)]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("store", ["", "sqlite:///greenroom.db", "memory:"])
def test_without_a_server_it_says_what_to_install(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
):
    from greenroom.cli import main
    from greenroom.commands import demo
    from tests.cli.runner import runner

    monkeypatch.setattr(demo, "is_installed", lambda: False)
    monkeypatch.setenv("GREENROOM_STORE", store)
    result = runner().invoke(main, ["demo", "cluster", "--once"])
    assert result.exit_code == 1
    assert "requires PostgreSQL: install it (on Debian: apt-get install postgresql)" in result.stderr
