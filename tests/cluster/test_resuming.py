"""Clients that change to a follower that has fewer events than they have: it waits for them for a while."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio_websocket import ConnectionClosed

from greenroom.gateway import Gateway, GatewayConfig, open_gateway
from greenroom.gateway.cluster.router import PATIENCE
from greenroom.gateway.websocket.writer import TRY_AGAIN_LATER
from tests.following import SECRET
from tests.gateway.support import House, Raw
from tests.support import Bodies

from .support import Pair, pair


@asynccontextmanager
async def behind() -> AsyncIterator[tuple[Pair, House, str]]:
    """A follower at seq 3 whose leader is at 5, its gateway, and the epoch."""
    async with pair(Bodies()) as here:
        for number in range(3):
            await here.engine.set_params("h", number)
        await here.caught_up()
        here.follower.stop()
        await trio.testing.wait_all_tasks_blocked()
        for number in range(3, 5):
            await here.engine.set_params("h", number)
        async with gateway_of(here) as gateway:
            yield here, House(here.bodies, here.engine, gateway, here.nursery), here.leader.leading.epoch


@asynccontextmanager
async def gateway_of(here: Pair, config: GatewayConfig | None = None) -> AsyncIterator[Gateway]:
    follower = here.follower
    async with open_gateway(
        follower.engine, config, listeners=[], router=follower.router, secret=SECRET
    ) as gateway:
        yield gateway


async def follow_in(here: Pair, seconds: float) -> None:
    await trio.sleep(seconds)
    await here.follower.follow(here.leader)


@pytest.mark.parametrize("names_epoch", [True, False])
async def test_a_subscriber_with_later_events_gets_those_after_them_and_no_older_snapshot(
    autojump_clock, names_epoch
):
    async with behind() as (here, home, epoch):
        talk = await home.memory_socket()
        here.nursery.start_soon(follow_in, here, PATIENCE - 1)
        seq = (await talk.call("subscribe", after=5, epoch=epoch if names_epoch else None))["seq"]
        assert seq == 5
        await here.engine.set_params("h", "new")
        batch = await talk.receive_type("events")
        assert [event["seq"] for event in batch["events"]] == [6]
        assert "resync" not in [message["type"] for message in talk.received]


async def test_a_subscriber_is_disconnected_if_the_events_do_not_arrive(autojump_clock):
    async with behind() as (_, home, epoch):
        talk = await home.memory_socket()
        began = trio.current_time()
        await talk.post("subscribe", after=5, epoch=epoch)
        with pytest.raises(ConnectionClosed) as closed:
            await talk.receive_type("resync")
        assert closed.value.reason.code == TRY_AGAIN_LATER
        assert trio.current_time() == began + PATIENCE


async def test_a_subscriber_gets_the_state_of_a_leader_that_does_not_have_the_events(autojump_clock):
    async with pair(Bodies()) as here, gateway_of(here) as gateway:
        await here.engine.set_params("h", 1)
        await here.caught_up()
        talk = await House(here.bodies, here.engine, gateway, here.nursery).memory_socket()
        began = trio.current_time()
        await talk.post("subscribe", after=5)
        assert (await talk.receive_type("resync"))["snapshot"]["seq"] == 1
        assert trio.current_time() < began + 1  # when a beat has been answered


@pytest.mark.parametrize("given", [{"after": 5, "epoch": "another"}, {"after": 2}, {}])
async def test_other_subscribers_do_not_wait(autojump_clock, given):
    async with behind() as (_, home, _):
        talk = await home.memory_socket()
        began = trio.current_time()
        await talk.call("subscribe", **given)
        assert trio.current_time() == began


async def test_a_leader_lets_no_subscriber_wait(autojump_clock):
    async with pair() as here:
        gateway = here.leader._gateway
        assert gateway is not None
        talk = await House(here.bodies, here.engine, gateway, here.nursery).memory_socket()
        began = trio.current_time()
        await talk.call("subscribe", after=5)
        assert talk.received[-2]["type"] == "resync"
        assert trio.current_time() == began


async def test_an_event_source_with_later_events_gets_those_after_them(autojump_clock):
    async with behind() as (here, home, epoch):
        here.nursery.start_soon(follow_in, here, PATIENCE - 1)
        text = await received(await source(home, f"{epoch}:5"), PATIENCE)
        assert f"id: {epoch}:5" in text
        assert "resync" not in text


async def test_the_stream_of_an_event_source_ends_if_the_events_do_not_arrive(autojump_clock):
    async with behind() as (_, home, epoch):
        raw = await source(home, f"{epoch}:5")
        head = await received(raw, PATIENCE - 0.5)
        assert head.startswith("HTTP/1.1 200")
        assert head.endswith("\r\n\r\n")
        assert await received(raw, 1) == "0\r\n\r\n"


async def source(home: House, last: str) -> Raw:
    raw = Raw(await home.stream())
    await raw.send(f"GET /api/events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: {last}\r\n\r\n".encode())
    return raw


async def received(raw: Raw, seconds: float) -> str:
    """What arrives in this time."""
    data = b""
    with trio.move_on_after(seconds):
        while more := await raw.stream.receive_some():
            data += more
    return data.decode()
