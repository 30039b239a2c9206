"""The limits of a token: patterns of handles, lanes and jobs.

Its caller can see and change only runs that match all of them. A run that does not match is `not_found`, so
that ids cannot be probed. A handle, lane or job in a command that does not match is `forbidden`, and the
error contains what the token lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...protocol.errors import Forbidden
from ...protocol.names import lane_name
from ...protocol.patterns import Patterns, Within
from ...protocol.records import RunRecord
from ...protocol.values import shown


class Scope(Within, frozen=True):
    """The limits of one token; a field is `None` if it is not limited."""

    def __str__(self) -> str:
        return ", ".join(f"{what} {', '.join(texts)}" for what, texts in self.texts().items())

    def texts(self) -> dict[str, list[str]]:
        """The patterns as they were written, by what they match."""
        given = (("handles", self.handles), ("lanes", self.lanes), ("jobs", self.jobs))
        return {what: patterns.texts() for what, patterns in given if patterns is not None}

    def sees(self, run: RunRecord) -> bool:
        """Whether the token's caller can see this run."""
        return self.holds(run.handle, run.lane, run.job)

    def check_handle(self, handle: str) -> None:
        """Refuse a handle. Raises `Forbidden`."""
        _check("handles", self.handles, handle)

    def check_lane(self, lane: str) -> None:
        """Refuse a lane. Raises `Forbidden`."""
        _check("lanes", self.lanes, lane_name(lane))

    def check_job(self, job: str) -> None:
        """Refuse a job. Raises `Forbidden`."""
        _check("jobs", self.jobs, job)

    def check_whole_handle(self, handle: str) -> None:
        """Refuse an operation on all runs of a handle, of any lane and job. Raises `Forbidden`."""
        self.check_handle(handle)
        if self.handles is None or self.lanes is not None or self.jobs is not None:
            raise self.lacks("a token that is limited to handles only")

    def lacks(self, needed: str = "a token without limits") -> Forbidden:
        """The error for an operation that no token with these limits can perform."""
        return Forbidden(f"requires {needed}; this token is limited to {self}", limits=str(self))


def _check(what: str, allowed: Patterns | None, name: str) -> None:
    if allowed is not None and name not in allowed:
        raise Forbidden(f"this token is limited to the {what} {allowed} (got {shown(name)})")


def without_foreign_runs(details: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    """The details of an error, without runs that the caller cannot see."""
    return {
        name: value
        for name, value in details.items()
        if not (isinstance(value, RunRecord) and not scope.sees(value))
    }
