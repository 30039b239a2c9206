"""Commands that the gateway asks the client to repeat, as those of a cluster do while it has no leader."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from greenroom import Engine
from greenroom.errors import GreenroomError, OutcomeUnknown, Unavailable

from ..support import Bodies
from .network import network
from .nodes import nodes


@pytest.fixture
def bodies() -> Bodies:
    return Bodies()


class Leaderless:
    """Makes these methods of an engine fail with `retry_after` until a leader is elected."""

    def __init__(self, engine: Engine, *methods: str, retry_after: Any = 2) -> None:
        self.elected = False
        self.refused = 0
        self._retry_after = retry_after
        for name in methods:
            setattr(engine, name, self._refusing(getattr(engine, name)))

    def _refusing(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any, **options: Any) -> Any:
            if self.elected:
                return await method(*arguments, **options)
            self.refused += 1
            raise Unavailable("the cluster has no leader", retry_after=self._retry_after)

        return call


async def test_a_submit_is_repeated_until_there_is_a_leader(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, engine), net.client() as client, trio.open_nursery() as nursery:
        leaderless = Leaderless(engine, "submit_options")
        tickets = []

        async def submit() -> None:
            tickets.append(await client.submit("wait", handle="someone", params={}))

        nursery.start_soon(submit)
        await trio.sleep(5)
        assert leaderless.refused == 3
        leaderless.elected = True
        await trio.sleep(0.99)
        assert not tickets
        await trio.sleep(0.02)
        assert [run.id for run in await engine.list_runs()] == [tickets[0].id]
        assert not tickets[0].joined


async def test_commands_that_only_read_are_repeated(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, engine), net.client() as client, trio.open_nursery() as nursery:
        ticket = await client.submit("wait", handle="someone", params={})
        leaderless = Leaderless(engine, "get_run", "list_runs", "history")
        found = []

        async def ask(command: Callable[[], Awaitable[Any]]) -> None:
            found.append(await command())

        for command in (
            lambda: client.get_run(ticket.id),
            lambda: client.list_runs(),
            lambda: client.history(ticket.id),
        ):
            nursery.start_soon(ask, command)
        await trio.sleep(5)
        assert not found
        leaderless.elected = True
        await trio.sleep(2)
        assert len(found) == 3


async def test_other_commands_get_the_error(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, engine), net.client() as client:
        leaderless = Leaderless(engine, "cancel", "set_params")
        for command in (lambda: client.cancel("x"), lambda: client.set_params("someone", {})):
            with pytest.raises(Unavailable, match="the cluster has no leader") as caught:
                await command()
            assert caught.value.details == {"retry_after": 2}
        assert leaderless.refused == 2
        assert trio.current_time() == 0


@pytest.mark.parametrize("retry_after", [None, "2", True, -1, math.inf, math.nan])
async def test_an_error_without_a_time_is_not_repeated(
    retry_after: Any, bodies: Bodies, autojump_clock: MockClock
):
    async with network(bodies.jobs) as (net, engine), net.client(follow=False) as client:
        leaderless = Leaderless(engine, "get_run", retry_after=retry_after)
        for command in (client.get_run, client.ended):
            with pytest.raises(Unavailable, match="the cluster has no leader"), trio.fail_after(1):
                await command("x")
        assert leaderless.refused == 2


async def test_a_time_of_zero_does_not_keep_the_client_busy(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, engine), net.client(patience=1) as client:
        leaderless = Leaderless(engine, "get_run", retry_after=0)
        with pytest.raises(Unavailable), trio.fail_after(10):
            await client.get_run("x")
        assert 5 <= leaderless.refused <= 11


async def test_another_error_with_a_time_is_not_repeated(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, engine), net.client() as client:
        calls = []

        async def get_run(run_id: str) -> None:
            calls.append(run_id)
            raise GreenroomError("a bug", retry_after=2)

        engine.get_run = get_run
        with pytest.raises(GreenroomError, match="a bug"):
            await client.get_run("x")
        assert calls == ["x"]


async def test_a_command_is_repeated_no_longer_than_the_patience(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, engine), net.client(patience=7) as client:
        Leaderless(engine, "submit_options", "get_run")
        for command in (lambda: client.get_run("x"), lambda: client.submit("wait", handle="someone")):
            start = trio.current_time()
            with pytest.raises(Unavailable, match="the cluster has no leader") as caught, trio.fail_after(10):
                await command()
            assert type(caught.value) is Unavailable
            assert trio.current_time() - start == 6


async def test_results_are_waited_for_longer_than_the_patience(bodies: Bodies, autojump_clock: MockClock):
    async with (
        network(bodies.jobs) as (net, engine),
        net.client(patience=7, follow=False) as client,
        trio.open_nursery() as nursery,
    ):
        ticket = await client.submit("wait", handle="someone", params={})
        leaderless = Leaderless(engine, "get_run")
        results = []

        async def wait() -> None:
            results.append(await ticket.result())

        nursery.start_soon(wait)
        await trio.sleep(100)
        assert leaderless.refused == 50
        leaderless.elected = True
        bodies.end(ticket)
        await trio.sleep(2)
        assert results == ["done for someone"]


async def test_a_command_is_repeated_on_the_connection_that_the_client_then_has(
    bodies: Bodies, autojump_clock: MockClock
):
    async with nodes(bodies.jobs) as cluster, cluster.client() as client, trio.open_nursery() as nursery:
        leaderless = Leaderless(cluster.engine, "submit_options", retry_after=10)
        tickets = []

        async def submit() -> None:
            tickets.append(await client.submit("wait", handle="someone", params={}))

        nursery.start_soon(submit)
        await trio.sleep(1)
        cluster.kill("a")
        leaderless.elected = True
        await trio.sleep(8.9)
        assert client.url == "ws://b:8440"
        assert leaderless.refused == 1
        assert not tickets, "it is not repeated before its time"
        await trio.sleep(0.2)
        assert len(tickets) == 1


async def test_a_repeated_command_waits_for_a_connection(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, engine), net.client() as client, trio.open_nursery() as nursery:
        leaderless = Leaderless(engine, "submit_options")
        tickets = []

        async def submit() -> None:
            tickets.append(await client.submit("wait", handle="someone", params={}))

        nursery.start_soon(submit)
        await trio.sleep(1)
        gateway, net.gateway = net.gateway, None
        net.cut()
        leaderless.elected = True
        await trio.sleep(5)
        assert not tickets
        net.gateway = gateway
        await trio.sleep(10)
        assert len(tickets) == 1


async def test_the_outcome_is_unknown_if_an_earlier_reply_was_lost(bodies: Bodies, autojump_clock: MockClock):
    async with nodes(bodies.jobs) as cluster, cluster.client(patience=20) as client:
        cluster.networks["a"].deafen()
        async with trio.open_nursery() as nursery:

            async def fail_over() -> None:
                await trio.sleep(1)
                assert len((await cluster.engine.snapshot()).runs) == 1
                Leaderless(cluster.engine, "submit_options")
                cluster.kill("a")

            nursery.start_soon(fail_over)
            unknown = "the cluster has no leader before the reply to submit arrived"
            with pytest.raises(OutcomeUnknown, match=unknown), trio.fail_after(100):
                await client.submit("wait", handle="someone", params={})
        assert trio.current_time() == 21


async def test_closing_the_client_ends_the_wait_at_once(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, engine), trio.open_nursery() as nursery:
        Leaderless(engine, "get_run", retry_after=20)
        failures = []

        async def ask() -> None:
            with pytest.raises(Unavailable, match="the client is closed"):
                await client.get_run("x")
            failures.append(trio.current_time())

        async with net.client() as client:
            nursery.start_soon(ask)
            await trio.sleep(1)
        await trio.sleep(1)
        assert failures == [1]
