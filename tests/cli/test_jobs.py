"""The command `jobs`."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import trio
from click.testing import Result

from greenroom import Jobs, Run, open_engine
from greenroom.cli import main
from greenroom.gateway import GatewayConfig, open_gateway
from tests.cli.runner import runner

PATIENCE = 60.0
JOBS = Jobs()


class Mirror(msgspec.Struct):
    url: str
    pages: int = 10


@JOBS.job("mirror", lane="web")
async def mirror(run: Run, params: Mirror) -> None: ...


@JOBS.job("loose")
async def loose(run: Run, params: dict[str, Any]) -> None: ...


@JOBS.job("numbers")
async def numbers(run: Run, params: dict[str, int]) -> None: ...


@JOBS.job("bare")
async def bare(run: Run) -> None: ...


async def jobs(*options: str) -> Result:
    with trio.fail_after(PATIENCE):
        async with (
            open_engine(JOBS, "memory:") as engine,
            open_gateway(engine, GatewayConfig(port=0)) as gateway,
        ):
            arguments = ("jobs", *options, "--url", gateway.url)
            result = await trio.to_thread.run_sync(runner().invoke, main, arguments)
    assert result.exit_code == 0, result.output
    return result


async def test_jobs_are_listed_with_their_parameters():
    lines = [line.split() for line in (await jobs()).stdout.splitlines()]
    assert lines == [
        ["job", "lane", "parameters"],
        ["bare", "main"],
        ["loose", "main", "any"],
        ["mirror", "web", "url,", "pages?"],
        ["numbers", "main", "any"],
    ]


async def test_jobs_as_json_have_the_schemas():
    found = [json.loads(line) for line in (await jobs("--json")).stdout.splitlines()]
    assert [job["name"] for job in found] == ["bare", "loose", "mirror", "numbers"]
    assert found[2] == {"name": "mirror", "lane": "web", "params": msgspec.json.schema(Mirror)}
