"""Limits: how much one client can request, and what happens to clients that do not send or do not read."""

from __future__ import annotations

import gc
import logging
import math

import pytest
import trio
from trio.testing import lockstep_stream_pair

from greenroom.actors.journal.stream import RING_SIZE
from greenroom.gateway import GatewayConfig, Limits
from greenroom.protocol.records import RunRecord

from .support import CLOSE, PING, PONG, Raw, Refused, client_frame, house


async def opened(home, stream) -> Raw:
    """A WebSocket on a stream in memory, after the welcome."""
    raw = Raw(stream)
    await raw.upgrade()
    assert (await raw.message())["type"] == "welcome"
    return raw


# Connections and subscriptions.


async def test_a_connection_above_the_limit_gets_503():
    async with house(limits=Limits(max_connections=2)) as home, home.socket(), home.socket():
        answer = await home.http("GET", "/healthz")
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")


async def test_a_place_is_free_again_when_a_connection_has_ended():
    async with house(limits=Limits(max_connections=1)) as home:
        for _ in range(3):
            assert (await home.http("GET", "/healthz")).status == 200
            while home.gateway.connections:
                await trio.testing.wait_all_tasks_blocked(0.01)


async def test_a_subscription_above_the_limit_is_refused_until_another_one_ends():
    async with house(limits=Limits(max_subscriptions=1)) as home, home.socket() as other:
        async with home.socket() as talk:
            await talk.call("subscribe")
            await talk.call("subscribe")  # in place of the first
            with pytest.raises(Refused, match="rate_limited"):
                await other.call("subscribe")
            assert (await home.http("GET", "/api/events")).status == 429
            await talk.call("unsubscribe")
            await other.call("subscribe")
            await other.call("unsubscribe")
            await talk.call("subscribe")
        while home.gateway.connections > 1:
            await trio.testing.wait_all_tasks_blocked(0.01)
        await other.call("subscribe")


async def test_the_names_in_a_filter_are_limited():
    async with house(limits=Limits(max_filter_names=3)) as home, home.socket() as talk:
        await talk.call("subscribe", filter={"handles": ["a", "b"], "types": ["run_log"]})
        with pytest.raises(Refused, match="at most 3"):
            await talk.call("subscribe", filter={"handles": ["a", "b"], "runs": ["c", "d"]})
        assert (await home.http("GET", "/api/events?run=1&run=2&run=3&run=4")).status == 400


# Rates.


async def test_messages_beyond_the_rate_are_refused_and_later_ones_are_not(autojump_clock):
    async with house(limits=Limits(rate=10, burst=5), listen=False) as home:
        talk = await home.memory_socket()
        await talk.receive()
        ids = [await talk.post("set_max_concurrent", n=1) for _ in range(8)]
        said = {message["id"]: message for message in [await talk.receive() for _ in ids]}
        assert [said[id]["type"] for id in ids] == ["ok"] * 5 + ["error"] * 3
        for id in ids[5:]:
            assert said[id]["code"] == "rate_limited"
            assert 0 < said[id]["details"]["retry_after"] <= 0.1
        await trio.sleep(0.2)
        await talk.call("snapshot")
        await talk.call("snapshot")
        with pytest.raises(Refused, match="rate_limited"):
            await talk.call("snapshot")


async def test_requests_beyond_the_rate_are_refused(autojump_clock):
    async with house(limits=Limits(rate=1, burst=2), listen=False) as home:
        raw = Raw(await home.stream())
        statuses = [(await raw.http("GET", "/healthz")).status for _ in range(3)]
        assert statuses == [200, 200, 429]
        await trio.sleep(1)
        assert (await raw.http("GET", "/healthz")).status == 200


async def test_limits_can_be_changed_while_it_runs():
    async with house() as home, home.socket() as talk:
        await talk.call("snapshot")
        home.gateway.reconfigure(GatewayConfig(limits=Limits(rate=0.001, burst=1)))
        await talk.call("snapshot")
        with pytest.raises(Refused, match="rate_limited"):
            await talk.call("snapshot")


async def test_waits_of_one_connection_are_limited():
    async with house(limits=Limits(max_waits=2)) as home, home.socket() as talk:
        ticket = await home.engine.submit("wait", handle="alice", params={})
        waits = [await talk.post("wait", run_id=ticket.id, timeout="none") for _ in range(2)]
        with pytest.raises(Refused, match="rate_limited"):
            await talk.call("wait", run_id=ticket.id)
        await talk.call("snapshot")
        home.bodies.end(ticket)
        for id in waits:
            await talk.reply(id)
        await talk.call("wait", run_id=ticket.id)


async def test_commands_above_the_limit_in_flight_wait_and_are_all_executed():
    async with house(limits=Limits(max_commands=4)) as home, home.socket() as talk:
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                for number in range(300):
                    await talk.post("set_max_concurrent", n=number)

            nursery.start_soon(send)
            for _ in range(301):
                await talk.receive()
        assert (await home.engine.snapshot()).engine.max_concurrent == 299
        for type in ("snapshot", "list_runs") * 3:
            await talk.post(type)
        await talk.call("snapshot")


# Clients that send nothing.


async def test_a_quiet_client_is_pinged_and_stays_as_long_as_it_answers(autojump_clock):
    async with house(listen=False) as home:
        raw = await opened(home, await home.stream())
        begun = trio.current_time()
        for number in range(1, 10):
            opcode, payload = await raw.frame()
            assert opcode == PING
            assert trio.current_time() - begun == pytest.approx(20 * number, abs=0.1)
            await raw.send(client_frame(payload, PONG))
        await raw.send(client_frame(b'{"type":"snapshot","id":1}'))
        assert (await raw.message())["type"] == "ok"


async def test_a_client_that_answers_no_ping_is_closed(autojump_clock):
    async with house(listen=False) as home:
        raw = await opened(home, await home.stream())
        begun = trio.current_time()
        frames = [await raw.frame() for _ in range(3)]
        assert [opcode for opcode, _ in frames] == [PING, PING, CLOSE]
        assert frames[2][1][:2] == (4408).to_bytes(2, "big")
        assert trio.current_time() - begun == pytest.approx(60, abs=0.1)
        assert await raw.stream.receive_some() == b""
        assert trio.current_time() - begun == pytest.approx(65, abs=1.1)  # `close_timeout`, and `linger`


async def test_a_client_that_reads_pending_data_slowly_is_not_idle(autojump_clock):
    async with house(listen=False) as home:
        ours, theirs = lockstep_stream_pair()
        home.nursery.start_soon(home.gateway.serve_stream, theirs)
        slow = await opened(home, ours)
        await slow.send(client_frame(b'{"type":"subscribe","id":1}'))
        assert (await slow.message())["type"] == "ok"
        for number in range(20):  # it sends nothing for 300 seconds: the pings wait behind the events
            await home.engine.set_params("h", number)
            await trio.sleep(15)
            assert (await slow.frame())[0] != CLOSE
        begun = trio.current_time()
        while (await slow.frame())[0] != CLOSE:
            pass  # the data may have been in buffers only, so now it is missing
        assert 60 <= trio.current_time() - begun <= 80


async def test_a_client_that_sends_messages_is_not_pinged(autojump_clock):
    async with house(listen=False) as home:
        raw = await opened(home, await home.stream())
        for _ in range(20):
            await trio.sleep(15)
            await raw.send(client_frame(b'{"type":"get_run","id":1,"run_id":"none"}'))
            opcode, _ = await raw.frame()
            assert opcode != PING


async def test_an_incomplete_handshake_times_out(autojump_clock):
    async with house(listen=False) as home:
        raw = Raw(await home.stream())
        await raw.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n")
        begun = trio.current_time()
        assert (await raw.answer()).status == 408
        assert trio.current_time() - begun == 10


# Clients that do not read.


async def test_a_stalled_client_is_disconnected_and_disturbs_no_other(autojump_clock):
    async with house(listen=False) as home:
        ours, theirs = lockstep_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(home.gateway.serve_stream, theirs)
            stalled = await opened(home, ours)
            await stalled.send(client_frame(b'{"type":"subscribe","id":1}'))
            assert (await stalled.message())["type"] == "ok"
            other = await home.memory_socket()
            await other.call("subscribe")
            begun = trio.current_time()
            for number in range(50):
                await other.call("set_params", handle="h", params=number)
            assert trio.current_time() == begun
            assert len(other.events()) == 50
            nursery.cancel_scope.deadline = begun + 100
            while home.gateway.connections > 1:
                await trio.testing.wait_all_tasks_blocked()
                await trio.sleep(0.5)
            assert trio.current_time() - begun == pytest.approx(20, abs=1)
            await other.call("snapshot")


async def test_a_stalled_client_on_a_socket_disturbs_no_other(caplog):
    async with house(limits=Limits(stall_timeout=0.5, close_timeout=0.1)) as home:
        raw = await home.raw()
        await raw.upgrade()
        await raw.send(client_frame(b'{"type":"subscribe","id":1}'))
        async with home.socket() as other:
            await other.call("subscribe")
            for number in range(60):
                await other.call("set_params", handle="h", params=[number, "x" * 500_000])
            assert len(other.events()) == 60
            with trio.fail_after(10):
                while home.gateway.connections > 1:
                    await trio.testing.wait_all_tasks_blocked(0.01)
            await other.call("snapshot")
        await raw.stream.aclose()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_client_that_falls_out_of_the_ring_receives_a_snapshot_and_continues(autojump_clock):
    async with house(listen=False) as home:
        ours, theirs = lockstep_stream_pair()
        home.nursery.start_soon(home.gateway.serve_stream, theirs)
        slow = await opened(home, ours)
        await slow.send(client_frame(b'{"type":"subscribe","id":1}'))
        assert (await slow.message())["type"] == "ok"
        async with trio.open_nursery() as nursery:
            for number in range(RING_SIZE + 500):
                nursery.start_soon(home.engine.set_params, "h", number)
        to, kinds = 0, []
        while to < RING_SIZE + 500:
            message = await slow.message()
            kinds.append(message["type"])
            if message["type"] == "resync":
                to = message["snapshot"]["seq"]
            else:
                assert message["from"] == to
                to = message["to"]
        assert "resync" in kinds


async def test_unread_replies_to_many_commands_use_bounded_memory(autojump_clock):
    async with house(limits=Limits(stall_timeout=1000, idle_timeout=1000), listen=False) as home:
        await home.engine.set_max_concurrent(0)
        for number in range(200):
            await home.engine.submit("wait", handle=f"h{number}", params={}, warn_after=math.inf)
        ours, theirs = lockstep_stream_pair()
        home.nursery.start_soon(home.gateway.serve_stream, theirs)
        raw = await opened(home, ours)
        with trio.move_on_after(100):
            for id in range(100):
                await raw.send(client_frame(b'{"type":"list_runs","id":%d}' % id))
        gc.collect()
        lists = [one for one in gc.get_objects() if type(one) is list and one and type(one[0]) is RunRecord]
        assert len(lists) < 10
        await trio.aclose_forcefully(ours)
