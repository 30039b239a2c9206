"""The writer of a WebSocket connection: the one actor that sends on it.

Replies come to it as messages, events by its place in a feed; it puts both in one order. Everything up to a
reply's `seq` goes out before the reply (read your writes), if only as an empty batch. What has gathered by
the time it may send again goes out in one piece, so a busy connection needs few writes and an idle one no
delay.

It holds no queue of events: a client that takes nothing costs what was being sent to it at that moment, and
is dropped when it takes too little in `stall_timeout`.
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
from .frames import is_close, message_frame
from .outlet import Outlet
from .replies import replies

_ENOUGH = 1 << 16
_SMALL = 1 << 14


class Said(msgspec.Struct):
    """A reply of one message or several, made one by one as the client takes them. `cost` is given back
    once it is sent."""

    seq: int
    payloads: Iterator[bytes]
    cost: int


class Begin(msgspec.Struct):
    """Follow the events, in place of what was followed before."""

    id: Id
    after: int | None
    epoch: str | None
    filter: Filter | None
    cost: int


class End(msgspec.Struct):
    """Follow them no longer."""

    id: Id
    seq: int
    cost: int


class Bytes(msgspec.Struct):
    """What trio-websocket sends."""

    data: bytes
    sent: Reply[None]


class _Subscription:
    """Which feed, and how far: `read` of its events, of which the client has been `told`."""

    __slots__ = ("feed", "filter", "read", "told")

    def __init__(self, feed: Feed, filter: Filter | None, after: int) -> None:
        self.feed = feed
        self.filter = filter
        self.told = after
        self.read = after


class Writer:
    """See the module's text. `paid` hears what has arrived of what replies cost."""

    def __init__(
        self,
        shared: Shared,
        transport: trio.abc.Stream,
        codec: Codec,
        form: Frames,
        paid: Callable[[int], None],
    ) -> None:
        self.channel = Channel()
        self._shared = shared
        self._stream = shared.engine.stream
        self._outlet = Outlet(transport)
        self._codec = codec
        self._form = form
        self._paid = paid
        self._subscription: _Subscription | None = None
        self._out: list[bytes] = []
        self._size = 0
        self._cost = 0
        self._sent: list[Reply[None]] = []
        self._resting = False
        self.closing = False  # whether the closing frame has been sent, after which nothing may follow

    @property
    def behind(self) -> int | None:
        """How many events have happened that the client has not been sent; `None` if it follows none."""
        subscription = self._subscription
        return None if subscription is None else self._stream.last_seq - subscription.read

    @property
    def taken_at(self) -> float:
        """When the client has last shown that it takes what is sent to it."""
        return self._outlet.taken_at

    def send(self, data: bytes, sent: Reply[None]) -> None:
        """Send bytes of trio-websocket's in their turn, and reply when they are sent."""
        self.channel.send_nowait(Bytes(data, sent))

    def news(self) -> None:
        """There are events. If nothing else is being sent, send them here and now as far as the system takes
        them, which spares most deliveries a turn of the scheduler."""
        subscription = self._subscription
        if self._resting and subscription is not None and self._outlet.immediate and not self.closing:
            try:
                chunk = subscription.feed.after(subscription.told, subscription.read)
                if chunk is None:
                    return
                sent = self._outlet.send_now(chunk.data)
            except (trio.BrokenResourceError, FellBehind):
                self.channel.wake()  # it will meet the same, and knows what to do
                return
            subscription.read = chunk.read
            subscription.told = chunk.told
            if sent == len(chunk.data):
                if chunk.read == self._stream.last_seq:
                    return
            else:
                self._append(chunk.data[sent:])
            self._resting = False
        self.channel.wake()

    async def run(self) -> None:
        """Send until cancelled. Raises `Stalled`, or what the transport raises."""
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

    async def _say(self, message: Said) -> None:
        if self._subscription is not None:
            await self._follow(message.seq)
            self._tell_all_read(message.seq)
        await self._put(message.payloads, message.cost)

    async def _put(self, payloads: Iterator[bytes], cost: int) -> None:
        for payload in payloads:
            self._append(message_frame(payload, binary=self._codec.binary))
            if self._size >= _ENOUGH:
                await self._flush()
        self._cost += cost

    async def _begin(self, message: Begin) -> None:
        self._leave()
        after = self._stream.last_seq if message.after is None else message.after
        feed = self._shared.feeds.join(self._form, message.filter, self)
        subscription = self._subscription = _Subscription(feed, message.filter, after)
        try:
            if message.after is not None and message.epoch not in (None, self._shared.epoch):
                raise FellBehind("it is about another numbering")
            self._stream.between(after, 0)
        except FellBehind:
            await self._resync(subscription)
        await self._put(replies(message.id, subscription.told, {}, self._codec), message.cost)

    async def _end(self, message: End) -> None:
        await self._say(Said(message.seq, replies(message.id, message.seq, {}, self._codec), message.cost))
        self._leave()

    async def _pass_on(self, message: Bytes) -> None:
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
        """Take up what the feed has, at least up to `seq`; stop beyond that where it is enough for now."""
        subscription = self._subscription
        assert subscription is not None, "only called while there is one"
        while True:
            try:
                chunk = subscription.feed.after(subscription.told, subscription.read)
            except FellBehind:
                await self._resync(subscription)
                continue
            if chunk is None:
                return
            subscription.read = chunk.read
            subscription.told = chunk.told
            if chunk.data:
                self._append(chunk.data)
                if self._size >= _ENOUGH:
                    if chunk.read >= seq:
                        return
                    await self._flush()

    def _tell_all_read(self, seq: int) -> None:
        """Let the client know that it has everything up to `seq`, where no event has told it so."""
        subscription = self._subscription
        if subscription is not None and subscription.told < seq:
            self._append(subscription.feed.rest(subscription.told, subscription.read))
            subscription.told = subscription.read

    async def _resync(self, subscription: _Subscription) -> None:
        self._shared.metrics.resyncs.inc()
        await self._flush()
        async with self._shared.snapshots.recent() as taken, taken.view(subscription.filter) as view:
            for message in view.messages(self._form):
                await self._send(message)
                await trio.lowlevel.checkpoint()  # a system that takes all at once makes no pause
            subscription.told = subscription.read = taken.snapshot.seq

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
                out = [b"".join(out)]  # one write costs less than several, where copying costs little
            while out:
                await self._send(out.pop(0))
        if size >= _ENOUGH:
            await trio.lowlevel.checkpoint()  # a system that takes all at once makes no pause
        if cost:
            self._paid(cost)
        for reply in sent:
            reply.set(None)

    async def _send(self, data: bytes) -> None:
        await self._outlet.send_all(data, self._shared.limits.stall_timeout)


_HANDLERS: dict[type, Callable[[Writer, Any], Awaitable[None]]] = {
    Said: Writer._say,
    Begin: Writer._begin,
    End: Writer._end,
    Bytes: Writer._pass_on,
}
