"""Who sees the URLs of the receivers of webhooks, in schedules and in the rules of lanes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from greenroom import open_engine
from greenroom.gateway import GatewayConfig, Role, add_token
from greenroom.gateway.server import open_gateway
from greenroom.gateway.stream.receivers import of_event
from greenroom.protocol.events import Event, ScheduleFired
from greenroom.protocol.fold import Projection
from greenroom.protocol.records import Snapshot
from tests.support import Bodies

from .support import House
from .test_sse import Source

SECRET = "secret-of-the-receiver"
URL = f"https://example.org/hooks?token={SECRET}"

TOKENS: dict[str, dict[str, Any]] = {
    "admin": {"role": Role.ADMIN},
    "operator": {"role": Role.OPERATOR},
    "viewer": {"role": Role.VIEWER},
    "limited": {"role": Role.ADMIN, "jobs": ["quick"]},
}
SEES = {"admin": True, "operator": True, "viewer": False, "limited": False}


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "tokens"
    made = {name: add_token(file, name, **limits) for name, limits in TOKENS.items()}
    return {"file": str(file)} | made


@pytest.fixture
async def home(tokens: dict[str, str]) -> AsyncIterator[House]:
    bodies = Bodies()

    @bodies.jobs.job("quick")
    async def quick(run: Any) -> None: ...

    config = GatewayConfig(port=0, token_file=tokens["file"])
    async with (
        open_engine(bodies.jobs, "memory:", webhook_secret="a secret of this test") as engine,
        trio.open_nursery() as nursery,
        open_gateway(engine, config) as gateway,
    ):
        home = House(bodies, engine, gateway, nursery)
        await add_receivers(home, 1)
        yield home
        nursery.cancel_scope.cancel()


async def add_receivers(home: House, number: int) -> None:
    """Add a receiver of all runs of a schedule, and one of those of a lane."""
    notify: Any = {"url": URL, "types": ["run_log"]} if number % 2 else URL
    await home.engine.schedules.put(f"s{number}", job="quick", every=3600, notify=notify)
    await home.engine.set_lane(f"lane{number}", notify=notify)


def header(tokens: dict[str, str], name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {tokens[name]}"}


@pytest.mark.at_engine
@pytest.mark.parametrize("name", SEES)
async def test_only_operators_without_limits_see_receivers_in_replies(
    home: House, tokens: dict[str, str], name: str
) -> None:
    async with home.socket(headers=header(tokens, name)) as talk:
        for reply in (await talk.call("list_schedules"), await talk.call("get_schedule", name="s1")):
            assert (SECRET in str(reply)) == SEES[name], reply
            assert "run_log" in str(reply), "the types are visible"
        for path in ("/api/schedules", "/api/schedules/s1"):
            answer = await home.http("GET", path, **header(tokens, name))
            assert (SECRET in str(answer.json)) == SEES[name]
        if name == "viewer":
            return
        for command in ("pause_schedule", "resume_schedule"):
            assert (SECRET in str(await talk.call(command, name="s1"))) == SEES[name]


@pytest.mark.at_engine
@pytest.mark.parametrize("name", SEES)
async def test_only_operators_without_limits_see_receivers_in_the_state(
    home: House, tokens: dict[str, str], name: str
) -> None:
    as_caller = header(tokens, name)
    async with home.socket(headers=as_caller) as talk:
        snapshot = (await talk.call("snapshot"))["snapshot"]
    for _ in range(2):  # the second one is cached
        assert (await home.http("GET", "/api/state", **as_caller)).json == snapshot
    assert (SECRET in str(snapshot)) == SEES[name]
    if name != "limited":
        lane = (await home.http("GET", "/api/lanes/lane1", **as_caller)).json
        assert lane == snapshot["lanes"]["lane1"]
        assert lane["rules"]["notify"]["types"] == ["run_log"]


@pytest.mark.at_engine
@pytest.mark.parametrize("name", SEES)
async def test_only_operators_without_limits_see_receivers_in_events(
    home: House, tokens: dict[str, str], name: str
) -> None:
    async with home.socket(headers=header(tokens, name)) as talk:
        before = (await talk.call("snapshot"))["snapshot"]
        await talk.call("subscribe", after=before["seq"], epoch=before["epoch"])
        await add_receivers(home, 2)
        after = (await talk.call("snapshot"))["snapshot"]
        events = [event for event in talk.events() if event["seq"] <= after["seq"]]
        assert (SECRET in str(events)) == SEES[name]
        assert {event["type"] for event in events} >= {"lane_changed"}
        projection = Projection.from_snapshot(msgspec.convert(before, Snapshot))
        for event in msgspec.convert(events, list[Event]):
            projection.seq = event.seq - 1  # some are excluded
            projection.apply(event)
        projection.seq = after["seq"]
        assert msgspec.json.decode(msgspec.json.encode(projection.snapshot())) == after


def test_the_error_of_a_refused_firing_does_not_show_the_receiver() -> None:
    error = f'notify: url "{URL}" is not called: 10.0.0.1 is not public'
    fired = ScheduleFired(
        seq=1, at=0, by="engine", schedule="s", at_planned=0, refused="invalid", error=error
    )
    hidden = of_event(fired)
    assert isinstance(hidden, ScheduleFired)
    assert hidden.error == 'notify: url "(hidden)" is not called: 10.0.0.1 is not public'


@pytest.mark.at_engine
@pytest.mark.parametrize("name", SEES)
@pytest.mark.parametrize("after", ["", "?after=0"])
async def test_only_operators_without_limits_see_receivers_in_server_sent_events(
    home: House, tokens: dict[str, str], name: str, after: str
) -> None:
    source = await Source.open(home, f"/api/events{after}", **header(tokens, name))
    await add_receivers(home, 2)
    seen = ""
    with trio.fail_after(10):
        while "lane2" not in seen:
            seen += str(await source.next())
    assert (SECRET in seen) == SEES[name]
