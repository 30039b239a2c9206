"""Connections deliver frames whole and in order, and report their end."""

import pytest
import trio
from trio.testing import memory_stream_pair

from greenroom.actors.executors.connection import StreamConnection, connection_pair


def streams():
    ours, theirs = memory_stream_pair()
    return StreamConnection(ours, 1000), StreamConnection(theirs, 1000)


@pytest.fixture(params=[connection_pair, streams])
def pair(request):
    return request.param()


async def test_frames_arrive_whole_and_in_order(pair):
    ours, theirs = pair
    for number in range(5):
        await ours.send(b'{"n":%d}' % number)
    assert [await theirs.receive() for _ in range(5)] == [b'{"n":%d}' % number for number in range(5)]


async def test_the_end_of_a_connection_is_reported_after_its_last_frame(pair):
    ours, theirs = pair
    await ours.send(b"{}")
    await ours.aclose()
    assert await theirs.receive() == b"{}"
    with pytest.raises(trio.EndOfChannel):
        await theirs.receive()


async def test_a_closed_connection_sends_nothing(pair):
    ours, theirs = pair
    await theirs.aclose()
    with pytest.raises(trio.BrokenResourceError):
        await ours.send(b"{}")
    with pytest.raises(trio.ClosedResourceError):
        await theirs.send(b"{}")


async def test_a_frame_that_arrives_in_pieces_is_put_together():
    ours, theirs = memory_stream_pair()
    connection = StreamConnection(theirs)
    for piece in (b'{"a":', b"1}", b"\n{", b"}\n"):
        await ours.send_all(piece)
    assert await connection.receive() == b'{"a":1}'
    assert await connection.receive() == b"{}"


async def test_a_frame_over_the_limit_breaks_the_connection():
    ours, theirs = memory_stream_pair()
    await ours.send_all(b"x" * 2000)
    with pytest.raises(trio.BrokenResourceError, match="at most 1,000 bytes"):
        await StreamConnection(theirs, 1000).receive()
