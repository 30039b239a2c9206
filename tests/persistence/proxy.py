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

    Between `swallow` and `pass_on` whatever either side says is lost, and neither is told: no line is cut,
    new ones are taken and say nothing.
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
        """Take no new lines."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def swallow(self) -> None:
        """From now on everything is lost."""
        self._passes.clear()

    def pass_on(self) -> None:
        """From now on everything is passed on again; what was lost stays lost."""
        self._passes.set()

    def forget(self) -> None:
        """What is said on the lines of now is lost, as after a router's restart; new ones work."""
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
            return  # the other side is never told
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)  # which wakes the other direction
