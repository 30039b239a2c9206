"""A TCP proxy to a server that can close connections or drop data."""

import contextlib
import socket
import threading
from typing import Literal


class Proxy:
    """Listens on `port` and forwards all data to another port of the loopback.

    With `cut = "before"`, the next data of a client is dropped, and its connection is closed. With
    `cut = "after"`, it is forwarded, and the connection is closed when the server's answer arrives, which is
    dropped. With `cut = "unnoticed"`, it is dropped, and the connection to the server stays open.

    Between `swallow` and `pass_on`, all data of both sides is dropped without closing a connection. New
    connections are accepted and stay silent.
    """

    def __init__(self, target: int) -> None:
        self.cut: Literal["before", "after", "unnoticed"] | None = None
        self._target = target
        self._passes = threading.Event()
        self._passes.set()
        self._age = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop accepting connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def swallow(self) -> None:
        """Drop all data from now on."""
        self._passes.clear()

    def pass_on(self) -> None:
        """Forward data again; dropped data stays lost."""
        self._passes.set()

    def forget(self) -> None:
        """Drop all data of the current connections, as after a router's restart; new ones work."""
        self._age += 1

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            threading.Thread(target=self._pass_on, args=(client, server, "before"), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(server, client, "after"), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, cut: str) -> None:
        age = self._age
        with source, contextlib.suppress(OSError):
            while data := source.recv(65536):
                if age < self._age or not self._passes.is_set():
                    continue
                if self.cut == "unnoticed":
                    source.shutdown(socket.SHUT_RDWR)
                    return
                if self.cut == cut:
                    self.cut = None
                    break
                target.sendall(data)
        self._passes.wait()
        if age < self._age:
            return  # the other side does not notice
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)  # wakes the other direction
