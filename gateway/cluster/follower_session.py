"""The connection of one follower: events, beats, and the commands of its clients.

One task reads, and one writes. The writer takes events from the engine's ring at the follower's own position,
so they cost no memory for a follower that does not read; one that has missed events gets a snapshot. What
else waits for a follower is bounded, and one that does not read is disconnected.
An answer is sent after all events up to its `seq`. Commands are executed in the order in which they arrive.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol

import attrs
import msgspec
import trio

from ...actors.executors.connection import ENDED, Connection
from ...actors.journal.stream import FellBehind
from ...protocol import cluster as wire
from ...protocol.codec import JSON
from ...protocol.commands import Ok
from ...protocol.errors import GreenroomError, Internal, Invalid, RateLimited, TooLarge, Unavailable
from ...protocol.parts import parts
from ...protocol.records import NodeInfo
from ...protocol.values import shown
from ..auth.scopes import Scope
from ..auth.tokens import Caller, Role
from ..client.socket import MAX_MESSAGE
from ..commands.entries import Entry, Fields
from ..commands.table import BY_TYPE
from ..http.responses import Response
from ..websocket.replies import LISTS, list_replies
from .followers import Follower
from .leading import Leading
from .silence import receive_within

logger = logging.getLogger("greenroom.cluster")

_SILENCE = 5.0
"""Seconds without any data after which a follower is lost: it beats several times per second."""
_PART_BYTES = 1 << 19
_MOST_EVENTS = 512
"""The number of events in one message."""
_EVENTS_BYTES = 1 << 18
"""The size from which a message gets no further event."""
_MOST_CALLS = 10_000
"""The number of a follower's commands that are not answered yet."""
_MOST_UNSENT = 128 << 20
"""The bytes of answers that wait to be sent to a follower, from which no further answer is queued."""
_OVERHEAD = 256
"""The bytes that a frame needs in addition to its content."""
_STALL = 20.0
_SLOWEST = 1 << 15
"""A frame must be sent within `_STALL` seconds, and another second for each `_SLOWEST` bytes."""
_MOST_RETURNABLE = 1000
"""The number of a follower's last responses whose content can be given back."""

NOT_LEADER = "not_leader"
"""The code of the answer to a command that was not executed, because the node no longer leads."""
LEADER_LOST = "leader_lost"
"""The code of the answer to a command whose effect is unknown, because the node no longer leads."""


class NodeGateway(Protocol):
    """The gateway of the leader, which executes commands and requests of followers' clients."""

    max_frame_bytes: int
    """The maximum size of a follower's frame."""

    async def call(self, entry: Entry, caller: Caller, command: Any) -> Fields:
        """Execute a command in the leader's engine."""

    async def answer(self, message: wire.ForwardRequest, caller: Caller) -> Response:
        """Answer an HTTP request."""

    def waits(self, message: wire.ForwardRequest) -> bool:
        """Whether the answer to this HTTP request can take long."""


@attrs.frozen
class _Answer:
    """What is sent after the event `seq`."""

    seq: int
    payloads: Sequence[bytes]
    beaten: bool = False

    @property
    def size(self) -> int:
        return sum(len(payload) + _OVERHEAD for payload in self.payloads)


class FollowerSession:
    """The connection of one follower."""

    def __init__(
        self, leading: Leading, connection: Connection, join: wire.Join, gateway: NodeGateway
    ) -> None:
        self._leading = leading
        self._gateway = gateway
        self._connection = connection
        self._engine = leading.engine
        self._stream = leading.engine.stream
        same = join.epoch == leading.epoch
        self._at = join.after if same else -1  # the last event that the follower has
        self._answers: deque[_Answer] = deque()  # in the order of their seqs
        self._unsent = 0  # the bytes in them
        self._beat_waits = False  # whether the answer to a beat is in `_answers`
        self._beat: float | None = None  # the newest beat since then
        self._nodes: list[NodeInfo] | None = None  # to be sent
        self._calls: dict[int, trio.CancelScope] = {}
        self._returnable: OrderedDict[int, Callable[[], None]] = OrderedDict()  # by the id of the request
        self._begun: deque[tuple[int, Callable[[Any], Awaitable[None]], Any]] = deque()
        self._news = trio.lowlevel.ParkingLot()
        self._scope = trio.CancelScope()
        self._left = False
        self.follower = Follower(
            join, trio.current_time(), join.after if same else 0, join.draining, self._leave, self._inform
        )

    async def run(self) -> None:
        """Serve until the connection ends. Raises `GreenroomError` if the follower breaks the protocol."""
        self._stream.listen(self._wake)
        failed: GreenroomError | None = None
        try:
            with self._scope:
                async with trio.open_nursery() as self._nursery:
                    self._nursery.start_soon(self._write)
                    try:
                        await self._read()
                    except ENDED as error:
                        logger.debug("node %s has disconnected: %s", self.follower.join.node, error)
                    except GreenroomError as error:
                        failed = error
                    self._nursery.cancel_scope.cancel()
        finally:
            self._stream.unlisten(self._wake)
        if failed is not None:
            raise failed

    def _leave(self, to: str | None) -> None:
        self._left = True
        self._answer(wire.Leaving(to=to))

    def _inform(self, nodes: list[NodeInfo]) -> None:
        self._nodes = nodes
        self._wake()

    def _answer(self, message: Any) -> None:
        """Queue a message behind all events that are committed now."""
        self._queue(_Answer(self._stream.last_seq, [JSON.encode(message)]))

    def _answer_beat(self, sent: float) -> None:
        """Answer a beat. While the answer to an earlier one waits to be sent, only the newest is kept."""
        if self._beat_waits:
            self._beat = sent
            return
        self._beat_waits = True
        seq = self._stream.last_seq
        self._queue(_Answer(seq, [JSON.encode(wire.NodeBeaten(sent=sent, seq=seq))], beaten=True))

    def _queue(self, answer: _Answer) -> None:
        if self._unsent > _MOST_UNSENT:
            self._drop(f"more than {_MOST_UNSENT:,} bytes of answers wait to be sent")
            return
        self._answers.append(answer)
        self._unsent += answer.size
        self._wake()

    def _drop(self, why: str) -> None:
        """Close the connection, because the follower does not read."""
        if not self._scope.cancel_called:
            node = self.follower.join.node
            logger.warning("connection of node %s is closed: the node does not read: %s", node, why)
            self._scope.cancel()

    def _wake(self) -> None:
        self._news.unpark()

    # Reading.

    async def _read(self) -> None:
        while True:
            frame = await receive_within(_SILENCE, self._connection)
            if frame is None:
                raise trio.BrokenResourceError(f"silent for {_SILENCE:g} s")
            message = wire.from_follower(frame)
            match message:
                case wire.NodeBeat(sent=sent, seq=seq, draining=draining):
                    follower = self.follower
                    follower.heard_at, follower.seq, follower.draining = trio.current_time(), seq, draining
                    if self._leading.is_current:  # the answer confirms that the follower has all events
                        self._answer_beat(sent)
                case wire.Forward():
                    self._begin(message.id, self._execute, message)
                case wire.ForwardRequest():
                    self._begin(message.id, self._request, message)
                case wire.Withdraw(id=id):
                    if id in self._calls:
                        self._calls[id].cancel()
                    self._returnable.pop(id, _nothing)()
                case wire.ExecutorEnded(executor=executor, how=how):
                    self._engine.executors.ended(executor, how)
                case wire.Join() | wire.Identify():
                    raise Invalid("the node has already joined on this connection")
                case wire.Unknown() as unknown:
                    logger.debug(
                        "node %s has sent a message of type %s", self.follower.join.node, unknown.type
                    )

    def _begin(self, id: int, call: Callable[[Any], Awaitable[None]], message: Any) -> None:
        if len(self._calls) >= _MOST_CALLS:
            # Clients can cause this, so the connection stays open: it is that of all clients of the node.
            self._fail(
                id, RateLimited(f"more than {_MOST_CALLS:,} commands of this node are in flight: retry later")
            )
            return
        if id in self._calls:
            raise Invalid(f"id must differ from those of commands without an answer (got {id})")
        self._calls[id] = trio.CancelScope()
        self._begun.append((id, call, message))
        self._nursery.start_soon(self._call)

    async def _call(self) -> None:
        """Execute the oldest command. Tasks can start in any order; a command runs without a checkpoint until
        the engine has received it."""
        id, call, message = self._begun.popleft()
        leading = self._leading
        with self._calls[id]:
            try:
                if leading.accepts:
                    await call(message)
                else:
                    self._refuse(id, NOT_LEADER)
            except GreenroomError as error:
                if isinstance(error, Unavailable) and not leading.is_current:
                    self._refuse(id, LEADER_LOST)
                else:
                    self._fail(id, error)
            except Exception:
                logger.exception("a forwarded %s failed", type(message).__name__)
                self._fail(id, Internal("internal error of the leader; see its log"))
        del self._calls[id]

    def _refuse(self, id: int, code: str) -> None:
        self._answer(wire.CommandFailed(id=id, code=code, message="the node no longer leads"))

    def _fail(self, id: int, error: GreenroomError) -> None:
        self._answer(
            wire.CommandFailed(id=id, code=error.code, message=error.message, details=dict(error.details))
        )

    async def _execute(self, message: wire.Forward) -> None:
        command = wire.command_in(message)
        entry = BY_TYPE.get(type(command))
        if entry is None or entry.call is None:
            raise Invalid(f"{command.__struct_config__.tag} concerns a connection and cannot be forwarded")
        with self._leading.command(waits=entry.waits):
            fields = await self._gateway.call(entry, _caller(message.caller), command)
            if self._leading.is_current:
                await self._answer_command(message.id, fields)
                return
        self._refuse(message.id, LEADER_LOST)

    async def _answer_command(self, id: int, fields: Fields) -> None:
        payloads: list[bytes] = []
        for payload in _ok(id, self._stream.last_seq, fields):
            if payloads:
                await trio.lowlevel.checkpoint()  # other tasks run between two parts of a long list
            payloads.append(_checked(payload))
        self._queue(_Answer(self._stream.last_seq, payloads))

    async def _request(self, message: wire.ForwardRequest) -> None:
        with self._leading.command(waits=self._gateway.waits(message)):
            response = await self._gateway.answer(message, _caller(message.caller))
            if self._leading.is_current:
                self._answer_request(message, response)
                return
            response.unsent()
        self._refuse(message.id, LEADER_LOST)

    def _answer_request(self, message: wire.ForwardRequest, response: Response) -> None:
        body = (response.body + b"".join(response.pieces)).decode()
        try:
            answered = wire.RequestAnswered(
                id=message.id, status=response.status, body=body, content_type=response.content_type
            )
            self._queue(_Answer(self._stream.last_seq, [_checked(JSON.encode(answered))]))
        except BaseException:
            response.unsent()
            raise
        self._returnable[message.id] = response.unsent
        if len(self._returnable) > _MOST_RETURNABLE:
            self._returnable.popitem(last=False)

    # Writing.

    async def _write(self) -> None:
        try:
            self._nodes = None  # the first message lists them
            await self._send(
                wire.Joined(
                    epoch=self._leading.epoch,
                    seq=self._stream.last_seq,
                    leader=self._leading.followers.leader,
                    max_value_bytes=self._engine.max_value_bytes,
                    nodes=self._leading.followers.nodes(self._stream.last_seq),
                    version=self._leading.followers.version,
                    protocol=wire.VERSION,
                    max_frame_bytes=self._gateway.max_frame_bytes,
                )
            )
            while True:
                if self._nodes is not None:
                    nodes, self._nodes = self._nodes, None
                    await self._send(wire.Nodes(nodes=nodes))
                if not await self._write_events() and not await self._write_answers():
                    if self._nodes is not None:
                        continue
                    if self._left:
                        break
                    if self._stream.closed:  # the engine has stopped
                        break
                    await self._news.park()
        except ENDED:
            logger.debug("node %s can no longer be reached", self.follower.join.node)
        except Unavailable:
            logger.debug("the engine has stopped before node %s had its state", self.follower.join.node)
        self._scope.cancel()

    async def _write_events(self) -> bool:
        """Send the next events, up to the seq of the next answer. Returns whether there were any."""
        try:
            most = _MOST_EVENTS
            if self._answers:
                most = min(most, max(self._answers[0].seq - self._at, 0))
            events = self._stream.between(self._at, most) if self._at >= 0 else None
        except FellBehind:
            events = None
        if events is None:
            await self._write_snapshot()
            return True
        if not events:
            return False
        pieces: list[bytes] = []
        size = 0
        for event in events:
            pieces.append(event.encoded(JSON))
            size += len(pieces[-1])
            if size >= _EVENTS_BYTES:
                break
        self._at += len(pieces)
        await self._put(b'{"type":"events","events":[%b]}' % b",".join(pieces))
        return True

    async def _write_snapshot(self) -> None:
        snapshot = await self._engine.snapshot()
        for part, more in parts(snapshot, JSON.encode, _PART_BYTES):
            tail = b',"more":true}' if more else b"}"
            await self._put(b'{"type":"snapshot","snapshot":%b%b' % (JSON.encode(part), tail))
            await trio.lowlevel.checkpoint()
        self._at = snapshot.seq

    async def _write_answers(self) -> bool:
        """Send the answers whose events are sent. Returns whether there were any."""
        if not self._answers or self._answers[0].seq > self._at:
            return False
        answer = self._answers[0]
        for payload in answer.payloads:
            await self._put(payload)
        self._answers.popleft()
        self._unsent -= answer.size
        if answer.beaten:
            self._beat_waits = False
            if self._beat is not None:
                sent, self._beat = self._beat, None
                self._answer_beat(sent)
        return True

    async def _send(self, message: Any) -> None:
        await self._put(JSON.encode(message))

    async def _put(self, frame: bytes) -> None:
        patience = _STALL + len(frame) / _SLOWEST
        with trio.move_on_after(patience) as sending:
            await self._connection.send(frame)
        if sending.cancelled_caught:
            self._drop(f"a frame of {len(frame):,} bytes was not sent within {patience:.0f} s")


def _nothing() -> None:
    """The response has no content to give back."""


def _caller(principal: wire.Principal) -> Caller:
    within = principal.within
    scope = None if within is None else Scope(within.handles, within.lanes, within.jobs)
    try:
        role = Role(principal.role)
    except ValueError:
        raise Invalid(
            f"role must be one of {', '.join(Role)} (got {shown(principal.role)})",
            value=shown(principal.role),
        ) from None
    return Caller(principal.name, role, scope=scope)


def _checked(payload: bytes) -> bytes:
    """The same frame. Raises `TooLarge` if the follower would close the connection because of its size."""
    size = len(payload)
    if size > MAX_MESSAGE:
        raise TooLarge(
            f"answer: too large: {size} bytes as JSON, at most {MAX_MESSAGE} are allowed between nodes; "
            "request a smaller page",
            size=size,
            limit=MAX_MESSAGE,
        )
    return payload


def _ok(id: int, seq: int, fields: Fields) -> Iterator[bytes]:
    """The messages that answer a command with these fields."""
    if not fields.keys() & LISTS:
        yield JSON.encode(
            wire.CommandAnswered(id=id, ok=msgspec.Raw(JSON.encode(Ok(id=0, seq=seq, **fields))))
        )
        return
    payload: bytes | None = None
    for following in list_replies(0, seq, fields, JSON):
        if payload is not None:
            yield JSON.encode(wire.CommandAnswered(id=id, ok=msgspec.Raw(payload), more=True))
        payload = following
    assert payload is not None, "a reply has at least one message"
    yield JSON.encode(wire.CommandAnswered(id=id, ok=msgspec.Raw(payload)))
