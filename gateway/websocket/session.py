"""A WebSocket connection: its reader, the tasks that execute its commands, and its end.

Theory of operation. The reader receives the messages one by one, checks each, and queues its command. Tasks
take the commands from the queue in order, so the engine receives them in the order of the messages, and many
can wait for their commits at the same time. The writer sends the replies. The number of commands in flight
is limited, and a command is in flight until its reply is sent: above the limit, messages stay unread. A
failure ends this connection and affects nothing else.
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
from ...protocol.commands import Auth, Ping, Subscribe, Unsubscribe
from ...protocol.decoding import decode_command
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
from ..cluster.turns import Turns
from ..commands.entries import Entry
from ..commands.table import BY_TYPE
from ..limits import Credit, Rate, check_rate_of_runs
from ..shared import Shared
from ..stream.filters import check_filter
from .frames import PING, close_frame
from .outlet import Stalled
from .replies import LISTS, list_replies, refusals, replies, snapshot_replies
from .wire import Wire
from .writer import Begin, End, QueuedReply, Writer

logger = logging.getLogger("greenroom.gateway")

GOING_AWAY = 1001
ABNORMAL = 1006
TOO_BIG = 1009
UNAUTHORIZED = 4401
IDLE = 4408
TOO_MUCH = 4429

_HEAVY = 64  # of `max_commands`


class _Named(msgspec.Struct):
    """The `id` of a message that is otherwise malformed."""

    id: Id | None = None


class Session:
    """A WebSocket connection after the handshake."""

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
        self._keep_reading = True
        self._transport = transport
        limits = shared.limits
        self._rate = Rate(limits.burst)
        self._credit = Credit(limits.max_commands)
        self._commands: deque[tuple[Any, Entry, int]] = deque()
        self._waits = 0
        self._turns = Turns()
        self._subscribed = False
        self._reading = trio.CancelScope()
        self._ending: tuple[int, str] | None = None
        self.writer = Writer(
            shared, transport, codec, shared.frames[codec.subprotocol], self._credit.give_back
        )

    async def run(self, wire: Wire, subprotocol: str | None) -> None:
        """Serve the connection until either side ends it. The transport stays open, for `linger`."""
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
        """Close the connection with a code and a reason."""
        if self._ending is None:
            self._ending = (code, reason)
            self._reading.cancel()

    def _break_off(self, error: GreenroomError) -> None:
        """Close the connection with an error, and stop reading."""
        self._keep_reading = False
        self._refuse(None, error, 0)
        self.end(TOO_BIG if isinstance(error, TooLarge) else TOO_MUCH, error.message)

    def recheck(self) -> None:
        """Close the connection if its token has been revoked; called when the tokens have changed."""
        if self._caller is not None and not self._shared.access.still_admits(self._caller):
            self.end(UNAUTHORIZED, "token has been revoked")

    def beat(self, now: float) -> float:
        """Ping an idle client, and close the connection if it does not respond. A client that reads pending
        data counts as active, because a ping has to wait behind that data."""
        limits = self._shared.limits
        quiet = now - max(self._wire.received_at, self.writer.taken_at)
        if quiet >= limits.idle_timeout:
            self.end(IDLE, f"idle timeout: no data received for {limits.idle_timeout:g} seconds")
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
            return  # `_close` sends the closing frame if one is due

    async def _authenticate(self, socket: WebSocketConnection) -> bool:
        """Wait for the message `auth`, which must be the first. Returns whether the token is valid."""
        with trio.move_on_after(self._shared.limits.auth_timeout):
            message = await socket.get_message()
            try:
                command = decode_command(self._codec, message)
                if not isinstance(command, Auth):
                    raise Unauthorized("token required: send `auth` first")
                self._caller = self._shared.access.as_client(self._shared.access.holder(command.token))
                self._stranger.recognise()
            except GreenroomError as error:
                self._refuse(self._id_in(message), error, 0)
                self.end(UNAUTHORIZED, error.message)
                return False
            finally:
                self._wire.checked()
            return True
        self.end(UNAUTHORIZED, "timed out: no `auth` message received")
        return False

    def _welcome(self) -> None:
        assert self._caller is not None, "welcome follows authentication"
        welcome = self._shared.welcome(self._caller)
        self.writer.channel.send_nowait(QueuedReply(welcome.seq, iter([self._codec.encode(welcome)]), 0))

    async def _take(self, message: str | bytes, cost: int) -> None:
        """Check a message, and queue its command."""
        limits = self._shared.limits
        try:
            after = self._rate.take(limits.rate, limits.burst)
            if after:
                raise RateLimited(
                    f"rate limit exceeded: at most {limits.rate:g} messages per second",
                    retry_after=round(after, 3),
                )
            command = decode_command(self._codec, message)
            if isinstance(command, Auth):
                raise Invalid("the connection is already authenticated")
            check_rate_of_runs(self._rate, limits, command)
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
        assert self._caller is not None, "commands are read only after authentication"
        if not self._caller.role.permits(entry.role):
            raise Forbidden(
                f"{entry.wire.__struct_config__.tag} requires the role {entry.role} (the token's role: "
                f"{self._caller.role})",
                role=self._caller.role,
            )

    # Executing commands.

    async def _work(self) -> None:
        """Execute the oldest queued command. Tasks can start in any order; a command runs without a
        checkpoint until the engine has received it, so the engine receives the commands in their order."""
        command, entry, cost = self._commands.popleft()
        if isinstance(command, Subscribe):
            self._subscribe(command, cost)
        elif isinstance(command, Unsubscribe):
            self._unsubscribe(command, cost)
        elif isinstance(command, Ping):
            self.writer.channel.send_nowait(self._reply(command.id, {}, cost))
        else:
            await self._execute(command, entry, cost)

    async def _execute(self, command: CommandBase, entry: Entry, cost: int) -> None:
        assert self._caller is not None, "commands are read only after authentication"
        try:
            fields = await self._shared.execute(entry, self._caller, command, self._turns)
            reply = self._reply(command.id, fields, cost)
        except GreenroomError as error:
            self._refuse(command.id, error, cost)
        except Exception:
            logger.exception("command of type %s failed", type(command).__name__)
            self._refuse(command.id, Internal("internal error of the gateway; see the server's log"), cost)
        else:
            self.writer.channel.send_nowait(reply)

    def _reply(self, id: Id, fields: dict[str, Any], cost: int) -> QueuedReply:
        seq = self._shared.engine.stream.last_seq
        if "snapshot" in fields:
            parts = fields["snapshot"].parts(self._codec)
            return QueuedReply(seq, snapshot_replies(id, seq, parts, self._codec), cost)
        make = list_replies if fields.keys() & LISTS else replies
        return QueuedReply(seq, make(id, seq, fields, self._codec), cost)

    def _refuse(self, id: Id | None, error: GreenroomError, cost: int) -> None:
        seq = self._shared.engine.stream.last_seq
        self.writer.channel.send_nowait(QueuedReply(seq, refusals(id, error, self._codec), cost))

    def _start_waiting(self, command: CommandBase, entry: Entry) -> None:
        most = self._shared.limits.max_waits
        if self._waits >= most:
            raise RateLimited(f"too many `wait` commands in flight (limit: {most}): wait for one to end")
        self._waits += 1
        self._nursery.start_soon(self._wait, command, entry)

    async def _wait(self, command: CommandBase, entry: Entry) -> None:
        await self._execute(command, entry, 0)
        self._waits -= 1

    def _subscribe(self, command: Subscribe, cost: int) -> None:
        shared = self._shared
        try:
            check_filter(command.filter, shared.limits.max_filter_names)
            filter = shared.narrowed(command.filter, self._caller)
            if not self._subscribed:
                if shared.subscriptions >= shared.limits.max_subscriptions:
                    most = shared.limits.max_subscriptions
                    raise RateLimited(f"too many subscriptions (limit: {most}): retry later")
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
            logger.info("connection closed: client stalled (read less than 64 KiB in stall_timeout)")
            self._shared.metrics.stalled.inc()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            logger.debug("connection lost")
        except Unavailable:
            logger.debug("engine has stopped")
        self._nursery.cancel_scope.cancel()  # without a writer no closing frame can be sent

    async def _close(self, socket: WebSocketConnection) -> None:
        """Send a closing frame, and wait at most `close_timeout` for the other side's."""
        with trio.move_on_after(self._shared.limits.close_timeout):
            if not self._keep_reading and socket.closed is None and self._ending is not None:
                await self._send_closing_frame(*self._ending)
            elif socket.closed is None:
                code, reason = self._ending or (GOING_AWAY, "")
                await socket.aclose(code, reason)
            elif not self.writer.closing and socket.closed.code != ABNORMAL:
                # trio-websocket sends no closing frame after a frame that it cannot accept.
                await self._send_closing_frame(socket.closed.code, socket.closed.reason or "")
            elif socket.closed.code == TOO_BIG:
                self.lingers = True

    async def _send_closing_frame(self, code: int, reason: str) -> None:
        """Send the closing frame, without waiting for the other side's."""
        reply: Reply[None] = Reply()
        self.writer.send(close_frame(code, reason), reply)
        await reply.get()
        self.lingers = True
