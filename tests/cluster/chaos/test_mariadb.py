"""Three nodes on MariaDB."""

from pathlib import Path

from tests.servers import Server

from .rounds import play

SHORT = ["kill_leader", "stop_leader_beyond_lease", "step_down"]


async def test_all_runs_survive_a_few_rounds_on_mariadb(tmp_path: Path, mariadb: Server):
    counts = await play(
        tmp_path, mariadb, len(SHORT), seed="short", lease_ttl=2.0, executor_ttl=4.0, only=SHORT
    )
    assert counts["faults"] == dict.fromkeys(SHORT, 1)
