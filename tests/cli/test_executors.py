"""The command `executors`, at a real server with an attached executor."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from click.testing import Result
from trio_websocket import open_websocket_url

from greenroom import Jobs, open_engine
from greenroom.cli import main
from greenroom.gateway import GatewayConfig, open_gateway
from tests.cli.runner import runner

PATIENCE = 60.0
ATTACH = {
    "type": "attach",
    "executor": "gpu-1",
    "start": "1",
    "jobs": [{"name": "render"}, {"name": "mirror"}],
    "slots": 4,
    "labels": ["gpu"],
}


@asynccontextmanager
async def served() -> AsyncIterator[str]:
    """The URL of a server to which `gpu-1` is attached."""
    with trio.fail_after(PATIENCE):
        async with (
            open_engine(Jobs(), "memory:", executors=0) as engine,
            open_gateway(engine, GatewayConfig(port=0)) as gateway,
            open_websocket_url(gateway.url.replace("http", "ws", 1) + "/executor") as socket,
        ):
            await socket.send_message(json.dumps(ATTACH))
            assert json.loads(await socket.get_message())["type"] == "attached"
            yield gateway.url


async def greenroom(*arguments: str, code: int = 0) -> Result:
    result = await trio.to_thread.run_sync(runner().invoke, main, arguments)
    assert result.exit_code == code, result.output
    return result


async def test_executors_are_listed():
    async with served() as url:
        header, row = (await greenroom("executors", "--url", url)).stdout.splitlines()
        assert header.split() == ["executor", "status", "slots", "bodies", "labels", "jobs"]
        assert row.split() == ["gpu-1", "attached", "4", "0", "gpu", "render,", "mirror"]


async def test_the_state_contains_the_executors():
    async with served() as url:
        listed = (await greenroom("executors", "--url", url)).stdout
        assert f"\n\n{listed}" in (await greenroom("state", "--url", url)).stdout
        state = json.loads((await greenroom("state", "--url", url, "--json")).stdout)
        assert state["executors"] == {
            "gpu-1": {
                "status": "attached",
                "slots": 4,
                "labels": ["gpu"],
                "jobs": ["render", "mirror"],
                "ttl": 30,
                "start": "1",
            }
        }


async def test_executors_are_listed_as_json():
    async with served() as url:
        assert json.loads((await greenroom("executors", "--url", url, "--json")).stdout) == {
            "id": "gpu-1",
            "status": "attached",
            "slots": 4,
            "bodies": 0,
            "labels": ["gpu"],
            "jobs": ["render", "mirror"],
            "start": "1",
        }


async def test_an_executor_is_drained():
    async with served() as url:
        assert (await greenroom("executors", "drain", "gpu-1", "--url", url)).stdout == "gpu-1 is draining.\n"
        assert "draining" in (await greenroom("executors", "--url", url)).stdout


async def test_an_unknown_executor_cannot_be_drained():
    async with served() as url:
        refused = await greenroom("executors", "drain", "gpu-7", "--url", url, code=1)
        assert 'executor "gpu-7" not found' in refused.stderr


JOBS = "tests.executors.programs:jobs"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["gpu", "gpu"], 'labels must contain each label once (got "gpu" twice)'),
        ([f"label {n}" for n in range(17)], "labels must contain at most 16 labels (got 17)"),
        (["gpu", " "], 'labels[1] must not be empty (got " ")'),
    ],
)
async def test_an_executor_with_wrong_labels_does_not_start(labels: list[str], message: str) -> None:
    options = [option for label in labels for option in ("--label", label)]
    assert message in (await greenroom("executor", JOBS, *options, code=1)).stderr


async def test_an_executor_with_an_empty_token_file_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "token").touch()
    options = ["--data-dir", str(tmp_path), "--token-file", str(tmp_path / "token")]
    assert "token is empty" in (await greenroom("executor", JOBS, *options, code=1)).stderr
