"""Time limits for calls to a database server.

A driver waits for an answer while the connection seems to be alive. If packets are dropped, that can be
minutes or forever. One daemon thread for all calls ends a call that exceeds its limit: it shuts the
connection's socket down, and the driver immediately reports a lost connection.

The thread uses real time, so that a simulated or mocked clock does not close connections. It starts with the
first call to a server. SQLite does not use it.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
from time import monotonic


class TimeLimit:
    """The limit of one call. A context manager; call `start` in its block when there is a connection."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.exceeded = False
        self._file = -1

    def start(self, file: int) -> None:
        """Start the limit of `seconds` for this socket. Ends the limit of a previous socket."""
        self.end()
        self._file = os.dup(file)  # the number can be reused if the connection is closed
        self.exceeded = False
        _watch.add(self, monotonic() + self.seconds)

    def end(self) -> None:
        """End the limit: the call has ended."""
        if self._file >= 0:
            _watch.remove(self)
            os.close(self._file)
            self._file = -1

    def cut(self) -> None:
        """Shut the socket down, because the limit was exceeded. Called by the watching thread."""
        self.exceeded = True
        with socket.socket(fileno=os.dup(self._file)) as peer, contextlib.suppress(OSError):
            peer.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> TimeLimit:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()


class _Watch:
    """The thread, and the limits of the calls in flight."""

    def __init__(self) -> None:
        self._due: dict[TimeLimit, float] = {}
        self._changed = threading.Condition()
        self._wakes_at = math.inf
        self._thread: threading.Thread | None = None

    def add(self, limit: TimeLimit, at: float) -> None:
        with self._changed:
            self._due[limit] = at
            if (
                self._thread is None or not self._thread.is_alive()
            ):  # a forked process does not have the thread
                self._thread = threading.Thread(target=self._run, name="greenroom time limits", daemon=True)
                self._thread.start()
            elif at < self._wakes_at:  # rare: most limits end later than the previous ones
                self._changed.notify()

    def remove(self, limit: TimeLimit) -> None:
        with self._changed:
            self._due.pop(limit, None)

    def _run(self) -> None:
        with self._changed:
            while True:
                now = monotonic()
                for limit in [limit for limit, at in self._due.items() if at <= now]:
                    del self._due[limit]
                    limit.cut()
                self._wakes_at = min(self._due.values(), default=math.inf)
                self._changed.wait(None if self._wakes_at == math.inf else max(0.0, self._wakes_at - now))


_watch = _Watch()
