"""Clients without a token are limited: frames, chunks, bytes and processor time are counted until a valid
token is received."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from greenroom.gateway import GatewayConfig, Limits, Role, add_token
from greenroom.gateway.auth import strangers
from greenroom.gateway.websocket.frames import FrameCounter

from .support import CLOSE, PING, TEXT, House, Raw, client_frame, house, parse_frame

CONTINUATION = 0
FRAGMENT = client_frame(b"x", CONTINUATION, fin=False)
CHUNK = b"1\r\nx\r\n"
LIMITS = Limits(stranger_frames=20, stranger_bytes=4_000, stranger_time=10.0, strangers_per_address=5)
CHUNKED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED += b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def token(tmp_path: Path) -> str:
    return add_token(tmp_path / "tokens", "someone", Role.ADMIN)


@pytest.fixture
def closed_house(tmp_path: Path, token: str) -> Callable[..., object]:
    """A gateway in memory that requires tokens."""

    @asynccontextmanager
    async def opened(limits: Limits = LIMITS) -> AsyncIterator[House]:
        async with house(limits=limits, listen=False, token_file=str(tmp_path / "tokens")) as home:
            yield home

    return opened


async def came(home: House, address: str | None = None) -> Raw:
    """A connection in memory, from an address."""
    ours, theirs = trio.testing.memory_stream_pair()

    async def serve() -> None:
        await home.gateway.serve_stream(theirs, address=address)

    home.nursery.start_soon(serve)
    return Raw(ours)


async def received(raw: Raw) -> bytes:
    """What the server has sent so far."""
    with trio.move_on_after(0.001):
        while data := await raw.stream.receive_some():
            raw.buffer += data
    return raw.buffer


async def taken(raw: Raw, piece: bytes, most: int = 100) -> int:
    """The number of times that a piece can be sent before the server refuses the client."""
    for number in range(most):
        await raw.send(piece)
        await trio.testing.wait_all_tasks_blocked()
        if await received(raw):
            return number + 1
    return most


async def statuses(raw: Raw, path: str, most: int = 100) -> list[int]:
    """The statuses of requests, until one is refused by the limit."""
    said: list[int] = []
    while len(said) < most and 429 not in said:
        said.append((await raw.http("GET", path)).status)
    return said


# WebSockets.


async def test_four_strangers_with_fragments_of_one_byte_are_cut_off_after_a_counted_number(
    closed_house, autojump_clock
):
    async with closed_house() as home:
        for _ in range(4):
            raw = await came(home)
            await raw.upgrade()
            await raw.send(client_frame(b"{", TEXT, fin=False))
            # The connection, its request and the first fragment have been counted before.
            assert await taken(raw, FRAGMENT) == 20 - 3 + 1
            opcode, payload = await raw.frame()
            said = json.loads(payload)
            assert (opcode, said["type"], said["code"]) == (TEXT, "error", "rate_limited")
            assert "send a token first" in said["message"]
            assert said["details"]["limit"] == "stranger_frames"
            opcode, payload = await raw.frame()
            assert (opcode, payload[:2]) == (CLOSE, (4429).to_bytes(2, "big"))
            with trio.fail_after(5):
                await raw.until_closed()
        await trio.sleep(10)
        assert home.gateway.connections == 0


async def test_a_flood_is_not_read_beyond_the_limit(closed_house, autojump_clock, monkeypatch):
    begun = []
    take = FrameCounter.take

    def counting(self, *args, **kwargs):
        end = take(self, *args, **kwargs)
        begun.append(self.begun)
        return end

    monkeypatch.setattr(FrameCounter, "take", counting)
    async with closed_house() as home:
        raw = await came(home)
        await raw.upgrade()
        await raw.send(client_frame(b"{", TEXT, fin=False) + FRAGMENT * 50_000)
        assert (await raw.message())["code"] == "rate_limited"
        assert sum(begun) <= 64


async def test_pings_and_empty_fragments_count_too(closed_house, autojump_clock):
    async with closed_house() as home:
        for piece in (client_frame(b"", CONTINUATION, fin=False), client_frame(b"", PING)):
            raw = await came(home)
            await raw.upgrade()
            await raw.send(client_frame(b"{", TEXT, fin=False))
            said = 0
            for _ in range(30):
                await raw.send(piece)
                await trio.testing.wait_all_tasks_blocked()
            while (frame := parse_frame(await received(raw))) is not None:
                opcode, payload, raw.buffer = frame
                said += opcode == TEXT
            assert (opcode, payload[:2], said) == (CLOSE, (4429).to_bytes(2, "big"), 1)


async def test_bytes_count_in_any_number_of_frames(closed_house, autojump_clock):
    async with closed_house() as home:
        raw = await came(home)
        await raw.upgrade()
        await raw.send(client_frame(b"x" * 5_000))
        assert (await raw.message())["details"]["limit"] == "stranger_bytes"


async def test_frames_after_the_token_do_not_count(closed_house, autojump_clock, token):
    async with closed_house() as home:
        raw = await came(home)
        await raw.upgrade()
        auth = client_frame(json.dumps({"type": "auth", "token": token}).encode())
        commands = [client_frame(b'{"type":"set_max_concurrent","id":%d,"n":7}' % n) for n in range(500)]
        await raw.send(auth + b"".join(commands))
        assert (await raw.message())["type"] == "welcome"
        assert sorted([(await raw.message())["id"] for _ in commands]) == list(range(500))


async def test_an_authenticated_client_can_send_many_fragments_up_to_a_limit(
    closed_house, autojump_clock, token
):
    async with closed_house() as home:
        raw = await came(home)
        await raw.upgrade(Authorization=f"Bearer {token}")
        text = b'{"type":"set_max_concurrent","id":1,"n":8}'
        await raw.send(client_frame(text[:1], TEXT, fin=False))
        for index in range(1, len(text)):
            await raw.send(client_frame(text[index : index + 1], CONTINUATION, fin=index == len(text) - 1))
        assert [(await raw.message())["type"] for _ in range(2)] == ["welcome", "ok"]
        await raw.send(
            client_frame(b"", TEXT, fin=False) + client_frame(b"", CONTINUATION, fin=False) * 70_000
        )
        assert (await raw.message())["code"] == "too_large"
        opcode, payload = await raw.frame()
        assert (opcode, payload[:2]) == (CLOSE, (1009).to_bytes(2, "big"))


async def test_other_clients_are_served_while_one_floods(autojump_clock):
    async with house(listen=False) as home:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        raw = await came(home)
        await raw.upgrade()
        assert (await raw.message())["type"] == "welcome"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await raw.send(client_frame(b"{", TEXT, fin=False) + FRAGMENT * 9_000)
            await raw.send(client_frame(b"", PING))
            with trio.fail_after(10):
                await raw.frame()  # it has read all that was before
            nursery.cancel_scope.cancel()
        assert turns > 9_000 / 64


async def test_frames_above_the_rate_stay_unread(autojump_clock):
    async with house(listen=False, limits=Limits(frame_rate=100)) as home:
        raw = await came(home)
        await raw.upgrade()
        await raw.send(client_frame(b"{", TEXT, fin=False) + FRAGMENT * 499 + client_frame(b"", PING))
        begun = trio.current_time()
        await raw.message()
        await raw.frame()
        assert trio.current_time() - begun == pytest.approx(4, abs=0.1)


# HTTP.


async def test_four_strangers_with_chunks_of_one_byte_are_cut_off_after_a_counted_number(
    closed_house, autojump_clock
):
    async with closed_house() as home:
        for _ in range(4):
            raw = await came(home)
            await raw.send(CHUNKED)
            assert await taken(raw, CHUNK) == 20 - 2 + 1
            answer = await raw.answer()
            assert (answer.status, answer.json["code"]) == (429, "rate_limited")
            assert answer.headers["connection"] == "close"
            assert "send a token first" in answer.json["message"]
            with trio.fail_after(5):
                await raw.until_closed()


async def test_chunks_in_one_packet_are_counted_separately(closed_house, autojump_clock):
    async with closed_house() as home:
        raw = await came(home)
        await raw.send(CHUNKED + CHUNK * 17)
        await raw.send(b"0\r\n\r\n")
        assert (await raw.answer()).status == 200
        raw = await came(home)
        await raw.send(CHUNKED + CHUNK * 40)
        assert (await raw.answer()).status == 429


async def test_a_head_that_arrives_byte_by_byte_is_cut_off(closed_house, autojump_clock):
    async with closed_house() as home:
        raw = await came(home)
        assert await taken(raw, b"x") == 20
        assert (await raw.answer()).status == 429


async def test_requests_without_a_token_are_counted_and_forgotten_with_time(closed_house, autojump_clock):
    async with closed_house() as home:
        raw = await came(home)
        assert await statuses(raw, "/healthz") == [200] * 19 + [429]
        raw = await came(home)
        for _ in range(100):  # health checks of a load balancer
            assert (await raw.http("GET", "/healthz")).status == 200
            await trio.sleep(0.5)


async def test_requests_with_a_token_do_not_count(closed_house, autojump_clock, token):
    async with closed_house() as home:
        raw = await came(home, "192.0.2.1")
        for _ in range(200):
            answer = await raw.http("PUT", "/api/max_concurrent", {"n": 3}, authorization=f"Bearer {token}")
            assert answer.status == 200
        assert await statuses(raw, "/api/state") == [401] * 19 + [429]


async def test_processor_time_counts(closed_house, autojump_clock, monkeypatch):
    clock = [0.0]

    def thread_time() -> float:
        clock[0] += 0.01
        return clock[0]

    monkeypatch.setattr("greenroom.gateway.http.head.thread_time", thread_time)
    async with closed_house(Limits(stranger_frames=1_000, stranger_time=0.5)) as home:
        raw = await came(home)
        said = await statuses(raw, "/healthz")
        assert 200 in said
        assert said[-1] == 429
        assert (await (await came(home)).http("GET", "/healthz")).status == 200


# Addresses.


async def test_the_connections_of_an_address_share_a_limit(closed_house, autojump_clock):
    async with closed_house() as home:
        for _ in range(6):
            await statuses(await came(home, "192.0.2.1"), "/api/state", 17)
        raw = await came(home, "192.0.2.1")
        answer = await raw.http("GET", "/api/state")
        assert (answer.status, answer.headers["connection"]) == (429, "close")
        assert "of this address together" in answer.json["message"]
        await raw.until_closed()
        raw = await came(home, "192.0.2.1")
        assert (
            await raw.http("GET", "/healthz")
        ).status == 200  # so that health checks never fail because of other clients
        raw = await came(home, "192.0.2.1")
        await raw.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
        await raw.send(b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
        assert (await raw.answer()).status == 429
        raw = await came(home, "192.0.2.2")
        assert (await raw.http("GET", "/api/state")).status == 401
        await trio.sleep(10)
        raw = await came(home, "192.0.2.1")
        assert (await raw.http("GET", "/api/state")).status == 401


async def test_a_token_is_valid_also_from_an_address_over_its_limit(closed_house, autojump_clock, token):
    async with closed_house(Limits(stranger_frames=10, strangers_per_address=1)) as home:
        said = [await statuses(await came(home, "192.0.2.1"), "/api/state", 1) for _ in range(10)]
        assert said[-1] == [429]
        raw = await came(home, "192.0.2.1")
        answer = await raw.http("GET", "/api/state", authorization=f"Bearer {token}")
        assert answer.status == 200
        raw = await came(home, "192.0.2.1")
        await raw.upgrade(Authorization=f"Bearer {token}")
        assert (await raw.message())["type"] == "welcome"


async def test_ipv6_addresses_with_the_same_first_64_bits_share_a_limit(closed_house, autojump_clock):
    async with closed_house(Limits(stranger_frames=10, strangers_per_address=1)) as home:
        for number in range(10):
            raw = await came(home, f"2001:db8::{number}")
            answer = await raw.http("GET", "/api/state")
        assert answer.status == 429
        raw = await came(home, "2001:db8:0:1::1")
        assert (await raw.http("GET", "/api/state")).status == 401


async def test_accounts_of_addresses_are_bounded(closed_house, autojump_clock, monkeypatch):
    monkeypatch.setattr(strangers, "_MOST_ADDRESSES", 3)
    async with closed_house() as home:
        kept = home.gateway._shared.strangers
        for number in range(9):
            await (await came(home, f"192.0.2.{number}")).http("GET", "/api/state")
        assert list(kept._accounts) == ["192.0.2.6", "192.0.2.7", "192.0.2.8"]


async def test_without_tokens_nothing_is_counted(autojump_clock, tmp_path, token):
    async with house(limits=LIMITS, listen=False) as home:
        raw = await came(home, "192.0.2.1")
        for _ in range(100):
            assert (await raw.http("GET", "/healthz")).status == 200
        home.gateway.reconfigure(GatewayConfig(limits=LIMITS, token_file=str(tmp_path / "tokens")))
        assert await statuses(raw, "/healthz") == [200] * 20 + [429]


# Counting frames.


def test_frames_are_counted_in_pieces_of_any_size():
    frames = [
        client_frame(b"", TEXT, fin=False),
        client_frame(b"x", CONTINUATION, fin=False),
        client_frame(b"?", PING),
        client_frame(b"y" * 200, CONTINUATION),
        client_frame(b"z" * 70_000, TEXT, masked=False),
    ]
    data = b"".join(frames)
    for size in (1, 2, 3, 7, 1_000, len(data)):
        counter, begun, ended = FrameCounter(), 0, 0
        for start in range(0, len(data), size):
            piece, at = data[start : start + size], 0
            while at < len(piece):
                at = counter.take(piece, at, 2)
                begun += counter.begun
                ended += counter.ended
        assert (begun, ended, counter.fragments) == (5, 2, 0)


def test_a_part_ends_after_a_number_of_frames_or_with_the_message():
    one = client_frame(b"x", CONTINUATION, fin=False)
    counter = FrameCounter()
    data = client_frame(b"x", TEXT, fin=False) + one * 9 + client_frame(b"x", CONTINUATION) + one
    at = counter.take(data, 0, 4, one_message=True)
    assert (at, counter.begun, counter.ended, counter.fragments) == (4 * len(one), 4, False, 4)
    at = counter.take(data, at, 64, one_message=True)
    assert (at, counter.begun, counter.ended, counter.fragments) == (11 * len(one), 7, True, 0)
