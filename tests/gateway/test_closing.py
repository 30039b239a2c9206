"""Shutdown: a gateway that closes completes started requests, notifies clients, and waits a limited time."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio

from greenroom import Jobs
from greenroom.gateway import GatewayConfig, Limits
from tests.support import Bodies, open_engine, open_gateway

from .support import CLOSE, Raw, house
from .test_limits import opened
from .test_sse import Source


async def test_websockets_are_closed_with_going_away():
    async with house() as home, home.socket() as talk:
        await talk.receive()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(home.gateway._close)
            assert await talk.close_code() == 1001


async def test_leaving_the_block_closes_every_connection_and_frees_the_port(caplog):
    bodies = Bodies()
    async with open_engine(bodies.jobs, "memory:", shutdown_timeout=0) as engine:
        async with open_gateway(engine, GatewayConfig(port=0)) as gateway:
            port = gateway.port
            streams = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(5)]
            await streams[0].send_all(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await streams[0].receive_some()
            await streams[1].send_all(b"GET /heal")
        for stream in streams:
            try:
                while await stream.receive_some():
                    pass
            except trio.BrokenResourceError:
                pass
            await stream.aclose()
        with pytest.raises(OSError, match="connect"):
            await trio.open_tcp_stream("127.0.0.1", port)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_started_request_is_answered_before_the_shutdown(autojump_clock):
    bodies = Bodies()
    async with open_engine(bodies.jobs, "memory:", shutdown_timeout=0) as engine:
        async with trio.open_nursery() as nursery:
            ours, theirs = trio.testing.memory_stream_pair()
            async with open_gateway(engine, listeners=[]) as gateway:
                nursery.start_soon(gateway.serve_stream, theirs)
                await ours.send_all(
                    b"PUT /api/max_concurrent HTTP/1.1\r\nHost: localhost\r\n"
                    b"Content-Type: application/json\r\nContent-Length: 7\r\n\r\n"
                )
                await trio.testing.wait_all_tasks_blocked()

                async def rest() -> None:
                    await trio.sleep(1)
                    await ours.send_all(b'{"n":9}')

                nursery.start_soon(rest)
            data = b""
            while more := await ours.receive_some():
                data += more
            assert data.startswith(b"HTTP/1.1 200 ")
            assert b"Connection: close" in data
        assert (await engine.snapshot()).engine.max_concurrent == 9


async def test_a_connection_during_the_shutdown_is_closed(autojump_clock):
    async with open_engine(Jobs(), "memory:", shutdown_timeout=0) as engine:
        async with open_gateway(engine, listeners=[]) as gateway:
            ours, theirs = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(gateway.serve_stream, theirs)
            nursery.cancel_scope.cancel()
        with trio.fail_after(1):
            assert await ours.receive_some() == b""


async def test_server_sent_events_end_as_a_complete_response(autojump_clock):
    async with house(listen=False) as home:
        source = await Source.open(home)
        await source.block()
        await home.gateway._close()
        with pytest.raises(trio.EndOfChannel):
            await source.next()
        assert source.ended


async def test_the_wait_for_a_client_that_does_not_answer_is_limited(autojump_clock):
    async with house(listen=False) as home:
        raw = await opened(home, await home.stream())
        begun = trio.current_time()
        await home.gateway._close()
        assert trio.current_time() - begun == pytest.approx(5, abs=1.1)
        assert (await raw.frame())[0] == CLOSE


async def test_new_connections_are_refused_while_it_closes(autojump_clock):
    async with house(listen=False) as home:
        await home.gateway._close()
        raw = Raw(await home.stream())
        await raw.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await raw.answer()).status == 503


async def test_a_failure_of_the_engine_propagates_from_a_gateway_with_clients(autojump_clock):
    class Fatal(BaseException):
        pass

    bodies = Bodies()

    @bodies.jobs.job("fail")
    async def fail(run: Any, params: Any) -> None:
        raise Fatal

    with pytest.raises(Fatal):
        await live_with(bodies)


async def live_with(bodies: Bodies) -> None:
    async with house(bodies, listen=False) as home:
        talk = await home.memory_socket()
        await talk.call("subscribe")
        await talk.post("submit", job="fail", handle="h", params={})
        await trio.sleep_forever()


async def test_an_exception_of_the_block_propagates_unwrapped():
    async with open_engine(Jobs(), "memory:") as engine:
        with pytest.raises(ZeroDivisionError):
            async with open_gateway(engine, GatewayConfig(port=0)):
                raise ZeroDivisionError


async def test_a_port_that_is_taken_is_an_error_of_the_system():
    async with house() as home:
        with pytest.raises(OSError, match="use"):
            async with open_gateway(home.engine, GatewayConfig(port=home.gateway.port)):
                pytest.fail("it must not open")


async def test_cancelling_the_block_closes_it_without_hanging():
    async with open_engine(Jobs(), "memory:") as engine:
        with trio.move_on_after(0.05) as scope:
            async with open_gateway(
                engine, GatewayConfig(port=0, limits=Limits(close_timeout=0.1))
            ) as gateway:
                stream = await trio.open_tcp_stream("127.0.0.1", gateway.port)
                await stream.send_all(b"GET / HTTP/1.1\r\n")
                await trio.sleep_forever()
        assert scope.cancelled_caught
        await stream.aclose()
