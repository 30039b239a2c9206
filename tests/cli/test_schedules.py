"""The command `schedules`, at a real server."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from click.testing import Result

from greenroom import Jobs, Run, Schedule, open_engine
from greenroom.cli import main
from greenroom.gateway import GatewayConfig, open_gateway
from greenroom.protocol.events import ScheduleFired
from tests.cli.runner import runner

PATIENCE = 60.0


@asynccontextmanager
async def served() -> AsyncIterator[str]:
    jobs = Jobs()

    @jobs.job("quick")
    async def quick(run: Run, params: dict[str, Any]) -> None:
        pass

    @jobs.job("declared", schedule=Schedule(cron="0 3 * * *", timezone="Europe/Berlin", missed="all"))
    async def declared(run: Run) -> None:
        pass

    with trio.fail_after(PATIENCE):
        async with (
            open_engine(jobs, "memory:") as engine,
            open_gateway(engine, GatewayConfig(port=0)) as gateway,
        ):
            yield gateway.url


async def greenroom(*arguments: str, code: int = 0) -> Result:
    result = await trio.to_thread.run_sync(runner().invoke, main, ["schedules", *arguments])
    assert result.exit_code == code, result.output
    return result


async def test_a_schedule_is_put_and_shown():
    async with served() as url:
        at = ("--url", url)
        options = ("--job", "quick", "--every", "15m", "--jitter", "1m", "--missed", "skip", "-p", "page=1")
        more = ("--on-conflict", "queue", "--lane", "slow", "--warn-after", "30m")
        put = await greenroom("put", "tick", *options, *more, *at)
        assert put.stdout.startswith("tick: next at 20")
        record = json.loads((await greenroom("show", "tick", "--json", *at)).stdout)
        assert (record["every"], record["jitter"], record["missed"]) == (900, 60, "skip")
        assert record["params"] == {"page": 1}
        assert record["options"] == {"lane": "slow", "on_conflict": "queue", "warn_after": 1800}
        shown = (await greenroom("show", "tick", *at)).stdout
        assert "every 900 s" in shown
        assert '"queue"' in shown


async def test_the_next_times_are_printed_before_a_schedule_is_put():
    async with served() as url:
        times = ("--cron", "0 3 * * *", "--timezone", "Asia/Tokyo", "--url", url)
        lines = (await greenroom("preview", *times)).stdout.splitlines()
        assert [line[10:] for line in lines] == [" 03:00:00+09:00"] * 3
        assert len(json.loads((await greenroom("preview", "--json", *times)).stdout)) == 3
        assert "cron" in (await greenroom("preview", "--cron", "99 * * * *", "--url", url, code=1)).stderr


async def test_schedules_are_listed():
    async with served() as url:
        await greenroom("put", "tick", "--job", "quick", "--cron", "* * * * *", "--paused", "--url", url)
        header, declared, tick = (await greenroom("list", "--url", url)).stdout.splitlines()
        assert header.split() == ["schedule", "times", "job", "handle", "next", "last", "run"]
        assert declared.startswith("declared  0 3 * * * Europe/Berlin  declared  schedule:declared")
        assert re.search(r" 03:00:00\+0[12]:00\b", declared), "in the time zone of the schedule"
        assert "paused" in tick
        lines = (await greenroom("list", "--json", "--url", url)).stdout.splitlines()
        assert [json.loads(line)["name"] for line in lines] == ["declared", "tick"]


async def test_a_schedule_is_paused_resumed_triggered_and_deleted():
    async with served() as url:
        at = ("--url", url)
        await greenroom("put", "tick", "--job", "quick", "--every", "1h", *at)
        assert (await greenroom("pause", "tick", *at)).stdout == "tick is paused.\n"
        assert (await greenroom("resume", "tick", *at)).stdout.startswith("tick: next at ")
        trigger = ("trigger", "tick", "--request-id", "1", "--json", *at)
        run = json.loads((await greenroom(*trigger)).stdout)
        assert run["joined"] is False
        assert json.loads((await greenroom(*trigger)).stdout)["run_id"] == run["run_id"]
        assert (await greenroom("delete", "tick", *at)).stdout == "tick is deleted.\n"
        assert 'schedule "tick" not found' in (await greenroom("show", "tick", *at, code=1)).stderr


async def test_a_refused_firing_is_shown_with_its_reason():
    passed = 0.0
    jobs = Jobs()

    @jobs.job("waits")
    async def waits(run: Run) -> None:
        await trio.sleep_forever()

    with trio.fail_after(PATIENCE):
        async with (
            open_engine(jobs, "memory:", clock=lambda: time.time() + passed, shutdown_timeout=0) as engine,
            open_gateway(engine, GatewayConfig(port=0)) as gateway,
        ):
            ticket = await engine.submit("waits", handle="busy")
            await engine.schedules.put("tick", job="waits", handle="busy", every=3600)
            begun = (await engine.snapshot()).seq
            passed = 3601.0
            await engine.schedules.put("other", job="waits", every=3600)  # the actor looks at the clock
            async for event in engine.events(after=begun):
                if isinstance(event, ScheduleFired):
                    break
            other, tick = (await greenroom("list", "--url", gateway.url)).stdout.splitlines()[1:]
            assert tick.split()[-1] == "refused"
            assert "refused" not in other
            shown = (await greenroom("show", "tick", "--url", gateway.url)).stdout
            assert f'handle "busy" is taken by run {ticket.id}' in shown
            assert "last error" in shown
            await engine.cancel(ticket.id)


async def test_what_is_wrong_is_named():
    async with served() as url:
        at = ("--url", url)
        refused = await greenroom("put", "tick", "--job", "quick", "--cron", "61 * * * *", *at, code=1)
        assert "bad minute" in refused.stderr
        refused = await greenroom("delete", "declared", *at, code=1)
        assert "is declared in the code of job" in refused.stderr
