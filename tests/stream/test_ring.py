"""The ring is limited in events and in bytes; a reader whose position has left it receives an error."""

from __future__ import annotations

import pytest

from greenroom.actors.journal.stream import FellBehind, Stream
from greenroom.gateway.stream import feeds as feeds_module
from greenroom.gateway.stream.feeds import Feeds, Frames
from greenroom.protocol.codec import JSON
from greenroom.protocol.events import Filter, HandleChanged

from ..support import Bodies, open_engine


def event(seq: int, size: int = 0) -> HandleChanged:
    return HandleChanged(seq=seq, at=0.0, by="test", handle="h", params="x" * size)


def filled(*sizes: int, size: int = 100, most_bytes: int = 10_000) -> Stream:
    stream = Stream(size, most_bytes=most_bytes)
    stream.begin(0)
    for seq, length in enumerate(sizes, 1):
        stream.publish([event(seq, length)])
    return stream


def held(stream: Stream) -> list[int]:
    """The seqs in the ring."""
    for after in range(stream.last_seq + 1):
        try:
            return [published.event.seq for published in stream.between(after, 10_000)]
        except FellBehind:
            continue
    return []


def test_small_events_are_bounded_by_their_number():
    assert held(filled(*[0] * 250)) == list(range(151, 251))


def test_large_events_are_bounded_by_their_bytes():
    stream = filled(*[1000] * 50)
    assert held(stream) == list(range(42, 51))
    assert sum(one is not None for one in stream._ring) == 9


def test_an_event_larger_than_the_ring_is_kept_alone_until_the_next():
    stream = filled(10, 10, 50_000)
    assert held(stream) == [3]
    stream.publish([event(4)])
    assert held(stream) == [4]


def test_a_batch_that_is_larger_than_the_ring_leaves_its_end():
    stream = Stream(100, most_bytes=10_000)
    stream.begin(5)
    stream.publish([event(seq, 1000) for seq in range(6, 500)])
    assert held(stream) == list(range(491, 500))


def test_a_position_is_safe_while_less_than_half_of_the_ring_follows_it():
    stream = filled(*[1000] * 20)
    assert [seq for seq in range(25) if stream.holds_well(seq)] == [16, 17, 18, 19, 20]
    stream = filled(*[0] * 250)
    assert [seq for seq in range(260) if stream.holds_well(seq)] == list(range(200, 251))


async def test_a_slow_reader_of_large_events_gets_a_snapshot(autojump_clock, monkeypatch):
    monkeypatch.setitem(Stream.__init__.__kwdefaults__, "most_bytes", 5000)
    async with open_engine(Bodies().jobs) as engine:
        events = engine.events(after=0)
        for number in range(20):
            await engine.set_params("h", {"number": number, "filled": "x" * 1000})
        snapshot = await anext(events)
        assert snapshot.handles["h"].params["number"] == 19
        await engine.set_params("h", None)
        assert (await anext(events)).params is None


@pytest.mark.parametrize("after", [0, 1, 2])
def test_events_in_the_ring_are_available_from_any_position(after):
    assert [one.event.seq for one in filled(0, 0, 0).between(after, 2)] == [1, 2, 3][after : after + 2]


# What the gateway keeps beside it.


def test_what_feeds_remember_is_bounded_for_all_of_them(monkeypatch):
    monkeypatch.setattr(feeds_module, "_REMEMBERED_BYTES", 20_000)
    stream = filled(most_bytes=10_000_000)
    feeds = Feeds(stream, lambda: 1)
    form = Frames(JSON)
    followers = [Follower() for _ in range(30)]
    joined = [
        feeds.join(form, Filter(handles=frozenset({"h", str(number)})), follower)
        for number, follower in enumerate(followers)
    ]
    for seq in range(1, 20):
        stream.publish([event(seq, 1000)])
        for feed in joined:
            chunk = feed.after(seq - 1, seq - 1)
            assert chunk is not None
            assert chunk.data == feed.after(seq - 1, seq - 1).data
    remembered = sum(len(chunk.data) for feed in joined for chunk in feed._chunks.values())
    assert remembered == feeds._memory.size <= 20_000
    for feed, follower in zip(joined, followers, strict=True):
        feeds.leave(feed, follower)
    assert feeds._memory.size == 0


class Follower:
    def news(self) -> None:
        pass
