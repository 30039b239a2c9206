"""WebSocket clients that use very little processor time: plain sockets that parse as little as possible.

So one process can run very many clients, and the server limits the result.
"""

from __future__ import annotations

import base64
import select
import socket
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

_BUFFER = 1 << 20
_PATIENCE = 60.0
_HEAD = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(bytes(16)) + b"\r\n\r\n"
)


class Client:
    """One connection. `message` and `call` wait; `crowd` reads many at a time."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(_HEAD)
        self._read = b""
        while b"\r\n\r\n" not in self._read:
            self._read += self._more()
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def message(self) -> bytes:
        """The next message, which has one frame."""
        while True:
            size, start = self._read[1] if len(self._read) > 1 else 0, 2
            if size == 126 and len(self._read) >= 4:
                size, start = struct.unpack_from("!H", self._read, 2)[0], 4
            elif size == 127 and len(self._read) >= 10:
                size, start = struct.unpack_from("!Q", self._read, 2)[0], 10
            end = start + size
            if 2 <= end <= len(self._read) and size:
                message, self._read = self._read[start:end], self._read[end:]
                return message
            self._read += self._more()

    def send(self, command: dict[str, Any]) -> None:
        self.socket.sendall(frame(command))

    def call(self, **command: Any) -> Any:
        """Send a command, and wait for its `ok`."""
        self.send({"id": "call", **command})
        while True:
            message = msgspec.json.decode(self.message())
            if message.get("id") == "call":
                assert message["type"] == "ok", message
                return message

    def _more(self) -> bytes:
        data = self.socket.recv(_BUFFER)
        if not data:
            raise ConnectionError("the server has closed the connection")
        return data


def frame(command: dict[str, Any]) -> bytes:
    """A command as a client sends it; masked with zeros, which does not change the data."""
    payload = msgspec.json.encode(command)
    if len(payload) < 126:
        return bytes((0x81, 0x80 | len(payload))) + bytes(4) + payload
    return struct.pack("!BBH", 0x81, 0x80 | 126, len(payload)) + bytes(4) + payload


def crowd(
    clients: Sequence[Client],
    word: bytes,
    most: int,
    came: Callable[[Client, int], None] = lambda client, number: None,
) -> None:
    """Read all connections until each has received the word `most` times. `came` is called with the number of
    new occurrences on a connection."""
    by_fd = {client.socket.fileno(): client for client in clients}
    counts = dict.fromkeys(by_fd, 0)
    tails = dict.fromkeys(by_fd, b"")
    kept = len(word) - 1  # of the previous data: the word may be split
    buffer = bytearray(_BUFFER)
    view = memoryview(buffer)
    left = len(by_fd)
    with select.epoll() as epoll:
        for fd, client in by_fd.items():
            client.socket.settimeout(None)  # a timeout would cost another call for each ready socket
            epoll.register(fd, select.EPOLLIN)
        while left:
            ready = epoll.poll(_PATIENCE)
            if not ready:
                raise TimeoutError(f"{left} of {len(by_fd)} clients still wait for {word!r}")
            for fd, _ in ready:
                tail = tails[fd]
                start = len(tail)
                buffer[:start] = tail
                read = by_fd[fd].socket.recv_into(view[start:])
                if not read:
                    raise ConnectionError("the server has closed a connection")
                end = start + read
                number = buffer.count(word, 0, end)
                tails[fd] = bytes(view[max(0, end - kept) : end])
                if number:
                    counts[fd] += number
                    came(by_fd[fd], number)
                    if counts[fd] == most:
                        left -= 1
                    assert counts[fd] <= most, f"{word!r} was received more than {most} times"


def exchange(clients: Sequence[Client], commands: Iterable[bytes], each: int, at_once: int) -> None:
    """Let each client send `each` commands, `at_once` of them at a time, and read the replies."""
    given = iter(commands)
    to_give = dict.fromkeys(clients, each)

    def give(client: Client, number: int) -> None:
        number = min(number, to_give[client])
        to_give[client] -= number
        if number:
            client.socket.sendall(b"".join(next(given) for _ in range(number)))

    for client in clients:
        give(client, at_once)
    crowd(clients, b'"type":"ok"', each, give)
