"""A run that kills its process, in a real process: it fails after three deaths, and the others continue."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from . import poisoned


@pytest.mark.parametrize("job", ["executing", "waiting", "saving"])
def test_a_run_that_kills_three_processes_fails_and_the_others_succeed(tmp_path: Path, job: str) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([poisoned.__name__])
    codes = []
    for first in (True, False, False, False):
        program = context.Process(target=poisoned.main, args=(tmp_path, job, first))
        program.start()
        program.join()
        codes.append(program.exitcode)
    assert codes == [poisoned.KILLED] * 3 + [0]
