"""The short form of `python -m tests.cluster.chaos`."""

from pathlib import Path

from tests.servers import Server

from .rounds import play

SHORT = ["kill_leader", "stop_leader_beyond_lease", "terminate_leader"]


async def test_all_runs_survive_a_few_rounds(tmp_path: Path, postgresql: Server):
    counts = await play(
        tmp_path, postgresql, len(SHORT), seed="short", lease_ttl=2.0, executor_ttl=4.0, only=SHORT
    )
    assert counts["faults"] == dict.fromkeys(SHORT, 1)
