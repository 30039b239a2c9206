"""The writer of a WebSocket connection: the only task that sends on it.

The writer receives replies as messages, and reads events from its position in a feed; it puts both in one
order. All events up to a reply's `seq` are sent before the reply (read your writes), if only as an empty
batch. What gathers while a send waits is sent in one piece, so a busy connection needs few writes, and an
idle one has no delay.

The writer has no queue of events: a client that does not read costs only the memory of the current send, and
is disconnected if it reads less than 64 KiB in `stall_timeout`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import msgspec
import trio

from ...actors.channel import Channel, Reply
from ...actors.journal.stream import FellBehind
from ...protocol.codec import Codec
from ...protocol.commandbase import Id
from ...protocol.events import Filter
from ..shared import Shared
from ..stream.feeds import Feed, Frames
from .frames import close_frame, is_close, message_frame
from .outlet import Outlet
from .replies import replies

TRY_AGAIN_LATER = 1013
_ENOUGH = 1 << 16
_SMALL = 1 << 14


class QueuedReply(msgspec.Struct):
    """Send a reply of one or several messages, which are encoded one by one. `cost` is released when all are
    sent. Sent by the session; no answer."""

    seq: int
    payloads: Iterator[bytes]
    cost: int


class Begin(msgspec.Struct):
    """Start or replace the subscription, and reply to the command `id`. Sent by the session."""

    id: Id
    after: int | None
    epoch: str | None
    filter: Filter | None
    cost: int


class End(msgspec.Struct):
    """End the subscription, and reply to the command `id`. Sent by the session."""

    id: Id
    seq: int
    cost: int


class Bytes(msgspec.Struct):
    """Send bytes of trio-websocket. `sent` is set when they are sent."""

    data: bytes
    sent: Reply[None]


class _Subscription:
    """A position in a feed: `read` is the last seq that was read, `announced` the last `to` sent."""

    __slots__ = ("announced", "feed", "filter", "read")

    def __init__(self, feed: Feed, filter: Filter | None, after: int) -> None:
        self.feed = feed
        self.filter = filter
        self.announced = after
        self.read = after


class Writer:
    """The writer of one connection. `release` is called with the cost of replies that are sent."""

    def __init__(
        self,
        shared: Shared,
        transport: trio.abc.Stream,
        codec: Codec,
        form: Frames,
        release: Callable[[int], None],
    ) -> None:
        self.channel = Channel()
        self._shared = shared
        self._stream = shared.engine.stream
        self._outlet = Outlet(transport)
        self._codec = codec
        self._form = form
        self._release = release
        self._subscription: _Subscription | None = None
        self._out: list[bytes] = []
        self._size = 0
        self._cost = 0
        self._sent: list[Reply[None]] = []
        self._resting = False
        self.closing = False  # whether the closing frame has been sent; nothing must follow it

    @property
    def behind(self) -> int | None:
        """The number of events not yet sent to the client; `None` without a subscription."""
        subscription = self._subscription
        return None if subscription is None else self._stream.last_seq - subscription.read

    @property
    def taken_at(self) -> float:
        """The last time at which the client was known to read."""
        return self._outlet.taken_at

    def send(self, data: bytes, sent: Reply[None]) -> None:
        """Queue bytes of trio-websocket; `sent` is set when they are sent."""
        self.channel.send_nowait(Bytes(data, sent))

    def notify(self) -> None:
        """Send new events. If no other send is active, as much as fits into the socket's buffer is sent
        immediately, without a turn of the scheduler."""
        subscription = self._subscription
        if self._resting and subscription is not None and self._outlet.immediate and not self.closing:
            try:
                chunk = subscription.feed.after(subscription.announced, subscription.read)
                if chunk is None:
                    return
                sent = self._outlet.send_now(chunk.data)
            except (trio.BrokenResourceError, FellBehind):
                self.channel.wake()  # `run` meets the same error, and handles it
                return
            subscription.read = chunk.read
            subscription.announced = chunk.announced
            if sent == len(chunk.data):
                if chunk.read == self._stream.last_seq:
                    return
            else:
                self._append(chunk.data[sent:])
            self._resting = False
        self.channel.wake()

    async def run(self) -> None:
        """Send until cancelled. Raises `Stalled`, and any error of the transport."""
        messages: Sequence[Any] = []
        try:
            while True:
                for message in messages:
                    await _HANDLERS[type(message)](self, message)
                if self._subscription is not None:
                    await self._follow(self._stream.last_seq)
                if self._out or self._sent:
                    await self._flush()
                    messages = self.channel.receive_all_nowait()
                else:
                    self._resting = True
                    messages = await self.channel.receive_all()
                    self._resting = False
        finally:
            self._leave()

    # Messages.

    async def _send_reply(self, message: QueuedReply) -> None:
        if self._subscription is not None:
            await self._follow(message.seq)
            self._announce_read(message.seq)
        await self._put(message.payloads, message.cost)

    async def _put(self, payloads: Iterator[bytes], cost: int) -> None:
        for payload in payloads:
            self._append(message_frame(payload, binary=self._codec.binary))
            if self._size >= _ENOUGH:
                await self._flush()
        self._cost += cost

    async def _begin(self, message: Begin) -> None:
        self._leave()
        resumes = message.after is not None and message.epoch in (None, self._shared.epoch)
        if message.after is not None and resumes and not await self._shared.reach(message.after):
            self._append(
                close_frame(TRY_AGAIN_LATER, "this node is behind: connect again, or to another node")
            )
            await self._flush()
            self.closing = True
            return
        after = self._stream.last_seq if message.after is None else message.after
        feed = self._shared.feeds.join(self._form, message.filter, self)
        subscription = self._subscription = _Subscription(feed, message.filter, after)
        try:
            if message.after is not None and not resumes:
                raise FellBehind("epoch of another store")
            self._stream.between(after, 0)
        except FellBehind:
            await self._resync(subscription)
        await self._put(replies(message.id, subscription.announced, {}, self._codec), message.cost)

    async def _end(self, message: End) -> None:
        await self._send_reply(
            QueuedReply(message.seq, replies(message.id, message.seq, {}, self._codec), message.cost)
        )
        self._leave()

    async def _forward(self, message: Bytes) -> None:
        if self.closing:
            message.sent.fail(trio.ClosedResourceError("the closing frame has been sent"))
            return
        self._append(message.data)
        self._sent.append(message.sent)
        if is_close(message.data):
            await self._flush()
            self.closing = True

    # Events.

    async def _follow(self, seq: int) -> None:
        """Queue what the feed has, at least up to `seq`, and flush large amounts. Beyond `seq`, stop when
        enough is queued."""
        subscription = self._subscription
        assert subscription is not None, "called only with a subscription"
        while True:
            try:
                chunk = subscription.feed.after(subscription.announced, subscription.read)
            except FellBehind:
                await self._resync(subscription)
                continue
            if chunk is None:
                return
            subscription.read = chunk.read
            subscription.announced = chunk.announced
            if chunk.data:
                self._append(chunk.data)
                if self._size >= _ENOUGH:
                    if chunk.read >= seq:
                        return
                    await self._flush()

    def _announce_read(self, seq: int) -> None:
        """Send an empty batch if the client does not know yet that it has all events up to `seq`."""
        subscription = self._subscription
        if subscription is not None and subscription.announced < seq:
            self._append(subscription.feed.rest(subscription.announced, subscription.read))
            subscription.announced = subscription.read

    async def _resync(self, subscription: _Subscription) -> None:
        self._shared.metrics.resyncs.inc()
        await self._flush()
        async with self._shared.snapshots.recent() as taken, taken.view(subscription.filter) as view:
            for message in view.messages(self._form):
                await self._send(message)
                await trio.lowlevel.checkpoint()  # the sends may not have waited
            subscription.announced = subscription.read = taken.snapshot.seq

    def _leave(self) -> None:
        if self._subscription is not None:
            self._shared.feeds.leave(self._subscription.feed, self)
            self._subscription = None

    # Sending.

    def _append(self, data: bytes) -> None:
        self._out.append(data)
        self._size += len(data)

    async def _flush(self) -> None:
        out, size = self._out, self._size
        self._out, self._size = [], 0
        cost, self._cost = self._cost, 0
        sent, self._sent = self._sent, []
        if not self.closing:
            if len(out) > 1 and size < _SMALL:
                out = [b"".join(out)]  # for small data one write is cheaper than several
            while out:
                await self._send(out.pop(0))
        if size >= _ENOUGH:
            await trio.lowlevel.checkpoint()  # the sends may not have waited
        if cost:
            self._release(cost)
        for reply in sent:
            reply.set(None)

    async def _send(self, data: bytes) -> None:
        await self._outlet.send_all(data, self._shared.limits.stall_timeout)


_HANDLERS: dict[type, Callable[[Writer, Any], Awaitable[None]]] = {
    QueuedReply: Writer._send_reply,
    Begin: Writer._begin,
    End: Writer._end,
    Bytes: Writer._forward,
}
