"""How long a node waits for a frame of another one."""

from __future__ import annotations

import trio

from greenroom.actors.executors.connection import connection_pair
from greenroom.gateway.cluster.silence import receive_within


class Slow:
    """A connection on which a frame takes a while; a part of it arrives each second, until `stops`."""

    def __init__(self, takes: float, stops: float) -> None:
        self._began = trio.current_time()
        self._complete = self._began + takes
        self._stops = stops

    @property
    def received_at(self) -> float:
        return self._began + min(trio.current_time() - self._began, self._stops) // 1

    async def receive(self) -> bytes:
        await trio.sleep_until(self._complete)
        return b"frame"

    async def send(self, frame: bytes) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError


async def test_a_frame_can_take_longer_than_the_silence_while_parts_of_it_arrive(autojump_clock):
    began = trio.current_time()
    assert await receive_within(5, Slow(takes=60, stops=60)) == b"frame"
    assert trio.current_time() - began == 60


async def test_a_connection_is_silent_from_the_last_part_on(autojump_clock):
    began = trio.current_time()
    assert await receive_within(5, Slow(takes=60, stops=7)) is None
    assert trio.current_time() - began == 12


async def test_a_connection_without_parts_is_silent_without_a_frame(autojump_clock):
    began = trio.current_time()
    ours, theirs = connection_pair()
    await theirs.send(b"frame")
    assert await receive_within(5, ours) == b"frame"
    assert await receive_within(5, ours) is None
    assert trio.current_time() - began == 5
