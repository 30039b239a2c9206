"""`GET /api/events`: server-sent events, for EventSource in browsers and for curl.

Each event has the id `<epoch>:<seq>`. After a lost connection the browser sends the last id as
`Last-Event-ID`, and the stream resumes after it. If that is not possible, an event `resync` contains a
snapshot.
"""

from __future__ import annotations

import trio

from ...actors.channel import Channel
from ...actors.journal.stream import FellBehind
from ...protocol.errors import Invalid, RateLimited
from ...protocol.events import Filter
from ...protocol.values import shown
from ..auth.tokens import Caller
from ..shared import Shared
from ..stream.feeds import Feed
from ..stream.filters import check_filter
from .head import Request
from .responses import Response, Write

PING_EVERY = 15.0
_FIELDS = {"handle": "handles", "lane": "lanes", "run": "runs", "type": "types"}
_KNOWN = frozenset({*_FIELDS, "after", "epoch", "last_event_id", "ticket"})
_RETRY = b"retry: 2000\n"


def events(shared: Shared, request: Request, caller: Caller) -> Response:
    """The response to a request for events. Raises `Invalid`, `Forbidden` and `RateLimited`."""
    unknown = sorted(set(request.query) - _KNOWN)
    if unknown:
        raise Invalid(
            f"unexpected parameter {shown(unknown[0])} in the query; allowed: {', '.join(sorted(_KNOWN))}"
        )
    wanted = {
        field: frozenset(request.query[name]) for name, field in _FIELDS.items() if name in request.query
    }
    asked = Filter(**wanted) if wanted else None
    check_filter(asked, shared.limits.max_filter_names)
    filter = shared.narrowed(asked, caller)
    after = _after(shared, request)
    if shared.subscriptions >= shared.limits.max_subscriptions:
        most = shared.limits.max_subscriptions
        raise RateLimited(f"too many subscriptions (limit: {most}): retry later")

    async def stream(write: Write) -> None:
        await _Following(shared, filter, after, write).run()

    return Response(200, content_type="text/event-stream", stream=stream)


def _after(shared: Shared, request: Request) -> int:
    """The seq after which to start; -1 if it is unknown, so that the client needs a snapshot."""
    after = request.query.get("after", [None])[0]
    if after is not None and not after.isdecimal():
        raise Invalid(f"after must be the seq of an event (got {shown(after)})", path="after")
    last = request.header("last-event-id")
    if last is None and "last_event_id" in request.query:
        last = request.query["last_event_id"][0]
    if last is not None:
        epoch, _, number = last.rpartition(":")
    elif after is not None:
        epoch, number = (request.query.get("epoch") or [shared.epoch])[0], after
    else:
        return shared.engine.stream.last_seq
    if epoch != shared.epoch or not (number.isdecimal() and number.isascii() and len(number) < 20):
        return -1
    return int(number)


class _Following:
    """A client of the event stream."""

    def __init__(self, shared: Shared, filter: Filter | None, after: int, write: Write) -> None:
        self._shared = shared
        self._filter = filter
        self._announced = after
        self._read = after
        self._write = write
        self._woken = Channel()

    def notify(self) -> None:
        """Wake the task to send new events."""
        self._woken.wake()

    async def run(self) -> None:
        """Send events until cancelled or until the engine stops."""
        shared = self._shared
        stream = shared.engine.stream
        feed = shared.feeds.join(shared.server_sent, self._filter, self)
        shared.subscriptions += 1
        shared.metrics.server_sent.inc()
        try:
            if not await shared.reach(self._read):
                return
            if self._read < 0:
                await self._resync(_RETRY)
            else:
                await self._write(_RETRY + feed.rest(self._announced, self._read))
            while True:
                await self._catch_up(feed)
                if stream.closed:
                    return
                quiet = True
                with trio.move_on_after(PING_EVERY):
                    await self._woken.receive_all()
                    quiet = False
                if quiet:
                    await self._write(b": ping\n" + feed.rest(self._announced, self._read))
                    self._announced = self._read
        finally:
            shared.subscriptions -= 1
            shared.metrics.server_sent.dec()
            shared.feeds.leave(feed, self)

    async def _catch_up(self, feed: Feed) -> None:
        while True:
            try:
                chunk = feed.after(self._announced, self._read)
            except FellBehind:
                await self._resync(b"")
                continue
            if chunk is None:
                return
            self._read, self._announced = chunk.read, chunk.announced
            if chunk.data:
                await self._write(chunk.data)

    async def _resync(self, before: bytes) -> None:
        self._shared.metrics.resyncs.inc()
        async with self._shared.snapshots.recent() as taken, taken.view(self._filter) as view:
            for message in view.messages(self._shared.server_sent):
                await self._write(before + message)
                before = b""
            self._announced = self._read = taken.snapshot.seq
