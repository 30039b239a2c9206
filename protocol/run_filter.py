"""Filters of runs: which runs a list contains, and which runs a bulk operation works on.

Callers pass keyword arguments (`RunFilterKeywords` is their type). `RunFilter.matches` is the definition of
every filter; a store may use indexes to read fewer runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict

import msgspec

from .errors import Invalid
from .jobs import AnyJob, job_name
from .names import FLOW
from .records import RunRecord
from .states import Status
from .suggestions import suggestion
from .validation import check_statuses, check_tags, check_text, check_time
from .values import shown

_DAY = 86_400.0
_ID_LENGTH = 32


class RunFilterKeywords(TypedDict, total=False):
    """The keywords that select runs: those that match all of them. `None` means any.

    `flow` is the name of a flow. `since` (inclusive) and `until` (exclusive) are Unix seconds or aware
    datetimes, compared with the time of a run's creation. A run must have all `tags`, with these values.
    `error` is a text that the run's error contains; case matters. `parent` is the id of the run whose body
    called the run.
    """

    handle: str | None
    lane: str | None
    job: str | AnyJob | None
    flow: str | None
    status: str | Iterable[str] | None
    tags: Mapping[str, str] | None
    since: float | datetime | None
    until: float | datetime | None
    error: str | None
    parent: str | None


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The runs that match all fields; `None`, and no tags, mean any."""

    handle: str | None = None
    lane: str | None = None
    job: str | None = None
    flow: str | None = None
    status: frozenset[Status] | None = None
    tags: dict[str, str] = {}
    since: float | None = None
    until: float | None = None
    error: str | None = None
    parent: str | None = None

    def matches(self, run: RunRecord) -> bool:
        """Whether a run matches."""
        return (
            self.handle in (None, run.handle)
            and self.lane in (None, run.lane)
            and self.job in (None, run.job)
            and self.parent in (None, run.parent)
            and (self.status is None or run.status in self.status)
            and (self.since is None or run.created_at >= self.since)
            and (self.until is None or run.created_at < self.until)
            and (self.error is None or (run.error is not None and self.error in run.error))
            and (self.flow is None or _flow_of(run) == self.flow)
            and self.tags.items() <= run.tags.items()
        )


def run_filter(function: str, keywords: Mapping[str, Any]) -> RunFilter:
    """Return the filter of a function's keyword arguments. Raises `Invalid`, and `TypeError` for an unknown
    keyword."""
    given: dict[str, Any] = {}
    for name, value in keywords.items():
        if name not in RunFilterKeywords.__annotations__:
            known = tuple(RunFilterKeywords.__annotations__)
            raise TypeError(
                f"{function}() got an unexpected keyword argument {name!r}{suggestion(name, known)}"
            )
        if value is None:
            continue
        if name == "status":
            value = check_statuses(value)
        elif name == "tags":
            value = check_tags(value)
        elif name in ("since", "until"):
            value = check_time(name, value)
        else:
            value = job_name(value) if name == "job" else value
            check_text(name, value)
        given[name] = value
    found = RunFilter(**given)
    if found.error == "":
        raise Invalid("error must not be empty: pass a part of the error's text")
    if found.since is not None and found.until is not None and found.since > found.until:
        raise Invalid(f"since must not be later than until (got {found.since:.15g} and {found.until:.15g})")
    return found


def filter_to_wire(filter: RunFilter) -> dict[str, Any]:
    """Return the fields of a command for this filter."""
    fields = {name: getattr(filter, name) for name in RunFilter.__struct_fields__}
    status = None if filter.status is None else sorted(filter.status)
    return fields | {"status": status, "tags": filter.tags or None}


def named_values(what: str, texts: Iterable[str]) -> dict[str, str]:
    """Return the tags that are given as texts `name=value`. Raises `Invalid`."""
    found: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise Invalid(f"{what} must be NAME=VALUE (got {shown(text)})", value=shown(text))
        if found.setdefault(name, value) != value:
            raise Invalid(f"{what} {shown(name)} has two values: {shown(found[name])} and {shown(value)}")
    return found


def is_long_before(id: str, time: float) -> bool:
    """Whether a run with this id, and all runs with lower ids, were created before a time.

    An id contains the time at which it was drawn, and the run is created at most moments later. The margin of
    a day is for clocks that were set forward in between. Other ids contain no time.
    """
    if len(id) != _ID_LENGTH or id[12] != "7":
        return False
    try:
        drawn = int(id[:12], 16) / 1000
    except ValueError:
        return False
    return drawn < time - _DAY


def _flow_of(run: RunRecord) -> str | None:
    """The name of the flow that a run walks."""
    walks = run.job == FLOW and isinstance(run.params, dict)
    return run.params.get("flow") if walks else None
