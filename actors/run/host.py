"""`Host`: what a body needs of its engine. It has two implementations: the actors of the same process
(`local_host.py`), and a link to the engine's process (`greenroom/executor`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ...protocol.executors import OpenInterrupt, Report, Request
from ...protocol.jobs import AnyJob
from ...protocol.records import RunRecord
from ...protocol.submission import SubmitOptions
from ..channel import Reply

Shielded = Callable[[], AbstractContextManager[None]]
"""Returns a block that a cancel of the body does not interrupt."""


class Child(Protocol):
    """A child run that a body has called."""

    @property
    def run(self) -> str:
        """Its id."""

    @property
    def own(self) -> bool:
        """Whether it is cancelled when the body no longer waits for it."""

    @property
    def ended(self) -> Reply[RunRecord | None]:
        """Answered at its end."""

    async def record(self) -> RunRecord | None:
        """Its record after its end; `None` if it is no longer stored."""


class Host(Protocol):
    """See the module's docstring. Replies fail with `RunAbandoned` if the body no longer belongs to its run.
    A reply about the journal can contain an `Outcome`."""

    max_value_bytes: int
    """The maximum size of a value."""

    def name_of(self, job: str | AnyJob) -> str:
        """The name of a job, given by its name or its function. Raises `Invalid` for another function."""

    def tell(self, report: Report) -> None:
        """Pass on a report."""

    def ask(self, request: Request) -> Reply[Any]:
        """Pass on a request; returns the reply that is answered as the request describes."""

    def open_interrupt(self, request: OpenInterrupt) -> tuple[Reply[bool], Reply[Any]]:
        """Open an interrupt; the first reply is for the opening, the second for the answer."""

    async def call_child(self, position: int, options: SubmitOptions, shielded: Shielded) -> Child:
        """Submit the child run for the call at this position, or find the one of an earlier body."""

    def ended(self, outcome: Any) -> None:
        """The body has ended with this outcome (`execution.py`)."""
