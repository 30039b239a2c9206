"""A line to a server that a test can cut at the moment it chooses."""

import socket
import threading
from typing import Literal


class Proxy:
    """It listens on `port` and passes everything on to another port of the loopback.

    With `cut = "before"`, the next thing that a client says is not passed on, and the line is cut. With
    `cut = "after"` it is passed on, and the line is cut when the server has answered, before the answer.
    """

    def __init__(self, target: int) -> None:
        self.cut: Literal["before", "after"] | None = None
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lines: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()

    def cut_all(self) -> None:
        """Cut every line that there is; new ones can be made."""
        while self._lines:
            line = self._lines.pop()
            try:
                line.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            line.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            self._lines += [client, server]
            threading.Thread(target=self._to_server, args=(client, server), daemon=True).start()
            threading.Thread(target=self._to_client, args=(server, client), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        try:
            while data := client.recv(65536):
                if self.cut == "before":
                    self.cut = None
                    break
                server.sendall(data)
        except OSError:
            pass
        self.cut_all()

    def _to_client(self, server: socket.socket, client: socket.socket) -> None:
        try:
            while data := server.recv(65536):
                if self.cut == "after":
                    self.cut = None
                    break
                client.sendall(data)
        except OSError:
            pass
        self.cut_all()
