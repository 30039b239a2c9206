"""A client's connection, with automatic reconnection.

One task opens a connection, resumes the subscription, sends the unanswered calls again, and handles messages
until the connection is lost. Then it tries the other addresses at once. If it has only one, or none works, it
reconnects after an exponential backoff with random jitter, so that many clients do not reconnect at the same
time.
"""

from __future__ import annotations

import logging
import random as random_module
from collections.abc import Callable
from urllib.parse import SplitResult

import trio

from ...actors.channel import Reply
from ...protocol.codec import MSGPACK
from ...protocol.commandbase import CommandBase
from ...protocol.commands import (
    Error,
    Events,
    ListRuns,
    Ok,
    Resync,
    ServerMessage,
    SubmitMany,
    Subscribe,
    Unsubscribe,
    Wait,
    Welcome,
)
from ...protocol.errors import GreenroomError, Invalid, TooLarge, Unavailable
from ...protocol.events import Filter
from ..background import background
from .addresses import Addresses
from .calls import Call, Calls, retry_after
from .errors import ConnectionLost, NotAGateway, NotHere, Refused, refusal
from .following import Following
from .socket import Socket, open_socket, reason_of

logger = logging.getLogger("greenroom.client")

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_NOBODY = 0  # the id of a command whose reply is ignored
_STABLE = 5.0  # seconds after which a connection resets the backoff


class Link:
    """The connection of one client."""

    def __init__(
        self,
        addresses: Addresses,
        token: str | None,
        *,
        follow: bool,
        filter: Filter | None,
        patience: float,
        random: random_module.Random,
    ) -> None:
        self.follows = follow
        self.following = Following(filter)
        self.left = False
        self.welcome: Welcome
        self.addresses = addresses
        self._token = token
        self._patience = patience
        self._random = random
        self._calls = Calls()
        self._socket: Socket | None = None
        self._connected_at: float | None = None
        self._failure: Callable[[], GreenroomError] | None = None
        self._lost: str | None = None  # why the connection was lost
        self._changed = trio.lowlevel.ParkingLot()
        self._ready: Reply[None] = Reply()
        self._closed = trio.Event()

    @property
    def connected(self) -> bool:
        """Whether there is a connection that has received `welcome`."""
        return self._socket is not None

    async def lost(self) -> str:
        """Wait until the connection is lost. Returns the reason."""
        while self._lost is None:
            await self._changed.park()
        return self._lost

    async def found(self) -> None:
        """Wait until there is a connection."""
        while not self.connected:
            await self._changed.park()

    # Commands.

    def number(self) -> int:
        """An id for a command."""
        return self._calls.number()

    def draw_id(self) -> str:
        """A unique request id."""
        return f"{self._random.getrandbits(128):032x}"

    async def ask(self, command: CommandBase, *, repeatable: bool = False) -> Ok:
        """Send a command. Returns its `ok`, or raises its error."""
        return (await self._ask(command, repeatable))[-1]

    async def ask_for_parts(self, command: CommandBase) -> list[Ok]:
        """Send a command that only reads. Returns all parts of its reply."""
        return await self._ask(command, True)

    async def catch_up(self) -> None:
        """Wait until the state includes everything that the engine had committed at the call."""
        try:
            await self.ask_for_parts(ListRuns(id=self.number(), limit=1))
        except Unavailable:
            if not self.connected:
                raise
        # every reply arrives after the events, also an error

    async def reach(self, seq: int) -> None:
        """Make the ring start after `seq`, or later if the gateway no longer has these events."""
        if seq > self.following.seq:
            await self.catch_up()
        if self.following.ring.behind(seq):
            await self._ask(self.following.subscribe(self.number(), seq), True)

    async def _ask(self, command: CommandBase, repeatable: bool) -> list[Ok]:
        if self._failure is not None:
            raise self._failure()
        call = self._calls.add(command, repeatable=repeatable)
        refused_at = None
        while True:
            if self._socket is not None:
                self._send(self._socket, call)
            try:
                return await call.reply.get()
            except Unavailable as error:
                now, pause = trio.current_time(), retry_after(error)
                if pause is None or not repeatable:
                    raise
                refused_at = now if refused_at is None else refused_at
                if now + pause > refused_at + self._patience and not isinstance(command, Wait):
                    raise call.failure(error) from None
            finally:
                self._calls.forget(call)
            with trio.move_on_after(pause):
                await self._closed.wait()
            if self._failure is not None:
                raise call.failure(self._failure())
            self._calls.repeat(call)

    # Connecting.

    async def run(self) -> None:
        """Keep a connection open until cancelled, or until the gateway refuses the client."""
        failures = 0
        while True:
            began = trio.current_time()
            try:
                await self._connect_and_serve()
            except ConnectionLost as lost:
                reason = str(lost)
            except Refused as refused:
                if not (self.addresses.several and isinstance(refused, NotAGateway)):
                    self.close(refused.make)
                    return
                reason = refused.message
            why = f"connection to {self.addresses.current.url.geturl()} failed: {reason}"
            connected_for = 0.0 if self._connected_at is None else trio.current_time() - self._connected_at
            if self._ready.done and connected_for > _STABLE:
                self.addresses.begin_round()
            round_complete = self.addresses.failed(reason)
            if not self._ready.done:
                if not round_complete:
                    logger.info("%s; trying the next address", why)
                    continue
                if self.addresses.several:
                    why = f"connection to every address failed: {self.addresses.failures()}"
                self.close(lambda why=why: Unavailable(why))  # type: ignore[misc]
                return
            logger.info("%s", why)
            self._lost = why
            self._changed.unpark_all()
            if trio.current_time() - began > _STABLE:
                failures = 0
            self._calls.give_up(trio.current_time() - self._patience, why)
            if round_complete:
                pause = min(_LONGEST_PAUSE, _SHORTEST_PAUSE * 2.0**failures)
                await trio.sleep(pause * (0.5 + self._random.random() / 2))
                failures = min(failures + 1, 10)

    async def ready(self) -> None:
        """Wait for the first connection and the first state. Raises the error that prevents it."""
        await self._ready.get()

    def close(self, error: Callable[[], GreenroomError]) -> None:
        """End the connection without reconnecting; waiting callers receive the error."""
        self._failure = error
        self._closed.set()
        if not self._ready.done:
            self._ready.fail(error())
        self._calls.close(error)
        self.following.close(error)

    async def _connect_and_serve(self) -> None:
        """Open one connection, and serve it until it is lost."""
        socket = None
        self._connected_at = None
        limit = self.addresses.time_limit
        try:
            with trio.move_on_after(limit) as patience:
                socket = await self._connect()
                if self._token is None:
                    # With a command before `auth`, a gateway that requires a token refuses immediately.
                    await socket.send(MSGPACK.encode(Unsubscribe(id=_NOBODY)))
                welcome = MSGPACK.decode(await socket.receive(), ServerMessage)
            if patience.cancelled_caught or socket is None:
                raise ConnectionLost(f"timed out after {limit:g} seconds")
            if isinstance(welcome, Error):
                raise refusal(welcome)
            if not isinstance(welcome, Welcome):
                raise ConnectionLost(
                    f"expected `welcome` from the gateway, got {welcome.__struct_config__.tag}"
                )
            self.welcome = welcome
            await self._serve(socket)
        except Invalid as error:
            raise ConnectionLost(f"malformed message from the gateway: {error}") from None
        finally:
            self._socket = None
            self.following.lost()
            self._calls.lost()
            if socket is not None:
                with trio.CancelScope(shield=True):  # which limits its time itself
                    await socket.aclose()

    async def _connect(self) -> Socket:
        """Connect to the current address; or to its path with a trailing slash, if a proxy forwards only
        that. The URL that worked is kept."""
        address = self.addresses.current
        try:
            return await self._connect_to(address.url)
        except NotHere as refused:
            if address.url.path.endswith("/"):
                raise
            slashed = address.url._replace(path=f"{address.url.path}/")
            try:
                socket = await self._connect_to(slashed)
            except NotHere:
                raise refused from None
            address.url = slashed
            return socket

    async def _connect_to(self, url: SplitResult) -> Socket:
        try:
            stream = await self.addresses.current.open_stream()
        except (OSError, trio.BrokenResourceError) as error:
            raise ConnectionLost(reason_of(error)) from None
        try:
            return await open_socket(stream, url, MSGPACK.subprotocol, self._token)
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise

    async def _serve(self, socket: Socket) -> None:
        """Resume on a new connection, and handle messages until it is lost."""
        async with background() as nursery:
            nursery.start_soon(socket.write)
            if self.follows:
                self._send(socket, self._calls.add(self.following.subscribe(self.number()), repeatable=False))
            elif not self._ready.done:
                self._ready.set(None)
            self._socket, self._connected_at, self._lost = socket, trio.current_time(), None
            self._changed.unpark_all()
            for call in self._calls:
                if call.waits_since is not None:
                    self._send(socket, call)
            if self.following.filter is not None and not self._ready.done:
                nursery.start_soon(self._set_ready_after_catch_up)
            while True:
                self._take(MSGPACK.decode(await socket.receive(), ServerMessage))
                self._set_ready()

    def _set_ready(self) -> None:
        """Report that the client is ready once the state includes the seq of `welcome`."""
        following = self.following
        if self._ready.done or following.state is None or following.filter is not None:
            return
        if following.seq >= self.welcome.seq:
            self._ready.set(None)

    async def _set_ready_after_catch_up(self) -> None:
        """Report that a client with a filter is ready: any reply arrives after the state."""
        try:
            await self.catch_up()
        except GreenroomError as error:
            self._ready.fail(error)
        else:
            self._ready.set(None)

    def _send(self, socket: Socket, call: Call) -> None:
        """Send a call. One that is too large fails here, because the gateway would close the connection."""
        payload = MSGPACK.encode(call.command)
        most = self.welcome.limits.get("max_message_bytes", len(payload))
        if len(payload) > most:
            remedy = ": divide its runs among several calls" if isinstance(call.command, SubmitMany) else ""
            self._calls.fail(
                call,
                TooLarge(
                    f"{call.name} must be at most {most:g} bytes (got {len(payload)}){remedy}",
                    size=len(payload),
                    limit=most,
                ),
            )
            return
        if isinstance(call.command, Subscribe):
            self.following.asked(call.command)
        call.sent = True
        call.waits_since = None
        socket.put(payload)

    def _take(self, message: ServerMessage) -> None:
        if isinstance(message, Events):
            self.following.take(message)
        elif isinstance(message, Ok):
            self._calls.answered(message)
            if self.following.has_asked(message.id):
                self.following.subscribed(message.id, message.seq)
        elif isinstance(message, Error):
            self._calls.refused(message)
            if self.following.has_asked(message.id):
                raise refusal(message)
        elif isinstance(message, Resync):
            self.following.resync(message)
