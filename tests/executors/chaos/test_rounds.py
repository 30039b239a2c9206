"""The short form of `python -m tests.executors.chaos`."""

from pathlib import Path

from .rounds import play

SHORT = ["kill_executor", "stop_executor_beyond_ttl", "kill_engine", "close_shortly", "drain_executor"]


async def test_all_runs_survive_a_few_rounds(tmp_path: Path):
    # A busy machine can take seconds to connect an executor again, which must not look like a lost one.
    counts = await play(tmp_path, len(SHORT), ttl=6.0, seed="short", only=SHORT)
    assert counts["faults"] == dict.fromkeys(SHORT, 1)
