"""Retries: what follows from the error of a body, as its job and the error itself say.

A body of a scenario announces each error that it is about to raise, and whether the next attempt must follow:
the author of the job decides that, with `retry_on`, `never_on` and a backoff, or the body with `Retry` and
`Fail`. The transition after the error must agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from ...protocol.events import RunStateChanged
from ...protocol.states import Status
from ..model.state import ModelRun


class Error(NamedTuple):
    """An error as a run's events must show it: its text, and the least and the most seconds until the next
    attempt; `None` if no further attempt may follow."""

    text: str
    after: tuple[float, float] | None


class RetryRules:
    """See the module's docstring. `most_attempts` returns a run's `max_attempts`, and `is_left` whether the
    engine shuts down."""

    def __init__(
        self,
        most_attempts: Callable[[ModelRun], int],
        is_left: Callable[[], bool],
        fault: Callable[[str], None],
    ) -> None:
        self._most_attempts = most_attempts
        self._is_left = is_left
        self._fault = fault
        self._raised: dict[tuple[str, int], Error] = {}

    def raises(self, run: str, attempt: int, error: Error) -> None:
        """Record that a body is about to raise an error."""
        self._raised[run, attempt] = error

    def transition(self, event: RunStateChanged, run: ModelRun) -> None:
        """Check the transition that follows from the error of a body."""
        if event.to is Status.RUNNING or event.by != "body":
            return
        error = self._raised.get((run.id, event.attempt))
        if error is None:
            return
        may_retry = error.after is not None and event.attempt < self._most_attempts(run)
        if event.reason == "retry":
            least, most = error.after or (math.inf, 0.0)
            after = -1.0 if event.retry_after is None else event.retry_after
            if not may_retry or not least <= after <= most or event.error != error.text:
                self._fault(f"{event}: its body has raised {error}")
        elif event.reason == "error":
            if may_retry and run.status is Status.RUNNING and not self._is_left():
                self._fault(f"{event}: another attempt must follow, as its body has raised {error}")
            if not (event.error or "").startswith(error.text):
                self._fault(f"{event}: its body has raised {error}")
