"""A line to a server that a test can cut at the moment it chooses."""

import contextlib
import socket
import threading
from typing import Literal


class Proxy:
    """It listens on `port` and passes everything on to another port of the loopback.

    With `cut = "before"`, the next thing that a client says is not passed on, and its line is cut. With
    `cut = "after"` it is passed on, and the line is cut when the server has answered, before the answer.
    With `cut = "unnoticed"` it is not passed on, and the server goes on to believe in the line.
    """

    def __init__(self, target: int) -> None:
        self.cut: Literal["before", "after", "unnoticed"] | None = None
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no new lines."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

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
        with source, contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.cut == "unnoticed":
                    source.shutdown(socket.SHUT_RDWR)
                    return
                if self.cut == cut:
                    self.cut = None
                    break
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)  # which wakes the other direction
