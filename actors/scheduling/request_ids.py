"""Request ids: submissions with the same request id get the same run, until 24 hours after its end.

The request ids of child runs begin with the id of the parent. They are also kept while the parent is pending,
because it can repeat its calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from ...persistence.store import StoredRequest
from ...protocol.errors import Conflict
from ...protocol.fold import Projection
from ...protocol.values import shown

KEPT_AFTER_END = 24 * 3600.0


def parent_of(request_id: str) -> str:
    """The parent run, if this is the request id of a child."""
    return request_id.partition(".")[0]


class Request(msgspec.Struct, frozen=True, gc=False):
    """A request id in use."""

    run: str
    fingerprint: str | None


class RequestIds:
    """The request ids of pending runs and of runs that ended within 24 hours."""

    def __init__(self, is_pending: Callable[[str], bool]) -> None:
        self._is_pending = is_pending
        self._requests: dict[str, Request] = {}
        self._of_run: dict[str, list[str]] = {}  # the accepted ids of each pending run
        self._expiring: deque[tuple[float, str]] = deque()

    def find(self, request_id: str, now: float) -> Request | None:
        """The earlier request with this id, if any."""
        while self._expiring and self._expiring[0][0] <= now:
            expired = self._expiring.popleft()[1]
            if self._is_pending(parent_of(expired)):
                self._expiring.append((now + KEPT_AFTER_END, expired))
            else:
                self._requests.pop(expired, None)
        return self._requests.get(request_id)

    def restore(self, request: StoredRequest, now: float, wall_now: float) -> None:
        """Restore a request id that was in use when the engine ended."""
        self._requests[request.request_id] = Request(request.run, request.fingerprint)
        if request.ended_at is None:
            self._of_run.setdefault(request.run, []).append(request.request_id)
        else:
            expires = now + KEPT_AFTER_END - max(0.0, wall_now - request.ended_at)
            self._expiring.append((expires, request.request_id))

    def add(self, request_id: str, run: str, fingerprint: str | None) -> None:
        """Record the request id of a submission that created or joined this run."""
        self._requests[request_id] = Request(run, fingerprint)
        self._of_run.setdefault(run, []).append(request_id)

    def take_back(self, request_id: str) -> None:
        """Undo the last `add` that is not undone: free this request id."""
        run = self._requests.pop(request_id).run
        self._of_run[run].pop()
        if not self._of_run[run]:
            del self._of_run[run]

    def forget(self, run: str) -> None:
        """The run could not be stored: free its request ids, and those of submissions that joined it."""
        for request_id in self._of_run.pop(run, ()):
            self._requests.pop(request_id, None)

    def ended(self, run: str, now: float) -> None:
        """A run has ended: keep its request ids for 24 hours."""
        for request_id in self._of_run.pop(run, ()):
            self._expiring.append((now + KEPT_AFTER_END, request_id))


def other_use(request_id: str, id: str, committed: Projection) -> Conflict:
    """The error of a request id that was used for another submission."""
    run = committed.runs.get(id)
    details = {} if run is None else {"run": run}
    return Conflict(
        f"request_id {shown(request_id)} was already used for another submission: use a new one", **details
    )


def in_use(request_id: str, committed: Projection) -> Conflict:
    """The error of a request id whose submission may still join another run."""
    return Conflict(
        f"request_id {shown(request_id)} is used by a submission that is not committed yet: retry later"
    )
