"""A WebSocket connection: its reader, the tasks that carry out its commands, and its end.

Theory of operation. The reader takes one message after the other, checks it, and queues the command; tasks
take the commands from the queue in order, so each is told to the engine in the order in which it came,
while many wait for their commits together. What they answer goes to the writer. A connection may have only
so much on its way, replies that the client hasn't taken included: beyond that its messages stay unread.
Whatever fails in here ends this connection and nothing else.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

import msgspec
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_server_stream

from ...actors.channel import Reply
from ...protocol.codec import Codec
from ...protocol.commandbase import CommandBase, Id
from ...protocol.commands import Auth, Command, Subscribe, Unsubscribe
from ...protocol.errors import (
    Forbidden,
    GreenroomError,
    Internal,
    Invalid,
    RateLimited,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from ..auth.strangers import Stranger
from ..auth.tokens import Caller
from ..commands.entries import Entry
from ..commands.table import BY_TYPE
from ..limits import Credit, Rate
from ..shared import Shared
from ..stream.filters import check_filter
from .frames import PING, close_frame
from .outlet import Stalled
from .replies import LISTS, list_replies, refusals, replies, snapshot_replies
from .wire import Wire
from .writer import Begin, End, Said, Writer

logger = logging.getLogger("greenroom.gateway")

GOING_AWAY = 1001
TOO_BIG = 1009
UNAUTHORIZED = 4401
IDLE = 4408
TOO_MUCH = 4429

_HEAVY = 64  # of `max_commands`
_ABNORMAL = 1006


class _Named(msgspec.Struct):
    """All that is read of a message which can't be read as a whole."""

    id: Id | None = None


class Session:
    """See the module's text."""

    def __init__(
        self,
        shared: Shared,
        transport: trio.abc.Stream,
        codec: Codec,
        caller: Caller | None,
        stranger: Stranger,
    ) -> None:
        self._shared = shared
        self.lingers = False
        self._codec = codec
        self._caller = caller
        self._stranger = stranger
        self._reads_on = True
        self._transport = transport
        limits = shared.limits
        self._rate = Rate(limits.burst)
        self._credit = Credit(limits.max_commands)
        self._commands: deque[tuple[Any, Entry, int]] = deque()
        self._waits = 0
        self._subscribed = False
        self._reading = trio.CancelScope()
        self._ending: tuple[int, str] | None = None
        self.writer = Writer(
            shared, transport, codec, shared.frames[codec.subprotocol], self._credit.give_back
        )

    async def run(self, wire: Wire, subprotocol: str | None) -> None:
        """Live until either side ends it. The transport is still open then, for `linger`."""
        self._wire = wire
        limits = self._shared.limits
        try:
            async with trio.open_nursery() as self._nursery:
                with trio.fail_after(limits.head_timeout):
                    request = await wrap_server_stream(
                        self._nursery,
                        wire,
                        max_message_size=limits.max_message_bytes,
                        receive_buffer_size=65_536,
                    )
                    socket = await request.accept(subprotocol=subprotocol)
                wire.accepted(self.writer.send, self._break_off)
                self._nursery.start_soon(self._write)
                self._shared.sessions[self] = None
                self._shared.metrics.websockets.inc()
                self._shared.heartbeats.add(self, limits.ping_interval)
                with self._reading:
                    await self._read(socket)
                await self._close(socket)
                self._nursery.cancel_scope.cancel()
        finally:
            if self in self._shared.sessions:
                del self._shared.sessions[self]
                self._shared.metrics.websockets.dec()
            self._shared.heartbeats.remove(self)
            if self._subscribed:
                self._shared.subscriptions -= 1

    def end(self, code: int, reason: str) -> None:
        """Close the connection, and say why."""
        if self._ending is None:
            self._ending = (code, reason)
            self._reading.cancel()

    def _break_off(self, error: GreenroomError) -> None:
        """Close the connection with an error, and read nothing more of what it sends."""
        self._reads_on = False
        self._refuse(None, error, 0)
        self.end(TOO_BIG if isinstance(error, TooLarge) else TOO_MUCH, error.message)

    def recheck(self) -> None:
        """The tokens have changed: end the connection if its token is no longer in force."""
        if self._caller is not None and not self._shared.access.still_lets_in(self._caller):
            self.end(UNAUTHORIZED, "the token is no longer in force")

    def beat(self, now: float) -> float:
        """See whether the client is still there. One that reads what has gathered for it is, even though a
        ping to it, and so its pong, has to wait behind all that."""
        limits = self._shared.limits
        quiet = now - max(self._wire.heard_at, self.writer.taken_at)
        if quiet >= limits.idle_timeout:
            self.end(IDLE, "nothing was heard for too long")
        elif quiet >= limits.ping_interval:
            self.writer.send(PING, Reply())
        return limits.ping_interval

    # Reading.

    async def _read(self, socket: WebSocketConnection) -> None:
        try:
            if self._caller is None and not await self._authenticate(socket):
                return
            self._welcome()
            while True:
                cost = await self._credit.spend(1)
                await self._take(await socket.get_message(), cost)
        except ConnectionClosed:
            return  # `_close` knows what is still to be said

    async def _authenticate(self, socket: WebSocketConnection) -> bool:
        """Have the first message say who it is."""
        with trio.move_on_after(self._shared.limits.auth_timeout):
            message = await socket.get_message()
            try:
                command = self._codec.decode(message, Command)
                if not isinstance(command, Auth):
                    raise Unauthorized("a token is needed: send `auth` first")
                self._caller = self._shared.access.holder(command.token)
                self._stranger.recognise()
            except GreenroomError as error:
                self._refuse(self._id_in(message), error, 0)
                self.end(UNAUTHORIZED, error.message)
                return False
            finally:
                self._wire.judged()
            return True
        self.end(UNAUTHORIZED, "no `auth` message came in time")
        return False

    def _welcome(self) -> None:
        assert self._caller is not None, "whoever is welcomed is known"
        welcome = self._shared.welcome(self._caller)
        self.writer.channel.send_nowait(Said(welcome.seq, iter([self._codec.encode(welcome)]), 0))

    async def _take(self, message: str | bytes, cost: int) -> None:
        """Check a message, and queue what it asks for."""
        limits = self._shared.limits
        try:
            after = self._rate.take(limits.rate, limits.burst)
            if after:
                raise RateLimited(
                    f"more than {limits.rate:g} messages per second: slow down", retry_after=round(after, 3)
                )
            command = self._codec.decode(message, Command)
            if isinstance(command, Auth):
                raise Invalid("the connection has been authenticated already")
            entry = BY_TYPE[type(command)]
            self._check_role(entry)
            if entry.waits:
                self._start_waiting(command, entry)
                self._credit.give_back(cost)
                return
        except GreenroomError as error:
            self._refuse(self._id_in(message), error, cost)
            return
        if entry.heavy:
            cost += await self._credit.spend(min(_HEAVY, self._credit.total) - 1)
        self._commands.append((command, entry, cost))
        self._nursery.start_soon(self._work)

    def _id_in(self, message: str | bytes) -> Id | None:
        try:
            return self._codec.decode(message, _Named).id
        except Invalid:
            return None

    def _check_role(self, entry: Entry) -> None:
        assert self._caller is not None, "nothing is read before it is known who speaks"
        if not self._caller.role.permits(entry.role):
            raise Forbidden(
                f"{entry.wire.__struct_config__.tag} needs the role {entry.role}, and the token's is "
                f"{self._caller.role}",
                role=self._caller.role,
            )

    # Carrying out.

    async def _work(self) -> None:
        """Carry out the oldest command that nobody has begun. Tasks may begin in any order; up to where it is
        told to the engine a command runs without a pause, so the commands go in theirs."""
        command, entry, cost = self._commands.popleft()
        if isinstance(command, Subscribe):
            self._subscribe(command, cost)
        elif isinstance(command, Unsubscribe):
            self._unsubscribe(command, cost)
        else:
            await self._carry_out(command, entry, cost)

    async def _carry_out(self, command: CommandBase, entry: Entry, cost: int) -> None:
        assert self._caller is not None, "nothing is read before it is known who speaks"
        assert entry.call is not None, "the others are about the connection"
        try:
            fields = await entry.call(self._shared.context(self._caller), command) or {}
            said = self._reply(command.id, fields, cost)
        except GreenroomError as error:
            self._refuse(command.id, error, cost)
        except Exception:
            logger.exception("a command of type %s failed", type(command).__name__)
            self._refuse(command.id, Internal("a fault of the gateway, which has been logged"), cost)
        else:
            self.writer.channel.send_nowait(said)

    def _reply(self, id: Id, fields: dict[str, Any], cost: int) -> Said:
        seq = self._shared.engine.stream.last_seq
        if "snapshot" in fields:
            parts = fields["snapshot"].parts(self._codec)
            return Said(seq, snapshot_replies(id, seq, parts, self._codec), cost)
        make = list_replies if fields.keys() & LISTS else replies
        return Said(seq, make(id, seq, fields, self._codec), cost)

    def _refuse(self, id: Id | None, error: GreenroomError, cost: int) -> None:
        seq = self._shared.engine.stream.last_seq
        self.writer.channel.send_nowait(Said(seq, refusals(id, error, self._codec), cost))

    def _start_waiting(self, command: CommandBase, entry: Entry) -> None:
        most = self._shared.limits.max_waits
        if self._waits >= most:
            raise RateLimited(f"{most} waits of this connection are on their way: let some end first")
        self._waits += 1
        self._nursery.start_soon(self._wait, command, entry)

    async def _wait(self, command: CommandBase, entry: Entry) -> None:
        await self._carry_out(command, entry, 0)
        self._waits -= 1

    def _subscribe(self, command: Subscribe, cost: int) -> None:
        shared = self._shared
        try:
            check_filter(command.filter, shared.limits.max_filter_names)
            filter = shared.narrowed(command.filter, self._caller)
            if not self._subscribed:
                if shared.subscriptions >= shared.limits.max_subscriptions:
                    raise RateLimited("the gateway has as many subscriptions as it takes: try again later")
                shared.subscriptions += 1
                self._subscribed = True
        except GreenroomError as error:
            self._refuse(command.id, error, cost)
        else:
            self.writer.channel.send_nowait(Begin(command.id, command.after, command.epoch, filter, cost))

    def _unsubscribe(self, command: Unsubscribe, cost: int) -> None:
        if self._subscribed:
            self._subscribed = False
            self._shared.subscriptions -= 1
        self.writer.channel.send_nowait(End(command.id, self._shared.engine.stream.last_seq, cost))

    # Ending.

    async def _write(self) -> None:
        try:
            await self.writer.run()
        except Stalled:
            logger.info("a client took nothing of what was sent to it, and is dropped")
            self._shared.metrics.stalled.inc()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            logger.debug("a client is gone")
        except Unavailable:
            logger.debug("the engine has stopped")
        self._nursery.cancel_scope.cancel()  # without a writer there is no way to say goodbye

    async def _close(self, socket: WebSocketConnection) -> None:
        """Say the last words, and wait for the other side's, but not for long."""
        with trio.move_on_after(self._shared.limits.close_timeout):
            if not self._reads_on and socket.closed is None and self._ending is not None:
                await self._say_goodbye(*self._ending)
            elif socket.closed is None:
                code, reason = self._ending or (GOING_AWAY, "")
                await socket.aclose(code, reason)
            elif not self.writer.closing and socket.closed.code != _ABNORMAL:
                # trio-websocket closes without a word after a frame that it can't accept.
                await self._say_goodbye(socket.closed.code, socket.closed.reason or "")
            elif socket.closed.code == TOO_BIG:
                self.lingers = True

    async def _say_goodbye(self, code: int, reason: str) -> None:
        """Send the closing frame, and don't wait for the other side's."""
        said: Reply[None] = Reply()
        self.writer.send(close_frame(code, reason), said)
        await said.get()
        self.lingers = True
