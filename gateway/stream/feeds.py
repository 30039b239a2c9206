"""Feeds: events encoded once for all subscribers with the same filter and form.

A feed is one form (WebSocket frames of a codec, or server-sent events) of the events of one filter. It has
no queue per subscriber, only the stream's ring: each subscriber keeps its position and requests what comes
next, and subscribers at the same position receive the same bytes. So under load many events share a frame
and many subscribers share its bytes, and without load a single event is sent immediately.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Protocol

import msgspec
import trio

from ...actors.channel import Channel
from ...actors.journal.stream import Published, Stream
from ...protocol.codec import JSON, Codec
from ...protocol.events import Event, Filter, ScheduleFired
from ..websocket.frames import message_frame
from .filters import ViewerFilter
from .receivers import of_event

_MOST_BYTES = 1 << 16
_REMEMBERED = 8
_REMEMBERED_BYTES = 1 << 25
"""For all feeds together."""
_QUIET = 1024
_AT_ONCE = 200


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """The next bytes of a feed (empty if no event passed the filter), the last seq that was read for them,
    and the last `to` that they announce to the client."""

    data: bytes
    read: int
    announced: int


class Form(Protocol):
    """The format of what subscribers receive."""

    @property
    def codec(self) -> Codec:
        """The codec of events and snapshots."""

    def batch(self, announced: int, to: int, events: Sequence[Published]) -> bytes:
        """A batch; `announced` is the `to` of the previous batch."""

    def resync(self, seq: int, payload: bytes) -> bytes:
        """A message `resync`, or a part of one; `payload` is encoded already."""


class _Events(msgspec.Struct, frozen=True, tag_field="type", tag="events", rename={"from_": "from"}):
    """`protocol.commands.Events` with encoded events."""

    from_: int
    to: int
    events: list[msgspec.Raw]


class Frames:
    """One WebSocket frame per batch, in one codec."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec

    def batch(self, announced: int, to: int, events: Sequence[Published]) -> bytes:
        codec = self.codec
        raw = [msgspec.Raw(event.encoded(codec)) for event in events]
        return message_frame(codec.encode(_Events(announced, to, raw)), binary=codec.binary)

    def resync(self, seq: int, payload: bytes) -> bytes:
        return message_frame(payload, binary=self.codec.binary)


class ServerSent:
    """Each event in the format `text/event-stream`."""

    codec = JSON

    def __init__(self, epoch: str) -> None:
        self._epoch = epoch.encode()

    def batch(self, announced: int, to: int, events: Sequence[Published]) -> bytes:
        if not events:
            return b"id: %b:%d\n\n" % (self._epoch, to)  # no event: an id from which the client can resume
        return b"".join(self._event(event) for event in events)

    def resync(self, seq: int, payload: bytes) -> bytes:
        return b"id: %b:%d\nevent: resync\ndata: %b\n\n" % (self._epoch, seq, payload)

    def _event(self, event: Published) -> bytes:
        kind = event.event.type.encode()
        data = event.encoded(JSON)
        return b"id: %b:%d\nevent: %b\ndata: %b\n\n" % (self._epoch, event.event.seq, kind, data)


class Follower(Protocol):
    """A subscriber of a feed."""

    def notify(self) -> None:
        """The feed may have new bytes. Must not wait, and must not raise."""


class _Memory:
    """The cached chunks of all feeds, for followers that need them later; the oldest are dropped first."""

    def __init__(self, most_bytes: int) -> None:
        self.size = 0
        self._most_bytes = most_bytes
        self._chunks: OrderedDict[tuple[Feed, int, int], int] = OrderedDict()

    def keep(self, feed: Feed, announced: int, read: int, size: int) -> None:
        """Add a chunk of a feed, and drop the oldest chunks above the limit."""
        self._chunks[feed, announced, read] = size
        self.size += size
        while self.size > self._most_bytes and len(self._chunks) > 1:
            (oldest, *place), _ = next(iter(self._chunks.items()))
            oldest.drop(*place)

    def drop(self, feed: Feed, announced: int, read: int) -> None:
        """Remove a chunk that its feed has dropped."""
        self.size -= self._chunks.pop((feed, announced, read))


class Feed:
    """The events of one filter in one form."""

    def __init__(
        self, stream: Stream, form: Form, filter: Filter | None, most_events: int, memory: _Memory
    ) -> None:
        self.key = (form, filter, most_events)
        self.followers: dict[Follower, None] = {}
        self._stream = stream
        self._form = form
        self._passes = None if filter is None else predicate(filter)
        self._hides = isinstance(filter, ViewerFilter)
        self._most = most_events
        self._memory = memory
        self._chunks: dict[tuple[int, int], Chunk] = {}

    def after(self, announced: int, read: int) -> Chunk | None:
        """The chunk after the event `read`, or `None` if that was the last event. Raises `FellBehind`."""
        chunk = self._chunks.get((announced, read))
        if chunk is None:
            if read == self._stream.last_seq:
                return None
            chunk = self._prepare(announced, read)
            if len(self._chunks) >= _REMEMBERED:
                self.drop(*next(iter(self._chunks)))
            self._chunks[announced, read] = chunk
            self._memory.keep(self, announced, read, len(chunk.data))
        return chunk

    def drop(self, announced: int, read: int) -> None:
        """Drop a cached chunk."""
        del self._chunks[announced, read]
        self._memory.drop(self, announced, read)

    def end(self) -> None:
        """Drop all cached chunks, because the feed has no follower."""
        for place in list(self._chunks):
            self.drop(*place)

    def rest(self, announced: int, read: int) -> bytes:
        """A batch without events, which announces that all events up to `read` have been sent."""
        return self._form.batch(announced, read, ())

    def _prepare(self, announced: int, read: int) -> Chunk:
        available = self._stream.between(read, max(256, self._most))
        form, passes, most = self._form, self._passes, self._most
        codec = form.codec
        data: list[bytes] = []
        batch: list[Published] = []
        size = total = 0
        for published in available:
            if passes is None or passes(published.event):
                if self._hides and (seen := of_event(published.event)) is not published.event:
                    published = Published(seen, published.start)
                piece = len(published.encoded(codec))
                if batch and (len(batch) >= most or size + piece > _MOST_BYTES):
                    data.append(form.batch(announced, read, batch))
                    announced, batch, total, size = read, [], total + size, 0
                    if total + piece > _MOST_BYTES:
                        break
                batch.append(published)
                size += piece
            read += 1
        if batch or read - announced >= _QUIET:
            data.append(form.batch(announced, read, batch))
            announced = read
        return Chunk(b"".join(data), read, announced)


class Feeds:
    """All feeds that have followers, and the task that notifies the followers."""

    def __init__(self, stream: Stream, most_events: Callable[[], int]) -> None:
        self._stream = stream
        self._most_events = most_events
        self._feeds: dict[tuple[Form, Filter | None, int], Feed] = {}
        self._memory = _Memory(_REMEMBERED_BYTES)
        self._woken = Channel()

    def join(self, form: Form, filter: Filter | None, follower: Follower) -> Feed:
        """The feed for a form and a filter; the follower is notified from now on."""
        most = self._most_events()
        feed = self._feeds.get((form, filter, most))
        if feed is None:
            feed = Feed(self._stream, form, filter, most, self._memory)
            self._feeds[feed.key] = feed
        feed.followers[follower] = None
        return feed

    def leave(self, feed: Feed, follower: Follower) -> None:
        """Stop notifying the follower; a feed without followers ends."""
        del feed.followers[follower]
        if not feed.followers:
            del self._feeds[feed.key]
            feed.end()

    async def run(self) -> None:
        """Notify followers of new events until cancelled."""
        self._stream.listen(self._woken.wake)
        try:
            while True:
                notified = 0
                for feed in list(self._feeds.values()):
                    for follower in list(feed.followers):
                        if follower in feed.followers:  # it may have left during the checkpoint
                            follower.notify()
                        notified += 1
                        if notified % _AT_ONCE == 0:
                            await trio.lowlevel.checkpoint()
                await self._woken.receive_all()
        finally:
            self._stream.unlisten(self._woken.wake)


def predicate(filter: Filter) -> Callable[[Event], bool]:
    """A fast version of `filter.passes`, which is called for every event and every filter."""
    fields = {
        "handle": filter.handles,
        "lane": filter.lanes,
        "run": filter.runs,
    }
    given = [(name, names) for name, names in fields.items() if names is not None]
    if type(filter) not in (Filter, ViewerFilter) or filter.types is not None or len(given) != 1:
        return filter.passes
    [(name, names)] = given
    get = attrgetter(name)

    def passes(event: Event) -> bool:
        try:
            return get(event) in names or type(event) is ScheduleFired  # which is not an event of its run
        except AttributeError:
            return True  # events without this field always pass

    return passes
