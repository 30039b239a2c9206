"""Delayed runs over the wire: the options of a submission, who may use them, and the metric."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from greenroom.gateway import Role, add_token
from greenroom.gateway.client import connect

from .flowing import WAITS
from .support import House, Refused, house

HOUR = 3600.0


async def over_socket(home: House, **options: Any) -> str:
    async with home.socket() as talk:
        return str((await talk.call("submit", job="wait", handle="alice", params={}, **options))["run_id"])


async def over_http(home: House, **options: Any) -> str:
    body = {"job": "wait", "handle": "alice", "params": {}, **options}
    return str((await home.http("POST", "/api/runs", body)).json["run_id"])


async def by_client(home: House, **options: Any) -> str:
    async with connect(home.gateway.url) as client:
        return (await client.submit("wait", handle="alice", params={}, **options)).id


@pytest.mark.parametrize("submit", [over_socket, over_http, by_client])
@pytest.mark.parametrize("reserve", [False, True])
async def test_a_run_can_be_delayed(submit: Callable[..., Any], reserve: bool) -> None:
    async with house() as home:
        before = time.time()
        run = await home.engine.get_run(await submit(home, delay=HOUR, reserve=reserve))
        assert run.not_before is not None
        assert before + HOUR <= run.not_before <= time.time() + HOUR
        assert (run.waiting_for, run.place) == ("time", 1 if reserve else None)
        await home.engine.cancel(run.id)
        at = time.time() + HOUR
        run = await home.engine.get_run(await submit(home, start_at=at))
        assert run.not_before == at


async def test_a_run_of_a_flow_can_be_delayed() -> None:
    async with house() as home, home.socket() as talk:
        await home.engine.flows.publish("flow", WAITS)
        started = await talk.call("start_flow", flow="flow", delay=HOUR)
        assert (await home.engine.get_run(started["run_id"])).waiting_for == "time"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start_at": 1, "delay": 1}, "start_at and delay exclude each other"),
        ({"start_at": "tomorrow"}, "start_at: expected number"),
        ({"start_at": True}, "start_at: expected number"),
        ({"delay": -1}, "delay: expected number >= 0.0"),
        ({"delay": 1e300}, "delay must be at most"),
        ({"delay": HOUR, "deadline": 60}, "deadline must be later than the start of the run"),
        ({"reserve": True}, "reserve is only for a delayed run"),
    ],
)
async def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    async with house() as home, home.socket() as talk:
        with pytest.raises(Refused) as refused:
            await talk.call("submit", job="wait", handle="a", **options)
        assert refused.value.code == "invalid"
        assert refused.value.message.startswith(message)
        assert not (await home.engine.snapshot()).runs


async def test_a_viewer_cannot_delay_a_run(tmp_path: Path) -> None:
    viewer = add_token(tmp_path / "tokens", "viewer", Role.VIEWER)
    headers = {"Authorization": f"Bearer {viewer}"}
    async with house(token_file=str(tmp_path / "tokens")) as home, home.socket(headers=headers) as talk:
        with pytest.raises(Refused) as refused:
            await talk.call("submit", job="wait", handle="a", delay=HOUR)
        assert refused.value.code == "forbidden"


async def test_the_metrics_count_delayed_runs() -> None:
    async with house() as home:
        for handle in ("a", "b"):
            await home.engine.submit("wait", handle=handle, params={}, delay=HOUR)
        cancelled = await home.engine.submit("wait", handle="c", params={}, delay=HOUR)
        await cancelled.cancel()
        shown = (await home.http("GET", "/metrics")).body.decode()
        assert "greenroom_delayed_runs 2.0" in shown.splitlines()
