"""Beats on their own blocking connection, for the threads that keep the lease of an executor.

A connection is a WebSocket to a gateway (`DialedBeats`), a socket to the parent process (`HandedBeats`), or
the only one to it (`InheritedBeats`). A failed call closes the connection; the next one opens another.
"""

from __future__ import annotations

import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import SplitResult

import msgspec
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Ping, RejectConnection, Request, TextMessage
from wsproto.utilities import ProtocolError

from ..actors.executors.handing import hand_over
from ..persistence.leasekeeping import Failed, Renewed
from ..protocol.executors import SUBPROTOCOL, Beat, Beaten, Refused
from .pulse import UNKNOWN

_ANSWER: msgspec.json.Decoder[Beaten | Refused] = msgspec.json.Decoder(Beaten | Refused)
_RECEIVE_SIZE = 1 << 16


class BeatsFailed(Exception):
    """The other side refuses beats, or does not understand them. The message is the reason."""


class Beats(ABC):
    """Implements `Renewing`. `patience` limits each wait for the other side, in seconds."""

    def __init__(self, executor: str, start: str, patience: float) -> None:
        self._executor = executor
        self._start = start
        self._patience = patience
        self._socket: socket.socket | None = None

    def renew(self, sent: float) -> Renewed | Failed:
        """Send a beat and wait for its answer."""
        try:
            connection = self._socket = self._socket or self._open()
            self._send(connection, msgspec.json.encode(Beat(self._executor, self._start, sent)))
            while True:
                answer = _ANSWER.decode(self._receive(connection))
                if isinstance(answer, Refused):
                    raise BeatsFailed(answer.message)
                if answer.sent == sent:
                    return Renewed(sent) if answer.attached else Failed(UNKNOWN)
        except (OSError, BeatsFailed, ProtocolError, msgspec.DecodeError) as error:
            self.release()
            return Failed(str(error) or type(error).__name__)

    def release(self) -> str | None:
        """Close the connection."""
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()
        return None

    def abort(self) -> None:
        """Make the current call fail."""
        connection = self._socket
        if connection is not None:
            with suppress(OSError):  # already closed
                connection.shutdown(socket.SHUT_RDWR)

    @abstractmethod
    def _open(self) -> socket.socket:
        """Open a connection."""

    @abstractmethod
    def _send(self, connection: socket.socket, message: bytes) -> None:
        """Send a message."""

    @abstractmethod
    def _receive(self, connection: socket.socket) -> bytes:
        """Receive a message."""


class SocketBeats(Beats):
    """Beats over a socket: one message per line."""

    _received = b""

    def _send(self, connection: socket.socket, message: bytes) -> None:
        connection.sendall(message + b"\n")

    def _receive(self, connection: socket.socket) -> bytes:
        while b"\n" not in self._received:
            self._received += _read(connection)
        line, _, self._received = self._received.partition(b"\n")
        return line


class HandedBeats(SocketBeats):
    """Beats over sockets whose other ends this process hands over to its parent. `inherited` carries them."""

    def __init__(self, executor: str, start: str, patience: float, inherited: socket.socket) -> None:
        super().__init__(executor, start, patience)
        self._inherited = inherited

    def _open(self) -> socket.socket:
        self._inherited.settimeout(self._patience)
        self._received = b""
        connection = hand_over(self._inherited)
        connection.settimeout(self._patience)
        return connection


class InheritedBeats(SocketBeats):
    """Beats over a socket that this process has inherited. `orphaned` is called in the thread when the parent
    has closed it or has ended."""

    def __init__(
        self,
        executor: str,
        start: str,
        patience: float,
        inherited: socket.socket,
        orphaned: Callable[[], None],
    ) -> None:
        super().__init__(executor, start, patience)
        self._inherited = inherited
        self._orphaned = orphaned

    def renew(self, sent: float) -> Renewed | Failed:
        renewed = super().renew(sent)
        if isinstance(renewed, Failed) and self._has_ended():
            self._orphaned()
        return renewed

    def release(self) -> str | None:
        """Keep the connection: it cannot be opened again. Later answers to earlier beats are ignored."""
        return None

    def abort(self) -> None:
        """Do nothing: each wait is limited, and the connection cannot be opened again."""

    def _has_ended(self) -> bool:
        """Whether the other side has closed the connection."""
        try:
            return not self._inherited.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _open(self) -> socket.socket:
        self._inherited.settimeout(self._patience)
        return self._inherited


class DialedBeats(Beats):
    """Beats over a WebSocket to a gateway, at the URL of the executors' connections (`ws` or `wss`)."""

    def __init__(
        self,
        executor: str,
        start: str,
        patience: float,
        url: SplitResult,
        token: str | None,
        context: ssl.SSLContext | None,
    ) -> None:
        super().__init__(executor, start, patience)
        self._url = url
        self._token = token
        self._context = context
        self._machine = WSConnection(ConnectionType.CLIENT)

    def _open(self) -> socket.socket:
        url, host = self._url, self._url.hostname or ""
        connection = socket.create_connection(
            (host, url.port or (80 if self._context is None else 443)), self._patience
        )
        self._socket = connection  # so that `abort` can end the handshakes, too
        if self._context is not None:
            connection = self._socket = self._context.wrap_socket(connection, server_hostname=host)
        self._machine = WSConnection(ConnectionType.CLIENT)
        headers = [] if self._token is None else [(b"Authorization", b"Bearer " + self._token.encode())]
        request = Request(host=url.netloc, target=url.path, subprotocols=[SUBPROTOCOL], extra_headers=headers)
        connection.sendall(self._machine.send(request))
        while True:
            for event in self._machine.events():
                if isinstance(event, AcceptConnection):
                    return connection
                if isinstance(event, RejectConnection):
                    raise BeatsFailed(f"HTTP status {event.status_code}")
            self._machine.receive_data(_read(connection))

    def _send(self, connection: socket.socket, message: bytes) -> None:
        connection.sendall(self._machine.send(TextMessage(data=message.decode())))

    def _receive(self, connection: socket.socket) -> bytes:
        text = ""
        while True:
            for event in self._machine.events():
                if isinstance(event, TextMessage):
                    text += event.data
                    if event.message_finished:
                        return text.encode()
                elif isinstance(event, Ping):
                    connection.sendall(self._machine.send(event.response()))
                elif isinstance(event, CloseConnection):
                    raise BeatsFailed(f"closed by the gateway: {event.reason or event.code}")
            self._machine.receive_data(_read(connection))


def _read(connection: socket.socket) -> bytes:
    data = connection.recv(_RECEIVE_SIZE)
    if not data:
        raise BeatsFailed("the connection was closed")
    return data
