"""The link of an executor to its engine: it attaches, exchanges frames, and reconnects.

It reconnects for ever, after an exponential backoff with random jitter, and several times before its lease
expires. It ends only if the engine refuses this executor for good, for example because its token is invalid.
"""

from __future__ import annotations

import logging
import random as random_module
from collections.abc import Awaitable, Callable
from typing import NoReturn

import msgspec
import trio

from ..actors.executors.connection import ENDED, Connection
from ..gateway.client.errors import ConnectionLost
from ..gateway.client.errors import Refused as GatewayRefuses
from ..gateway.client.socket import reason_of
from ..protocol.errors import Invalid, from_code
from ..protocol.executors import (
    Attach,
    Attached,
    Beat,
    Beaten,
    EngineFrame,
    EngineSends,
    Refused,
    ToExecutor,
)
from .session import Session

logger = logging.getLogger("greenroom.executor")

Connect = Callable[[], Awaitable[Connection]]

_FRAME: msgspec.json.Decoder[EngineSends] = msgspec.json.Decoder(EngineSends)
_ATTACH_WITHIN = 10.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_LONGEST_OF_TTL = 1 / 12
"""The longest pause as a fraction of the ttl, so that bodies are not cancelled because of a pause."""
_STABLE = 5.0
"""Seconds after which a connection resets the backoff."""

_ENDED = (*ENDED, OSError, ConnectionLost)
"""What `Connect` and the calls of a connection raise when it has ended or cannot be opened."""


class _EngineRefuses(Exception):
    """The engine refuses this executor for good."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.message)
        self.error = from_code(refused.code, refused.message, {})


class Link:
    """See the module's docstring. `clock` is that of the executor's lease. `attach` makes the first message
    of a connection; `attached` is called with its answer and the time when it was sent; `handle` is called
    with each message of the engine, `exchanged` after each frame in either direction and at the end of a
    connection, and `beaten` with the answers to beats. Without `reconnects`, the end of a connection is the
    end of the process, so it is not worth a warning: `connect` ends the process when it is called again.
    """

    def __init__(
        self,
        connect: Connect,
        session: Session,
        *,
        clock: Callable[[], float],
        random: random_module.Random,
        reconnects: bool,
        attach: Callable[[], Attach],
        attached: Callable[[Attached, float], None],
        handle: Callable[[ToExecutor], None],
        exchanged: Callable[[], None],
        beaten: Callable[[Beaten], None],
    ) -> None:
        self._connect = connect
        self._session = session
        self._clock = clock
        self._random = random
        self._reconnects = reconnects
        self._attach = attach
        self._attached = attached
        self._handle = handle
        self._exchanged = exchanged
        self._beaten = beaten
        self._connection: Connection | None = None  # an attached one
        self._known = False  # whether the engine has accepted this executor before
        self._attempt = trio.CancelScope()  # of the current connection
        self._beat: Beat | None = None
        self._news = trio.lowlevel.ParkingLot()
        self._waits = False  # whether the sender waits for news
        self._pause = 0.0
        self._longest_pause = _LONGEST_PAUSE

    @property
    def connected(self) -> bool:
        """Whether there is an attached connection."""
        return self._connection is not None

    def wake(self) -> None:
        """Send what the session has, soon."""
        if self._waits:
            self._waits = False
            self._news.unpark_all()

    def beat(self, beat: Beat) -> bool:
        """Send a beat soon; false without a connection."""
        self._beat = beat if self.connected else None
        self.wake()
        return self.connected

    def abort(self) -> None:
        """Close the connection, also one that is being opened: the engine does not answer on it, or another
        engine is in charge."""
        self._attempt.cancel()

    async def run(self) -> None:
        """Keep connected until cancelled. Raises the engine's error if it refuses this executor."""
        while True:
            why = await self._use_one_connection()
            self._exchanged()
            self._pause = min(self._longest_pause, max(_SHORTEST_PAUSE, 2 * self._pause))
            pause = self._pause * self._random.uniform(0.5, 1)
            level = logging.WARNING if self._reconnects else logging.DEBUG
            logger.log(level, "not connected to the engine (%s); connecting again in %.1f s", why, pause)
            await trio.sleep(pause)

    async def _use_one_connection(self) -> str:
        """Connect, attach, and exchange frames; returns why that has ended."""
        with trio.CancelScope() as self._attempt:
            return await self._use(trio.current_time())
        return "the engine does not answer, or another one is in charge"

    async def _use(self, began: float) -> str:
        """The same, until it is cancelled by `abort`."""
        connection: Connection | None = None
        try:
            with trio.move_on_after(_ATTACH_WITHIN) as scope:
                connection = await self._connect()
                await self._begin(connection)
            if scope.cancelled_caught:
                return f"timed out: no answer to `attach` within {_ATTACH_WITHIN:g} s"
            assert connection is not None, "it was opened"
            await self._exchange(connection)
        except _EngineRefuses as refusal:
            raise refusal.error from None
        except GatewayRefuses as error:
            if self._known and error.code not in ("unauthorized", "forbidden"):
                return error.message  # a proxy, for example, while the server restarts
            raise error.make() from None
        except _ENDED as error:
            return str(error) if isinstance(error, ConnectionLost) else reason_of(error)
        except (msgspec.DecodeError, Invalid) as error:
            self._session.abandon()
            return f"the engine has sent a malformed frame: {error}"
        finally:
            self._connection = None
            if trio.current_time() >= began + _STABLE:
                self._pause = 0.0
            if connection is not None:
                await _close(connection)

    async def _begin(self, connection: Connection) -> None:
        sent = self._clock()
        await connection.send(msgspec.json.encode(self._attach()))
        answer = _FRAME.decode(await connection.receive())
        if isinstance(answer, Refused):
            raise _refusal(answer)
        if not isinstance(answer, Attached):
            raise Invalid(f"the first message must be `attached` (got {type(answer).__name__})")
        self._known = True
        self._longest_pause = min(_LONGEST_PAUSE, max(_SHORTEST_PAUSE, _LONGEST_OF_TTL * answer.ttl))
        self._attached(answer, sent)
        logger.info("attached to the engine (session %s)", answer.session)

    async def _exchange(self, connection: Connection) -> NoReturn:
        """Exchange frames until the connection ends; raises the reason."""
        self._connection = connection
        self._beat = None
        why: list[BaseException] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send, connection, nursery.cancel_scope, why)
            try:
                while True:
                    self._receive(await connection.receive())
            except (*_ENDED, GatewayRefuses, _EngineRefuses, msgspec.DecodeError, Invalid) as error:
                why.append(error)
            nursery.cancel_scope.cancel()
        raise why[0]

    async def _send(self, connection: Connection, scope: trio.CancelScope, why: list[BaseException]) -> None:
        try:
            while True:
                while self._beat is None and not self._session.has_news:
                    self._waits = True
                    await self._news.park()
                await trio.lowlevel.checkpoint()  # other tasks of this turn can add messages
                if self._beat is not None:
                    beat, self._beat = self._beat, None
                    await connection.send(msgspec.json.encode(beat))
                if self._session.has_news:
                    await connection.send(self._session.take_frame())
                    self._exchanged()
        except _ENDED as error:
            why.append(error)
            scope.cancel()

    def _receive(self, data: bytes) -> None:
        frame = _FRAME.decode(data)
        if isinstance(frame, EngineFrame):
            for message in self._session.receive(frame):
                self._handle(message)
            self._exchanged()
            self.wake()
        elif isinstance(frame, Beaten):
            self._beaten(frame)
        elif isinstance(frame, Refused):
            raise _refusal(frame)
        else:
            raise Invalid(f"unexpected message {type(frame).__name__}")


async def _close(connection: Connection) -> None:
    with trio.CancelScope() as scope:  # without waiting for the other side
        scope.cancel()
        await connection.aclose()


def _refusal(refused: Refused) -> Exception:
    return ConnectionLost(refused.message) if refused.retry else _EngineRefuses(refused)
