"""A client's connection: lost, restored, refused; and the outcome of commands in the meantime."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from greenroom import Client, Run, connect
from greenroom.errors import (
    Forbidden,
    GreenroomError,
    Invalid,
    OutcomeUnknown,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from greenroom.gateway import GatewayConfig, Limits, Role, add_token
from greenroom.protocol.events import Filter
from greenroom.protocol.records import Snapshot

from ..nodes import node
from ..support import Bodies, open_engine
from .network import Network, network, serving

__all__ = ["node"]

RING = 8192
"""How many of the latest events the engine has at hand."""


@pytest.fixture
def bodies() -> Bodies:
    bodies = Bodies()

    @bodies.jobs.job("count")
    async def count(run: Run, params: dict[str, Any]) -> None:
        for number in range(params["to"]):
            await run.log(f"{number}")

    return bodies


async def settle() -> None:
    """Wait until nothing happens, reconnections included."""
    await trio.sleep(10)


async def many_events(engine: Any, count: int) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(engine.set_params, "someone", {"number": number})


async def test_the_state_equals_the_engines_when_the_block_starts(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, engine):
        await many_events(engine, 3000)
        async with net.client() as client:
            assert client.state.snapshot() == await engine.snapshot()


async def test_a_reply_finds_the_state_up_to_date(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, _), net.client() as client:
        for number in range(50):
            ticket = await client.submit("wait", handle=f"h{number}", params={})
            assert ticket.id in client.state.runs
            await client.set_params("draft", {"number": number})
            assert client.state.draft("draft") == {"number": number}


async def test_after_a_cut_the_client_resumes_where_it_was(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, engine), net.client() as client:
        events = client.events()
        await many_events(engine, 10)
        net.cut()
        await many_events(engine, 10)
        await settle()
        assert client.connected
        assert net.opened == 2
        assert [(await anext(events)).seq for _ in range(20)] == list(range(1, 21))
        assert client.state.snapshot() == await engine.snapshot()


async def test_after_too_much_was_missed_a_snapshot_comes(bodies: Bodies, autojump_clock: MockClock):
    async with (
        network(bodies.jobs) as (net, engine),
        net.client() as client,
        trio.open_nursery() as nursery,
    ):
        events = client.events()
        waiting: list[Any] = []

        async def wait() -> None:
            waiting.append(await anext(client.events()))

        nursery.start_soon(wait)
        await trio.sleep(1)
        net.cut()
        await many_events(engine, RING + 100)
        await settle()
        assert client.state.snapshot() == await engine.snapshot()
        item = await anext(events)
        assert isinstance(item, Snapshot)
        assert waiting == [item]
        await client.set_params("someone", None)
        seqs = [(await anext(events)).seq for _ in range(client.state.seq - item.seq)]
        assert seqs == list(range(item.seq + 1, client.state.seq + 1))


async def test_a_restarted_engine_is_followed_from_a_snapshot(bodies: Bodies, autojump_clock: MockClock):
    async with trio.open_nursery() as nursery:
        net = Network(nursery)
        async with open_engine(bodies.jobs) as engine, serving(net, engine):
            await many_events(engine, 5)
            client = await nursery.start(a_client, net)
        async with open_engine(bodies.jobs) as engine, serving(net, engine):
            await many_events(engine, 5)
            await settle()
            assert client.state.snapshot() == await engine.snapshot()
            await many_events(engine, 5)
            await client.set_params("someone", None)
            assert client.state.snapshot() == await engine.snapshot()
        nursery.cancel_scope.cancel()


async def a_client(net: Network, task_status: trio.TaskStatus[Client]) -> None:
    async with net.client(patience=1000) as client:
        task_status.started(client)
        await trio.sleep_forever()


async def test_a_submit_whose_answer_is_lost_happens_once(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, engine), net.client() as client:
        net.deafen()
        tickets = []

        async def submit(number: int) -> None:
            tickets.append(await client.submit("wait", handle=f"h{number}", params={}))

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(submit, number)
            await trio.sleep(1)
            assert len((await engine.snapshot()).runs) == 20
            assert not tickets
            net.cut()
        assert sorted(ticket.id for ticket in tickets) == sorted((await engine.snapshot()).runs)
        assert not any(ticket.joined for ticket in tickets)
        bodies.end(*tickets)
        for ticket in tickets:
            assert await ticket.result() == f"done for {client.state.runs[ticket.id].handle}"


async def test_a_batch_whose_answer_is_lost_happens_once(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, engine), net.client() as client:
        net.deafen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut_later, net)
            tickets = await client.submit_many(
                [{"job": "wait", "handle": f"h{number}", "params": {}} for number in range(20)]
            )
        assert [ticket.id for ticket in tickets] == list((await engine.snapshot()).runs)
        assert not any(ticket.joined for ticket in tickets)


async def test_a_batch_that_may_have_arrived_ends_as_outcome_unknown(
    bodies: Bodies, autojump_clock: MockClock
):
    async with network(bodies.jobs) as (net, _engine), net.client(patience=20) as client:
        net.deafen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut_later, net)
            net.gateway = None
            with pytest.raises(OutcomeUnknown, match="submit_many"):
                await client.submit_many([{"job": "wait", "handle": "a"}])


async def test_a_batch_that_is_too_long_for_a_message_is_refused_with_the_remedy(
    bodies: Bodies, autojump_clock: MockClock
):
    async with network(bodies.jobs) as (net, _engine), net.client() as client:
        runs: Any = [{"job": "wait", "handle": "a", "params": {"text": "x" * 1_000_000}}] * 3
        with pytest.raises(TooLarge, match=r"submit_many must be at most .*: divide its runs among several"):
            await client.submit_many(runs)


async def test_the_outcome_of_another_command_whose_reply_is_lost_is_unknown(
    bodies: Bodies, autojump_clock: MockClock
):
    async with network(bodies.jobs) as (net, _engine), net.client() as client:
        ticket = await client.submit("wait", handle="alice", params={})
        net.deafen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut_later, net)
            with pytest.raises(OutcomeUnknown, match="cancel") as caught:
                await client.cancel(ticket.id)
        assert caught.value.details == {"command": "cancel"}
        assert (await client.get_run(ticket.id)).status == "cancelled"


async def test_commands_that_only_read_are_sent_again(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, engine), net.client() as client:
        ticket = await client.submit("wait", handle="alice", params={})
        net.deafen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut_later, net)
            assert (await client.get_run(ticket.id)).id == ticket.id
            assert [run.id for run in await client.list_runs()] == [ticket.id]
            assert len(await client.history(ticket.id)) == 2
            assert await client.snapshot() == await engine.snapshot()


async def cut_later(net: Network) -> None:
    await trio.sleep(1)
    net.cut()


async def test_the_wait_of_commands_for_a_connection_is_limited(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, _), net.client(patience=20) as client:
        gateway, net.gateway = net.gateway, None
        net.cut()
        await trio.sleep(1)  # until the client has noticed
        start = trio.current_time()
        for give in (client.drain, lambda: client.submit("wait", handle="a"), lambda: client.get_run("x")):
            with pytest.raises(Unavailable, match="nobody listens") as caught:
                await give()
            assert not isinstance(caught.value, OutcomeUnknown)
        assert 60 <= trio.current_time() - start <= 80
        net.gateway = gateway
        ticket = await client.submit("wait", handle="a", params={})
        assert ticket.id in client.state.runs


async def test_a_submit_that_may_have_arrived_ends_as_outcome_unknown(
    bodies: Bodies, autojump_clock: MockClock
):
    async with network(bodies.jobs) as (net, _engine), net.client(patience=20) as client:
        net.deafen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut_later, net)
            net.gateway = None
            with pytest.raises(OutcomeUnknown, match="submit"):
                await client.submit("wait", handle="a", params={})


async def test_results_are_waited_for_across_any_outage(bodies: Bodies, autojump_clock: MockClock):
    async with (
        network(bodies.jobs) as (net, _),
        net.client(patience=1) as following,
        net.client(patience=1, follow=False) as other,
    ):
        tickets = [
            await following.submit("wait", handle="a", params={}),
            await other.submit("wait", handle="b", params={}),
        ]
        results = []

        async def result(ticket: Any) -> None:
            results.append(await ticket.result())

        async with trio.open_nursery() as nursery:
            for ticket in tickets:
                nursery.start_soon(result, ticket)
            await settle()
            gateway, net.gateway = net.gateway, None
            net.cut()
            await trio.sleep(500)
            bodies.end(*tickets)
            await settle()
            net.gateway = gateway
        assert sorted(results) == ["done for a", "done for b"]


async def test_an_end_that_was_missed_is_looked_up(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, engine), net.client() as client:
        ticket = await client.submit("wait", handle="a", params={})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ticket.result)
            await trio.sleep(1)
            net.cut()
            bodies.end(ticket)
            for number in range(1001):  # enough to evict the run from snapshots
                await (await engine.submit("count", handle=f"h{number % 10}", params={"to": 8})).result()
        assert ticket.id not in client.state.runs


async def test_events_from_before_the_connection_can_be_had(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, engine):
        await many_events(engine, 100)
        async with net.client() as client:
            early = client.events(after=10)
            now = client.events()
            assert [(await anext(early)).seq for _ in range(90)] == list(range(11, 101))
            await client.set_params("someone", None)
            assert (await anext(early)).seq == (await anext(now)).seq == 101
            assert client.state.snapshot() == await engine.snapshot()


async def test_events_that_are_too_old_start_with_a_snapshot(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, engine):
        await many_events(engine, RING + 2000)
        async with net.client() as client:
            for after in (10, RING * 1000):
                undisturbed = client.events()
                events = client.events(after=after)
                item = await anext(events)
                assert isinstance(item, Snapshot)
                await client.set_params("someone", {"after": after})
                assert (await anext(events)).seq == item.seq + 1
                event = await anext(undisturbed)
                assert not isinstance(event, Snapshot)
                assert event.seq == item.seq + 1
            assert client.state.snapshot() == await engine.snapshot()


async def test_iterating_from_an_older_seq_under_load_repeats_no_event(
    bodies: Bodies, autojump_clock: MockClock
):
    async with network(bodies.jobs) as (net, engine):
        await many_events(engine, 1000)
        async with net.client() as client, trio.open_nursery() as nursery:
            seen: dict[int, list[int]] = {}

            async def read(after: int | None) -> None:
                numbers = seen.setdefault(-1 if after is None else after, [])
                async for event in client.events(after=after):
                    assert not isinstance(event, Snapshot)
                    numbers.append(event.seq)
                    if event.seq == 2000:
                        return

            nursery.start_soon(read, None)
            nursery.start_soon(many_events, engine, 500)
            for after in (900, 500, 1, 999, 700):
                nursery.start_soon(read, after)
                await trio.sleep(0.1)
            nursery.start_soon(read, 1100)
            await many_events(engine, 500)
        assert seen == {after: list(range(abs(after) + 1 if after > 0 else 1001, 2001)) for after in seen}


async def test_a_slow_reader_delays_no_other_and_receives_a_snapshot(
    bodies: Bodies, autojump_clock: MockClock
):
    async with network(bodies.jobs) as (net, engine), net.client() as client:
        slow = client.events()
        for _ in range(3):
            await many_events(engine, RING)
            await client.set_params("someone", None)
        assert client.state.snapshot() == await engine.snapshot()
        assert isinstance(await anext(slow), Snapshot)


async def test_iterating_ends_with_the_client(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, _), net.client() as client:
        events = client.events()
    with pytest.raises(StopAsyncIteration):
        await anext(events)
    with pytest.raises(Unavailable, match="the client is closed"):
        await client.get_run("x")


async def test_a_filter_limits_what_is_followed(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, engine):
        before = [await engine.submit("wait", handle=handle, params={}) for handle in "abc"]
        filter = {"handles": ["b"]}
        async with net.client(filter=filter) as client, net.client(filter=filter) as late:
            after = [await client.submit("wait", handle=h, params={}, on_conflict="queue") for h in "abc"]
            assert set(client.state.runs) == {before[1].id, after[1].id}
            net.cut()
            bodies.end(*before, *after)
            for ticket in after:
                assert await ticket.result()
            await late.get_run(after[2].id)
            await client.get_run(after[2].id)
            assert client.state.snapshot() == late.state.snapshot()
            assert client.state.seq == (await engine.snapshot()).seq
            assert {run.status for run in client.state.runs.values()} == {"succeeded"}
        async with net.client(filter=Filter(handles=frozenset("b"))) as fresh:
            assert fresh.state.snapshot() == late.state.snapshot()


async def test_the_limits_of_a_token_can_exclude_events_without_a_filter(
    bodies: Bodies, autojump_clock: MockClock, tmp_path: Path
):
    file = tmp_path / "tokens"
    token = add_token(file, "bob", Role.OPERATOR, handles=["b"])
    async with network(bodies.jobs, GatewayConfig(token_file=str(file))) as (net, engine):
        async with net.client(token=token) as client:
            net.cut()
            tickets = [
                await engine.submit("wait", handle=handle, params={}, on_conflict="queue")
                for handle in "abcbabc"
            ]
            bodies.end(*tickets)
            for ticket in tickets:
                await ticket.result()
            mine = [tickets[1].id, tickets[3].id, tickets[5].id]
            await client.get_run(mine[0])
            assert set(client.state.runs) == set(mine)
            assert {run.status for run in client.state.runs.values()} == {"succeeded"}
            assert client.state.seq == (await engine.snapshot()).seq
        async with net.client(token=token) as fresh:
            assert fresh.state.snapshot() == client.state.snapshot()


async def test_a_filter_by_types_keeps_no_state_and_is_refused(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, _):
        with pytest.raises(Invalid, match="types"):
            async with net.client(filter={"types": ["run_log"]}):
                pass


async def test_a_silent_gateway_is_disconnected(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, _), net.client(patience=1000) as client:
        net.freeze()
        start = trio.current_time()
        with pytest.raises(OutcomeUnknown, match="lost"):
            await client.set_params("someone", {"a": 1})
        assert 30 <= trio.current_time() - start <= 60
        await client.set_params("someone", {"a": 2})
        assert net.opened == 2


@pytest.mark.at_engine  # nodes beat four times per second, also in mock time
@pytest.mark.parametrize("limits", [Limits(), Limits(ping_interval=1000, idle_timeout=5000)])
async def test_an_idle_connection_is_kept(limits: Limits, bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs, GatewayConfig(limits=limits)) as (net, _), net.client() as client:
        await trio.sleep(10_000)
        await client.set_params("someone", None)
        assert net.opened == 1


async def test_the_first_connection_has_to_be_there(autojump_clock: MockClock):
    async with trio.open_nursery() as nursery:
        net = Network(nursery)
        start = trio.current_time()
        with pytest.raises(Unavailable, match=r"connection to ws://127.0.0.1:8440 failed: nobody listens"):
            async with net.client():
                pass
        assert trio.current_time() == start


async def test_a_server_that_never_answers_times_out(autojump_clock: MockClock):
    async def open_stream() -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        kept.append(theirs)
        return ours

    kept: list[Any] = []
    with pytest.raises(Unavailable, match="timed out after 10 seconds"):
        async with connect("ws://localhost", open_stream=open_stream):
            pass


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Unavailable),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nhi", Invalid),
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", Unavailable),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", Invalid),
        (b"", Unavailable),
    ],
)
async def test_a_server_that_is_not_a_gateway_is_reported(
    answer: bytes, error: type[GreenroomError], autojump_clock: MockClock
):
    async def open_stream() -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        await theirs.send_all(answer)
        await theirs.send_eof()
        kept.append(theirs)
        return ours

    kept: list[Any] = []
    with pytest.raises(error):
        async with connect("ws://localhost", open_stream=open_stream):
            pass


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8440", "ftp://x", "ws://", "ws://x:99999", "ws://token@x", "ws://x#y"]
)
async def test_a_url_that_is_none_is_refused(url: str, autojump_clock: MockClock):
    with pytest.raises(Invalid, match="url"):
        async with connect(url):
            pass


async def test_tokens_and_roles_apply(bodies: Bodies, autojump_clock: MockClock, tmp_path: Path):
    file = tmp_path / "tokens"
    tokens = {role: add_token(file, f"the-{role}", role) for role in (Role.VIEWER, Role.OPERATOR)}
    async with network(bodies.jobs, GatewayConfig(token_file=str(file))) as (net, _):
        for wrong in (None, "gr_wrong"):
            with pytest.raises(Unauthorized):
                async with net.client(token=wrong):
                    pass
            assert trio.current_time() == 0
        async with net.client(token=tokens[Role.VIEWER]) as viewer:
            assert viewer.role == "viewer"
            with pytest.raises(Forbidden):
                await viewer.submit("wait", handle="a", params={})
        async with net.client(token=tokens[Role.OPERATOR]) as operator:
            ticket = await operator.submit("wait", handle="a", params={})
            [created, *_] = await operator.history(ticket.id)
            assert created.by == "the-operator"
            with pytest.raises(Forbidden):
                await operator.drain()


async def test_a_token_that_is_withdrawn_ends_the_client(
    bodies: Bodies, autojump_clock: MockClock, tmp_path: Path
):
    file = tmp_path / "tokens"
    token = add_token(file, "someone", Role.OPERATOR)
    config = GatewayConfig(token_file=str(file))
    async with network(bodies.jobs, config) as (net, _), net.client(token=token) as client:
        ticket = await client.submit("wait", handle="a", params={})
        events = client.events()
        file.write_text("")
        net.gateway.reconfigure(config)
        await settle()
        for attempt in (lambda: client.get_run("x"), ticket.result, lambda: anext(events)):
            with pytest.raises(Unauthorized):
                await attempt()


async def test_what_is_too_large_for_the_gateway_is_not_sent(bodies: Bodies, autojump_clock: MockClock):
    config = GatewayConfig(limits=Limits(max_message_bytes=10_000))
    async with network(bodies.jobs, config) as (net, _), net.client() as client:
        with pytest.raises(TooLarge):
            await client.submit("wait", handle="a", params={"text": "x" * 10_000})
        await client.submit("wait", handle="a", params={"text": "x" * 9_000})
        assert net.opened == 1


async def test_an_exception_of_the_block_propagates_unwrapped(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, _):
        with pytest.raises(ZeroDivisionError):
            async with net.client():
                raise ZeroDivisionError


async def test_leaving_takes_no_longer_than_it_must(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs) as (net, _):
        async with net.client():
            start = trio.current_time()
        assert trio.current_time() == start
        async with net.client():
            net.freeze()
            start = trio.current_time()
        assert trio.current_time() - start <= 5


async def test_losing_a_connection_is_no_error_in_the_log(
    bodies: Bodies, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    async with network(bodies.jobs) as (net, _), net.client():
        for _ in range(5):
            net.cut()
            await settle()
    assert [record.levelname for record in caplog.records if record.name.startswith("greenroom.client")] == [
        "INFO"
    ] * 5


async def test_nothing_fails_if_the_connection_is_cut_anywhere(bodies: Bodies, autojump_clock: MockClock):
    async with network(bodies.jobs, max_concurrent=100) as (net, engine):
        async with net.client(patience=1000) as client, trio.open_nursery() as nursery:
            ids: list[str] = []

            async def worker(number: int) -> None:
                for step in range(20):
                    ticket = await client.submit("count", handle=f"h{number}", params={"to": step})
                    ids.append(ticket.id)
                    await ticket.result()

            async def cutter() -> None:
                for steps in range(60):
                    for _ in range(steps):
                        await trio.lowlevel.checkpoint()
                    net.cut()
                    await trio.sleep(0.3)

            for number in range(10):
                nursery.start_soon(worker, number)
            nursery.start_soon(cutter)
        assert len(set(ids)) == 200
        assert set(ids) == {run.id for run in await engine.list_runs(limit=1000)}
