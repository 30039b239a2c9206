"""A client with the addresses of several nodes: which one it uses, and how it moves to another."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import greenroom.aio
from greenroom import connect, sync
from greenroom.errors import Forbidden, Invalid, OutcomeUnknown, Unauthorized, Unavailable
from greenroom.gateway import GatewayConfig, Role, add_token
from greenroom.protocol.commands import Error
from greenroom.protocol.records import Snapshot

from ..servers import make_certificate
from ..support import Bodies, open_engine
from .nodes import Answer, accept, be_silent, nodes, respond
from .test_javascript import serving


@pytest.fixture
def bodies() -> Bodies:
    return Bodies()


async def some_events(engine: Any, count: int) -> None:
    for number in range(count):
        await engine.set_params("someone", {"number": number})


def http(status: str, body: bytes = b"") -> Answer:
    return respond(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


# The first connection.


async def test_clients_begin_with_random_addresses(bodies: Bodies, autojump_clock: MockClock):
    async with nodes(bodies.jobs, "abc") as cluster:
        for seed in range(60):
            async with cluster.client(random=random.Random(seed)):
                pass
        used = [name for _, name in cluster.attempts]
        assert len(used) == 60
        assert min(used.count(name) for name in "abc") >= 10


NO_LEADER = Error(id=None, code="unavailable", message="no leader", details={})

UNUSABLE = {
    "503": (http("503 Service Unavailable"), "HTTP status 503"),
    "503 with an error": (
        http("503 Service Unavailable", b'{"code":"unavailable","message":"no leader"}'),
        "no leader",
    ),
    "closes with 1001": (accept(close=1001), "closed by the gateway: 1001"),
    "closes with 1012": (accept(close=1012), "closed by the gateway: 1012"),
    "closes with 1013": (accept(close=1013), "closed by the gateway: 1013"),
    "error": (
        accept(message=Error(id=None, code="unavailable", message="no leader", details={})),
        "no leader",
    ),
    "404": (http("404 Not Found"), "HTTP status 404"),
    "not HTTP": (respond(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "is not a gateway"),
}


@pytest.mark.parametrize(("answer", "reason"), UNUSABLE.values(), ids=UNUSABLE)
async def test_an_unusable_address_is_skipped_and_named_if_all_are_unusable(
    answer: Answer, reason: str, bodies: Bodies, autojump_clock: MockClock
):
    async with nodes(bodies.jobs) as cluster:
        cluster.replace("a", answer)
        async with cluster.client() as client:
            assert client.url == "ws://b:8440"
            assert client.state.snapshot() == await cluster.engine.snapshot()
        cluster.kill("b")
        with pytest.raises(Unavailable) as caught:
            async with cluster.client():
                pass
        assert trio.current_time() == 0
    [first, second] = caught.value.message.split("; ")
    assert first.startswith("connection to every address failed: ws://a:8440: ")
    assert reason in first
    assert second == "ws://b:8440: nobody listens"


@pytest.mark.parametrize(("patience", "limit"), [(60, 10), (30, 10), (15, 5), (2, 1), (1.5, 1)])
async def test_an_address_that_does_not_respond_takes_only_a_part_of_the_patience(
    patience: float, limit: float, bodies: Bodies, autojump_clock: MockClock
):
    async with nodes(bodies.jobs, "abc") as cluster:
        cluster.replace("a", be_silent)
        async with cluster.client(patience=patience) as client:
            assert client.url == "ws://b:8440"
            assert trio.current_time() == limit


async def test_an_attempt_with_one_address_takes_up_to_ten_seconds_whatever_the_patience(
    bodies: Bodies, autojump_clock: MockClock
):
    async with nodes(bodies.jobs, "a") as cluster, cluster.client(patience=2):
        cluster.replace("a", be_silent)
        cluster.networks["a"].cut()
        await trio.sleep(35)
    times = [time for time, _ in cluster.attempts[1:]]
    assert [later - earlier for earlier, later in pairwise(times)] == pytest.approx([10.1] * 3, abs=0.1)


async def test_addresses_that_do_not_respond_are_named_when_the_patience_ends(
    bodies: Bodies, autojump_clock: MockClock
):
    async with nodes(bodies.jobs, "abcd") as cluster:
        for name in "abcd":
            cluster.replace(name, be_silent)
        with pytest.raises(Unavailable) as caught:
            async with cluster.client(patience=2.5):
                pass
        assert trio.current_time() == 2.5
    assert caught.value.message == (
        "timed out: no state received within 2.5 seconds: ws://c:8440: not tried; ws://d:8440: not tried; "
        "ws://a:8440: timed out after 1 seconds; ws://b:8440: timed out after 1 seconds"
    )


async def test_a_bad_token_is_reported_without_trying_the_other_addresses(
    bodies: Bodies, autojump_clock: MockClock, tmp_path: Path
):
    file = tmp_path / "tokens"
    add_token(file, "someone", Role.VIEWER)
    async with nodes(bodies.jobs, config=GatewayConfig(token_file=str(file))) as cluster:
        for token in (None, "gr_wrong"):
            with pytest.raises(Unauthorized):
                async with cluster.client(token=token):
                    pass
        cluster.replace("a", http("403 Forbidden", b'{"code":"forbidden","message":"not for you"}'))
        with pytest.raises(Forbidden, match="not for you"):
            async with cluster.client():
                pass
        assert [name for _, name in cluster.attempts] == ["a", "a", "a"]


# A lost connection.


async def test_a_client_of_a_gateway_that_closes_continues_at_another_at_once(
    bodies: Bodies, autojump_clock: MockClock
):
    async with nodes(bodies.jobs) as cluster, cluster.client() as client, trio.open_nursery() as nursery:
        events = client.events()
        nursery.start_soon(some_events, cluster.engine, 200)
        await some_events(cluster.engine, 50)
        await cluster.stop("a")
        await some_events(cluster.engine, 50)
        received = [await anext(events) for _ in range(300)]
        assert not any(isinstance(item, Snapshot) for item in received)
        assert [item.seq for item in received] == list(range(1, 301))
        assert client.state.snapshot() == await cluster.engine.snapshot()
        assert (client.connected, client.url) == (True, "ws://b:8440")
        assert cluster.attempts == [(0, "a"), (0, "b")]


async def test_every_other_address_is_tried_at_once_and_each_round_after_a_pause(
    bodies: Bodies, autojump_clock: MockClock
):
    async with nodes(bodies.jobs, "abc") as cluster, cluster.client():
        await trio.sleep(100)
        for name in "abc":
            cluster.kill(name)
        await trio.sleep(100)
    [(_, first), *attempts] = cluster.attempts
    assert first == "a"
    assert attempts[:2] == [(100, "b"), (100, "c")]
    rounds = [attempts[start : start + 3] for start in range(2, len(attempts) - 2, 3)]
    times = [100.0]
    for names in rounds:
        assert [name for _, name in names] == ["a", "b", "c"]
        assert len({time for time, _ in names}) == 1
        times.append(names[0][0])
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert all(
        0.5 * longest <= pause <= longest
        for pause, longest in zip(pauses, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5], strict=False)
    )
    assert 20 <= len(rounds) <= 45


async def test_a_good_connection_begins_a_new_round(bodies: Bodies, autojump_clock: MockClock):
    async with nodes(bodies.jobs, "abc") as cluster:
        cluster.kill("a")
        async with cluster.client() as client:
            assert client.url == "ws://b:8440"
            await trio.sleep(100)
            await cluster.start("a")
            cluster.kill("c")
            cluster.kill("b")
            await trio.sleep(0.01)
            assert (client.connected, client.url) == (True, "ws://a:8440")
            assert cluster.attempts[2:] == [(100, "c"), (100, "a")]


async def test_addresses_whose_connections_do_not_last_are_not_tried_without_pauses(
    bodies: Bodies, autojump_clock: MockClock
):
    async with nodes(bodies.jobs) as cluster, cluster.client() as client:
        await trio.sleep(100)
        async with trio.open_nursery() as nursery:

            async def cut() -> None:
                while len(cluster.attempts) < 100:
                    await client.wait_connected()
                    for network in cluster.networks.values():
                        network.cut()
                    await client.wait_lost()

            nursery.start_soon(cut)
            await trio.sleep(60)
            nursery.cancel_scope.cancel()
        assert 20 <= len(cluster.attempts) <= 60


async def test_an_address_that_is_not_a_gateway_does_not_end_a_client_of_several(
    bodies: Bodies, autojump_clock: MockClock
):
    async with nodes(bodies.jobs) as cluster, cluster.client() as client:
        cluster.replace("b", http("404 Not Found"))
        cluster.kill("a")
        await trio.sleep(10)
        await cluster.start("a")
        await client.snapshot()
        assert client.url == "ws://a:8440"


async def test_a_submit_is_sent_again_to_another_address_and_takes_effect_once(
    bodies: Bodies, autojump_clock: MockClock
):
    async with nodes(bodies.jobs) as cluster, cluster.client() as client:
        other = await client.submit("wait", handle="other", params={})
        cluster.networks["a"].deafen()
        tickets = []

        async def submit() -> None:
            tickets.append(await client.submit("wait", handle="someone", params={}))

        async def cancel() -> None:
            with pytest.raises(OutcomeUnknown, match="cancel"):
                await client.cancel(other.id)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(submit)
            nursery.start_soon(cancel)
            await trio.sleep(1)
            assert not tickets
            cluster.kill("a")
        runs = (await cluster.engine.snapshot()).runs
        assert {run.status for run in runs.values() if run.handle == "other"} == {"cancelled"}
        assert [run.id for run in runs.values() if run.handle == "someone"] == [tickets[0].id]
        assert not tickets[0].joined


async def test_another_epoch_at_the_next_address_begins_with_a_snapshot(
    bodies: Bodies, autojump_clock: MockClock
):
    async with (
        open_engine(Bodies().jobs) as stranger,
        nodes(bodies.jobs, "a") as cluster,
        trio.open_nursery() as nursery,
    ):
        await some_events(stranger, 3)
        await cluster.start("b", stranger)
        async with cluster.client() as client:
            await some_events(cluster.engine, 7)
            events = client.events()
            cluster.kill("a")
            item = await anext(events)
            assert isinstance(item, Snapshot)
            assert item == client.state.snapshot() == await stranger.snapshot()
        await cluster.stop("b")
        nursery.cancel_scope.cancel()


# Addresses, and the other clients.


@pytest.mark.parametrize(
    ("addresses", "message"),
    [
        ([], r"url must contain 1 to 100 addresses \(got 0\)"),
        ([f"ws://node-{number}" for number in range(101)], r"1 to 100 addresses \(got 101\)"),
        (["ws://a", "b:8440"], r"url must be like ws://.* \(got 'b:8440'\)"),
        (["ws://a", ""], r"url must be like ws://.* \(got ''\)"),
        (["ws://a", 5], r"each address in url must be a string \(got 5\)"),
        (["ws://a", "ws://token@b"], "must not contain a token"),
        (["ws://a:80/x", "http://A/x/"], "same address twice: ws://a:80/x and http://A/x/; remove one"),
        ({"ws://a": 1}, "url must be a string, or a list of strings"),
        ("ws://a,ws://b", r"url must be like ws://.* \(got 'ws://a,ws://b'\)"),
    ],
)
async def test_bad_addresses_are_refused_with_the_remedy(addresses: Any, message: str):
    with pytest.raises(Invalid, match=message):
        async with connect(addresses):
            pass


async def test_tls_is_used_for_each_address_that_asks_for_it(tmp_path: Path):
    certificate, key = make_certificate(tmp_path, "localhost")
    config = GatewayConfig(port=0, tls_certificate=str(certificate), tls_key=str(key))
    async with serving(config) as (_, secure, _), serving() as (_, plain, _):
        addresses = (f"wss://localhost:{secure.port}", f"ws://localhost:{plain.port}")
        used = set()
        for seed in range(10):
            async with connect(addresses, ca_file=str(certificate), random=random.Random(seed)) as client:
                used.add(client.url)
        assert used == set(addresses)
        with pytest.raises(Invalid, match="cannot load ca_file"):
            async with connect(addresses, ca_file=str(key)):
                pass


async def test_the_other_clients_take_several_addresses():
    async with serving() as (_, _, url):
        addresses = ["ws://127.0.0.1:9", url]

        def block() -> str:
            with sync.connect(addresses) as client:
                assert client.submit("add", handle="a", params={"a": 1, "b": 2}).result() == 3
                return client.url

        async def loop() -> str:
            async with greenroom.aio.connect(addresses) as client:
                ticket = await client.submit("add", handle="b", params={"a": 1, "b": 2})
                assert await ticket.result() == 3
                return client.url

        assert await trio.to_thread.run_sync(block) == url
        assert await trio.to_thread.run_sync(asyncio.run, loop()) == url
