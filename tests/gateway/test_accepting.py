"""Accepting while no more files can be opened, which is logged at most once a second, and with many clients
that disconnect immediately."""

from __future__ import annotations

import errno
import logging
import os
import socket
import struct
from typing import Any

import pytest
import trio
import trio.testing

from greenroom.gateway import Gateway
from greenroom.gateway.accepting import accept_all

from .support import PATIENCE, House, house


class Exhausted(trio.abc.Listener[Any]):
    """A listener whose first attempts fail."""

    def __init__(self, failures: int, code: int = errno.EMFILE) -> None:
        self.left = failures
        self.code = code
        self.closed = False

    async def accept(self) -> Any:
        await trio.lowlevel.checkpoint()
        if self.left > 0:
            self.left -= 1
            raise OSError(self.code, os.strerror(self.code))
        if self.left < 0:
            await trio.sleep_forever()
        self.left = -1
        ours, theirs = trio.testing.memory_stream_pair()
        await ours.send_all(b"served")
        return theirs

    async def aclose(self) -> None:
        self.closed = True
        await trio.lowlevel.checkpoint()


async def accepted_after(failures: int, listeners: list[Exhausted]) -> bytes:
    """The data of the first connection."""
    said: list[bytes] = []
    done = trio.Event()

    async def serve(stream: Any) -> None:
        said.append(bytes(await stream.receive_some()))
        done.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(accept_all, listeners, serve, nursery)
        await done.wait()
        nursery.cancel_scope.cancel()
    assert all(listener.closed for listener in listeners)
    return said[0]


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EIO])
async def test_failed_accepts_are_logged_once_a_second_without_a_traceback(autojump_clock, caplog, code):
    assert await accepted_after(50, [Exhausted(50, code)]) == b"served"
    assert 4.9 <= trio.current_time() <= 5.2
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert 4 <= len(lines) <= 6
    assert not any(record.exc_info for record in lines)
    assert {record.name for record in lines} == {"greenroom.gateway"}
    assert errno.errorcode[code] in lines[0].getMessage()
    assert "failed attempts since the last such line" in lines[1].getMessage()


async def test_several_listeners_share_the_line(autojump_clock, caplog):
    assert await accepted_after(10, [Exhausted(10), Exhausted(10)]) == b"served"
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) <= 2


async def test_a_process_without_free_files_logs_which_limit_to_raise(autojump_clock, caplog):
    await accepted_after(1, [Exhausted(1)])
    assert "ulimit -n" in caplog.text


def reset(home: House, said: bytes = b"") -> None:
    """A client that connects, sends data, and resets the connection before the server accepts it."""
    with socket.create_connection(("127.0.0.1", home.gateway.port)) as client:
        client.send(said)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def test_clients_that_disconnect_before_they_are_accepted_use_no_connection(monkeypatch, caplog):
    served = 0
    serve = Gateway.serve_stream

    async def counting(*args: Any, **kwargs: Any) -> None:
        nonlocal served
        served += 1
        await serve(*args, **kwargs)

    monkeypatch.setattr(Gateway, "serve_stream", counting)
    async with house() as home:
        for said in (
            b"",
            b"G",
            b"\x16\x03\x01",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n",
        ):
            for _ in range(25):
                reset(home, said)
        assert (await home.http("GET", "/healthz")).status == 200
    assert served == 1
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_client_that_resets_its_connection_within_a_body_is_no_fault_of_the_gateway(caplog):
    async with house() as home:
        raw = await home.raw()
        await raw.send(
            b"PUT /api/max_concurrent HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
        )
        assert (await raw.stream.receive_some()).startswith(b"HTTP/1.1 100")
        raw.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await raw.stream.aclose()
        with trio.fail_after(PATIENCE):
            while home.gateway.connections:
                await trio.lowlevel.checkpoint()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
